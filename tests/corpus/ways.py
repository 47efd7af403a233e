"""Gates what `tests/e2e` compares leg by leg and way by way: each fault of a checkpoint, and each other
way to the same training, as a whole project with `resume` or `equivalent` in its spec.

`python -m tests.corpus.ways [--jobs N]`; 1 where a fault was missed, its component was not named, or a
sound twin failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.e2e import test_equivalent as equivalent
from tests.e2e import test_resume as resume
from tests.support.gates import call

_MOST = 10  # other ways in one spec


@dataclass(frozen=True)
class Project:
    """A training with what its spec says, and by name what is to be found: the component that is not
    restored, or whether a way is not the same; None for what is sound."""

    section: str
    files: Mapping[str, str]
    spec: Mapping[str, Any]
    due: Mapping[str, str | None]


def projects() -> Iterator[Project]:
    """Yield every fault of a checkpoint with the sound training, then the other ways in few specs."""
    go_on = {"after": 6, "checkpoint": "out/step*.pt", "run": "python train.py {checkpoint}"}
    faults = [("sound", None, "", ""), *((f[0], *f) for f in resume.FAULTS)]
    for number, (name, component, was, instead) in enumerate(faults):
        source = resume.SOUND.replace(was, instead, 1) if was else resume.SOUND
        due = {f"{number}-{name}": component}
        yield Project("resume", {"train.py": source}, {"resume": go_on}, due)
    by_hand, go_on = {"train.py": resume.BY_HAND}, {**go_on, "after": 4}
    yield Project("resume", by_hand, {"resume": go_on}, {"without an optimizer": None})
    ways = {name: (source, None) for name, source in equivalent.SOUND.items()}
    for name, fault in equivalent.FAULTS.items():
        ways[name] = fault.source.replace(fault.was, fault.instead), "differs"
    names = list(ways)
    for some in (names[start : start + _MOST] for start in range(0, len(names), _MOST)):
        files, listed, due = {"train.py": equivalent.WHOLE}, [], {}
        for number, name in enumerate(some):
            source, due[name] = ways[name]
            files[f"way{number}.py"] = source
            run = f"python way{number}.py"
            listed.append({"name": f"way{number}", "run": run, "compare": "rounding"})
        yield Project("equivalent", files, {"equivalent": listed}, due)


def gated(project: Project) -> list[tuple[bool, str]]:
    """Return of each name of a project whether the gate said what is due, and what it said."""
    with tempfile.TemporaryDirectory(prefix="ways-") as temporary:
        folder, report = Path(temporary) / "project", Path(temporary) / "report.json"
        folder.mkdir()
        for name, text in project.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        spec = {"version": 1, "train": {"run": "python train.py"}, **project.spec}
        (folder / "repro.yml").write_text(yaml.safe_dump(spec), encoding="utf-8")
        only = ("--only", project.section, "--quiet")
        done = call("run", folder, "--json", report, *only, timeout=3600)
        said = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
    log = done.stdout + done.stderr
    if project.section == "resume":
        found = said.get("resume") or {"identical": None, "not_restored": [log]}
        (component,) = project.due.values()
        right = found["identical"] is (component is None)
        right = right and (component is None or component in found["not_restored"])
        return [(right, f"{said.get('verdict')} {', '.join(found['not_restored'])}")]
    of = {item["name"]: item for item in said.get("equivalences", ())}
    lines = []
    for number, due in enumerate(project.due.values()):
        way = of.get(f"way{number}", {"equivalent": None, "likely": log})
        lines.append((way["equivalent"] is (due is None), f"{way['equivalent']} {way['likely']}"))
    return lines


def main() -> int:
    """Gate all of them and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.corpus.ways", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="gate runs at a time")
    arguments = parser.parse_args()
    counts = {"faults": [0, 0], "sound": [0, 0]}
    chosen = list(projects())
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for project, lines in zip(chosen, pool.map(gated, chosen), strict=True):
            for (name, due), (right, said) in zip(project.due.items(), lines, strict=True):
                count = counts["faults" if due else "sound"]
                count[0] += right
                count[1] += 1
                print("ok " if right else "NOT", project.section, name, "|", said, flush=True)
    for what, (right, of) in counts.items():
        print(f"{what}: {right} of {of} right")
    return int(any(right < of for right, of in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
