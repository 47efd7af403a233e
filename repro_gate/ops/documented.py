"""The list in `torch.use_deterministic_algorithms`, as the torch at hand documents it, and which
case measures which entry."""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from .case import Case

_HEADINGS = (
    (r"will act\s+deterministically when ``mode", "deterministic"),
    (r"will throw a\s+:class:`RuntimeError` when ``mode", "raises"),
)
_ENDS = r"\n\s*(?:In addition|Note that|\.\. note|The following|Args:)"
_BULLET = re.compile(r"^\s*\* (?=:\w+:`)", re.MULTILINE)
DIRECTIONS = ("forward", "backward")


class Entry(NamedTuple):
    """One entry: its text without markup, what torch says of it, and where. A layer's entry is of
    both directions, a function's of the forward, unless it speaks of differentiating."""

    text: str
    kind: str  # "deterministic" or "raises"
    devices: Tuple[str, ...]
    directions: Tuple[str, ...]


def entries(torch: Any) -> List[Entry]:
    """Every entry, in the order of the documentation."""
    text = torch.use_deterministic_algorithms.__doc__ or ""
    found = []
    for heading, kind in _HEADINGS:
        start = re.search(heading, text)
        if start is None:
            continue
        section = text[start.end() :]
        end = re.search(_ENDS, section)
        section = section[: end.start()] if end else section
        found += [_entry(part, kind) for part in _BULLET.split(section)[1:]]
    return found


def _entry(markup: str, kind: str) -> Entry:
    text = re.sub(r":\w+:`~?([^`]*)`", r"\1", " ".join(markup.split())).replace("``", "")
    devices = tuple(
        device for device in ("cpu", "cuda") if re.search(r"\b%s\b" % device.upper(), text)
    ) or ("cpu", "cuda")
    if re.search(r"differentiate|requires grad", text):
        return Entry(text, kind, devices, ("backward",))
    return Entry(text, kind, devices, DIRECTIONS if text.startswith("torch.nn.") else ("forward",))


def assign(cases: Sequence[Case], found: Sequence[Entry]) -> List[Entry]:
    """Tell each case what is documented of it, as (device -> direction -> kind); the entries that
    no case measures are returned."""
    missing = []
    for entry in found:
        measuring = [case for case in cases if case.entry and re.search(case.entry, entry.text)]
        for case in measuring:
            for device in entry.devices:
                kinds: Dict[str, str] = case.documented.setdefault(device, {})
                kinds.update(dict.fromkeys(entry.directions, entry.kind))
        if not measuring:
            missing.append(entry)
    return missing
