"""Gates one case in a real process and says what is wrong: the verdict, or a renderer that tells
something else than another."""

from __future__ import annotations

import difflib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import psutil
import xmlschema
import yaml

from tests.combinations.cases import Case, ends_early, expected
from tests.support.gates import ROOT, call
from tests.support.repositories import git

PROJECT = Path(__file__).parent / "project"
EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 3}
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
_MISSING = ["code/opened-files", "env/image-digest", "env/lockfile", "code/licence"]
_MISSING += ["random-state/robust"]


@dataclass(frozen=True)
class Gated:
    """What one call of `repro-gate run` left."""

    exit_code: int
    stdout: str
    stderr: str
    out: Path

    @property
    def report(self) -> Mapping[str, Any]:
        """Return the parsed report.json."""
        found: Mapping[str, Any] = json.loads((self.out / "report.json").read_text())
        return found


def problems(case: Case, folder: Path) -> list[str]:
    """Return what is wrong with a gate run of the case, a sentence each; `folder` is empty and is
    left so."""
    try:
        gated = _gate(case, folder)
        found = [*_verdict(case, gated)]
        if (gated.out / "report.json").is_file():
            found += [*_renderers(gated), *_shown_again(case, gated)]
        return [*found, *_left(folder)]
    finally:
        shutil.rmtree(folder)


def spec_of(case: Case) -> dict[str, Any]:
    """Return the case's repro.yml."""
    options, names = case.options, _MISSING if case.options.profile == "waived" else []
    flag = {"flag": "torch.utils.deterministic.fill_uninitialized_memory", "reason": "none is read"}
    train: dict[str, Any] = {"run": case.training.command, "warmup": options.warmup}
    train["timeout"] = "4s" if "hangs" in case.training.name else "2m"
    tolerance, cost = {"loss": 1e-6, "weights": 1e-5}, {"pairs": 2}
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
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "everything")
    arguments = ["--json", out / "report.json", *_written_to(out)]
    arguments += ["--against", "HEAD"] if options.against == "HEAD" else []
    arguments += ["--base", "HEAD", "--policy", options.policy] if options.policy != "none" else []
    arguments += ["--fail-fast"] if options.fail_fast else []
    arguments += ["--verbose", "--keep-traces", out / "traces"] if options.verbose else []
    done = _repro_gate(folder, name, "run", repository, "--quiet", *arguments)
    return Gated(done.returncode, done.stdout, done.stderr, out)


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
    if not (gated.out / "report.json").is_file():
        yield f"no report, exit code {gated.exit_code}: {said[-300:]}"
        return
    report, due = gated.report, expected(case)
    verdict, found = report["verdict"], report["determinism"]
    ids = [reason["id"] for reason in report["reasons"]]
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


def _renderers(gated: Gated) -> Iterator[str]:
    """Each file says the verdict, and is what its format asks for."""
    report, out = gated.report, gated.out
    verdict = report["verdict"]
    for error in _schema().iter_errors(report):
        yield f"report.json: {error.json_path}: {error.message[:200]}"
    (run,) = json.loads((out / "report.sarif").read_text())["runs"]
    errors = [item["ruleId"] for item in run["results"] if item["level"] == "error"]
    if bool(errors) == (verdict == "pass"):
        yield f"SARIF has {len(errors)} errors, the verdict is {verdict}"
    for reason in report["reasons"]:
        if reason["id"] not in {item["ruleId"] for item in run["results"]}:
            yield f"SARIF lacks {reason['id']}"
    try:
        _junit().validate(str(out / "junit.xml"))
    except xmlschema.XMLSchemaException as error:
        yield f"JUnit: {str(error)[:200]}"
    suites = ET.parse(out / "junit.xml").getroot()
    counted = {name: int(suites.get(name, "0")) > 0 for name in ("failures", "errors")}
    if (
        (verdict == "pass" and any(counted.values()))
        or (verdict == "fail" and not counted["failures"])
        or (verdict == "inconclusive" and not counted["errors"])
    ):
        yield f"JUnit counts {counted}, the verdict is {verdict}"
    page = _Page()
    page.feed((out / "report.html").read_text())
    page.close()
    yield from page.problems()
    if verdict.upper() not in page.text.upper():
        yield f"HTML does not say {verdict}"
    comment = (out / "comment.md").read_text()
    if len(comment) > 65_536 or verdict.upper() not in comment.upper():
        yield f"the comment has {len(comment)} characters, or does not say {verdict}"


def _shown_again(case: Case, gated: Gated) -> Iterator[str]:
    """`repro-gate show` prints and writes what `repro-gate run` did."""
    again, report = gated.out / "again", gated.out / "report.json"
    again.mkdir()
    verbose = ["--verbose"] if case.options.verbose else []
    done = _repro_gate(gated.out.parent, "", "show", report, *verbose, *_written_to(again))
    if done.returncode or done.stderr:
        yield f"show: exit code {done.returncode}: {done.stderr[-300:]}"
        return
    pairs = [("terminal", *map(_without_files, (gated.stdout, done.stdout)))]
    pairs += [
        (name, (gated.out / name).read_text(), (again / name).read_text())
        for name in _FORMATS.values()
    ]
    for name, first, second in pairs:
        if first != second:
            lines = difflib.ndiff(first.splitlines(), second.splitlines())
            differing = [line[:160] for line in lines if not line.startswith("  ")]
            yield f"show: {name}: {differing[:3]}"


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


class _Page(HTMLParser):
    """A page's text, and its elements that are not closed in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self._open, self._wrong = "", list[str](), list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("meta", "br") and (not self._open or self._open.pop() != tag):
            self._wrong.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data

    def problems(self) -> Iterator[str]:
        """Yield a sentence if the page is not well formed."""
        if self._open or self._wrong:
            yield f"HTML: not closed {self._open[:3]}, closed and not open {self._wrong[:3]}"


@cache
def _schema() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(
        json.loads((ROOT / "repro_gate/report/schema.json").read_text())
    )


@cache
def _junit() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(str(ROOT / "tests/report/junit-10.xsd"))
