"""Files of untrusted code: read within bounds, copied and removed, without ever following a link
out of where they belong.

Trees to be removed were written by the training: nested beyond any path length, with permissions
taken away, full of links to elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import itertools
import json
import os
import secrets
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from repro_gate.errors import Inconclusive, held

# what comes with the gate where it brings a Python of its own: git, setpriv, env
TOOLS = os.path.join(sys.prefix, "tools")
# Linux: a handle that needs no permission on the file itself
_PATH = getattr(os, "O_PATH", 0)
_BLOCK = 1 << 16  # bytes
_ZEROS = bytes(_BLOCK)
_COPIED_MODE = 0o777  # set-user-id and its kin are not copied
_PARSE_TOML = """
import json, resource, sys
try:
    import tomllib
except ImportError:
    import tomli as tomllib
kind, text = sys.argv[1], sys.stdin.buffer.read()
memory, seconds = (64 << 20) + 32 * len(text), 5 + 3 * (len(text) >> 20)
for limit, most in ((resource.RLIMIT_DATA, memory), (resource.RLIMIT_CPU, seconds)):
    try:
        resource.setrlimit(limit, (most, most))
    except (OSError, ValueError):  # a lower one holds already
        pass
sys.setrecursionlimit(500)  # below that of the gate, which reads the answer
try:
    document = tomllib.loads(text.decode())
    if kind == "pylock.toml":
        from packaging.pylock import Pylock
        Pylock.from_dict(document)
    answer = document, ""
except MemoryError:
    sys.exit(1)
except Exception as error:
    answer = None, f"is not {kind}: {error}"[:500]
sys.stdout.write(json.dumps(answer, default=lambda date: None))
"""


class NotRegular(OSError):
    """What should be copied or read is not a regular file."""


class Unreadable(Exception):
    """A file that cannot be used. The message is a clause that follows its name: `is not UTF-8
    text`."""


@contextlib.contextmanager
def own_lock(path: Path) -> Iterator[None]:
    """Hold a lock file at `path`, which is removed at the end. Signals must wait meanwhile.

    Raises BlockingIOError if another process holds it, else OSError where it cannot be opened, or
    is somebody else's, who could hold it for good.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(lock).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "its lock belongs to somebody else")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # its last holder may have removed it meanwhile
        if not os.path.samestat(os.fstat(lock), os.lstat(path)):
            raise BlockingIOError(errno.EWOULDBLOCK, "its lock was just made anew")
        try:
            yield
        finally:
            os.unlink(path)
    finally:
        os.close(lock)


@contextlib.contextmanager
def closing(handle: int) -> Iterator[int]:
    """Close a descriptor at the end, whatever happens."""
    try:
        yield handle
    finally:
        os.close(handle)


def open_regular(path: Path, flags: int = os.O_NOFOLLOW) -> int:
    """Return a descriptor for reading a regular file, by default through no link at its end. Raises
    NotRegular for anything else, which is not waited for; else OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise NotRegular("is not a regular file")


def read_start(path: Path, most: int) -> bytes:
    """Return the first bytes of a regular file, links followed. Raises NotRegular for anything
    else, which is not waited for; else OSError."""
    with os.fdopen(open_regular(path, 0), "rb") as file:
        return file.read(most)


def leads_out(path: Path, checkout: Path) -> str:
    """Say why the file that `path` leads to, links followed, is no content of the checkout at
    `checkout`, as a clause; empty where it is.

    An untrusted link may lead to what only the gate can read: the job's event, a process's
    environment, the credential in `.git/config`.
    """
    if not is_inside(path, checkout):
        return "lies outside the checkout"
    inside = os.path.relpath(os.path.realpath(path), os.path.realpath(checkout))
    is_of_git = ".git" in inside.lower().split(os.sep)
    return "belongs to git itself" if is_of_git else ""


def is_inside(path: Path, folder: Path) -> bool:
    """Return whether `path`, with links followed, lies in `folder` or is it."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def is_below(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path is one of these, or lies in one, by their names alone."""
    return any(path == folder or path.startswith(folder + os.sep) for folder in folders)


