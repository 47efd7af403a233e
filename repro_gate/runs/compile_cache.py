"""Copies the first run's compile cache for the runs that may start from one (`train.compile-cache`), so that they need not compile again.

Each run writes to a folder of its own, and only the gate copies. What a run left is untrusted: no link is followed, the copy is bounded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path

from repro_gate.files import copy_file, remove_tree

FOLDER = "compile-cache"  # below the run's own TMPDIR
MAX_ENTRIES, MAX_BYTES, MAX_DEPTH = 50_000, 4 * 1024**3, 16


def variables(temporary: Path) -> Mapping[str, str]:
    """Where Inductor and Triton keep what they compiled, below a run's folder for temporary files."""
    folder = temporary / FOLDER
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton")}


def copy_cache(source: Path, target: Path, sight: Callable[[], AbstractContextManager[None]] = nullcontext) -> bool:
    """Copy a cache's folders and regular files to `target`, which must not exist. `source` is looked at inside `sight()`, with the rights
    of whoever wrote it, once nothing writes to it any more. False, and nothing at `target`, where it is not a folder or too large."""
    entries, size, waiting = 0, 0, [(source, target, 0)]
    try:
        while waiting:
            folder, copy, depth = waiting.pop()
            copy.mkdir()
            with sight():
                if folder.is_symlink() or depth > MAX_DEPTH:
                    raise OSError("no folder of a cache")
                with os.scandir(folder) as listed:
                    found = list(islice(listed, MAX_ENTRIES))
                here = [(item.name, item.is_dir(follow_symlinks=False), item.is_file(follow_symlinks=False)) for item in found]
            entries += len(here)
            for name, is_folder, is_file in here:
                if is_folder:
                    waiting.append((folder / name, copy / name, depth + 1))
                elif is_file:
                    with sight():
                        size += os.lstat(folder / name).st_size
                    if size > MAX_BYTES:
                        raise OSError("too many bytes")
                    copy_file(folder / name, copy / name, sight)
            if entries >= MAX_ENTRIES:
                raise OSError("too many files")
    except OSError:
        remove_tree(target)
        return False
    return True
