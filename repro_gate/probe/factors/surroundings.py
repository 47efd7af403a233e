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
import subprocess
import sys
import threading
import time
from types import FrameType
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from ...trace.format import CONFIG_VARIABLE
from .. import imports, source_line
from ..patch import wrap, wrap_in_type

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
_PATHS = (
    "abspath",
    "realpath",
    "expanduser",
    "expandvars",
    "dirname",
    "basename",
    "join",
    "normpath",
    "relpath",
    "split",
    "splitext",
)
_LOCALES = (
    "getlocale",
    "getdefaultlocale",
    "getpreferredencoding",
    "getencoding",
    "setlocale",
    "localeconv",
    "strcoll",
    "strxfrm",
)


def install(uses: Any, config: Dict[str, Any], folders: Dict[str, str]) -> None:
    """Reverse the environment where that is asked for, and watch the uses where `config` has
    `surroundings`. `folders` are the run's own by the name of what varies them."""
    if "environment" in uses.vary:
        _reverse()
    if config.get("surroundings"):
        _Watcher(uses, folders).install()


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


class _Watcher:
    """Notes what lines of the workspace are told; a factor's name is that of what the gate
    varies."""

    def __init__(self, uses: Any, folders: Dict[str, str]) -> None:
        self.uses = uses
        self.folders = [(name, os.path.realpath(folder)) for name, folder in folders.items()]

    def install(self) -> None:
        """Wrap what tells of the surroundings."""
        native = (sys.modules[os.name],)
        for name in ("getcwd", "getcwdb"):
            wrap(os, name, self._watched("os." + name, "path"), also=native)
        for name in _PATHS:
            wrap(os.path, name, self._watched("os.path." + name, ""))
        for name in ("stat", "lstat", "fstat"):
            wrap(os, name, self._watched("os." + name, _of_status), also=native)
        wrap(os, "umask", self._watched("os.umask", "umask"), also=native)
        for name in ("getmtime", "getctime"):
            wrap(os.path, name, self._watched("os.path." + name, "file-times"))
        for name in ("localtime", "ctime", "strftime", "mktime"):
            wrap(time, name, self._watched("time." + name, "timezone"))
        for name in ("fromtimestamp", "astimezone", "timestamp"):
            wrap_in_type(
                dt.datetime,
                name,
                functools.partial(_of_type, self._watched("datetime." + name, "timezone", 3)),
            )
        for name in ("gettempdir", "gettempdirb"):
            imports.wrap_after("tempfile", name, self._watched("tempfile." + name, "tmpdir"))
        for name in _LOCALES:
            imports.wrap_after("locale", name, self._watched("locale." + name, "locale"))
        # What a program that is started is told by its hash seed cannot be seen, so every start is
        # a use.
        wrap(
            subprocess.Popen,
            "__init__",
            self._watched("subprocess", lambda *_: [("hashing", "hashing" in self.uses.vary)]),
        )
        kind = type(os.environ)
        wrap(kind, "__getitem__", self._watched("os.environ", self._of_variable))
        wrap(
            kind,
            "__iter__",
            functools.partial(_iterated, self._watched("os.environ", "environment", 3)),
        )

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
        text = (
            " ".join(map(str, answer))
            if isinstance(answer, tuple)
            else os.fsdecode(answer)
            if isinstance(answer, (str, bytes))
            else ""
        )
        return next((name for name, folder in self.folders if folder in text), "")

    def _note(self, factor: str, source: str, answer: Any, frame: Optional[FrameType]) -> None:
        site = source_line.nearest(frame) if factor else ("", 0)
        if site[0] and not _for_the_probe(frame):
            self.uses.note(factor, source, site, answer, frame)


def _for_the_probe(frame: Optional[FrameType]) -> bool:
    """Whether the probe asked, and not the line of the workspace that called what it hooks."""
    while frame is not None and not source_line.inside(frame.f_code.co_filename):
        if str(frame.f_globals.get("__name__", "")).startswith(_OWN):
            return True
        frame = frame.f_back
    return False
