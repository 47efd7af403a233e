"""YAML text as plain data that remembers where every key and value stands.
Scalars are read by the rules of YAML 1.2, as
editors and GitHub do: `no` and `20:30` and `2027-06-30` are text, `1e-6` is a number. What has two readings (`010`) or could explode
(aliases, depth) is refused before anything is built from it. Needs PyYAML; knows nothing of the schema.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from repro_gate.spec.errors import KeyPath, Problem, Refused, dotted, escaped, shortened

MAX_NODES = 10_000  # after aliases are expanded
MAX_DEPTH = 50
MAX_NUMBER = 40  # characters; a longer run of digits is text (a checksum), not a number

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_PLAIN_TAGS = frozenset({"!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})

# PyYAML's wording (the start of it) and ours.
_SYNTAX = (
    ("found character '\\t'", "a tab cannot indent YAML, use spaces"),
    ("mapping values are not allowed here", "a `:` stands where no key can be, check the indentation or put the value in quotes"),
    ("could not find expected ':'", "a key without `:`, write `key: value`"),
    ("expected <block end>", "the indentation does not fit the lines above, or the value before it needs quotes"),
    ("found unexpected end of stream", "the file ends inside a quoted text, close the quotes"),
    ("found unknown escape character", "unknown escape in double quotes, write `\\\\` for a backslash or use single quotes"),
    ("expected ',' or ']'", "a list that is not closed or lacks a comma, write `[a, b]`"),
    ("expected ',' or '}'", "a mapping that is not closed or lacks a comma, write `{a: 1, b: 2}`"),
    ("found undefined alias", "an alias without its anchor, write the value out"),
    ("but found another document", "a second document starts here, only one is read: remove the `---`"),
    ("special characters are not allowed", "a control character that YAML does not allow, remove it"),
)


@dataclass(frozen=True)
class Place:
    """Where something stands: line and column from 1, or the command-line option that brought it."""

    line: int | None
    column: int | None
    origin: str | None = None

    def problem(self, path: KeyPath, message: str) -> Problem:
        """The problem of the key at `path`, at this place."""
        return Problem(self.line, self.column, dotted(path), message, self.origin)


@dataclass(frozen=True)
class Document:
    """Plain data (dicts, lists, scalars), with the place of every key and value, and the literal text of every scalar."""

    data: Any
    keys: Mapping[KeyPath, Place]
    values: Mapping[KeyPath, Place]
    literals: Mapping[KeyPath, str]
    problems: tuple[Problem, ...] = ()


def parse(text: str, origin: str | None = None, *, max_nodes: int = MAX_NODES, what: str = "a spec") -> Document:
    """Read one YAML document. Duplicate keys and the like come back in `problems`; what cannot be read raises `Refused`.

    With `origin` (an option of the command line) every place is that option. `what` is the word for the document in messages.
    """
    try:
        root = _compose(text, max_nodes, what)
    except yaml.MarkedYAMLError as error:
        raise Refused(_syntax_problem(error, origin)) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line = before.count("\n") + 1
        place = Place(line, error.position - before.rfind("\n"))
        raise Refused((place if origin is None else Place(None, None, origin)).problem((), _short(error.reason))) from None
    build = _Build(origin)
    data = None if root is None else _value(root, (), build)
    return Document(data, build.keys, build.values, build.literals, tuple(build.problems))


def scalar(text: str) -> str | int | float | bool | None:
    """What a plain (unquoted) scalar means. Text that only looks like a number (`010`, `1_000`, `20:30`, `.inf`, `1e999`) stays text."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if len(text) <= MAX_NUMBER and _INT.fullmatch(text):
        return int(text, 0)
    if len(text) <= MAX_NUMBER and _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


