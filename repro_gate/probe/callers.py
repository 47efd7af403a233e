"""Which line of the workspace is at work: the nearest one on the stack. Asked by `flags`, `opened` and `entropy`; cheap when repeated."""

from __future__ import annotations

import os
from types import FrameType
from typing import Dict, Optional, Tuple

_ROOT = [""]  # the workspace's real path with a separator behind it; empty where there is none
_START = [""]  # the folder that the process started in: a script's frames may carry the relative path that it was started by
_KNOWN: Dict[str, str] = {}


def start(workspace: str) -> None:
    """Set the workspace, once in each process."""
    _ROOT[0] = os.path.realpath(workspace) + os.sep if workspace else ""
    _START[0] = os.getcwd()
    _KNOWN.clear()


def inside(filename: str) -> str:
    """The path relative to the workspace of a code object's file; empty where it lies outside, or is not a file."""
    known = _KNOWN.get(filename)
    if known is None:
        if len(_KNOWN) > 100_000:
            _KNOWN.clear()
        known = _KNOWN[filename] = _inside(filename)
    return known


def nearest(frame: Optional[FrameType]) -> Tuple[str, int]:
    """(file, line) of the first frame of the workspace from `frame` outwards; ("", 0) where there is none."""
    while frame is not None:
        file = inside(frame.f_code.co_filename)
        if file:
            return file, frame.f_lineno
        frame = frame.f_back
    return "", 0


def _inside(filename: str) -> str:
    if not _ROOT[0] or filename.startswith("<"):
        return ""
    real = os.path.realpath(os.path.join(_START[0], filename))
    return real[len(_ROOT[0]) :] if real.startswith(_ROOT[0]) else ""
