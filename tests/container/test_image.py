"""What is in the image, and what is not: facts are gathered in one container, each claim is one
test."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from repro_gate._version import __version__
from repro_gate.sandbox.identity import UID
from tests.container.engine import Engine
from tests.container.image import REVISION, ROOT, Image, default_base, suite

_FACTS = ROOT / "tests/container/image_facts.py"


@pytest.fixture(scope="module")
def facts(engine: Engine, image: Image, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a program sees in the image. `/hostile` is a checkout that would like to be imported by
    the gate."""
    hostile = tmp_path_factory.mktemp("hostile")
    for name in ("yaml.py", "requests.py", "json.py", "sitecustomize.py"):
        (hostile / name).write_text(
            "raise SystemExit('the checkout was imported')\n", encoding="utf-8"
        )
    given = ["-v", f"{hostile}:/hostile:ro", "-v", f"{_FACTS}:/facts.py:ro"]
    options = ["--rm", "--network=none", *given, "--entrypoint", "/opt/repro-gate/bin/python"]
    command = [*engine.run, *options, image.name, "-I", "/facts.py", str(UID)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def configuration(engine: Engine, image: Image) -> dict[str, Any]:
    """The image's own configuration."""
    found: dict[str, Any] = json.loads(
        engine.ask("image", "inspect", "--format", "{{json .Config}}", image.name)
    )
    return found


def test_it_says_where_it_comes_from_and_stands_on_the_base_that_is_named(
    configuration: dict[str, Any], image: Image, facts: dict[str, Any]
) -> None:
    labels = {
        key.removeprefix("org.opencontainers.image."): value
        for key, value in configuration["Labels"].items()
    }
    told = {"title": "Repro Gate", "revision": REVISION, "version": "test"}
    assert {**told, "licenses": "Apache-2.0"}.items() <= labels.items() and labels["description"]
    assert labels["source"].startswith("https://github.com/")
    assert labels["base.name"] in image.base
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", labels["base.digest"])
    assert re.fullmatch(r"docker\.io/library/debian:[a-z0-9-]+@sha256:[0-9a-f]{64}", default_base())
    assert f"VERSION_CODENAME={suite()}" in facts["release"]
    program = ["/opt/repro-gate/bin/python", "-I", "-m", "repro_gate.github"]
    assert configuration["Entrypoint"] == program
    assert not configuration.get("User")
    assert not configuration.get("Volumes")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("user", 0),  # started by hand, it gives the training a user of its own
        ("training", ["training", UID, "/nonexistent", "/usr/sbin/nologin"]),
        ("python", "/opt/venv/bin/python"),  # the training's own
        ("missing", []),
        ("builders", []),
        ("raised", []),
        ("writable", []),
        ("caches", []),
        ("gate_modules", ""),
        ("gate_version", __version__),
        ("gate_compiled", "True"),
        ("environment_on_top", ""),
    ],
)
def test_a_program_sees_this_in_it(facts: dict[str, Any], name: str, expected: object) -> None:
    assert facts[name] == expected


def test_torch_is_the_locked_one_and_no_checkout_comes_first(facts: dict[str, Any]) -> None:
    torch, cuda, numpy, prefix, compiled = facts["training_modules"].split()
    lock = (ROOT / "requirements/image-cpu.lock").read_text(encoding="utf-8")
    assert f"\ntorch=={torch} " in lock
    assert f"\nnumpy=={numpy} " in lock
    assert (cuda, prefix, compiled) == ("none", "/opt/venv", "True")
    assert {
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "REPRO_GATE_SANDBOX": "own-user",
    }.items() <= facts["environment"].items()
    assert facts["hostile"].startswith("usage: repro-gate"), facts["hostile"]
