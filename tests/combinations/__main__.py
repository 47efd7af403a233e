"""Gates every pair of a training and an option, and of two options: `python -m tests.combinations
[WORD …] [--list] [--jobs N]`.

Each case is a line: its name, the verdict that was due, seconds, and what is wrong. Words choose
the cases whose names hold all of them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.combinations.cases import Case, cases, expected
from tests.combinations.check import problems


def main() -> int:
    """Return 1 where anything is wrong."""
    options = argparse.ArgumentParser(prog="python -m tests.combinations", description=__doc__)
    options.add_argument("words", metavar="WORD", nargs="*")
    options.add_argument("--list", action="store_true", help="name the cases and gate none")
    options.add_argument("--jobs", type=int, default=2)
    given = options.parse_args()
    chosen = [case for case in cases() if all(word in case.name for word in given.words)]
    if given.list:
        print("\n".join(f"{case.name}: {expected(case)}" for case in chosen))
        return 0
    began = time.monotonic()
    with ThreadPoolExecutor(given.jobs) as pool:
        wrong = sum(pool.map(_gated, chosen))
    print(f"{len(chosen)} cases, {wrong} of them wrong, in {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


def _gated(case: Case) -> bool:
    began = time.monotonic()
    found = problems(case, Path(tempfile.mkdtemp(prefix="combination-")))
    said = "".join(f"\n    {line}" for line in found)
    print(f"{case.name}: {expected(case)}, {time.monotonic() - began:.1f} s{said}", flush=True)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
