"""Changes the commands of children so that the probe is started where their options (`-I`, `-E`,
`-S`) would keep it out: by way of `isolated.py`."""

from __future__ import annotations

import os
import re
import shlex
from typing import Any, List, Sequence, Tuple

ENTRY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "isolated.py")
_DEAF = frozenset("EIS")
_NOT_RUN = frozenset("ixhV?")  # the options of a Python that runs no program, or not only one
# `/env/bin/python -I` where a command may begin: what no `python` on PATH can catch
_IN_SHELL = re.compile(
    r"(?<![^\s;&|(\"'])((?:[\w.~+-]|\$\{?\w+\}?)*/(?:[\w./+-]|\$\{?\w+\}?)*python[\d.]*)(?=(?:[ "
    r"\t]+-[a-zA-Z]+)*?[ \t]+-[a-zA-Z]*[EIS])"
)


def reached(command: Sequence[Any]) -> List[Any]:
    """A command of Python, changed so that the probe is started where its options would keep it
    out. Words are text or bytes."""
    given = list(command)
    words = [os.fsdecode(item) for item in given]
    if len(words) > 2 and os.path.basename(words[0]) in ("sh", "bash", "dash") and words[1] == "-c":
        return [*given[:2], in_shell(words[2]), *given[3:]]
    if not words or "python" not in os.path.basename(words[0]):
        return given
    options, program = _split(words)
    letters = {letter for word in options for letter in _letters(word)}
    if (
        not letters & _DEAF
        or letters & _NOT_RUN
        or program >= len(words)
        or words[program] == ENTRY
    ):
        return given
    word = words[program]
    # `-Im module`: the letters before go in a word of their own
    if word[:1] == "-" and word[1:2] not in (
        "",
        "c",
        "m",
    ):
        at = next(place for place, letter in enumerate(word) if letter in "cm")
        return [*given[:program], word[:at], ENTRY, "-" + word[at:], *given[program + 1 :]]
    return [*given[:program], ENTRY, *given[program:]]


def in_shell(text: str) -> str:
    """A command of a shell, in which each Python that is named by its path and told not to listen
    is started by way of this file."""
    return _IN_SHELL.sub(
        lambda found: "%s -I -S %s --exec %s" % (found[1], shlex.quote(ENTRY), found[1]), text
    )


def _letters(word: str) -> str:
    """The one-letter options in one word."""
    if word[:1] != "-" or word[:2] == "--":
        return ""
    return re.split("[cmWX]", word[1:], maxsplit=1)[0]


def _split(words: Sequence[str]) -> Tuple[List[str], int]:
    """Python's own options, and the place of the first word of its program: a script, `-`, or the
    word with `-c` or `-m` in it."""
    options: List[str] = []
    place = 1
    while place < len(words):
        word = words[place]
        if word[:1] != "-" or word == "-":
            break
        options.append(word)
        takes = re.match("-[a-zA-Z]*?([cmWX])", word) if word[:2] != "--" else None
        if takes is not None and takes[1] in "cm":
            break
        alone = word == "--check-hash-based-pycs" or (
            takes is not None and takes.end() == len(word)
        )
        place += 2 if alone else 1
    return options, place
