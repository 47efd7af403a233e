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

QUICK_DTYPES = ("float32", "bfloat16", "int64")
_LIMIT = {  # what the rows cannot show
    "cuda": "CUBLAS_WORKSPACE_CONFIG was set with the flags off too: races that it prevents do not "
    "show, nor does its price",
    "cpu": "torch computes with one thread here: no kernel of the CPU can race",
}
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

        answer(torch, request, write)
        write({"done": True})


def answer(torch: Any, request: dict[str, Any], write: Callable[[Any], None]) -> None:
    """Write the lines of one request."""
    device, quick = request["device"], request.get("quick")
    flags.switch(torch, False)
    if torch.backends.mkl.is_available():
        # two threads in a process's first call of MKL's vector math race, whatever the operator
        torch.ones(1).sqrt()
    if device == "cuda":
        torch.cuda.init()
    load, settings = Load(torch, device), Settings(**request["settings"])
    cases, notes = catalog(torch, device, request)
    notes += assign(cases, torch.use_deterministic_algorithms.__doc__ or "", device)

    def measure(case: Case, dtype: str, direction: str, dear: bool = False) -> None:
        write({"began": [case.name, dtype, direction]})
        measurement = Measurement(torch, load, case, dtype, direction)
        write({"row": measurement.measure(settings._replace(dear=dear))})

    if request["mode"] == "measure":
        by_name = {case.name: case for case in cases}
        for name, dtype, direction, dear in request["rows"]:
            measure(by_name[name], dtype, direction, dear)
        return
    write({"about": about(torch, device)})
    controls = [case for case in cases if case.name.startswith("control/")]
    for case in controls:
        measure(case, "float32", "forward")
    for case in matching(cases[len(controls) :], request.get("pattern", "")):
        few = tuple(name for name in case.dtypes if name in QUICK_DTYPES) or case.dtypes[:1]
        for dtype in few if quick else case.dtypes:
            for direction in case.directions(dtype) if not (quick and case.compiled) else ():
                write({"listed": [case.name, dtype, direction]})
    if device == "cuda" or torch.get_num_threads() == 1:
        notes.append(_LIMIT[device])
    for note in notes:
        write({"note": note})


def about(torch: Any, device: str) -> dict[str, str]:
    """Return the facts of the platform by the names that a trace has."""
    found = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "cpu-isa": torch.backends.cpu.get_cpu_capability(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "gpu-model": torch.cuda.get_device_properties(0).name if device == "cuda" else "",
    }
    return {name: str(value) for name, value in found.items()}


def matching(cases: Sequence[Case], pattern: str) -> list[Case]:
    """Return the cases with the text, or what fits the shell pattern, in their name; capitals are
    ignored."""
    wanted = "*%s*" % pattern.lower()
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
