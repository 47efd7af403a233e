"""What a run finds around it: its folders, environment, time zone, locale, and what it made and was
given of files.

The gate varies it from outside; here the order of the environment is varied, and every line of the
workspace is watched that is told something of it. A text that holds one of the run's own folders is
a use of that folder, whatever it was made by.
"""

from __future__ import annotations

import datetime as dt
import functools
import os
import sys
import threading
from types import FrameType
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from ...trace.format import CONFIG_VARIABLE
from .. import imports, source_line
from ..patch import wrap, wrap_in_type
from .use import USES

Told = List[Tuple[str, Any]]  # names of what is varied, with what was told of each
_OWN = __name__.split(".")[0] + "."  # the probe's own modules
# `on` while a watched call is in progress in this thread: the outermost counts
_BUSY = threading.local()
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


def install(config: Dict[str, Any], folders: Dict[str, str]) -> None:
    """Reverse the environment where that is asked for, and watch the uses where `config` has
    `surroundings`. `folders` are the run's own by the name of what varies them."""
    if "environment" in USES.vary:
        _reverse()
    if config.get("surroundings"):
        _Watcher(folders).install()


def _reverse() -> None:
    """Once in each tree of processes: a child that got the reversed one keeps it, and knows it by
    what stands first."""
    variables: Dict[Any, Any] = vars(os.environ)["_data"]
    name = os.fsencode(CONFIG_VARIABLE) if os.name == "posix" else CONFIG_VARIABLE
    if next(iter(variables), name) == name:
        return
    reverse = list(variables.items())[::-1]
    variables.clear()
    variables[name] = b""
    variables.update(reverse)


def _of_status(found: os.stat_result, *_: Any) -> Told:
    return [("umask", found.st_mode), ("file-times", found.st_mtime_ns)]


def _of_type(watched: Callable[..., Any], bound: Any, _: Any, *args: Any, **kwargs: Any) -> Any:
    return watched(bound, *args, **kwargs)


def _iterated(watched: Callable[..., Any], original: Any, variables: Any) -> Any:
    return iter(watched(list, original(variables)))


_TELLING: Tuple[Tuple[str, str, Any], ...] = (
    ("os", "getcwd getcwdb", "path"),
    ("os", "stat lstat fstat", _of_status),
    ("os", "umask", "umask"),
    ("os.path", "abspath realpath expanduser expandvars dirname basename join normpath", ""),
    ("os.path", "relpath split splitext", ""),
    ("os.path", "getmtime getctime", "file-times"),
    ("time", "localtime ctime strftime mktime", "timezone"),
    ("tempfile", "gettempdir gettempdirb", "tmpdir"),
    ("locale", "getlocale getdefaultlocale getpreferredencoding getencoding", "locale"),
    ("locale", "setlocale localeconv strcoll strxfrm", "locale"),
)


class _Watcher:
    """Notes what lines of the workspace are told; a factor's name is that of what the gate
    varies."""

    def __init__(self, folders: Dict[str, str]) -> None:
        self.folders = [(name, os.path.realpath(folder)) for name, folder in folders.items()]

    def install(self) -> None:
        """Wrap what tells of the surroundings."""
        native = (sys.modules[os.name],)
        for module, names, factor in _TELLING:
            for name in names.split():
                around = self._watched("%s.%s" % (module, name), factor)
                imports.wrap_later(module, name, around, native)
        for name in ("fromtimestamp", "astimezone", "timestamp"):
            told = self._watched("datetime." + name, "timezone", 3)
            wrap_in_type(dt.datetime, name, functools.partial(_of_type, told))
        kind = type(os.environ)
        wrap(kind, "__getitem__", self._watched("os.environ", self._of_variable))
        told = self._watched("os.environ", "environment", 3)
        wrap(kind, "__iter__", functools.partial(_iterated, told))

    def _watched(
        self, source: str, factor: Union[str, Callable[..., Told]], depth: int = 2
    ) -> Callable[..., Any]:
        """What to call around a function: its answer is a use of `factor`; empty: of the folder
        that it names; a function: of what that says of the answer and the arguments. The caller
        stands `depth` frames up."""

        def around(original: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(_BUSY, "on", False):
                return original(*args, **kwargs)
            _BUSY.on = True
            try:
                answer = original(*args, **kwargs)
                for name, heard in (
                    factor(answer, *args) if callable(factor) else [(factor, answer)]
                ):
                    self._note(name or self._named(heard), source, heard, sys._getframe(depth))
            finally:
                _BUSY.on = False
            return answer

        return around

    def _of_variable(self, value: Any, _: Any, name: Any) -> Told:
        return [(_BY_VARIABLE.get(name, "locale" if str(name).startswith("LC_") else ""), value)]

    def _named(self, answer: Any) -> str:
        """What varies the folder that an answer names; empty where it names none of the run's
        own."""
        text = " ".join(map(str, answer)) if isinstance(answer, tuple) else answer
        text = os.fsdecode(text) if isinstance(text, (str, bytes)) else ""
        return next((name for name, folder in self.folders if folder in text), "")

    def _note(self, factor: str, source: str, answer: Any, frame: Optional[FrameType]) -> None:
        site = source_line.nearest(frame) if factor else ("", 0)
        if site[0] and not _for_the_probe(frame):
            USES.note(factor, source, answer, frame, site)


def _for_the_probe(frame: Optional[FrameType]) -> bool:
    """Whether the probe asked, and not the line of the workspace that called what it hooks."""
    while frame is not None and not source_line.inside(frame.f_code.co_filename):
        if str(frame.f_globals.get("__name__", "")).startswith(_OWN):
            return True
        frame = frame.f_back
    return False
