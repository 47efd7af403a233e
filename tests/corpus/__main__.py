"""Gates the trainings of the corpus, one line for each, and counts what was found, what was a false
alarm and which causes were named.

`python -m tests.corpus [NAME…] [--only faults|clean|latent|examples] [--jobs N] [--json F]`;
`corpus.yml` says what is expected.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from repro_gate.trace import notebook
from tests.support.gates import ROOT, call
from tests.support.repositories import commit, git

HERE = Path(__file__).resolve().parent
KINDS = {
    "faults": "detected",
    "clean": "without a false alarm",
    "latent": "found by the varied run",
    "examples": "broken twins detected",
}
KEYS = {"name", "what", "cause", "or", "file", "also", "kind", "step", "nan", "vary", "beside"}
KEYS |= {"remove", "spec", "twin"}
MARK = "# HERE"
# among the examples; what resumes, and what is equivalent, is judged by `ways.py`
_NO_TRAINING = (
    "change",
    "equivalent",
    "gitlab",
    "kubernetes",
    "resume",
    "slurm",
    "workflows",
)
_OPTIONS = ("--quiet", "--set", "cost.measure=false")
# of the faults; `shown`: confirmed by runs, or observed where bytes came from outside
REQUIRED = {"cause": 0.95, "line": 0.90, "shown": 0.85}
ROBUST = "random-state/robust"  # the check that names what only a varied run can show


@dataclass(frozen=True)
class Case:
    """One entry of corpus.yml. `lines` are all (file, line) that are right."""

    group: str
    entry: Mapping[str, Any]
    lines: frozenset[tuple[str, int]]

    @property
    def name(self) -> str:
        return str(self.entry["name"])


def main() -> int:
    """Gate what the arguments name; 1 where a fault was missed, a clean case failed, or a required
    score was not reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description=__doc__)
    parser.add_argument("name", nargs="*", help="cases, by their names; all where none is named")
    parser.add_argument("--only", choices=KINDS, help="one group")
    parser.add_argument("--jobs", type=int, default=1, help="gate runs at a time")
    parser.add_argument("--json", type=Path, metavar="F", help="write the results to a file")
    arguments = parser.parse_args()
    chosen = [case for case in cases() if arguments.only in (None, case.group)]
    chosen = [case for case in chosen if not arguments.name or case.name in arguments.name]
    if unknown := set(arguments.name) - {case.name for case in chosen}:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    start, results = time.monotonic(), []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for result in pool.map(run, chosen):
            results.append(result)
            print(_line(result), flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if _totals(results, time.monotonic() - start) else 0


def cases() -> list[Case]:
    """Everything in corpus.yml, each compared with its folder. Raises ValueError where the two do
    not fit."""
    listed = yaml.safe_load((HERE / "corpus.yml").read_text(encoding="utf-8"))
    found = [_case(group, entry) for group, entries in listed.items() for entry in entries]
    there = [path for group in KINDS for path in _home(group).iterdir() if path.is_dir()]
    folders = {path for path in there if path.name not in _NO_TRAINING}
    own = {_home(case.group) / case.name for case in found if "twin" not in case.entry}
    if differing := folders ^ own:
        raise ValueError(f"corpus.yml and the folders differ in {sorted(differing)}")
    return found


def run(case: Case) -> dict[str, Any]:
    """Gate one case in a git repository of its own; an example where it lies."""
    with tempfile.TemporaryDirectory(prefix="corpus-") as temporary:
        folder, report = Path(temporary) / "project", Path(temporary) / "report.json"
        twin = case.entry.get("twin")
        if case.group == "examples":
            folder = _folder(case.group, case.name)
        else:
            programs = HERE / twin["of"] if twin else _folder(case.group, case.name)
            shutil.copytree(programs, folder, ignore=shutil.ignore_patterns("__pycache__"))
            if twin:
                (folder / twin["file"]).write_text(_text_of_twin(twin), encoding="utf-8")
            (folder / "repro.yml").write_text(yaml.safe_dump(_spec(case)), encoding="utf-8")
            git(folder, "init", "--quiet")
            commit(folder)
        with _surroundings(case.entry):
            start = time.monotonic()
            done = call("run", folder, "--json", report, *_OPTIONS, timeout=3600)
            seconds = time.monotonic() - start
        said = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
    return _judged(case, said, seconds, "" if said else done.stdout + done.stderr)


def _judged(case: Case, report: Mapping[str, Any], seconds: float, log: str) -> dict[str, Any]:
    """What the gate said about a case, and what of it was right. None: not asked of this case.
    `shown`: the cause was confirmed or observed."""
    entry, verdict = case.entry, report.get("verdict", "none")
    first = (report.get("determinism") or {}).get("first_divergence")
    diagnosis = report.get("diagnosis") or None
    said = diagnosis or {}
    statuses = {item["id"]: item["status"] for item in report.get("checklist", ())}
    fragile = statuses.get(ROBUST) in ("warn", "fail")
    if case.group == "clean":
        found = verdict == "pass" and not fragile
    elif case.group == "latent":
        found = fragile
    else:
        found = verdict == "fail" and (entry.get("nan", False) or first is not None)
    places = [(first or {}).get(key) == entry[key] for key in ("kind", "step") if key in entry]
    causes = [name for name in (entry.get("cause"), *entry.get("or", ())) if name]
    where, runs = (Path(said.get("file") or "").name, said.get("line")), said.get("runs")
    right = {"cause": said.get("cause") in causes, "line": where in case.lines}
    right |= {name: bool(said.get(name)) for name in ("confirmed", "observed")}
    right["shown"] = right["confirmed"] or right["observed"]
    return {
        "group": case.group,
        "name": case.name,
        "verdict": verdict,
        "found": found,
        "place": all(places) if places else None,
        **(dict.fromkeys(right) if case.group == "clean" else right),
        "runs": len(runs) if isinstance(runs, list) else runs,
        "seconds": round(seconds, 1),
        "first": first and {name: first.get(name) for name in ("step", "kind", "name")},
        "diagnosis": diagnosis,
        "reasons": [f"{item['id']}: {item['message']}" for item in report.get("reasons", ())],
        "log": log[-4000:],
    }


def _totals(results: list[dict[str, Any]], seconds: float) -> list[str]:
    """Print the scores, and return what was not reached."""
    wrong = []
    for group, word in KINDS.items():
        of = [item for item in results if item["group"] == group]
        if not of:
            continue
        print(f"{group}: {sum(item['found'] for item in of)} of {len(of)} {word}")
        if missed := ", ".join(item["name"] for item in of if not item["found"]):
            print(f"  not: {missed}")
            wrong.append(f"{group}: {missed}")
        if group == "clean":
            continue
        if placed := [item["place"] for item in of if item["place"] is not None]:
            print(f"  kind and step right: {sum(placed)} of {len(placed)}")
        for name, least in REQUIRED.items():
            right = sum(item[name] for item in of)
            seen = f", {sum(item['observed'] for item in of)} of them observed"
            print(f"  {name}: {right} of {len(of)}" + (seen if name == "shown" else ""))
            if right < least * len(of):
                wrong.append(f"{group}: {name} {right} of {len(of)}, {least:.0%} required")
        if runs := [item["runs"] for item in of if item["runs"] is not None]:
            took = [float(item["diagnosis"]["seconds"]) for item in of if item["diagnosis"]]
            print(f"  runs of a diagnosis: median {median(runs):g}, greatest {max(runs)}")
            print(f"  seconds of a diagnosis: {median(took):.0f}, {max(took):.0f}")
    each = [item["seconds"] for item in results] or [0.0]
    print(f"time: {seconds:.0f} s; median {median(each):.1f} s, at most {max(each):.1f} s")
    for item in wrong:
        print(f"not reached: {item}")
    return wrong


def _line(result: dict[str, Any]) -> str:
    first, said, found = result["first"], result["diagnosis"], result["found"]
    right = result["cause"] and result["line"]
    parts = [
        f"{'ok ' if found else 'NOT'} {result['group']:6} {result['name']:14}",
        f"{result['verdict']:12}",
        f"step {first['step']} {first['kind']}" if first else "",
        "(another place was expected)" if result["place"] is False else "",
        f"{said.get('cause')} {said.get('file')}:{said.get('line')}" if said else "",
        f"(wrong: {'line' if result['cause'] else 'cause'})" if said and not right else "",
        "confirmed" if result["confirmed"] else "observed" if result["observed"] else "",
        f"{result['runs']} runs" if result["runs"] is not None else "",
        f"{result['seconds']:.1f} s",
        "" if found else f"| {'; '.join(result['reasons']) or result['log']}",
    ]
    return " ".join(part for part in parts if part)


def _case(group: str, entry: Mapping[str, Any]) -> Case:
    name, file = entry["name"], entry.get("file", "")
    if unknown := set(entry) - KEYS:
        why = "mean nothing here; a comma in `what` needs quotes"
        raise ValueError(f"{group}/{name}: {sorted(unknown)} {why}")
    if "twin" in entry:
        _text_of_twin(entry["twin"])
        return Case(group, entry, frozenset())
    lines = _lines_with(group, name, MARK)
    if [path for path, _ in lines] != ([file] if group in ("faults", "latent") else []):
        where = file or "no file"
        raise ValueError(f"{group}/{name}: one {MARK!r} belongs in {where}, there is {lines}")
    for place in entry.get("also", ()):
        path, _, text = place.partition(": ")
        found = [item for item in _lines_with(group, name, text) if item[0] == path]
        if not found:
            raise ValueError(f"{group}/{name}: {path} has no line with {text!r}")
        lines += found
    return Case(group, entry, frozenset(lines))


def _text_of_twin(twin: Mapping[str, str]) -> str:
    """The one file in which a case differs from another."""
    text = (HERE / twin["of"] / twin["file"]).read_text(encoding="utf-8")
    if text.count(twin["was"]) != 1:
        raise ValueError(f"{twin['of']}/{twin['file']} must hold {twin['was']!r} once")
    return text.replace(twin["was"], twin["becomes"])


def _home(group: str) -> Path:
    return ROOT / "examples" if group == "examples" else HERE / group


def _folder(group: str, name: str) -> Path:
    """Where a case's programs lie; of an example, those of its broken twin."""
    return _home(group) / name / ("broken" if group == "examples" else "")


def _lines_with(group: str, name: str, text: str) -> list[tuple[str, int]]:
    """(file, line) of each line of a case's programs that holds a text."""
    return [
        (file, number)
        for path in sorted(_folder(group, name).iterdir())
        for file, source in _sources(path)
        for number, line in enumerate(source.splitlines(), 1)
        if text in line
    ]


def _sources(path: Path) -> list[tuple[str, str]]:
    """The text of a program, or of each cell of a notebook, by the name that a report gives to
    it."""
    if path.suffix == notebook.SUFFIX:
        cells = enumerate(notebook.code_cells(path.read_bytes()), 1)
        return [(notebook.cell_name(path.name, number), text) for number, text in cells]
    return [(path.name, path.read_text(encoding="utf-8"))] if path.suffix in (".py", ".sh") else []


def _spec(case: Case) -> dict[str, Any]:
    """The repro.yml of a case: the shared form, with what the entry lays over it, one level
    deep."""
    spec: dict[str, Any] = {"version": 1, "train": {"run": "python train.py", "timeout": "2m"}}
    for key, value in case.entry.get("spec", {}).items():
        spec[key] = {**spec.get(key, {}), **value}
    return spec


@contextmanager
def _surroundings(entry: Mapping[str, Any]) -> Iterator[None]:
    """What the case finds outside its workspace: nothing of an earlier gate run, and the program
    that runs beside it, if there is one."""

    def remove() -> None:
        for name in entry.get("remove", ()):
            shutil.rmtree(name, ignore_errors=True)
            Path(name).unlink(missing_ok=True)

    with ExitStack() as stack:
        remove()
        stack.callback(remove)
        if beside := entry.get("beside"):
            program = [sys.executable, HERE / "beside" / beside[0], *map(str, beside[1:])]
            process = stack.enter_context(subprocess.Popen(program, stdout=subprocess.PIPE))
            stack.callback(process.kill)
            process.stdout.readline()  # type: ignore[union-attr]  # it says when it is ready
        yield


if __name__ == "__main__":
    sys.exit(main())
