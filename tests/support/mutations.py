"""Asks how much the tests see: makes each mistake of `mutations.yml` in a copy of the tree, one at
a time, and runs the tests there.

`python -m tests.support.mutations [NUMBER…] [--quick] [--tree DIR] [--json F]`. First each mistake
by itself, before the tests of its own folder, which stop at the first failure. Those that survive
are then made all at once before the whole suite; which of them a failing test sees is found by
running it before each alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

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


@dataclass(frozen=True)
class Suite:
    """The tests of a copy of the tree: of `make test`, or of `make test-all`."""

    tree: Path
    quick: bool

    def failing(self, tests: Iterable[str], *options: str) -> tuple[str, ...]:
        """Return the ids of the tests that fail; `("timeout",)` if they take too long,
        `("broken",)` if pytest itself could not run."""
        quick = ("-m", "not slow") if self.quick else ()
        pytest = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rfE",
            "--tb=no",
            "-p",
            "no:cacheprovider",
            *quick,
            *options,
            *tests,
        ]
        environment = {**os.environ, "PYTHONPATH": str(self.tree), "COLUMNS": "1000"}
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                pytest,
                cwd=self.tree,
                env=environment,
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
    chosen = [
        item
        for item in mutations(options.tree)
        if not options.number or item.number in options.number
    ]
    caught: dict[int, str] = {}
    with copied(options.tree) as tree:
        suite = Suite(tree, options.quick)
        for item in chosen:
            start = time.monotonic()
            with made(tree, [item]):
                found = suite.failing(item.near, "-x")
            if found:
                caught[item.number] = found[0]
            print(
                f"{item}\n   {caught.get(item.number, 'not seen by its own folder')}  "
                f"{time.monotonic() - start:.0f} s",
                flush=True,
            )
        left = [item for item in chosen if item.number not in caught]
        if left and not options.near:
            caught.update(_elsewhere(suite, left))
        _write(options.json, chosen, caught)
    for item in chosen:
        if item.number not in caught:
            print(f"survives: {item}")
    print(
        f"{len(caught)} of {len(chosen)} mutations caught by "
        f"{'make test' if options.quick else 'make test-all'}"
    )
    return 0 if len(caught) == len(chosen) else 1


def mutations(tree: Path) -> list[Mutation]:
    """Read the list. Raises ValueError for an entry whose text does not stand exactly once in its
    file."""
    found = []
    for number, entry in enumerate(yaml.safe_load(LIST.read_text(encoding="utf-8")), 1):
        count = (
            (tree / "repro_gate" / entry["file"]).read_text(encoding="utf-8").count(entry["was"])
        )
        if count != 1:
            raise ValueError(
                f"{LIST.name}, entry {number}: {entry['was']!r} stands {count} times in "
                f"{entry['file']}: renew the entry"
            )
        found.append(Mutation(number, entry["file"], entry["was"], entry["is"], _near(tree, entry)))
    return found


def _near(tree: Path, entry: dict[str, str]) -> tuple[str, ...]:
    """The test file of the same name, and the folder of the same name."""
    if "near" in entry:
        return (f"tests/{entry['near']}",)
    folder, name = os.path.split(entry["file"])
    return tuple(
        path
        for path in (f"tests/{folder}/test_{name}", f"tests/{folder}")
        if (tree / path).exists()
    )


@contextmanager
def copied(tree: Path) -> Iterator[Path]:
    """A copy of what git tracks, or would, in a git repository of its own: some tests ask git."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"],
        cwd=tree,
        check=True,
        capture_output=True,
    ).stdout
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        for name in filter(None, os.fsdecode(listed).split("\0")):
            if (tree / name).is_file():
                (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(tree / name, Path(folder) / name, follow_symlinks=False)
        identity = ["-c", "user.name=Mutations", "-c", "user.email=mutations@example.com"]
        for arguments in (
            ["init", "-q", "-b", "main"],
            ["add", "--all"],
            [*identity, "commit", "-q", "-m", "copy"],
        ):
            subprocess.run(["git", *arguments], cwd=folder, check=True)
        yield Path(folder)


@contextmanager
def made(tree: Path, items: Sequence[Mutation]) -> Iterator[None]:
    """The mistakes are in the tree while this lasts."""
    before = {
        tree / "repro_gate" / item.file: (tree / "repro_gate" / item.file).read_text(
            encoding="utf-8"
        )
        for item in items
    }
    for item in items:
        path = tree / "repro_gate" / item.file
        path.write_text(
            path.read_text(encoding="utf-8").replace(item.was, item.becomes), encoding="utf-8"
        )
    try:
        yield
    finally:
        for path, text in before.items():
            path.write_text(text, encoding="utf-8")


def _elsewhere(suite: Suite, left: Sequence[Mutation]) -> dict[int, str]:
    """The mutations that tests of other folders catch."""
    spread = ["-n", "2", "--no-loadscope-reorder", *(f"--ignore=tests/{name}" for name in _APART)]
    with made(suite.tree, left):
        seen = suite.failing((), *spread)
    tests = [test for test in seen if "::" in test]
    anyway = suite.failing(tests) if tests else ()
    caught = {}
    for item in left if tests else ():
        with made(suite.tree, [item]):
            found = [test for test in suite.failing(tests) if test not in anyway]
        if found:
            caught[item.number] = found[0]
    return caught


def _write(path: Path | None, chosen: Sequence[Mutation], caught: dict[int, str]) -> None:
    if path is not None:
        rows = [{"mutation": str(item), "caught_by": caught.get(item.number)} for item in chosen]
        path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.mutations", description="Asks which mistakes the tests see."
    )
    parser.add_argument(
        "number", nargs="*", type=int, help="mutations, by their numbers; all where none is named"
    )
    parser.add_argument("--quick", action="store_true", help="the tests of `make test` alone")
    parser.add_argument(
        "--near", action="store_true", help="only the tests of each mutation's own folder"
    )
    parser.add_argument(
        "--tree",
        type=Path,
        default=ROOT,
        metavar="DIR",
        help="another checkout whose tests are asked",
    )
    parser.add_argument("--json", type=Path, metavar="F", help="write the results to a file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
