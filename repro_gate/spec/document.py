"""YAML text as plain data that remembers where every key and value stands. Scalars are read by the
rules of YAML 1.2, as editors and GitHub do: `no`, `20:30` and `2027-06-30` are text, `1e-6` is a
number. Aliases, tags, size and depth are refused before anything is built.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from repro_gate.escape import for_terminal
from repro_gate.spec.errors import KeyPath, Problem, Refused, dotted, shortened

MAX_BYTES = 1 << 20
MAX_NODES = 10_000
MAX_DEPTH = 50
MAX_NUMBER = 40  # characters; a longer run of digits is text (a checksum), not a number

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
)
_CONSTANTS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}
_PLAIN = re.compile(r"[\w./][\w./=+ -]*(?<! )", re.ASCII)
_UNPRINTABLE = re.compile("[\0\ud800-\udfff]")
_PLAIN_TAGS = (
    None,
    "!",
    "tag:yaml.org,2002:str",
    "tag:yaml.org,2002:map",
    "tag:yaml.org,2002:seq",
)

# what makes a whole text unreadable
_UNREADABLE = {
    # as `surrogateescape` decodes it
    re.compile("[\udc80-\udcff]"): "not UTF-8: byte {:#04x}, save the file as UTF-8",
    re.compile(
        r"^(<{7}|>{7}|\|{7}) ", re.MULTILINE
    ): "a merge conflict stands here, resolve it and remove the markers",
    yaml.reader.Reader.NON_PRINTABLE: "control character {:#04x}, remove it",
}
# PyYAML's wording (the start of it) and ours.
_SYNTAX = {
    "found character '\\t'": "a tab cannot indent YAML, use spaces",
    "mapping values are not allowed here": "a `:` stands where no key can be, check the "
    "indentation or put the value in quotes",
    "could not find expected ':'": "a key without `:`, write `key: value`",
    "expected <block end>": "the indentation does not fit the lines above, or the value before it "
    "needs quotes",
    "found unexpected end of stream": "the file ends inside a quoted text, close the quotes",
    "found unknown escape character": "unknown escape in double quotes, write `\\\\` for a "
    "backslash or use single quotes",
    "expected ',' or ']'": "a list that is not closed or lacks a comma, write `[a, b]`",
    "expected ',' or '}'": "a mapping that is not closed or lacks a comma, write `{a: 1, b: 2}`",
    "but found another document": "a second document starts here, only one is read: remove the "
    "`---`",
}


@dataclass(kw_only=True)
class Document:
    """Plain data (dicts, lists, scalars), the YAML node of every key and value by its path, and
    what is wrong with single keys."""

    data: Any = None
    keys: dict[KeyPath, yaml.Node] = field(default_factory=dict)
    values: dict[KeyPath, yaml.Node] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, path: KeyPath, message: str, *, at_key: bool = False) -> Problem:
        """Return a problem of the key at `path`, with the place of its value, or of the key itself;
        if it has none, of the nearest one above it."""
        places = {**self.values, **self.keys} if at_key else self.values
        place = path
        while place not in places:
            place = place[:-1]
        return problem_at(places[place].start_mark, path, message)

    def text(self, path: KeyPath) -> str:
        """Return the literal text of a scalar; empty if there is none."""
        node = self.values.get(path)
        return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def compose(
    raw: bytes,
    origin: str = "",
    *,
    max_nodes: int = MAX_NODES,
    what: str = "a spec",
) -> yaml.Node:
    """Return the node of one YAML document, an empty scalar if there is none. Raises `Refused` for
    what cannot be read.

    `origin` is the option of the command line that the text came from: it takes the place of line
    and column. `what` is the word for the document in messages.
    """
    if len(raw) > MAX_BYTES:
        raise Refused(Problem("", f"larger than 1 MiB, {what} is far smaller"))
    text = raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    start = yaml.Mark(origin, 0, 0, 0, None, 0)
    try:
        composer = _Composer(text, origin, max_nodes, what)
        root: yaml.Node | None = composer.get_single_node()
        return root or yaml.ScalarNode("", "", start)
    except yaml.MarkedYAMLError as error:
        message = str(error.problem)
        known = [ours for theirs, ours in _SYNTAX.items() if theirs in message]
        mark = error.problem_mark or start
        message = for_terminal([*known, message][0])
    except (OverflowError, ValueError):  # of PyYAML's, for `"\\UFFFFFFFF"`
        mark = start
        message = "an escape that no character has"
    raise Refused(problem_at(mark, (), message))


def document_of(root: yaml.Node) -> Document:
    """Return what a node stands for. Duplicate keys and the like are the document's problems."""
    document = Document()
    document.data = _value(root, (), document)
    return document


