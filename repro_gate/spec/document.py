"""YAML text as plain data that remembers where every key and value stands. Scalars are read by the
rules of YAML 1.2, as editors and GitHub do: `no`, `20:30` and `2027-06-30` are text, `1e-6` is a
number. Aliases, tags and depth are refused before anything is built.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from repro_gate.spec.errors import KeyPath, Problem, Refused, dotted, escaped, shortened

MAX_NODES = 10_000
MAX_DEPTH = 50
MAX_NUMBER = 40  # characters; a longer run of digits is text (a checksum), not a number

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_PLAIN_TAGS = frozenset(
    {"!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}
)

# PyYAML's wording (the start of it) and ours.
_SYNTAX = (
    ("found character '\\t'", "a tab cannot indent YAML, use spaces"),
    (
        "mapping values are not allowed here",
        "a `:` stands where no key can be, check the indentation or put the value in quotes",
    ),
    ("could not find expected ':'", "a key without `:`, write `key: value`"),
    (
        "expected <block end>",
        "the indentation does not fit the lines above, or the value before it needs quotes",
    ),
    ("found unexpected end of stream", "the file ends inside a quoted text, close the quotes"),
    (
        "found unknown escape character",
        "unknown escape in double quotes, write `\\\\` for a backslash or use single quotes",
    ),
    ("expected ',' or ']'", "a list that is not closed or lacks a comma, write `[a, b]`"),
    ("expected ',' or '}'", "a mapping that is not closed or lacks a comma, write `{a: 1, b: 2}`"),
    (
        "but found another document",
        "a second document starts here, only one is read: remove the `---`",
    ),
)


@dataclass(frozen=True)
class Place:
    """Where something stands: line and column from 1, or the command-line option that brought
    it."""

    line: int | None
    column: int | None
    origin: str | None = None

    def problem(self, path: KeyPath, message: str) -> Problem:
        """The problem of the key at `path`, at this place."""
        return Problem(self.line, self.column, dotted(path), message, self.origin)


@dataclass(kw_only=True)
class Document:
    """Plain data (dicts, lists, scalars), the place of every key and value by its path, and the
    literal text of every scalar."""

    origin: str | None = None
    data: Any = None
    keys: dict[KeyPath, Place] = field(default_factory=dict)
    values: dict[KeyPath, Place] = field(default_factory=dict)
    literals: dict[KeyPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place(self, line: int, column: int) -> Place:
        """Line and column from 0, or the option that the text came from."""
        return (
            Place(line + 1, column + 1) if self.origin is None else Place(None, None, self.origin)
        )


def parse(
    text: str, origin: str | None = None, *, max_nodes: int = MAX_NODES, what: str = "a spec"
) -> Document:
    """Read one YAML document. Duplicate keys and the like come back in `problems`; what cannot be
    read raises `Refused`.

    With `origin` (an option of the command line) every place is that option. `what` is the word for
    the document in messages.
    """
    document = Document(origin=origin)
    try:
        loader = _Composer(text, max_nodes, what)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = document.place(mark.line, mark.column) if mark else Place(None, None, origin)
        raise Refused(
            place.problem((), _short(error.problem or error.context or "this is not YAML"))
        ) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = document.place(before.count("\n"), error.position - before.rfind("\n") - 1)
        raise Refused(place.problem((), _short(error.reason))) from None
    document.data = None if root is None else _value(root, (), document)
    return document


def scalar(text: str) -> str | int | float | bool | None:
    """What a plain (unquoted) scalar means. Text that only looks like a number (`010`, `1_000`,
    `20:30`, `.inf`, `1e999`) stays text."""
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
    """PyYAML's composer with limits: it stops before anything is large or deep."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  PyYAML's own name; what a scalar means is said by `scalar`, not by YAML 1.1

    def __init__(self, text: str, max_nodes: int, what: str) -> None:
        super().__init__(text)
        self.max_nodes, self.what = max_nodes, what
        self.nodes = self.depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        # types-PyYAML leaves it bare
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        tag = getattr(event, "tag", None)
        self.nodes, self.depth = self.nodes + 1, self.depth + 1
        wrong = ""
        if isinstance(event, yaml.AliasEvent):
            wrong = "aliases are not supported, write the value out"
        elif tag not in (None, *_PLAIN_TAGS):
            wrong = f"the tag `{shortened(escaped(str(tag)))}` is not supported, remove it"
        elif self.nodes > self.max_nodes:
            wrong = f"more than {self.max_nodes:,} values, {self.what} is far smaller"
        elif self.depth > MAX_DEPTH:
            wrong = f"nested deeper than {MAX_DEPTH} levels, {self.what} is far flatter"
        if wrong:
            raise yaml.MarkedYAMLError(None, None, wrong, event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        if isinstance(node, yaml.ScalarNode) and tag is not None:
            node.style = '"'  # `!!str 5` is text, as "5" is
        return node


def _value(node: yaml.Node, path: KeyPath, document: Document) -> Any:
    place = document.values[path] = document.place(node.start_mark.line, node.start_mark.column)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, document)
    if isinstance(node, yaml.SequenceNode):
        return [_value(child, (*path, index), document) for index, child in enumerate(node.value)]
    text = document.literals[path] = str(node.value)
    if _unprintable(text):
        message = (
            "holds a character that no program can be given (NUL or half a character), remove it"
        )
        document.problems.append(place.problem(path, message))
        return "?"
    return scalar(text) if isinstance(node, yaml.ScalarNode) and node.style is None else text


def _mapping(node: yaml.MappingNode, path: KeyPath, document: Document) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key_node, value_node in node.value:
        place, key = (
            document.place(key_node.start_mark.line, key_node.start_mark.column),
            str(key_node.value),
        )
        here, wrong = (*path, key), ""
        if not isinstance(key_node, yaml.ScalarNode):
            here, wrong = (
                path,
                (
                    "a key cannot be a list or a mapping, write `key: value` (and put text that "
                    "holds braces in quotes)"
                ),
            )
        elif key == "<<" and key_node.style is None:
            here, wrong = path, "merge keys (`<<`) are not supported, write the keys out"
        elif not key or _unprintable(key):
            here, wrong = (
                path,
                "a key is empty or holds a character that does not print, write `key: value`",
            )
        elif key in data:
            first = document.keys[here].line
            wrong = (
                f"stands twice, first on line {first}, keep one"
                if first is not None
                else "stands twice, keep one"
            )
        if wrong:
            document.problems.append(place.problem(here, wrong))
            continue
        document.keys[here] = place
        data[key] = _value(value_node, here, document)
    return data


def _unprintable(text: str) -> bool:
    return "\0" in text or any("\ud800" <= ch <= "\udfff" for ch in text)


def _short(message: str) -> str:
    ours = next((ours for theirs, ours in _SYNTAX if theirs in message), None)
    return ours or (shortened(escaped(message)) if len(message) > 120 else escaped(message))
