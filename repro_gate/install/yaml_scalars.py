"""The scalars of a YAML text, each with its path and line, straight from the parser's events: nothing is built, so nothing can explode.
 An alias of a scalar stands for its value; an alias of a collection yields
nothing, since what it names was seen at its anchor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

MAX_SCALARS = 2_000_000
MAX_DEPTH = 50
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml reads ten times as fast
_COMPLEX = "?"  # stands in a path for a key that is no scalar

YamlPath = tuple[str | int, ...]


class YamlFault(Exception):
    """A text that is no YAML, or too large or deep. `line` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Scalar:
    """One value: keys and list indexes from the top, the line from 1, and its text as written (without quotes)."""

    path: YamlPath
    line: int
    value: str


@dataclass
class _Open:
    """A collection that is being read: `key` is the next value's key or index; None where a key comes next. `as_key`: it is one itself."""

    path: YamlPath
    key: str | int | None
    as_key: bool = False


def scalars(text: str) -> Iterator[Scalar]:
    """Every value of the text that is a scalar, in order. Raises YamlFault where reading cannot go on."""
    count = 0
    try:
        for found in _walk(yaml.parse(text, Loader=_LOADER)):
            count += 1
            if count > MAX_SCALARS:
                raise YamlFault(found.line, f"more than {MAX_SCALARS} values")
            yield found
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlFault(mark.line + 1 if mark else 1, str(error.problem or error.context)) from None
    except yaml.YAMLError as error:
        raise YamlFault(1, str(error).splitlines()[0]) from None


def _walk(events: Iterator[Any]) -> Iterator[Scalar]:
    stack: list[_Open] = []
    anchors: dict[str, str] = {}
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            stack, anchors = [], {}
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            if len(stack) >= MAX_DEPTH:
                raise YamlFault(line, f"nested deeper than {MAX_DEPTH} levels")
            as_key = bool(stack) and stack[-1].key is None
            stack.append(_Open(_path(stack), None if isinstance(event, yaml.MappingStartEvent) else 0, as_key))
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            closed = stack.pop()
            _advance(stack, _COMPLEX if closed.as_key else None)
        elif isinstance(event, (yaml.ScalarEvent, yaml.AliasEvent)):
            value = event.value if isinstance(event, yaml.ScalarEvent) else anchors.get(str(event.anchor))
            if isinstance(event, yaml.ScalarEvent) and event.anchor:
                anchors[event.anchor] = event.value
            if stack and stack[-1].key is None:
                stack[-1].key = _COMPLEX if value is None else value
                continue
            if value is not None:
                yield Scalar(_path(stack), line, value)
            _advance(stack, None)


def _path(stack: list[_Open]) -> YamlPath:
    """Where the next value stands."""
    if not stack:
        return ()
    top = stack[-1]
    return (*top.path, _COMPLEX if top.key is None else top.key)


def _advance(stack: list[_Open], key: str | None) -> None:
    """After a whole value: the next index of a list, or the next key of a mapping (`key` where the value was a key itself)."""
    if stack:
        top = stack[-1]
        top.key = top.key + 1 if isinstance(top.key, int) else key
