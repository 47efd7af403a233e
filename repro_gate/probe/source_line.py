"""Which line of the workspace is at work: the nearest one on the stack, of a notebook that of its
cell. Cheap when repeated.

Of a process that recorded nothing, `largest_loop` is the line that looks like its training, so that
the gate can say where two lines are to be added.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import tokenize
from collections.abc import Iterator
from types import FrameType
from typing import Any

from ..trace import notebook
from ..trace.format import MAX_NAME
from .process import imported_files

# `root`: the workspace's real path with a separator; `start`: where relative paths of scripts begin
_PLACE: dict[str, Any] = {}
_ENTRIES = 20_000  # of the workspace that are looked at for notebooks
_CELLS = 1_000_000  # characters of cells that are hashed
# What runs a notebook, and what that is made of.
_JUPYTER = re.compile(
    r"(IPython|comm|ipykernel|ipywidgets|jupyter_client|jupyter_core|nbclient|nbconvert|nbformat|"
    r"papermill|tornado|traitlets|zmq)(\.|$)"
)
_MODULES = 200  # of the workspace, that are searched for the largest loop
_BYTES = 1 << 20  # of one of them
_CODE = 200  # characters of one line of code
_scandir, _stat, _open = os.scandir, os.stat, open  # before anything is wrapped


def start(workspace: str, started: float) -> None:
    """Set the workspace, once in each process, before anything is asked. `started`: when the run
    began; what is newer was made by it."""
    _PLACE.update(
        root=os.path.realpath(workspace) + os.sep,
        start=os.getcwd(),
        started=started,
    )


@functools.lru_cache(maxsize=100_000)
def inside(filename: str) -> str:
    """Return the path relative to the workspace of a code object's file; empty where it lies
    outside, or is not a file. The code of a notebook's cell has the notebook and the cell for its
    file."""
    root = _PLACE["root"]
    if filename.startswith("<"):
        return ""
    # not before: the table of cells is made once
    if "ipykernel_" in filename and "ipykernel.compiler" in sys.modules:
        cell = _cells().get(os.path.basename(filename))
        if cell:
            return cell
    real = os.path.realpath(os.path.join(_PLACE["start"], filename))
    return real[len(root) :][:MAX_NAME] if real.startswith(root) else ""


def nearest(frame: FrameType | None) -> tuple[str, int]:
    """Return (file, line) of the first frame of the workspace from `frame` outwards; ("", 0) where
    there is none."""
    frame = nearest_frame(frame)
    return (inside(frame.f_code.co_filename), frame.f_lineno) if frame else ("", 0)


def nearest_frame(frame: FrameType | None) -> FrameType | None:
    """Return the first frame of the workspace from `frame` outwards; None where there is none."""
    while frame is not None and not inside(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


@functools.lru_cache(maxsize=20_000)
def code_of(line: str, goes_on: bool = False) -> str:
    """Return the code of one line without its comment, with `…` at its end if the statement goes
    on, which open brackets show, and open strings."""
    code = line
    try:
        for token in tokenize.generate_tokens(iter([line]).__next__):
            if token.type == tokenize.COMMENT:
                code = line[: token.start[1]]
    except (tokenize.TokenError, SyntaxError) as error:
        goes_on = goes_on or "EOF" in str(error) or "triple-quoted" in str(error)
    code = code.strip()
    goes_on = goes_on or code.endswith("\\")
    code = code.rstrip("\\ ") if goes_on else code
    return code[: _CODE - 1] + "…" if goes_on or len(code) > _CODE else code


def module_of(frame: FrameType) -> str:
    """Return the name of the module whose code a frame runs."""
    return str(frame.f_globals.get("__name__", ""))


def of_jupyter(frame: FrameType | None) -> bool:
    """Return whether what runs a notebook asks for ends of its own: it is nearer on the stack than
    any line of the training."""
    if "jupyter_core" not in sys.modules:
        return False
    while frame is not None and not inside(frame.f_code.co_filename):
        module = module_of(frame)
        if _JUPYTER.match(module):
            return True
        if module == "__main__":  # a cell that a magic such as `%%time` runs
            return False
        frame = frame.f_back
    return False


@functools.lru_cache(maxsize=1)
def _cells() -> dict[str, str]:
    """Return the cells of the workspace's notebooks, by the file name without folder that ipykernel
    gives to their code, a hash of the text."""
    cells: dict[str, str] = {}
    left = _CELLS
    with contextlib.suppress(Exception):
        for path in _notebooks(_PLACE["root"]):
            if left <= 0:
                break
            with _open(path, "rb") as file:
                content = file.read(notebook.MAX_BYTES)
            left -= len(content)
            # what cannot be read hides no other notebook
            with contextlib.suppress(Exception):
                for number, text in enumerate(notebook.code_cells(content), 1):
                    name = sys.modules["ipykernel.compiler"].get_file_name(text)
                    cell = notebook.cell_name(path[len(_PLACE["root"]) :], number)
                    cells.setdefault(os.path.basename(name), cell)
    return cells


def _notebooks(root: str) -> Iterator[str]:
    """Return the notebooks that were there before the run, those nearest to the root first. Links
    are not followed."""
    folders = [root]
    left = _ENTRIES
    while folders and left > 0:
        with _scandir(folders.pop(0)) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
        left -= len(entries)
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif (
                entry.name.endswith(notebook.SUFFIX)
                and entry.is_file(follow_symlinks=False)
                and _stat(entry.path).st_ctime < _PLACE["started"]
            ):
                yield entry.path


def largest_loop() -> str:
    """Return `train.py:12`: the loop with the most code, among the modules of the workspace that
    this process has loaded; empty without one, and where they cannot be read."""
    import ast

    largest = (0, "")
    paths = list[str]()
    with contextlib.suppress(Exception):
        files = {file for _, file in imported_files() if file.endswith(".py")}
        paths = sorted(filter(inside, files))
    for path in paths[:_MODULES]:
        # not what it was when it was imported, or nested too deep
        with contextlib.suppress(Exception), open(path, "rb") as file:
            for node in ast.walk(ast.parse(file.read(_BYTES))):
                if isinstance(node, (ast.For, ast.While)):
                    size = sum(1 for _ in ast.walk(node))
                    largest = max(largest, (size, f"{inside(path)}:{node.lineno}"))
    return largest[1]
