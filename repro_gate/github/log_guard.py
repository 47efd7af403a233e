"""The workflow's log kept from being obeyed: what is printed between two lines of ours is text to GitHub's runner, whatever it says.
Standard library only, since every command of the gate's imports it.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Iterator, Mapping
from typing import TextIO


@contextlib.contextmanager
def plain_log(environment: Mapping[str, str], stream: TextIO | None = None) -> Iterator[None]:
    """On GitHub, nothing that is printed in here is a command: a line may start with anything. Elsewhere it does nothing.

    `stream` is standard output where it is None. The runner stops for the whole step, so nothing else may print commands meanwhile.
    """
    if environment.get("GITHUB_ACTIONS") == "true":
        with guarded(sys.stdout if stream is None else stream):
            yield
    else:
        yield


@contextlib.contextmanager
def guarded(stream: TextIO) -> Iterator[None]:
    """Between `::stop-commands::` and its end, with a fresh token that nothing inside can know. It is ended whatever happens."""
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}", file=stream, flush=True)
    try:
        yield
    except BaseException:
        print(file=stream)  # it may have been cut off inside a line, and the end counts at the start of one only
        raise
    finally:
        print(f"::{token}::", file=stream, flush=True)
