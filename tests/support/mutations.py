"""Asks how much the tests see: makes each mistake of `mutations.yml` in a copy of the tree, one at
a time, and runs the tests there.

`python -m tests.support.mutations [NUMBER…] [--quick] [--tree DIR]`. First each mistake
by itself, before the tests of its own folder, which stop at the first failure. Those that survive
are then made all at once before the whole suite; which of them a failing test sees is found by
running it before each alone.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.support.repositories import commit, git

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_suffix(".yml")
_PATIENCE = 1200.0  # seconds for the tests of one folder: a mistake that makes them hang is caught
_APART = ("api", "container", "browser", "gpu")  # targets of their own
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Mutation:
    """One mistake: in `file`, below repro_gate/, the text `was` becomes `becomes`; `near` are the
    tests that are asked first."""

    number: int
    file: str
    was: str
    becomes: str
    near: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.number:2} {self.file}: {self.was.strip()}  ->  {self.becomes.strip()}"


def failing(tree: Path, tests: Sequence[str], *options: str) -> tuple[str, ...]:
    """Return the ids of the tests of a copy of the tree that fail; `("timeout",)` if they take too
    long, `("broken",)` if pytest itself could not run."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider"]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [*pytest, *options, *tests],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "1000"},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait(_PATIENCE * (3 if "-n" in options else 1))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return ("timeout",)
        output.seek(0)
        found = tuple(dict.fromkeys(_FAILED.findall(output.read())))
    return found if code == 1 else ("broken",) if code not in (0, 5) else ()


def main() -> int:
    """Print each mutation and which test caught it; 1 where one survives."""
    options = _parser().parse_args()
    known = mutations(options.tree)
    chosen = [item for item in known if not options.number or item.number in options.number]
    quick = ("-m", "not slow") if options.quick else ()
    caught: dict[int, str] = {}
    with copied(options.tree) as tree:
        for item in chosen:
            start = time.monotonic()
            with made(tree, [item]):
                found = failing(tree, item.near, *quick, "-x")
            if found:
                caught[item.number] = found[0]
            said = caught.get(item.number, "not seen by its own folder")
            print(f"{item}\n   {said}  {time.monotonic() - start:.0f} s", flush=True)
        left = [item for item in chosen if item.number not in caught]
        if left and not options.near:
            caught |= _elsewhere(tree, left, quick)
    for item in chosen:
        if item.number not in caught:
            print(f"survives: {item}")
    target = "make test" if options.quick else "make test-all"
    print(f"{len(caught)} of {len(chosen)} mutations caught by {target}")
    return 0 if len(caught) == len(chosen) else 1


def mutations(tree: Path) -> list[Mutation]:
    """Read the list. Raises ValueError for an entry whose text does not stand exactly once in its
    file."""
    found = []
    for number, entry in enumerate(yaml.safe_load(LIST.read_text(encoding="utf-8")), 1):
        file, was = entry["file"], entry["was"]
        count = (tree / "repro_gate" / file).read_text(encoding="utf-8").count(was)
        if count != 1:
            where = f"stands {count} times in {file}: renew it"
            raise ValueError(f"{LIST.name}, entry {number}: {was!r} {where}")
        folder, name = os.path.split(file)
        # the test file of the same name, and the folder of the same name
        guessed = (f"tests/{folder}/test_{name}", f"tests/{folder}")
        near = tuple(path for path in guessed if (tree / path).exists())
        near = (f"tests/{entry['near']}",) if "near" in entry else near
        found.append(Mutation(number, file, was, entry["is"], near))
    return found


@contextmanager
def copied(tree: Path) -> Iterator[Path]:
    """A copy of what git tracks, or would, in a git repository of its own: some tests ask git."""
    listed = git(tree, "ls-files", "-z", "-co", "--exclude-standard")
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        for name in filter(None, listed.split("\0")):
            if (tree / name).is_file():
                (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(tree / name, Path(folder) / name, follow_symlinks=False)
        git(Path(folder), "init", "-q", "-b", "main")
        commit(Path(folder))
        yield Path(folder)


@contextmanager
def made(tree: Path, items: Sequence[Mutation]) -> Iterator[None]:
    paths = {item: tree / "repro_gate" / item.file for item in items}
    before = {path: path.read_text(encoding="utf-8") for path in paths.values()}
    for item, path in paths.items():
        text = path.read_text(encoding="utf-8").replace(item.was, item.becomes)
        path.write_text(text, encoding="utf-8")
    try:
        yield
    finally:
        for path, text in before.items():
            path.write_text(text, encoding="utf-8")


def _elsewhere(tree: Path, left: Sequence[Mutation], quick: Sequence[str]) -> dict[int, str]:
    spread = ["-n", "2", "--no-loadscope-reorder", *(f"--ignore=tests/{name}" for name in _APART)]
    with made(tree, left):
        tests = [test for test in failing(tree, (), *quick, *spread) if "::" in test]
    anyway = failing(tree, tests, *quick) if tests else ()
    caught = {}
    for item in left if tests else ():
        with made(tree, [item]):
            found = [test for test in failing(tree, tests, *quick) if test not in anyway]
        if found:
            caught[item.number] = found[0]
    return caught


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.support.mutations", description=__doc__)
    add = parser.add_argument
    add("number", nargs="*", type=int, help="mutations, by their numbers; all where none is named")
    add("--quick", action="store_true", help="the tests of `make test` alone")
    add("--near", action="store_true", help="only the tests of each mutation's own folder")
    add("--tree", type=Path, default=ROOT, help="another checkout whose tests are asked")
    return parser


if __name__ == "__main__":
    sys.exit(main())