class _Composer(yaml.SafeLoader):
    """PyYAML's composer with limits: it counts nodes as if aliases were written out, and stops before anything is large or deep."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  PyYAML's own name; what a scalar means is said by `scalar`, not by YAML 1.1

    def __init__(self, text: str, max_nodes: int, what: str) -> None:
        super().__init__(text)
        self.max_nodes, self.what = max_nodes, what
        self.depth = 0
        self.extent: dict[
            int, tuple[int, int]
        ] = {}  # id of a node -> (nodes, depth) with aliases expanded; filled in as nodes are finished
        self.nodes = 0

    def compose_scalar_node(self, anchor: dict[Any, yaml.Node]) -> yaml.ScalarNode:
        tagged = self._event().tag is not None
        node = super().compose_scalar_node(anchor)
        node.style = '"' if tagged else node.style  # `!!str 5` is text, as "5" is
        return node

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self._event()
        mark = event.start_mark
        if getattr(event, "tag", None) not in (None, *_PLAIN_TAGS):
            raise yaml.MarkedYAMLError(None, None, f"the tag `{shortened(escaped(str(event.tag)))}` is not supported, remove it", mark)
        nodes_before = self.nodes
        is_alias = isinstance(event, yaml.AliasEvent)
        self._enter(mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        if node is None:
            return None
        if is_alias:
            if id(node) not in self.extent:
                raise yaml.MarkedYAMLError(None, None, "the alias stands inside its own anchor, write the value out", mark)
            nodes, depth = self.extent[id(node)]
            self.nodes += nodes - 1
            self._check(mark, self.depth + depth)
        else:
            self.extent[id(node)] = (
                self.nodes - nodes_before,
                1 + max((self.extent[id(child)][1] for child in _children(node)), default=0),
            )
        return node

    def _event(self) -> Any:
        return self.peek_event()  # type: ignore[no-untyped-call]  # types-PyYAML leaves it bare

    def _enter(self, mark: yaml.Mark) -> None:
        self.depth += 1
        self.nodes += 1
        self._check(mark, self.depth)

    def _check(self, mark: yaml.Mark, depth: int) -> None:
        if self.nodes > self.max_nodes:
            message = f"more than {self.max_nodes:,} values with aliases written out, {self.what} is far smaller"
            raise yaml.MarkedYAMLError(None, None, message, mark)
        if depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(None, None, f"nested deeper than {MAX_DEPTH} levels, {self.what} is far flatter", mark)


@dataclass
class _Build:
    """What is collected while plain data is made from nodes."""

    origin: str | None
    keys: dict[KeyPath, Place] = field(default_factory=dict)
    values: dict[KeyPath, Place] = field(default_factory=dict)
    literals: dict[KeyPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place(self, node: yaml.Node) -> Place:
        return _place(node.start_mark, self.origin)


def _compose(text: str, max_nodes: int, what: str) -> yaml.Node | None:
    loader = _Composer(text, max_nodes, what)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _value(node: yaml.Node, path: KeyPath, build: _Build) -> Any:
    build.values[path] = build.place(node)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, build)
    if isinstance(node, yaml.SequenceNode):
        return [_value(child, (*path, index), build) for index, child in enumerate(node.value)]
    text = str(node.value)
    build.literals[path] = text
    if _unprintable(text):
        build.problems.append(
            build.place(node).problem(path, "holds a character that no program can be given (NUL or half a character), remove it")
        )
        return "?"
    return scalar(text) if isinstance(node, yaml.ScalarNode) and node.style is None else text


def _mapping(node: yaml.MappingNode, path: KeyPath, build: _Build) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key_node, value_node in node.value:
        place = build.place(key_node)
        wrong = _wrong_key(key_node)
        if wrong:
            build.problems.append(place.problem(path, wrong))
            continue
        key = str(key_node.value)
        here = (*path, key)
        if key in data:
            first = build.keys[here]
            where = f", first on line {first.line}" if first.line is not None else ""
            build.problems.append(place.problem(here, f"stands twice{where}, keep one"))
            continue
        build.keys[here] = place
        data[key] = _value(value_node, here, build)
    return data


def _wrong_key(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        return "a key cannot be a list or a mapping, write `key: value` (and put text that holds braces in quotes)"
    if node.value == "<<" and node.style is None:
        return "merge keys (`<<`) are not supported, write the keys out"
    if not node.value or _unprintable(str(node.value)):
        return "a key is empty or holds a character that does not print, write `key: value`"
    return ""


def _unprintable(text: str) -> bool:
    return "\0" in text or any("\ud800" <= ch <= "\udfff" for ch in text)


def _place(mark: yaml.Mark | None, origin: str | None) -> Place:
    if origin is not None or mark is None:
        return Place(None, None, origin)
    return Place(mark.line + 1, mark.column + 1)


def _syntax_problem(error: yaml.MarkedYAMLError, origin: str | None) -> Problem:
    return _place(error.problem_mark or error.context_mark, origin).problem(
        (), _short(error.problem or error.context or "this is not YAML")
    )


def _short(message: str) -> str:
    return next(
        (ours for theirs, ours in _SYNTAX if theirs in message), shortened(escaped(message)) if len(message) > 120 else escaped(message)
    )