def walk(
    root: Path, leave_out: Callable[[os.DirEntry[str]], bool] = lambda _: False
) -> Iterator[str]:
    """Yield all that lies below a folder by paths relative to it, in an order that its file system
    does not choose; folders end in a slash and come before what they hold. Links are not followed.
    Raise OSError where a folder cannot be listed."""
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        with os.scandir(os.path.join(root, prefix)) as found:
            entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
        for entry in entries:
            if leave_out(entry):
                continue
            name = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                name += "/"
                waiting.append(name)
            yield name


def read_whole(path: Path, most: int) -> bytes:
    """Return the bytes of a regular file, links followed. Raises Unreadable where it is not there,
    is no regular file, or is over `most` bytes."""
    try:
        content = read_start(path, most + 1)
    except FileNotFoundError:
        raise Unreadable("is not there") from None
    except NotRegular as error:
        raise Unreadable(str(error)) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise Unreadable(f"cannot be read: {why}") from None
    if len(content) > most:
        raise Unreadable(f"is larger than {most} bytes")
    return content


def read_text(path: Path, within: Path, most: int) -> str:
    """Return the UTF-8 text of `path`. Raises Unreadable as `read_whole` does, and where it is not
    inside `within` or git's own."""
    try:
        if why := leads_out(path, within):
            raise Unreadable(why)
        return read_whole(path, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"is not UTF-8 text (byte {error.start})") from None
    except ValueError as error:  # a path that can be none
        raise Unreadable(f"cannot be read: {error}") from None


def cache_folder(environment: Mapping[str, str], *below: str) -> Path | None:
    """Return the gate's own `$XDG_CACHE_HOME/repro-gate`, or the same below `~/.cache`, or what is
    named `below` it; None where there is no home."""
    home = os.path.join(environment.get("HOME", ""), ".cache")
    for base in (environment.get("XDG_CACHE_HOME", ""), home):
        if os.path.isabs(base):
            return Path(base, "repro-gate", *below)
    return None


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Put a file in the place of whatever is at `path`, whole or not at all. Raises OSError."""
    with held():
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(name, mode)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def parse_toml(text: str, kind: str = "TOML") -> dict[str, Any]:
    """Return the tables of a TOML text, with None for dates. Raises Unreadable with the line that
    tomllib names, or with what packaging finds wrong with a text of the kind `pylock.toml`.

    A process of its own parses it: time and memory of both grow faster than what untrusted code may
    write.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-c", _PARSE_TOML, kind],
        input=text.encode(),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise Unreadable(
            f"takes more time or memory to parse than {len(text):,} characters of TOML may: write "
            "fewer and shorter keys"
        )
    document: dict[str, Any]
    document, problem = json.loads(done.stdout)
    if problem:
        raise Unreadable(problem)
    return document


