"""`python benchmarks/run.py [--quick] [--only NAME]`: every CPU measurement, one after the other, printed and written to results/cpu.json.

A smoke run (`--quick`) writes nothing unless `--out` names a file, and its figures mean nothing.
"""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import digest_speed, gate_overhead, probe_memory, step_overhead  # noqa: E402  the folder above is on the path only now
from benchmarks.figure import ROOT, Figure, describe_machine, show, write_results  # noqa: E402

MEASUREMENTS = {"gate_overhead": gate_overhead, "step_overhead": step_overhead, "digest_speed": digest_speed, "probe_memory": probe_memory}
RESULTS = ROOT / "benchmarks" / "results" / "cpu.json"


def main() -> int:
    """Run what was asked for; exit code 1 where a goal is not met, so that a script can tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny settings: does it run at all?")
    parser.add_argument("--only", choices=MEASUREMENTS, action="append", help="just this measurement; may be given often")
    parser.add_argument("--out", type=Path, help=f"where to write the figures (default: {RESULTS.relative_to(ROOT)}; nothing with --quick or --only)")
    options = parser.parse_args()
    machine = describe_machine()
    print("  ".join(f"{name}: {value}" for name, value in machine.items()))
    figures: dict[str, list[Figure]] = {}
    for name in options.only or MEASUREMENTS:
        module = MEASUREMENTS[name]
        print(f"{name}: {(module.__doc__ or '').splitlines()[0]}", flush=True)
        figures[name] = module.measure(module.QUICK if options.quick else module.Settings())
        print("\n".join(map(show, figures[name])), flush=True)
    out = options.out or (None if options.quick or options.only else RESULTS)
    if out is not None:
        write_results(out, options.quick, machine, figures)
        print(f"wrote {out}")
    missed = [figure.name for found in figures.values() for figure in found if figure.met is False]
    print(f"goals missed: {', '.join(missed)}" if missed else "every goal met")
    return 0 if options.quick or not missed else 1


if __name__ == "__main__":
    sys.exit(main())
