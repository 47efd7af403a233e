"""What differs between two runs though nothing recorded does: printed numbers, written files,
modules that no optimizer updates. A difference found here is a notice, never a failure. Pure."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence

from repro_gate.compare.printed import differing_numbers
from repro_gate.compare.traces import processes
from repro_gate.compare.written import Left, differing_files
from repro_gate.escape import listed
from repro_gate.spec.errors import escaped, shortened
from repro_gate.trace.model import Trace

_SHOWN = 3  # printed numbers in a notice
_NAMED = 4  # files or folders in a notice


def notices(a: Left, b: Left) -> dict[str, tuple[str, str]]:
    """Return id of a notice -> (message, remedy), at most one for files and one for the log."""
    found: dict[str, tuple[str, str]] = {}
    names, cut = differing_files(a, b), a.cut or b.cut
    numbers = differing_numbers(a.printed, b.printed)
    if names:
        message = f"{len(names):,} undeclared files that the runs wrote differ: {_folded(names)}"
        message += f" (looked at: {cut})" if cut else ""
        found["unrecorded/files"] = (message, "declare under capture.artifacts what has to repeat")
    elif cut:
        found["unrecorded/files"] = (f"not every file that the runs wrote was compared: {cut}", "")
    if numbers:
        shown = listed(
            [
                f"`{escaped(name)} {shortened(left)}` against `{shortened(right)}`"
                for name, left, right in numbers
            ],
            _SHOWN,
        )
        message = f"printed numbers differ between the two deterministic runs: {shown}"
        found["unrecorded/log"] = (
            message,
            "evaluate with a seeded sampler, or call repro_gate.record to compare it",
        )
    return found


def _folded(names: Sequence[str]) -> str:
    entries = list(names)
    if len(names) > _NAMED:
        groups: dict[str, list[str]] = defaultdict(list)
        for name in names:
            groups[name.split("/")[0] if "/" in name else name].append(name)
        entries = [
            members[0]
            if len(members) == 1
            else f"{os.path.commonpath([os.path.dirname(name) for name in members])}/ "
            f"({len(members):,} files)"
            for members in groups.values()
        ]
    return listed([shortened(escaped(entry)) for entry in entries], _NAMED)


def differing_modules(a: Sequence[Trace], b: Sequence[Trace]) -> tuple[str, ...]:
    """Modules without an optimizer, and attributes of modules, that differ. Of what goes by one
    name, as many must be there in both runs: what one has more of may be garbage that is not yet
    collected."""
    first, second = processes(a), processes(b)
    found: dict[str, None] = {}
    for label, trace in first.items():
        ours, theirs = _by_name(trace), _by_name(second[label]) if label in second else {}
        for key, digests in ours.items():
            if len(theirs.get(key, ())) == len(digests) and theirs[key] != digests:
                found[
                    f"module {key[1]} (no optimizer)"
                    if key[0] == "module"
                    else f"attribute {key[1]}"
                ] = None
    return tuple(found)


def _by_name(trace: Trace) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for what, name, digest in sorted(trace.unmoved):
        found.setdefault((what, name), []).append(digest)
    return found
