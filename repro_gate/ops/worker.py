"""What runs in the training's interpreter for `repro-gate ops`: lists the catalog's cases, or
measures some of them.

    python …/repro_gate/ops REQUEST.json

The request is one JSON object, the answer is JSON lines appended to the file that it names as
`out`, since libraries print to standard output. `mode` is `list`, `measure` or `controls`. Every
answer begins with one line {"about": …} and ends with {"done": true}; before each row there is a
line {"began": …}, so that whoever started this knows which row crashed the process or never ended,
and can start it again with that row in `skip`. Rows in `dear` get a price in any case. Flags are
off when this starts; `CUBLAS_WORKSPACE_CONFIG` and limits are set by whoever starts it.
"""

from __future__ import annotations

import fnmatch
import json
import logging
import sys
import time
import warnings
from typing import Any, Dict, List, Sequence

from . import about, documented, flags
from .case import SIZES, Case
from .cases import catalog
from .contention import Contention
from .controls import controls
from .measure import Settings, measure

QUICK_DTYPES = ("float32", "bfloat16", "int64")


def main(arguments: Sequence[str]) -> int:
    """Answer one request; 2 where it cannot be read."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python …/repro_gate/ops REQUEST.json\n")
        return 2
    with open(arguments[0], encoding="utf-8") as file:
        request = json.load(file)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    sys.path[:0] = [str(entry) for entry in request.get("path", [])]
    import torch

    with open(request["out"], "a", encoding="utf-8") as out:
        answer(torch, request, out)
    return 0


def answer(torch: Any, request: Dict[str, Any], out: Any) -> None:
    """Write the lines of one request."""
    device, mode = str(request.get("device", "cpu")), str(request["mode"])
    flags.settle(torch, device)
    cases, notes = ([], []) if mode == "controls" else catalog(torch, device, request)
    missing = documented.assign(cases, documented.entries(torch))
    _write(out, {"about": about.describe(torch, device, notes)})
    if mode == "list":
        for line in _listed(cases, missing, device, request):
            _write(out, line)
    else:
        _measure_all(torch, controls(device) if mode == "controls" else cases, request, out)
    _write(out, {"done": True})


def matching(cases: Sequence[Case], pattern: str) -> List[Case]:
    """The cases whose name fits a shell pattern, or has the text in it where it is none; capitals
    are ignored."""
    wanted = pattern.lower()
    if any(sign in wanted for sign in "*?["):
        return [case for case in cases if fnmatch.fnmatchcase(case.name.lower(), wanted)]
    return [case for case in cases if wanted in case.name.lower()]


def dtypes_of(case: Case, request: Dict[str, Any]) -> List[str]:
    """The dtypes of one case in this request; `quick` keeps few, and one in any case."""
    if request.get("dtypes"):
        return [dtype for dtype in case.dtypes if dtype in request["dtypes"]]
    few = [dtype for dtype in case.dtypes if dtype in QUICK_DTYPES] or list(case.dtypes[:1])
    return few if request.get("quick") else list(case.dtypes)


def wanted(cases: Sequence[Case], request: Dict[str, Any]) -> List[Case]:
    """The cases that a request without names is about."""
    found = [case for case in cases if not (request.get("quick") and case.slow)]
    return matching(found, str(request.get("pattern") or ""))


def _listed(
    cases: Sequence[Case], missing: Sequence[documented.Entry], device: str, request: Dict[str, Any]
) -> List[Dict[str, Any]]:
    lines: List[Dict[str, Any]] = []
    for case in wanted(cases, request):
        kinds = case.documented
        lines.append(
            {
                "case": case.name,
                "operator": case.operator,
                "source": case.source,
                "documented": next(iter(kinds.get(device, {}).values()), ""),
                "documented_on": {place: dict(of) for place, of in sorted(kinds.items())},
                "dtypes": dtypes_of(case, request),
                "rows": [
                    [dtype, direction]
                    for dtype in dtypes_of(case, request)
                    for direction in case.directions(dtype)
                ],
                "random": case.random,
            }
        )
    if not request.get("pattern"):
        lines += [
            {
                "case": "documented/" + entry.text[:120],
                "operator": entry.text,
                "source": "documented",
                "documented": entry.kind if device in entry.devices else "",
                "documented_on": {
                    place: dict.fromkeys(entry.directions, entry.kind) for place in entry.devices
                },
                "dtypes": [],
                "rows": [],
                "random": False,
                "outcome": "no case",
            }
            for entry in missing
        ]
    return lines


def _measure_all(torch: Any, cases: Sequence[Case], request: Dict[str, Any], out: Any) -> None:
    device, by_name = str(request.get("device", "cpu")), {case.name: case for case in cases}
    settings = Settings(
        **{"sizes": 1 if request.get("quick") else SIZES, **request.get("settings", {})}
    )
    skipped, dear = ({tuple(item) for item in request.get(key, [])} for key in ("skip", "dear"))
    load = Contention(torch, device)
    try:
        for name in request.get("cases") or [case.name for case in wanted(cases, request)]:
            if name not in by_name:
                _write(out, {"case": name, "missing": True})
                continue
            case = by_name[name]
            for dtype in dtypes_of(case, request):
                for direction in case.directions(dtype):
                    if (name, dtype, direction) in skipped:
                        continue
                    _write(
                        out,
                        {
                            "began": {
                                "case": name,
                                "dtype": dtype,
                                "direction": direction,
                                "at": round(time.time(), 3),
                            }
                        },
                    )
                    row = {
                        "case": name,
                        "operator": case.operator,
                        "source": case.source,
                        "dtype": dtype,
                        "direction": direction,
                    }
                    row["documented"] = case.documented.get(device, {}).get(direction, "")
                    chosen = settings._replace(dear=(name, dtype, direction) in dear)
                    row.update(measure(torch, case, device, dtype, direction, chosen, load))
                    _write(out, row)
    finally:
        load.stop()


def _write(out: Any, line: Dict[str, Any]) -> None:
    out.write(json.dumps(line) + "\n")
    out.flush()
