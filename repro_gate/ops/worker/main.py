"""Answers one request of the gate: measures the two controls and lists the cases (`list`), or
measures some rows (`measure`).

The request is one JSON object, the answer is JSON lines appended to the file that it names as
`out`, since libraries print to standard output. A list is the controls' rows, each case with its
dtypes and directions, and {"about": …}. Before each row there is a line {"began": …}, so that
whoever started this knows which row crashed the process or never ended, and can start it again
without that one. Every answer ends with {"done": true}. Flags are off when this starts;
`CUBLAS_WORKSPACE_CONFIG` and limits are set by whoever starts it.
"""

from __future__ import annotations

import fnmatch
import json
import logging
import platform
import re
import sys
import warnings
from typing import Any, Callable, Sequence

from . import flags
from .case import Case
from .cases import catalog
from .measure import Load, Measurement, Settings

Write = Callable[[Any], None]
QUICK_DTYPES = ("float32", "bfloat16", "int64")
_HEADINGS = (
    (r"will act\s+deterministically when ``mode", "deterministic"),
    (r"will throw a\s+:class:`RuntimeError` when ``mode", "raises"),
)
_ENDS = r"\n\s*(?:In addition|Note that|\.\. note|The following|Args:)|\Z"
_BULLET = re.compile(r"^\s*\* (?=:\w+:`)", re.MULTILINE)


def main(path: str) -> None:
    """Answer the request in a file."""
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    sys.path[:0] = request.get("path", [])
    import torch

    with open(request["out"], "a", encoding="utf-8") as out:

        def write(line: Any) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()

        _settle(torch, request["device"])
        {"list": _list, "measure": _measure}[request["mode"]](torch, request, write)
        write({"done": True})


def _settle(torch: Any, device: str) -> None:
    """Switch the flags off, and do what a process does only once: two threads in its first call of
    MKL's vector math race, whatever the operator."""
    flags.switch(torch, False)
    if torch.backends.mkl.is_available():
        torch.ones(1).sqrt()
    if device == "cuda":
        torch.cuda.init()


def _list(torch: Any, request: dict[str, Any], write: Write) -> None:
    device, load = request["device"], Load(torch, request["device"])
    # names as a trace has them
    about = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "cpu-isa": torch.backends.cpu.get_cpu_capability(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }
    if device == "cuda":
        about["gpu-model"] = torch.cuda.get_device_properties(0).name
    write({"about": {name: str(value) for name, value in about.items()}})
    cases, notes = catalog(torch, device, request)
    controls = [case for case in cases if case.name.startswith("control/")]
    for case in controls:
        _row(torch, device, load, case, "float32", "forward", request, write)
    cases = cases[len(controls) :]
    if not request.get("user"):
        notes += assign(cases, torch.use_deterministic_algorithms.__doc__ or "", device)
    for case in matching(cases, request.get("pattern", "")):
        if request.get("quick") and case.compiled:
            continue
        dtypes = case.dtypes
        if request.get("quick"):
            dtypes = tuple(name for name in dtypes if name in QUICK_DTYPES) or dtypes[:1]
        for dtype in dtypes:
            for direction in case.directions(dtype):
                write({"listed": [case.name, dtype, direction]})
    for note in notes:
        write({"note": note})


def _measure(torch: Any, request: dict[str, Any], write: Write) -> None:
    device, load = request["device"], Load(torch, request["device"])
    cases, _ = catalog(torch, device, request)
    assign(cases, torch.use_deterministic_algorithms.__doc__ or "", device)
    by_name = {case.name: case for case in cases}
    for name, dtype, direction, dear in request["rows"]:
        _row(torch, device, load, by_name[name], dtype, direction, request, write, dear=dear)


def _row(
    torch: Any,
    device: str,
    load: Load,
    case: Case,
    dtype: str,
    direction: str,
    request: dict[str, Any],
    write: Write,
    dear: bool = False,
) -> None:
    write({"began": [case.name, dtype, direction]})
    measurement = Measurement(torch, device, load, case, dtype, direction)
    write({"row": measurement.measure(Settings(**request["settings"]), dear)})


def matching(cases: Sequence[Case], pattern: str) -> list[Case]:
    """Return the cases whose name fits a shell pattern, or has the text in it if it is none;
    capitals are ignored. A pattern without a slash is about the name behind the source."""
    wanted = pattern.lower()
    if not any(sign in wanted for sign in "*?["):
        return [case for case in cases if wanted in case.name.lower()]
    wanted = wanted if "/" in wanted else "*/" + wanted
    return [case for case in cases if fnmatch.fnmatchcase(case.name.lower(), wanted)]


def assign(cases: Sequence[Case], documentation: str, device: str) -> list[str]:
    """Tell each case what the list in torch's documentation says of it on this device. Return a
    sentence for each entry that no case measures.

    A layer's entry is of both directions, a function's of the forward, unless it speaks of
    differentiating.
    """
    missing = []
    for heading, kind in _HEADINGS:
        section = re.split(_ENDS, "".join(re.split(heading, documentation)[1:]))[0]
        for part in _BULLET.split(section)[1:]:
            entry = " ".join(part.split()).replace("``", "")
            entry = re.sub(r":\w+:`~?([^`]*)`", r"\1", entry)
            named = re.findall(r"\b(CPU|CUDA)\b", entry)
            if named and device.upper() not in named:
                continue
            directions = ["forward"] + ["backward"] * entry.startswith("torch.nn.")
            if re.search(r"differentiate|requires grad", entry):
                directions = ["backward"]
            measuring = [case for case in cases if case.entry and re.search(case.entry, entry)]
            for case in measuring:
                case.documented.update(dict.fromkeys(directions, kind))
            if not measuring:
                missing.append("no case measures what torch documents (%s): %s" % (kind, entry))
    return missing
