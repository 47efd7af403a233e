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

_LINE = 500  # characters of one line of a failure


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
    is none: a bad spec. `python` in the training command is this interpreter. The report for a
    terminal is printed, so that pytest shows it below the failure.
    """
    __tracebackhide__ = True
    options = [
        *(["--seed", str(seed)] if seed is not None else []),
        *(["--steps", str(steps)] if steps is not None else []),
    ]
    # JSON is YAML
    options += [
        word
        for key, value in (set or {}).items()
        for word in ("--set", f"{key}={json.dumps(value)}")
    ]
    with tempfile.TemporaryDirectory(prefix="repro-gate-pytest-") as folder:
        target = Path(folder, "report.json")
        code, shown, said = _gate(
            [os.path.relpath(spec), "--quiet", "--json", str(target), *options]
        )
        print(shown, end="")
        if not target.is_file():
            pytest.fail(
                f"{os.fspath(spec)}: the gate gave no report (exit code {code})\n{said.strip()}"
            )
        if code != 0:
            pytest.fail(_failure(target))
        found: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    return found


@pytest.fixture(name="assert_reproducible")
def _fixture(request: pytest.FixtureRequest) -> Callable[..., dict[str, Any]]:
    """The same function; a relative path starts at pytest's root folder, wherever pytest was
    started."""

    def from_root(spec: str | os.PathLike[str] = "repro.yml", **options: Any) -> dict[str, Any]:
        __tracebackhide__ = True
        return assert_reproducible(request.config.rootpath / spec, **options)

    return from_root


def _gate(arguments: list[str]) -> tuple[int, str, str]:
    """The exit code of `repro-gate run`, its standard output and its standard error.

    Whatever ends the wait (Ctrl-C, a test's own time limit) ends the gate as well, which stops its
    runs and cleans up before it is gone.
    """
    # no module of the current folder in place of one of the gate's
    safe = ["-P"] if sys.version_info >= (3, 11) else []
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    process = subprocess.Popen(
        [sys.executable, *safe, "-m", "repro_gate", "run", *arguments],
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="backslashreplace",
    )
    try:
        shown, said = process.communicate()
    except BaseException:
        process.terminate()
        process.communicate()
        raise
    return process.returncode, shown, said


def _failure(path: Path) -> str:
    """The verdict of the report at `path`, the cause, the reasons with what to do, how to see it
    again. Safe to print in a CI's log."""
    from repro_gate.errors import GateError
    from repro_gate.escape import for_log, for_terminal
    from repro_gate.report import causes, wording
    from repro_gate.report.document import load

    try:
        report = load(path)
    except GateError as error:
        return error.diagnostics()

    def plain(phrase: wording.Phrase) -> str:
        return "".join(text for _, text in phrase)

    lines = [f"{report.subject.spec}: {report.verdict}: {plain(wording.headline(report))}"]
    if report.diagnosis is not None:
        first, *more = causes.why(report.diagnosis)
        lines += [f"  cause: {plain(first)}", *(f"    {plain(sentence)}" for sentence in more)]
    for reason in report.reasons:
        lines += [
            f"  {reason.id}: {reason.message}",
            *([f"    remedy: {reason.remedy}"] if reason.remedy else []),
        ]
    lines += [f"  see it again: {report.reproduce}"] if report.reproduce else []
    return "\n".join(for_log(for_terminal(line, _LINE), os.environ) for line in lines)
