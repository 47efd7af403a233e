"""Gates one case in a real process and says what is wrong: the verdict, or a renderer that tells
something else than another."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import psutil
import yaml

from repro_gate.report.document import read_json
from repro_gate.report.model import EXIT_CODES
from tests.combinations.cases import Case, ends_early, expected
from tests.support.gates import Gated, call
from tests.support.repositories import commit, git

PROJECT = Path(__file__).parent / "project"
_FORMATS = {
    "markdown": "comment.md",
    "html": "report.html",
    "sarif": "report.sarif",
    "junit": "junit.xml",
}
# the sound twin of a training that needs torch
_SOUND = {
    "two-optimizers-apart": "two-optimizers",
    "crash-workers": "workers",
    "noise@varied": "two-optimizers",
    "leaves": "two-optimizers",
}
_MISSING = ["code/opened-files", "env/image-digest", "env/lockfile"]
_MISSING += ["random-state/robust"]


def problems(case: Case, folder: Path) -> list[str]:
    """Return what is wrong with a gate run of the case, a sentence each; `folder` is empty and is
    left so."""
    try:
        gated, out = _gate(case, folder), folder / "out"
        found = [*_verdict(case, gated)]
        if gated.report:
            found += [*_renderers(gated, out), *_shown_again(case, gated, out)]
        return [*found, *_left(folder)]
    finally:
        shutil.rmtree(folder)


def spec_of(case: Case) -> dict[str, Any]:
    """Return the case's repro.yml."""
    options, names = case.options, _MISSING if case.options.profile == "waived" else []
    flag = {"flag": "torch.utils.deterministic.fill_uninitialized_memory", "reason": "none is read"}
    train: dict[str, Any] = {"run": case.training.command, "warmup": options.warmup}
    train["timeout"] = "4s" if "hangs" in case.training.name else "2m"
    tolerance = {"loss": 1e-6, "weights": 1e-5}
    cost: dict[str, Any] = {}
    found: dict[str, Any] = {
        "version": 1,
        "train": train,
        "random-state": {"seeds": [42] if options.seeds == "one" else [42, 7]},
        "determinism": {
            "compare": "bitwise" if options.compare == "bitwise" else tolerance,
            "repeat": options.repeat,
            "allow": [flag] if options.allow == "one" else [],
        },
        "capture": {"every": options.every, "artifacts": ["out/*"]},
        "cost": {"measure": False} if options.cost == "off" else cost,
        "checklist": {
            "profile": "basic" if options.profile == "basic" else "strict",
            "waive": [{"check": name, "reason": "no", "until": "2199-12-31"} for name in names],
        },
        "diagnosis": False,
    }
    if options.steps is not None:
        train["steps"] = options.steps
    if options.cost == "limited":
        cost["max-percent"] = 100_000
    if options.vary != "all":
        vary = ["home", "tmpdir"] if options.vary == "list" else False
        found["robustness"] = {"vary": vary}
    if options.baseline != "none":
        found["baseline"] = {"on-change": options.baseline}
    return found


def _gate(case: Case, folder: Path) -> Gated:
    """Make a repository with the project, record its baseline if there is to be one, and gate
    it."""
    options, repository, out = case.options, folder / "code", folder / "out"
    name, spec = case.training.name, spec_of(case)
    folder.mkdir(exist_ok=True)
    shutil.copytree(PROJECT, repository, ignore=shutil.ignore_patterns("__pycache__"))
    for place in (out, folder / "tmp"):
        place.mkdir()
    git(repository, "init", "-q")
    if options.baseline != "none":
        _write(repository, {**spec, "checklist": {"profile": "basic"}, "cost": {"measure": False}})
        sound = _SOUND.get(name, name if "torch" in case.training.command else "passes")
        done = _repro_gate(folder, sound, "baseline", repository, "--quiet")
        assert (repository / "repro.baseline.yml").is_file(), done.stdout + done.stderr
    _write(repository, spec)
    commit(repository)
    arguments = ["--json", out / "report.json", *_written_to(out)]
    arguments += ["--against", "HEAD"] if options.against == "HEAD" else []
    arguments += ["--base", "HEAD", "--policy", options.policy] if options.policy != "none" else []
    arguments += ["--fail-fast"] if options.fail_fast else []
    arguments += ["--verbose", "--keep-traces", out / "traces"] if options.verbose else []
    done = _repro_gate(folder, name, "run", repository, "--quiet", *arguments)
    report = out / "report.json"
    found = read_json(report) if report.is_file() else {}
    return Gated(done.returncode, found, done.stdout, done.stderr)


def _written_to(folder: Path) -> list[str | Path]:
    """The arguments by which each renderer writes its file there."""
    return [part for option, name in _FORMATS.items() for part in (f"--{option}", folder / name)]


def _write(repository: Path, spec: Mapping[str, Any]) -> None:
    (repository / "repro.yml").write_text(yaml.safe_dump(spec, sort_keys=False))


