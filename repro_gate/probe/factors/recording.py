"""What the first run of a pair got from outside, kept so that the second one gets the same: files
beside the first run's trace.

They are the training's own output, given back to nobody but the training: the gate names the folder
and never opens them. A second run asks for what was recorded under a key (which path, which line
and how many times before); what is not there, it gets from the world.
"""

from __future__ import annotations

import hashlib
import os
import select
import struct
from typing import Any, Callable, Dict, List, Optional

from ...trace.format import RECORDED
from .. import session

MAX_ITEMS, MAX_BYTES = 1_000, 64 * 1024 * 1024  # of one process
# as they are before any factor wraps them
_open, _read, _write, _close = (
    os.open,
    os.read,
    os.write,
    os.close,
)
_poll, _POLLIN = select.poll, select.POLLIN
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_END = "end"
_LENGTH = struct.Struct(">I")  # of a piece, in bytes; before it
_PATIENCE = 3.0  # seconds


class Recording:
    """`folder` is where this run records; `given` where the pair's first run did: then this one
    replays and records nothing."""

    def __init__(self, folder: str, given: Optional[str] = None) -> None:
        self._folder, self._given = folder, given
        self._items: Dict[str, bool] = {}  # name -> whether it is kept whole
        self._bytes = 0

    @property
    def replays(self) -> bool:
        """Whether this is the second run of a pair."""
        return self._given is not None

    def keep(self, key: object, data: bytes, what: str, whole: bool = False) -> bool:
        """Append to what is recorded under a key; `whole`: this is all, and what stands there
        stays. False, and a note that names `what`, where it would be too much."""
        name = _name(key)
        if (
            not self._items.get(name, len(self._items) < MAX_ITEMS)
            or self._bytes + len(data) > MAX_BYTES
        ):
            self._items[name] = False
            session.current().note(
                "not-held-fixed", "%s: more than a recording may hold" % what[:200]
            )
            return False
        self._items[name] = True
        self._bytes += len(data)
        try:
            file = _open(
                os.path.join(self._folder, name),
                os.O_WRONLY | os.O_CREAT | (os.O_EXCL if whole else os.O_APPEND) | _FLAGS,
                0o600,
            )
            try:
                while data:
                    data = data[_write(file, data) :]
            finally:
                _close(file)
        except FileExistsError:
            return True  # another process of the run was quicker
        except OSError:
            return False
        return True

    def end(self, key: object) -> None:
        """Say that what is recorded under a key came to its own end."""
        self.keep((key, _END), b"", "the end of a stream")

    def given(self, key: object) -> Optional[bytes]:
        """What the first run recorded under a key; None where it recorded nothing."""
        if self._given is None:
            return None
        try:
            file = _open(os.path.join(self._given, _name(key)), os.O_RDONLY | _FLAGS)
        except OSError:
            return None
        try:
            return read_all(file, MAX_BYTES)
        finally:
            _close(file)

    def ended(self, key: object) -> bool:
        """Whether what is recorded under a key came to its own end, and not with its run's."""
        return self.given((key, _END)) is not None


class Tap:
    """One stream of bytes from outside, as the training reads it: recorded in the first run of a
    pair, replayed in the second.

    In a replay the world still sets the pace: as many bytes are handed out as have come in, and
    none of a later piece than the first run got at once: an answer ends where it ended. Where
    nothing comes for some seconds the rest is handed out as it is asked for, and what comes then is
    thrown away.
    """

    def __init__(self, recording: Recording, key: object, what: str) -> None:
        self._recording, self._key, self._what = recording, key, what
        given = recording.given(key)
        self._replay = None if given is None else _pieces(given)
        self._ends = given is not None and recording.ended(key)
        self._came = 0  # bytes that came in and for which none was handed out
        self._behind = False  # less came in than the recording holds

    def read(
        self, receive: Callable[[int], bytes], ready: Callable[[float], bool], most: int
    ) -> bytes:
        """What the training gets where it asks for `most` bytes: `receive` gives it some of what
        came in, `ready` waits so many seconds for something to come in, or for the end."""
        if most <= 0 or (self._recording.replays and self._replay is None):
            return receive(most)
        if self._replay is None:
            data = receive(most)
            if data:
                self._recording.keep(self._key, _LENGTH.pack(len(data)) + data, self._what)
            else:
                self._recording.end(self._key)
            return data
        if not self._replay:
            data = receive(most)
            while data and self._ends:
                data = receive(most)  # more comes than the first run got: it is thrown away
            return data
        if not self._behind and ready(_PATIENCE):
            data = receive(most)
            self._came += len(data)
            self._behind = not data
        else:
            self._behind = True
            while ready(0.0) and receive(1 << 16):
                pass
        size = most if self._behind else min(most, max(self._came, 1))
        piece, rest = self._replay[0][:size], self._replay[0][size:]
        self._replay[:1] = [rest] if rest else []
        self._came -= len(piece)
        return piece


def _pieces(given: bytes) -> List[bytes]:
    """What a run got at once each time, of what it recorded."""
    found, at = [], 0
    while at + _LENGTH.size <= len(given):
        (size,) = _LENGTH.unpack_from(given, at)
        found.append(given[at + _LENGTH.size : at + _LENGTH.size + size])
        at += _LENGTH.size + size
    return [piece for piece in found if piece]


def readable(descriptor: int, seconds: float) -> bool:
    """Whether something comes in there, or the end, within so many seconds."""
    poll = _poll()
    poll.register(descriptor, _POLLIN)
    return bool(poll.poll(int(seconds * 1000)))


def read_all(file: int, most: int) -> bytes:
    """What a descriptor holds from here on, at most `most` bytes."""
    found = b""
    while len(found) < most:
        piece = _read(file, min(most - len(found), 1 << 20))
        if not piece:
            break
        found += piece
    return found


def _name(key: object) -> str:
    return (
        hashlib.blake2b(repr(key).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        + RECORDED
    )


def recording_of(config: Dict[str, Any]) -> Recording:
    """The recording that a run's configuration of factors asks for."""
    return Recording(str(session.current().config["traces"]), config.get("recording"))
