"""`python benchmarks/run.py [--quick] [--only NAME] [--container]`: measures, prints, and writes
benchmarks/results/cpu.json (or container.json). What needs CUDA is in `gpu.py`.

A smoke run (`--quick`) and a part (`--only`) write nothing unless `--out` names a file; the figures
of a smoke run mean nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# so that the file itself can be started, too
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import (
    alternating,
    cost_coverage,
    data_hashing,
    digest_speed,
    fleet,
    gate_overhead,
    growth,
    probe_memory,
    sketch,
    step_overhead,
)
from benchmarks.figure import (
    ROOT,
    Figure,
    describe_machine,
    from_json,
    show,
    write_results,
)

CPU = {
    "gate_overhead": gate_overhead,
    "step_overhead": step_overhead,
    "digest_speed": digest_speed,
    "probe_memory": probe_memory,
    "data_hashing": data_hashing,
    "cost_coverage": cost_coverage,
    "alternating": alternating,
    "growth": growth,
    "fleet": fleet,
    "sketch": sketch,
}
RESULTS = ROOT / "benchmarks" / "results"
PAGE, MARKS = (
    ROOT / "benchmarks" / "README.md",
    ("<!-- results -->", "<!-- /results -->"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for. Exit code 1 where a goal is not met, so that a script can
    tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny settings: does it run at all?"
    )
    parser.add_argument(
        "--container",
        action="store_true",
        help="what needs a container engine, and only that",
    )
    parser.add_argument(
        "--only",
        choices=CPU,
        action="append",
        help="just this measurement; may be given often",
    )
    parser.add_argument("--out", type=Path, help="where to write the figures")
    options = parser.parse_args(arguments)
    machine = describe_machine()
    print("\n".join(f"{name}: {value}" for name, value in machine.items()))
    figures: dict[str, list[Figure]] = {}
    for name in _asked(options):
        module = _module(name)
        print(f"\n{name}: {(module.__doc__ or '').splitlines()[0]}", flush=True)
        began = time.monotonic()
        figures[name] = module.measure(
            module.QUICK if options.quick else module.Settings()
        )
        print(
            "\n".join(map(show, figures[name])),
            f"  {time.monotonic() - began:.0f} s",
            sep="\n",
            flush=True,
        )
    out = options.out or (
        None
        if options.quick or options.only
        else RESULTS / f"{'container' if options.container else 'cpu'}.json"
    )
    if out is not None:
        write_results(out, options.quick, machine, figures)
        print(f"\nwrote {out}")
        if out == RESULTS / "cpu.json":
            PAGE.write_text(
                with_results(
                    PAGE.read_text(encoding="utf-8"),
                    json.loads(out.read_text(encoding="utf-8")),
                ),
                encoding="utf-8",
            )
    missed = [
        figure.name
        for found in figures.values()
        for figure in found
        if figure.met is False
    ]
    print(f"goals missed: {', '.join(missed)}" if missed else "every goal met")
    return 0 if options.quick or not missed else 1


def with_results(page: str, document: Mapping[str, Any]) -> str:
    """The page with the lines of a results file between its two marks."""
    before, rest = page.split(MARKS[0])
    machine, figures = document["machine"], document["figures"]
    named = ", ".join(
        f"{name} {machine[name]}"
        for name in ("cpu", "processors", "memory_gib", "python", "torch")
    )
    lines = [
        f"{named}; {document['taken'][:10]}",
        *(show(from_json(item)) for found in figures.values() for item in found),
    ]
    return (
        f"{before}{MARKS[0]}\n```text\n"
        + "\n".join(lines)
        + f"\n```\n{MARKS[1]}{rest.split(MARKS[1])[1]}"
    )


def _asked(options: argparse.Namespace) -> list[str]:
    return ["action"] if options.container else options.only or list(CPU)


def _module(name: str) -> Any:
    """A measurement by its name. The action's is imported only where it is asked for: it stands on
    the container's tests."""
    if name == "action":
        from benchmarks import action

        return action
    return CPU[name]


if __name__ == "__main__":
    sys.exit(main())