def _repro_gate(folder: Path, how: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Call the gate with a temporary folder of the case's own."""
    own = str(folder / "tmp")
    return call(*arguments, timeout=600, TMPDIR=own, TORCH_HOW=how, OMP_WAIT_POLICY="passive")


def _verdict(case: Case, gated: Gated) -> Iterator[str]:
    """The verdict is the one that is due, and exit code and reasons say the same."""
    said = gated.stderr.strip()
    if "error inside the gate" in said or "Traceback (most recent call last)" in said:
        yield f"a traceback of the gate: {said.splitlines()[-1]}"
    if not gated.report:
        yield f"no report, exit code {gated.exit_code}: {said[-300:]}"
        return
    report, due = gated.report, expected(case)
    verdict, found = report["verdict"], report["determinism"]
    ids = gated.reason_ids
    if verdict != due:
        yield f"verdict {verdict} where {due} is due: {', '.join(ids) or 'no reason'}"
    if gated.exit_code != EXIT_CODES[verdict]:
        yield f"exit code {gated.exit_code} of verdict {verdict}"
    if bool(ids) == (verdict == "pass"):
        yield f"verdict {verdict} with {len(ids)} reasons"
    if gated.stdout.split()[:1] != [verdict.upper()]:
        yield f"the terminal begins with {gated.stdout[:40]!r}, the verdict is {verdict}"
    if found is not None and verdict == "pass" and found["failed"]:
        yield f"a pass with {found['failed']} runs that failed"
    if found is not None and not found["identical"]:
        yield from _divergence(found, gated.stdout)
        first = found["first_divergence"]
        if ends_early(case) and first is not None and first["name"] != "steps":
            yield f"the runs end differently, and the report says {first['kind']} {first['name']}"


def _divergence(found: Mapping[str, Any], printed: str) -> Iterator[str]:
    """What differs is said, and no distance is made up: of a text, or of weights of different
    steps."""
    first = found["first_divergence"]
    if first is None:
        yield "runs that differ, and nothing says in what"
        return
    figures = [first[name] for name in ("max_abs", "max_ulp", "l2", "relative_l2")]
    if any(isinstance(value, str) for value in first["values"] or ()) and figures != [None] * 4:
        yield f"the distance of texts: {first['values']} {figures}"
    if (first["kind"], first["name"]) == ("optimizer", "steps"):
        if found["weights"]:
            yield f"weights of different steps are compared: {found['weights'][0]}"
        if "after the last step" in printed or first["detail"] not in printed:
            yield "the terminal does not say how the runs end"


def _renderers(gated: Gated, out: Path) -> Iterator[str]:
    """Each file says the verdict: that it is what its format asks for, tests/report shows."""
    report = gated.report
    verdict = report["verdict"]
    (run,) = json.loads((out / "report.sarif").read_text())["runs"]
    errors = [item["ruleId"] for item in run["results"] if item["level"] == "error"]
    if bool(errors) == (verdict == "pass"):
        yield f"SARIF has {len(errors)} errors, the verdict is {verdict}"
    for identifier in {*gated.reason_ids} - {item["ruleId"] for item in run["results"]}:
        yield f"SARIF lacks {identifier}"
    suites = ET.parse(out / "junit.xml").getroot()
    failed, inconclusive = (int(suites.get(name, "0")) for name in ("failures", "errors"))
    due = {"pass": not failed + inconclusive, "fail": failed, "inconclusive": inconclusive}
    if not due[verdict]:
        yield f"JUnit counts {failed} and {inconclusive}, the verdict is {verdict}"
    for name in ("report.html", "comment.md"):
        text = (out / name).read_text()
        if verdict.upper() not in text.upper() or (name == "comment.md" and len(text) > 65_536):
            yield f"{name} has {len(text)} characters, or does not say {verdict}"


def _shown_again(case: Case, gated: Gated, out: Path) -> Iterator[str]:
    """`repro-gate show` prints and writes what `repro-gate run` did."""
    again = out / "again"
    again.mkdir()
    verbose = ["--verbose"] if case.options.verbose else []
    arguments = ["show", out / "report.json", *verbose, *_written_to(again)]
    done = _repro_gate(out.parent, "", *arguments)
    if done.returncode or done.stderr:
        yield f"show: exit code {done.returncode}: {done.stderr[-300:]}"
        return
    if _without_files(gated.stdout) != _without_files(done.stdout):
        yield "show: the terminal is another one"
    for name in _FORMATS.values():
        if (out / name).read_text() != (again / name).read_text():
            yield f"show: {name} is another one"


def _without_files(text: str) -> str:
    """Return what was printed, without the line that names the files written."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("  more "))


def _left(folder: Path) -> Iterator[str]:
    """Neither files nor processes are left, and the checkout is as it was."""
    if left := sorted(path.name for path in (folder / "tmp").iterdir()):
        yield f"left in the temporary folder: {', '.join(left)}"
    if changed := git(folder / "code", "status", "--porcelain", "--ignored"):
        yield f"the checkout changed: {changed}"
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR", "").startswith(str(folder)):
                yield f"process {process.pid} is left: {' '.join(process.cmdline())[:200]}"
        except psutil.Error:
            continue
