"""Text from the training code made safe for the place it is printed in: one function for each
place, no place without one.

Names of tensors, log lines, paths and check messages are hostile until they have passed through
here. Standard library only.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from urllib.parse import quote

# Printable by Unicode's book, yet nothing is seen: combining grapheme joiner, Hangul fillers, Khmer
# inherent vowels, Mongolian and plain variation selectors, braille blank. Control, format (bidi,
# zero-width), surrogate and odd space characters fail `str.isprintable`.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164"
    "\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# One word of prose: an author's own `code`, or anything between two spaces.
# punctuation before, core, punctuation after, whether the core must be code
_Word = tuple[str, str, str, bool]
_CODE = 80  # characters of code in a sentence
_OPENING = "(\"'"
_CLOSING = ").,;:!?\"'"
_WORD = re.compile(
    r"""(?P<lead>[("']*)`(?P<code>[^`]+)`(?P<tail>[).,;:!?"']*)(?=\s|$)|(?P<word>\S+)"""
)
_ACTIVE = re.compile(
    r"""[<>&`|\[\]{}*_~^\#@:$\\/=]  # markup, HTML, math, mentions, references, emoji, URLs, paths
    | \bwww\.                                                # GFM autolinks
    | (?<!\w)gh-\d                                          # GH-123
    | (?<![0-9A-Za-z])[0-9A-Fa-f]{7,40}(?![0-9A-Za-z])       # a commit
    | (?<!\w)[^\W\d]\w+\.\w{2,}                              # model.py, torch.nn, example.com
    | ^--?[A-Za-z-]                                          # --option, and the rule `---`
    """,
    re.VERBOSE | re.IGNORECASE,
)


def _visible(text: str) -> str:
    """Return `text` on one line, with everything that is not seen spelled out."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char.isprintable() and not _INVISIBLE.match(char) else ascii(char)[1:-1]
        for char in text
    )


def clip(text: str, limit: int) -> str:
    """Return `text` in at most `limit` characters, the middle left out: the end of a path or of a
    tensor's name is what tells it apart."""
    if len(text) <= limit:
        return text
    tail = max(limit - 1, 0) // 3
    head = max(limit - 1 - tail, 0)
    end = text[len(text) - tail :]
    return f"{text[:head]}…{end}"


def quoted(code: str) -> str:
    """Return text of code as one word of a sentence, for every renderer: an author's `code` span,
    in which a backtick is shown as a quote."""
    code = code.replace("`", "'")
    return code and f"`{code if len(code) <= _CODE else code[: _CODE - 1] + '…'}`"


def counted(number: int, one: str, verb: str = "") -> str:
    """Return `1 step`, `1,200 steps` or `2 entries`; with the plural of a verb `1 file has`."""
    if number == 1:
        singular = {"are": " is", "were": " was", "have": " has"}
        return f"1 {one}" + singular.get(verb, verb and f" {verb}s")
    ends = {"ch": "ches", "ss": "sses", "ry": "ries"}
    plural = one[:-2] + ends[one[-2:]] if one[-2:] in ends else f"{one}s"
    return f"{number:,} {plural}{verb and ' ' + verb}"


def and_more(left: int, one: str = "") -> str:
    """Say what a list leaves out: `and 1,200 more`, with the noun `one` after it in the right
    number; empty where nothing is left."""
    if left <= 0:
        return ""
    return f"and {counted(left, f'more {one}')}" if one else f"and {left:,} more"


def listed(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are: `a, b and 7 more`."""
    return f"{', '.join(names[:most])} {and_more(len(names) - most)}".rstrip()


def for_terminal(text: str, limit: int | None = None) -> str:
    """Return one line for a terminal, in at most `limit` characters: escapes, bidi and zero-width
    characters and line ends are spelled out."""
    if limit is None:
        return _visible(text)
    return clip(_visible(clip(text, limit)), limit)


def for_encoding(text: str, encoding: str) -> str:
    """Return `text` with what `encoding` cannot hold spelled out, so that printing to a plain ASCII
    stream never fails."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


def for_code_span(text: str) -> str:
    """Return inline code on GitHub, the same in a paragraph and in a table cell.

    Nothing inside a code span is a link, mention, reference, emoji or math. A pipe would end the
    cell, and `\\|` shows its backslash outside a table: it goes between two spans as an entity
    instead.
    """
    parts = _visible(text).split("|")
    return "<code>&#124;</code>".join(map(_span, parts)) or "` `"


def _span(text: str) -> str:
    """Return one code span, none for nothing, its fence longer than every run of backticks inside
    (CommonMark 0.31, section 6.1)."""
    fence = "`" * (_longest_run(text) + 1)
    # Blanks alone are shown as they are.
    pad = " " if text.strip(" ") and {text[0], text[-1]} & {"`", " "} else ""
    return text and f"{fence}{pad}{text}{pad}{fence}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def for_markdown(text: str) -> str:
    """Return inline prose for GitHub, on one line. Whatever could become active there is set as
    inline code, and so is what reads best as code.

    Entities and zero-width spaces are no way out: GitHub looks for mentions, references and emoji
    after the Markdown is HTML, and a zero-width space inside `CUBLAS_WORKSPACE_CONFIG=:4096:8`
    would travel along when a person copies it. An author's own `code` stays code.
    """
    words: list[_Word] = []
    for match in _WORD.finditer(_visible(text)):
        lead, core, tail, is_code = _parts(match, first=not words)
        # neighbours share a span: `<img src=x>` is one thing
        if is_code and not lead and words and words[-1][2:] == ("", True):
            lead, before, _, _ = words.pop()
            core = f"{before} {core}"
        words.append((lead, core, tail, is_code))
    return " ".join(
        f"{lead}{for_code_span(core) if is_code else core}{tail}"
        for lead, core, tail, is_code in words
    )


def _parts(match: re.Match[str], *, first: bool) -> _Word:
    word = match["word"]
    if word is None:
        return match["lead"], match["code"], match["tail"], True
    rest = word.lstrip(_OPENING)
    core = rest.rstrip(_CLOSING)
    # `torch.seed()` keeps its bracket
    while core.count("(") > core.count(")") and rest.startswith(f"{core})"):
        core += ")"
    lead = word[: len(word) - len(rest)]
    tail = rest[len(core) :]
    is_number = core.isdigit() and tail[:1] in {".", ")"}
    starts_list = first and (is_number or core in {"-", "+"})
    return lead, core, tail, bool(_ACTIVE.search(core)) or starts_list


def for_address(address: str) -> str:
    """Return an address in a link of ours: what could end it early is quoted."""
    return quote(address, safe="/:?&=#%@+,;~-._")


def for_code_block(text: str, info: str = "") -> str:
    """Return a fenced block of its own, its fence longer than every run of backticks inside. Lines
    stay lines, the rest is made visible.

    `info` is the language of the block and comes from us, never from the training code.
    """
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    block = "\n".join(map(_visible, lines))
    fence = "`" * max(3, _longest_run(block) + 1)
    return f"{fence}{info}\n{block}\n{fence}"


def for_workflow_data(text: str) -> str:
    """Return the message of a GitHub workflow command. Line ends survive as `%0A`; other invisible
    characters are spelled out."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "%0A".join(_visible(line).replace("%", "%25") for line in lines)


def for_workflow_property(text: str) -> str:
    """Return the value of a property (`file=`, `title=`) of a GitHub workflow command: one line,
    `%`, `:` and `,` encoded."""
    return re.sub("[%:,]", lambda match: f"%{ord(match[0]):X}", _visible(text))


def for_workflow_log(line: str) -> str:
    """Return one printed line of a workflow log that the runner cannot take for a command.

    The runner reads `::name::` after leading blanks and the older `##[name]` anywhere in a line;
    both are pulled apart.
    """
    text = _visible(line).replace("##[", "# #[")
    return re.sub(r"^(\s*)::", r"\1: :", text)


def for_log(line: str) -> str:
    """Return one line for standard output or error: on GitHub one that can be no workflow
    command."""
    return for_workflow_log(line) if on_github() else for_terminal(line)


def on_github() -> bool:
    """Return whether this runs in a job of GitHub's, by the runner's own variable."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def log_guard() -> AbstractContextManager[None]:
    """Let nothing that is printed in here be a workflow command on GitHub: a line may start with
    anything. Elsewhere it does nothing. The runner stops for the whole step, so nothing else may
    print commands meanwhile."""
    return commands_disabled() if on_github() else nullcontext()


@contextmanager
def commands_disabled() -> Iterator[None]:
    """Print between `::stop-commands::` and its end, with a fresh token that nothing inside can
    know. It is ended whatever happens."""
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}", flush=True)
    try:
        yield
    except BaseException:
        # it may have been cut off inside a line, and the end counts at the start of one only
        print()
        raise
    finally:
        print(f"::{token}::", flush=True)