def problem_at(mark: yaml.Mark, path: KeyPath, message: str) -> Problem:
    """Return the problem of the key at `path`, at this place of the file or of this option."""
    if mark.name:
        return Problem(dotted(path), message, origin=mark.name)
    return Problem(dotted(path), message, mark.line + 1, mark.column + 1)


def scalar(text: str) -> str | int | float | bool | None:
    """Return what a plain (unquoted) scalar means. Text that only looks like a number (`010`,
    `1_000`, `20:30`, `.inf`, `1e999`) stays text."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) > MAX_NUMBER:
        return text
    if _INT.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def written(text: str) -> str:
    """Return how a text stands in a spec, in brackets too: in quotes where it must."""
    is_plain = _PLAIN.fullmatch(text) and scalar(text) == text
    return text if is_plain else json.dumps(text, ensure_ascii=False)


class _Composer(yaml.SafeLoader):
    """PyYAML's composer with limits: it stops before anything is large or deep."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  PyYAML's own name; what a scalar means is said by `scalar`, not by YAML 1.1

    def __init__(self, text: str, origin: str, max_nodes: int, what: str) -> None:
        self.origin = origin
        self.max_nodes = max_nodes
        self.what = what
        self.nodes = self.depth = 0
        super().__init__(text)
        self.name = origin  # which every mark carries

    def check_printable(self, data: str) -> None:
        for pattern, message in _UNREADABLE.items():
            if wrong := pattern.search(data):
                before = data[: wrong.start()]
                column = len(before) - before.rfind("\n") - 1
                mark = yaml.Mark(
                    self.origin, len(before), before.count("\n"), column, None, 0
                )
                byte = ord(wrong[0][0]) & 0xFF
                raise yaml.MarkedYAMLError(None, None, message.format(byte), mark)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        # types-PyYAML leaves it bare
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        tag = getattr(event, "tag", None)
        self.nodes += 1
        self.depth += 1
        wrong = ""
        if isinstance(event, yaml.AliasEvent):
            wrong = "aliases are not supported, write the value out"
        elif tag not in _PLAIN_TAGS:
            wrong = f"the tag `{shortened(str(tag))}` is not supported, remove it"
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
    document.values[path] = node
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, document)
    if isinstance(node, yaml.SequenceNode):
        children = enumerate(node.value)
        return [_value(child, (*path, index), document) for index, child in children]
    if _UNPRINTABLE.search(node.value):
        message = (
            "holds a character that no program can be given "
            "(NUL or half a character), remove it"
        )
        document.problems.append(document.problem(path, message))
        return "?"
    if isinstance(node, yaml.ScalarNode) and node.style is None:
        return scalar(node.value)
    return node.value


def _mapping(
    node: yaml.MappingNode, path: KeyPath, document: Document
) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = str(key_node.value)
        here = (*path, key)
        at = path
        if not isinstance(key_node, yaml.ScalarNode):
            wrong = (
                "a key cannot be a list or a mapping, write `key: value` (and put text that "
                "holds braces in quotes)"
            )
        elif key == "<<" and key_node.style is None:
            wrong = "merge keys (`<<`) are not supported, write the keys out"
        elif not key or _UNPRINTABLE.search(key):
            wrong = "a key is empty or holds a character that does not print, write `key: value`"
        elif key in data:
            at = here
            first = document.keys[here].start_mark
            line = "" if first.name else f"first on line {first.line + 1}, "
            wrong = f"stands twice, {line}keep one"
        else:
            document.keys[here] = key_node
            data[key] = _value(value_node, here, document)
            continue
        document.problems.append(problem_at(key_node.start_mark, at, wrong))
    return data
