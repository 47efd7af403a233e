"""Which line of the workspace is at work: the nearest one on the stack. Cheap when repeated."""

from __future__ import annotations

import functools
import os
from types import FrameType
from typing import Dict, Optional, Tuple

_PLACE: Dict[str, str] = {}  # `root`: the workspace's real path with a separator; `start`: where relative paths of scripts begin


def start(workspace: str) -> None:
    """Set the workspace, once in each process. Empty: there is none."""
    _PLACE.update(root=os.path.realpath(workspace) + os.sep if workspace else "", start=os.getcwd())
    inside.cache_clear()


@functools.lru_cache(maxsize=100_000)
def inside(filename: str) -> str:
    """The path relative to the workspace of a code object's file; empty where it lies outside, or is not a file."""
    root = _PLACE["root"]
    if not root or filename.startswith("<"):
        return ""
    real = os.path.realpath(os.path.join(_PLACE["start"], filename))
    return real[len(root) :] if real.startswith(root) else ""


def nearest(frame: Optional[FrameType]) -> Tuple[str, int]:
    """(file, line) of the first frame of the workspace from `frame` outwards; ("", 0) where there is none."""
    frame = nearest_frame(frame)
    return ("", 0) if frame is None else (inside(frame.f_code.co_filename), frame.f_lineno)


def nearest_frame(frame: Optional[FrameType]) -> Optional[FrameType]:
    """The first frame of the workspace from `frame` outwards; None where there is none."""
    while frame is not None and not inside(frame.f_code.co_filename):
        frame = frame.f_back
    return frame
