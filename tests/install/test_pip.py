"""Claims about how pip is called, what it is told of the gate's environment, and what its failures are called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repro_gate.install.pip import explained, holds_credentials, pip_command, pip_environment

NOTHING = {"PATH": "/usr/bin"}


def test_pip_gets_what_it_needs_to_reach_an_index_and_no_token() -> None:
    given = {
        **NOTHING,
        "PIP_INDEX_URL": "https://pypi.example.org/simple",
        "HTTPS_PROXY": "http://proxy:3128",
        "SSL_CERT_FILE": "/etc/ca.pem",
        "GITHUB_TOKEN": "a",
        "INPUT_TOKEN": "b",
        "ACTIONS_RUNTIME_TOKEN": "c",
        "GITHUB_ENV": "/github/file_commands/env",
        "PIP_TARGET": "/elsewhere",
        "PYTHONPATH": "/elsewhere",
        "HOME": "/root",
        "TMPDIR": "/var/tmp",
    }
    made = pip_environment(given, Path("/w"))
    assert {name for name in made if name in given} == {"PATH", "PIP_INDEX_URL", "HTTPS_PROXY", "SSL_CERT_FILE", "HOME", "TMPDIR"}
    assert (made["HOME"], made["TMPDIR"]) == ("/w/home", "/w/tmp")


@pytest.mark.parametrize(
    ("more", "held"),
    [
        ({}, False),
        ({"PIP_INDEX_URL": "https://pypi.example.org/simple"}, False),
        ({"PIP_CONFIG_FILE": os.devnull}, False),
        ({"PIP_INDEX_URL": "https://user:secret@pypi.example.org/simple"}, True),
        ({"PIP_EXTRA_INDEX_URL": "https://a.org/simple https://token@b.org/simple"}, True),
        ({"https_proxy": "http://user:secret@proxy:3128"}, True),
        ({"PIP_CLIENT_CERT": "/run/key.pem"}, True),
        ({"PIP_CONFIG_FILE": "/run/pip.conf"}, True),
    ],
)
def test_nothing_is_built_where_its_code_could_read_a_password(more: dict[str, str], held: bool) -> None:
    environment = {**NOTHING, **more}
    assert holds_credentials(environment) is held
    assert ("--only-binary" in pip_command(Path("/e/bin/python"), Path("/w/lock/a.txt"), environment)) is held


def test_everything_is_checked_by_hash_and_nothing_is_resolved_or_cached() -> None:
    command = pip_command(Path("/e/bin/python"), Path("/w/lock/a.txt"), NOTHING)
    assert command[:5] == ["/e/bin/python", "-I", "-m", "pip", "install"]
    assert {"--require-hashes", "--no-deps", "--no-cache-dir", "--no-input"} <= set(command)
    assert command[-2:] == ["--requirement", "/w/lock/a.txt"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("WARNING: Retrying (Retry(total=4)) after connection broken by 'NameResolutionError(...)': /simple/six/", "install/network"),
        ("ERROR: No matching distribution found for six==9.9", "install/not-found"),
        ("error: subprocess-exited-with-error", "install/build"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "install/no-space"),
        ("Killed", "install/failed"),
        ("", "install/failed"),
    ],
)
def test_a_failure_has_a_name_and_a_remedy(line: str, reason: str) -> None:
    error = explained(["Looking in indexes: https://index.example/simple", line], "installing a.lock")
    assert error.reason_id == reason and error.remedy and error.exit_code == 3


def test_every_distribution_with_other_bytes_is_named() -> None:
    tail = [
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package versions, please ...",
        "    six==1.17.0 from https://files.example.org/six-1.17.0-py2.py3-none-any.whl (from -r a.lock (line 1)):",
        "        Expected sha256 00",
        "             Got        11",
        "    idna==3.10 from https://files.example.org/idna-3.10-py3-none-any.whl (from -r a.lock (line 2)):",
        "        Expected sha256 22",
        "             Got        33",
    ]
    error = explained(tail, "installing a.lock")
    assert error.reason_id == "install/hash" and "six==1.17.0, idna==3.10" in error.message


def test_what_pip_prints_cannot_act_on_a_terminal() -> None:
    error = explained(["ERROR: \x1b[2J\u202egnp.exe", "ERROR: No matching distribution found for a\x1b[31mb"], "installing a.lock")
    assert "\x1b" not in error.message and "\u202e" not in error.message
