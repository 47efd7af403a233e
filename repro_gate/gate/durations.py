"""How long the last gate run of a spec took on this machine, so that the next one can say it before its first run.

A hint and no more: whatever is wrong with the file, it is as if it were not there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from repro_gate.data.cache import default_cache_path

MAX_ENTRIES, MAX_BYTES = 200, 1 << 16


class Durations:
    """The durations of one user, and the place in them of one spec with what the command line lays over it."""

    def __init__(self, environment: Mapping[str, str], spec: Path, arguments: Sequence[object]) -> None:
        beside = default_cache_path(environment)
        self._path = None if beside is None else beside.with_name("durations.json")
        content = spec.read_bytes() if spec.is_file() else b""
        self._key = hashlib.sha256(repr((os.path.realpath(spec), arguments)).encode("utf-8", "backslashreplace") + content).hexdigest()

    def last(self) -> float | None:
        """Seconds; None where nothing is known."""
        return self._all().get(self._key)

    def keep(self, seconds: float) -> None:
        """Remember it for the next time; the oldest entries go first."""
        if self._path is None:
            return
        kept = {name: value for name, value in self._all().items() if name != self._key} | {self._key: round(seconds, 1)}
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new.write_text(json.dumps(dict(list(kept.items())[-MAX_ENTRIES:])), encoding="ascii")
            new.replace(self._path)

    def _all(self) -> dict[str, float]:
        try:
            with open(os.open(self._path or "", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                found = json.loads(file.read(MAX_BYTES))
            return {str(name): float(value) for name, value in found.items() if math.isfinite(value) and 0 < value < 1e7}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return {}
