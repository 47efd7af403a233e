"""The gate as a pytest plugin of one function: `assert_reproducible("repro.yml")` in a test, as a
fixture or imported from here.

It starts `repro-gate run` in a process of its own, as the command line does, and fails the test
with what the report says. Every pytest start where Repro Gate is installed imports this file: only
the standard library and pytest stand at its top.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest


def assert_reproducible(
    spec: str | os.PathLike[str] = "repro.yml",
    *,
    seed: int | None = None,
    steps: int | None = None,
    set: Mapping[str, object] | None = None,  # noqa: A002  called as the option of `repro-gate run`
) -> dict[str, Any]:
    """Gate the training of `spec` (a repro.yml or its folder, from the current folder) and return
    its report.json, parsed.

    `seed`, `steps` and `set` (key of the spec -> value) are laid over the spec like the options of
    `repro-gate run`. Fails the test where the verdict is `fail` or `inconclusive`, and where there
    is none: a bad spec; the report for a terminal, or the error, is the failure. `python` in the
    training command is this interpreter.
    """
    __tracebackhide__ = True
    command = [os.path.relpath(spec), "--quiet"]
    for name, value in (("seed", seed), ("steps", steps)):
        command += [] if value is None else [f"--{name}", str(value)]
    for key, item in (set or {}).items():
        command += ["--set", f"{key}={json.dumps(item)}"]  # JSON is YAML
    with tempfile.TemporaryDirectory(prefix="repro-gate-pytest-") as folder:
        target = Path(folder, "report.json")
        code, printed = _gate([*command, "--json", str(target)])
        if code != 0:
            from repro_gate.escape import for_log

            lines = (for_log(line) for line in printed.splitlines())
            pytest.fail("\n".join([f"{os.fspath(spec)}: exit code {code}", *lines]))
        print(printed, end="")
        report: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    return report


@pytest.fixture(name="assert_reproducible")
def _fixture(request: pytest.FixtureRequest) -> Callable[..., dict[str, Any]]:
    """Return the same function; a relative path starts at pytest's root folder, wherever pytest was
    started."""

    def from_root(
        spec: str | os.PathLike[str] = "repro.yml", **options: Any
    ) -> dict[str, Any]:
        __tracebackhide__ = True
        return assert_reproducible(request.config.rootpath / spec, **options)

    return from_root


def _gate(arguments: list[str]) -> tuple[int, str]:
    """Return the exit code of `repro-gate run`, and what it printed, safe in a CI's log.

    Whatever ends the wait (Ctrl-C, a test's own time limit) ends the gate as well, which stops its
    runs and cleans up before it is gone.
    """
    # no module of the current folder in place of one of the gate's
    safe = ["-P"] if sys.version_info >= (3, 11) else []
    path = os.pathsep.join(
        [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
    )
    process = subprocess.Popen(
        [sys.executable, *safe, "-m", "repro_gate", "run", *arguments],
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="backslashreplace",
    )
    try:
        printed, _ = process.communicate()
    except BaseException:
        process.terminate()
        process.communicate()
        raise
    return process.returncode, printed
