"""Reads the files that a run made or changed in its workspace, and digests each, within limits on
number, bytes and time.

The files are untrusted: no link is followed, and only regular files are opened, with the rights of
the training's user.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import stat
import time
import zipfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from repro_gate.compare.unrecorded import MAX_TEXT, TEXTS, Written, ignored
from repro_gate.escape import counted
from repro_gate.files import closing, digest_of_blocks, written_blocks
from repro_gate.sandbox.identity import Sandbox, as_training_user, open_written

MAX_FILES = 10_000
MAX_BYTES = 10 * 2**30  # without holes
MAX_TEXTS = 2**20  # bytes of all texts that are kept
MAX_SECONDS = 60.0  # for one run
MAX_VISITED = 200_000  # folder entries
_MAX_DIRECTORY = 8 * 2**20  # bytes of a zip file's directory


def changed_files(
    workspace: Path,
    snapshot: Path,
    sandbox: Sandbox,
    declared: Collection[str],
    older: int = 0,
) -> tuple[dict[str, Written], str]:
    """Return the files that a run made or changed below `workspace`, by path, without `declared`;
    and if not all, why. A file is unchanged if it has the size and the time of its original in
    `snapshot`, minus `older` ns. Call this only after all processes of the run have ended.
    """
    until = time.monotonic() + MAX_SECONDS
    with as_training_user(sandbox):
        listed, whole = _listed(os.fspath(workspace), until)
    written = dict[str, Written]()
    size = 0
    texts = MAX_TEXTS
    for name, state in sorted(listed, key=lambda item: os.fsencode(item[0])):
        if name in declared or _unchanged(snapshot / name, state, older):
            continue
        size += min(state.st_size, state.st_blocks * 512)
        if len(written) >= MAX_FILES or size > MAX_BYTES or time.monotonic() > until:
            whole = False
            break
        # Of what the training itself cannot read, or what is not its own, nothing is said.
        with suppress(OSError):
            most = min(texts, MAX_TEXT)
            item = _read(workspace / name, sandbox, state.st_size, most, until)
            if time.monotonic() < until:  # else its end may be missing
                texts -= len(item.text or b"")
                written[name] = item
    whole = whole and time.monotonic() < until
    return written, "" if whole else (
        f"only {counted(len(written), 'file', 'were')} looked at, the limit for one run is "
        f"{MAX_FILES:,} files, {MAX_BYTES // 2**30} GiB and {MAX_SECONDS:g} s"
    )


def _listed(root: str, until: float) -> tuple[list[tuple[str, os.stat_result]], bool]:
    """Return the regular files below `root` without following links, and whether these are all."""
    files = list[tuple[str, os.stat_result]]()
    waiting = [""]
    left = MAX_VISITED
    while waiting:
        folder = waiting.pop()
        with suppress(OSError), os.scandir(os.path.join(root, folder)) as entries:
            for entry in entries:
                left -= 1
                if left < 0 or time.monotonic() > until:
                    return files, False
                name = os.path.join(folder, entry.name)
                with suppress(OSError):
                    state = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(state.st_mode) and not ignored(f"{name}/-"):
                        waiting.append(name)
                    elif stat.S_ISREG(state.st_mode) and not ignored(name):
                        files.append((name, state))
    return files, True


def _unchanged(original: Path, state: os.stat_result, older: int) -> bool:
    with suppress(OSError):
        was = os.lstat(original)
        time_and_size = was.st_mtime_ns - older, was.st_size
        return time_and_size == (state.st_mtime_ns, state.st_size)
    return False


def _read(path: Path, sandbox: Sandbox, size: int, most: int, until: float) -> Written:
    """Return one file's digest, only of its beginning if the time is over. Raises OSError."""
    suffix = path.suffix.lower()
    is_text = 0 < size <= most and suffix in TEXTS
    end = b""
    with closing(open_written(path, sandbox)) as handle:
        blocks = written_blocks(handle, size)
        in_time = itertools.takewhile(lambda _: time.monotonic() < until, blocks)
        digest = digest_of_blocks(in_time, size)
        if is_text or suffix == ".npz":
            end = os.pread(handle, _MAX_DIRECTORY, max(size - _MAX_DIRECTORY, 0))
    if is_text:
        return Written(digest, end)
    # numpy writes the time into an .npz file, so digest the arrays' entries in its directory, which
    # is at the file's end. Digest the bytes if it is no zip file.
    with suppress(Exception), zipfile.ZipFile(io.BytesIO(end)) as archive:
        entries = archive.infolist()
        arrays = sorted((item.filename, item.CRC, item.file_size) for item in entries)
        return Written(hashlib.sha256(repr(arrays).encode()).hexdigest())
    return Written(digest)
