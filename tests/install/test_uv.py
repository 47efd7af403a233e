"""What uv is told of the gate's environment and of pip's settings, how it is called, and what its
failures are called."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from repro_gate.install.uv import (
    NoWheel,
    explained,
    holds_credentials,
    install_command,
    pip_settings,
    uv_environment,
)

NOTHING = {"PATH": "/usr/bin", "PIP_CONFIG_FILE": os.devnull}


def environment(**given: str) -> dict[str, str]:
    outer = {**NOTHING, **given}
    return uv_environment(outer, pip_settings(outer), Path("/w"), Path("/c"))


def command(builds: bool, **given: str) -> list[str]:
    settings = pip_settings({**NOTHING, **given})
    return install_command(
        "uv", Path("/e/bin/python"), Path("/w/lock/a.txt"), Path("/w/x.txt"), settings, builds
    )


def test_uv_gets_what_it_needs_to_reach_an_index_pips_settings_and_no_token() -> None:
    passed = {
        "HTTPS_PROXY": "http://proxy:3128",
        "SSL_CERT_FILE": "/etc/ca.pem",
        "HOME": "/root",
        "TMPDIR": "/var/tmp",
    }
    kept = (
        "GITHUB_TOKEN",
        "INPUT_TOKEN",
        "ACTIONS_RUNTIME_TOKEN",
        "GITHUB_ENV",
        "PIP_TARGET",
        "PYTHONPATH",
        "UV_INDEX",
    )
    made = environment(**passed, **dict.fromkeys(kept, "x"))
    assert set(passed) <= set(made) and not set(kept) & set(made)
    assert (made["HOME"], made["TMPDIR"], made["UV_CACHE_DIR"]) == ("/w/home", "/w/tmp", "/c")
    assert made["UV_NO_CONFIG"] == "1" and made["UV_PYTHON_DOWNLOADS"] == "never"


# pip's variable: its value, uv's variable, its value
SETTINGS = {
    "PIP_INDEX_URL": ("https://a.org/simple", "UV_DEFAULT_INDEX", "https://a.org/simple"),
    "PIP_EXTRA_INDEX_URL": (
        "https://b.org/simple  https://c.org/simple",
        "UV_EXTRA_INDEX_URL",
        "https://b.org/simple https://c.org/simple",
    ),
    "PIP_FIND_LINKS": ("/x /y", "UV_FIND_LINKS", "/x,/y"),
    "PIP_CERT": ("/ca.pem", "SSL_CERT_FILE", "/ca.pem"),
    "PIP_CLIENT_CERT": ("/key.pem", "SSL_CLIENT_CERT", "/key.pem"),
    "PIP_TRUSTED_HOST": ("a.org", "UV_INSECURE_HOST", "a.org"),
    "PIP_DEFAULT_TIMEOUT": ("180", "UV_HTTP_TIMEOUT", "180"),
    "PIP_RETRIES": ("1", "UV_HTTP_RETRIES", "1"),
    "PIP_PROXY": ("http://proxy:3128", "ALL_PROXY", "http://proxy:3128"),
}


def test_pips_settings_reach_uv() -> None:
    made = environment(**{name: value for name, (value, _, _) in SETTINGS.items()})
    assert {name: made[name] for _, name, _ in SETTINGS.values()} == {
        name: value for _, name, value in SETTINGS.values()
    }
    assert "--no-index" in command(False, PIP_NO_INDEX="1") and "--no-index" not in command(
        False, PIP_NO_INDEX="0"
    )


def test_pips_configuration_files_are_read_and_its_variables_go_first(tmp_path: Path) -> None:
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text(
        "[global]\nindex-url = https://mine.org/simple\ncert = /ca.pem\nquiet = 1\n"
        "[install]\nfind-links =\n    /wheels\n    /more\n[freeze]\ntimeout = 10\n"
    )
    outer, named = (
        {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path / "none")},
        tmp_path / "named.conf",
    )
    found = pip_settings(outer)
    assert (found["index-url"], found["cert"], found["find-links"].split()) == (
        "https://mine.org/simple",
        "/ca.pem",
        ["/wheels", "/more"],
    )
    assert "quiet" not in found and "timeout" not in found
    for text, index in (
        ("[global]\nindex-url = https://named.org\n", "https://named.org"),
        ("no section\n", "https://mine.org/simple"),
    ):
        named.write_text(text)
        assert pip_settings({**outer, "PIP_CONFIG_FILE": str(named)})["index-url"] == index
    assert (
        pip_settings({**outer, "PIP_INDEX_URL": "https://told.org"})["index-url"]
        == "https://told.org"
    )
    assert pip_settings({**outer, "PIP_CONFIG_FILE": os.devnull}) == {}


@pytest.mark.parametrize(
    ("more", "held"),
    [
        ({}, False),
        ({"PIP_INDEX_URL": "https://pypi.example.org/simple"}, False),
        ({"PIP_INDEX_URL": "https://user:secret@pypi.example.org/simple"}, True),
        ({"PIP_EXTRA_INDEX_URL": "https://a.org/simple https://token@b.org/simple"}, True),
        ({"https_proxy": "http://user:secret@proxy:3128"}, True),
        ({"PIP_PROXY": "http://user:secret@proxy:3128"}, True),
        ({"PIP_CLIENT_CERT": "/run/key.pem"}, True),
    ],
)
def test_a_password_or_key_that_built_code_could_read_is_seen(
    more: dict[str, str], held: bool
) -> None:
    assert holds_credentials(environment(**more)) is held


def test_everything_is_checked_by_hash_and_nothing_is_resolved_or_built_unasked() -> None:
    made = command(builds=False, PIP_NO_BINARY="six")
    assert made[:3] == ["uv", "pip", "install"] and {"--require-hashes", "--no-deps"} <= set(made)
    assert made[made.index("--only-binary") + 1] == ":all:" and "--no-binary" not in made
    built = command(builds=True, PIP_NO_BINARY="six,idna")
    assert {"--require-hashes", "--no-deps"} <= set(built) and "--only-binary" not in built
    assert [built[place + 1] for place, item in enumerate(built) if item == "--no-binary"] == [
        "six",
        "idna",
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("  cause: tcp connect error", "install/network"),
        (
            (
                "  cause: Because six was not found in the package registry and you require "
                "six==9.9, we can"
            ),
            "install/not-found",
        ),
        (
            "  cause: Because six==9.9 has no usable wheels and you require six==9.9, we can",
            "install/not-found",
        ),
        ("error: Failed to build `six==1.0`", "install/build"),
        ("  cause: No space left on device (os error 28)", "install/no-space"),
        ("Killed", "install/failed"),
        ("", "install/failed"),
    ],
)
def test_a_failure_has_a_name_and_a_remedy(line: str, reason: str) -> None:
    error = explained(
        ["error: No solution found when resolving dependencies", line], "installing a.lock"
    )
    assert error.reason_id == reason and error.remedy and error.exit_code == 3
    assert isinstance(error, NoWheel) is ("usable wheels" in line)


def test_what_uv_prints_carries_no_password_cannot_act_on_a_terminal_and_costs_no_time() -> None:
    error = explained(
        ["error: Failed to fetch: https://me:secret@a.org/simple", "\x1b[2J\u202egnp.exe"],
        "installing a.lock",
    )
    assert (
        "secret" not in error.message
        and "https://***@a.org/simple" in error.message
        and error.message.isprintable()
    )
    began = time.process_time()
    assert explained(["error: " + "a" * 65_536], "installing a.lock").reason_id == "install/failed"
    assert time.process_time() - began < 1
