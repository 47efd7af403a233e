"""What a declaration file states about one data file, what is wrong with it, and which digests there are.

Built by `dvc` and `croissant`, read by `declarations`. Pure data and text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from repro_gate.spec.errors import escaped, shortened

DIGITS = {"md5": 32, "sha1": 40, "sha224": 56, "sha256": 64, "sha384": 96, "sha512": 128}  # hex digits of each algorithm
VERIFIED = ("sha256", "md5")
MAX_ITEMS = 10_000  # that one declaration file may stand for

_LOOKS_LIKE_ONE = re.compile(
    r"(sha[-_]?[0-9]|md[0-9]|crc[-_]?[0-9]|blake[0-9]|xxh[0-9]|xxhash|adler|ripemd|whirlpool)[-_0-9a-z]*|checksum|etag|digest|hash",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, at a line (from 1) of a declaration file. `kind`: `digest` (it cannot be one) or `declaration`."""

    line: int
    message: str
    remedy: str
    kind: str = "declaration"


@dataclass(frozen=True)
class Stated:
    """One file or folder as a declaration file states it. `path` is relative to the declaration's folder; digests are lower-case hex.

    `md5` may end in `.dir` (DVC's, of a folder) and `legacy` says that DVC took it before its version 3. `size` is the least and the
    greatest number of bytes that was meant.
    """

    path: str
    line: int
    sha256: str | None = None
    md5: str | None = None
    legacy: bool = False
    size: tuple[int, int] | None = None


def is_digest_name(name: str) -> bool:
    """Whether a key names a digest, known or not."""
    return name.lower() in DIGITS or _LOOKS_LIKE_ONE.fullmatch(name) is not None


def wrong_digest(algorithm: str, value: str) -> str:
    """What is wrong with a digest, in a sentence; empty: nothing. A `.dir` that DVC puts behind an md5 has to be cut off before."""
    if algorithm not in DIGITS:
        return f"`{quoted(algorithm)}` is not a digest that is known here, wanted one of {', '.join(DIGITS)}"
    if len(value) != DIGITS[algorithm]:
        return f"{algorithm} has {len(value)} characters, wanted {DIGITS[algorithm]} hex digits: {quoted(value)}"
    if not re.fullmatch(r"[0-9a-fA-F]*", value):
        return f"{algorithm} holds characters that are no hex digits: {quoted(value)}"
    return ""


def quoted(value: object) -> str:
    """An untrusted text as a message shows it: cut short, with what does not print written out."""
    return shortened(escaped(str(value)))