def copy_file(
    source: Path,
    target: Path,
    as_owner: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> int:
    """Copy a regular file with its permissions and times; the copy shares blocks where the file
    system can. Returns its size in bytes.

    `source` is looked up and opened inside `as_owner()`, so that whoever wrote it decides what can
    be read there. Raises NotRegular for a special file (which is not opened for longer than it
    takes to see that), OSError otherwise, for a link too. `target` must not exist.
    """
    with as_owner():
        reader = open_regular(source)
    with os.fdopen(reader, "rb"):
        status = os.fstat(reader)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        writer = os.open(target, flags, 0o600)
        try:
            _copy_bytes(reader, writer, status.st_size)
            os.fchmod(writer, status.st_mode & _COPIED_MODE)
            os.utime(writer, ns=(status.st_atime_ns, status.st_mtime_ns))
            return os.fstat(writer).st_size
        except BaseException:
            os.unlink(target)  # no part of a file is left, nor takes space
            raise
        finally:
            os.close(writer)


def _copy_bytes(reader: int, writer: int, size: int) -> None:
    """Copy what the file held when its status was read; the holes of a sparse file, which would
    fill the disk, stay holes."""
    os.ftruncate(writer, size)
    start = end = 0
    while start < size:
        if start >= end:
            end = size
            try:
                start = os.lseek(reader, start, os.SEEK_DATA)
                end = min(size, os.lseek(reader, start, os.SEEK_HOLE))
            except OSError as error:
                if error.errno == errno.ENXIO:  # a hole to the end
                    return
        left = max(0, end - start)
        copied = 0
        # It shares blocks where it can; not on every system, nor across all file systems.
        with contextlib.suppress(OSError, AttributeError):
            copied = os.copy_file_range(reader, writer, left, start, start)
        if not copied:
            piece = os.pread(reader, min(1 << 20, left), start)
            copied = os.pwrite(writer, piece, start)
        if not copied:  # it was cut meanwhile
            return
        start += copied


def written_blocks(file: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the blocks of a file, each with its offset, but for those of zeros alone: whether these
    are written or holes, which are not read, makes no difference."""
    at = 0
    while at < size:
        try:
            at = os.lseek(file, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole to the end
                return
        at -= at % _BLOCK
        block = os.pread(file, _BLOCK, at)
        if block != _ZEROS[: len(block)]:
            yield at, block
        at += _BLOCK
        if len(block) < _BLOCK:  # its end, which may have moved
            return


def digest_of_blocks(blocks: Iterable[tuple[int, bytes]], size: int) -> str:
    """Return a digest, in hex, of a file of this size: the SHA-256 of its bytes; if whole blocks
    of it are zeros, one of the others' SHA-256 and of where these lie."""
    written = hashlib.sha256()
    zeros = hashlib.blake2b(digest_size=32)
    end = 0
    is_whole = True
    for at, block in itertools.chain(blocks, [(size, b"")]):
        if at > end:
            zeros.update(b"%d-%d " % (end, at))
            is_whole = False
        written.update(block)
        end = at + len(block)
    zeros.update(written.digest())
    return (written if is_whole else zeros).hexdigest()


def remove_tree(path: Path) -> None:
    """Remove a file, a link (not what it points to) or a folder with all it holds; nothing is done
    where nothing is.

    No depth is too deep: what a folder holds is moved up to the top first. Permissions
    that are missing are given. Raises Inconclusive naming the path where something cannot be
    removed (immutable, a mount, another owner).
    """
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            return
        with held(), _folder(os.fspath(path), None) as top:
            folders = _emptied(top, top)
            while folders:
                name = folders.pop()
                with _folder(name, top) as folder:
                    folders += _emptied(folder, top)
                os.rmdir(name, dir_fd=top)
        os.rmdir(path)
    except OSError as error:
        if not os.path.lexists(path):
            return
        raise Inconclusive(
            f"cannot remove {path}: {error.strerror or error}",
            reason_id="workspace/not-removed",
            remedy="remove it by hand (as the user who owns what is left in it) and run again",
        ) from error


def _emptied(folder: int, top: int) -> list[str]:
    """Remove what is no folder from `folder`, and move its folders to `top`: their names there.
    Both are descriptors."""
    moved = []
    with os.scandir(folder) as listing:
        entries = list(listing)
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.name, dir_fd=folder)
            continue
        # A move asks for the permission to write to the folder that is moved.
        with _folder(entry.name, folder):
            moved.append(f".removing-{secrets.token_hex(8)}")
            os.rename(entry.name, moved[-1], src_dir_fd=folder, dst_dir_fd=top)
    return moved


@contextlib.contextmanager
def _folder(name: str, parent: int | None) -> Iterator[int]:
    """Open a folder, never through a link, after making sure that it may be read and written."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
    mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    if mode & stat.S_IRWXU != stat.S_IRWXU and stat.S_ISDIR(mode):
        if _PATH:
            with closing(os.open(name, _PATH | flags, dir_fd=parent)) as handle:
                os.chmod(f"/proc/self/fd/{handle}", 0o700)
        else:
            os.chmod(name, 0o700, dir_fd=parent)
    with closing(os.open(name, flags, dir_fd=parent)) as handle:
        yield handle


def make_folder(path: Path) -> Path:
    """Make an empty folder at `path` that only its owner can read; whatever stood there is removed
    first."""
    remove_tree(path)
    path.mkdir(mode=0o700, parents=True)
    return path


def list_anew(folder: Path) -> None:
    """Have a folder listed as other machines left it: a network file system lists what they wrote
    late, unless the folder changes here. Do nothing where it cannot."""
    with contextlib.suppress(OSError):
        os.rmdir(tempfile.mkdtemp(dir=folder))


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a temporary folder of any name, its path without links; removed at the end whatever
    happens. Signals wait inside."""
    with held():
        place = Path(tempfile.mkdtemp(prefix="repro-gate-")).resolve()
        try:
            yield place
        finally:
            remove_tree(place)
