"""What a run finds around it: its folders, environment, time zone, locale, and what it made and was
given of files.

The gate varies it from outside; here the order of the environment is varied, and every line of the
workspace is watched that is told something of it. A text that holds one of the run's own folders is
a use of that folder, whatever it was made by.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from typing import Any

from ...trace.format import CONFIG_VARIABLE
from .. import imports, source_line
from .use import BUSY, FOLDERS, VARIED, note

_BY_VARIABLE = {
    "HOME": "home",
    "TMPDIR": "tmpdir",
    "TEMP": "tmpdir",
    "TMP": "tmpdir",
    "TZ": "timezone",
    "LANG": "locale",
    "LANGUAGE": "locale",
    "PWD": "path",
}
_PATHS = (
    "abspath realpath expanduser expandvars dirname basename join normpath relpath split "
    "splitext"
)
_LOCALE = (
    "getlocale getdefaultlocale getpreferredencoding getencoding setlocale localeconv "
    "strcoll strxfrm"
)
_MOMENTS = "datetime.fromtimestamp datetime.astimezone datetime.timestamp"
# Functions that tell something of the surroundings, and the factor; empty: that of the folder that
# the answer names.
_TELLING = (
    ("os", "getcwd getcwdb", "path"),
    ("os", "stat lstat fstat", "file-times"),
    ("os", "umask", "umask"),
    ("os.path", _PATHS, ""),
    ("os.path", "getmtime getctime", "file-times"),
    ("time", "localtime ctime strftime mktime", "timezone"),
    ("datetime", _MOMENTS, "timezone"),
    ("tempfile", "gettempdir gettempdirb", "tmpdir"),
    ("locale", _LOCALE, "locale"),
)


def install() -> None:
    """Reverse the environment if that is asked for, and watch the uses if the configuration has
    `surroundings`."""
    if "environment" in VARIED:
        _reverse()
    if not FOLDERS:
        return
    for module, names, factor in _TELLING:
        imports.wrap_named(module, names, functools.partial(_function, factor))
    imports.wrap_later("os", "_Environ.__getitem__", _variable)
    imports.wrap_later("os", "_Environ.__iter__", _variables)


def _reverse() -> None:
    """Reverse the environment once in each tree of processes: a child that got the reversed one
    keeps it, and knows it by what stands first."""
    variables: dict[Any, Any] = vars(os.environ)["_data"]
    name = os.fsencode(CONFIG_VARIABLE)
    if next(iter(variables), name) != name:
        reverse = [*variables.items()][::-1]
        variables.clear()
        variables[name] = b""
        variables.update(reverse)


def _function(
    factor: str, source: str, original: Any, *args: Any, **kwargs: Any
) -> Any:
    """Note what a function of `_TELLING` tells; a factor's name is that of what the gate varies."""
    with BUSY:  # the outermost counts
        answer = original(*args, **kwargs)
    if isinstance(answer, os.stat_result):
        _note("umask", source, answer.st_mode)
        _note(factor, source, answer.st_mtime_ns)
    else:
        _note(factor or _of_folder(answer), source, answer)
    return answer


def _variable(original: Any, variables: Any, name: Any) -> Any:
    value = original(variables, name)
    other = "locale" if str(name).startswith("LC_") else _of_folder(value)
    _note(_BY_VARIABLE.get(name, other), "os.environ", value)
    return value


def _variables(original: Any, variables: Any) -> Any:
    answer = list(original(variables))
    _note("environment", "os.environ", answer)
    return iter(answer)


def _of_folder(answer: Any) -> str:
    """Return what varies the folder that an answer names; empty if it names none of the run's
    own."""
    text = " ".join(map(str, answer)) if isinstance(answer, tuple) else answer
    text = os.fsdecode(text) if isinstance(text, (str, bytes)) else ""
    return next((name for name, folder in FOLDERS.items() if folder in text), "")


def _note(factor: str, source: str, answer: Any) -> None:
    if not factor or BUSY.depth:
        return
    # the look at the stack asks for paths, too
    with contextlib.suppress(Exception), BUSY:
        if source_line.nearest(sys._getframe(1))[0]:
            note(factor, source, answer)
