"""Takes secrets out of a report before it is posted or uploaded: the values that this job was given, and whatever looks like a token.

GitHub masks its logs, never its comments. This is the second line of defence; the first is that training is started without the secrets.
Digests, commits, UUIDs, names of tensors and base64 of weights stay.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

from repro_gate.report.schema import schema_text
from repro_gate.sandbox.secret_names import SECRET

MARK = "[redacted]"
SHORTEST = 6  # characters of a known secret: anything shorter stands in every other word
_SHORTEST_BASE64 = 8  # characters of its base64 that do not depend on what stands beside it
_SHORTEST_LINE = 16  # characters of one line of a secret of several lines

_PERSONAL = re.compile(r"(?:^|_)PAT(?:_|$)", re.IGNORECASE)  # a personal access token
_NO_SECRET_NAME = re.compile(
    r"TOKENIZ|AUTHOR|AUTH_SOCK|_(FILE|PATH|DIR|HOST|USER|NAME|TYPE|MODE)$|^GOOGLE_APPLICATION_CREDENTIALS$", re.IGNORECASE
)
_PLAIN_VALUE = re.compile(r"(?:true|false|enabled?|disabled?|required|optional|always|never|default|\d{1,9}|\*{3,})", re.IGNORECASE)


class _Known(NamedTuple):
    """Every spelling of the known secrets, and one pattern for all, the longest first: a text is searched only where one is in it."""

    spelled: tuple[str, ...]
    pattern: re.Pattern[str]


class _Shape(NamedTuple):
    """One kind of token. It is looked for only where one of `needles` (in lower case) stands in the text; group 1, where there is one, is
    what is kept in front of it."""

    needles: tuple[str, ...]
    pattern: re.Pattern[str]


def _shape(needles: str, pattern: str, flags: int = 0) -> _Shape:
    return _Shape(tuple(needles.split()), re.compile(pattern, flags))


_START = r"(?<![A-Za-z0-9])"
_SHAPES = (
    _shape(
        "-----begin",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
        re.DOTALL,
    ),
    _shape("ghp_ gho_ ghu_ ghs_ ghr_", _START + r"gh[pousr]_[A-Za-z0-9_-]{20,}(?:\.[A-Za-z0-9_-]{10,}){0,2}"),
    _shape("github_pat_", _START + r"github_pat_[A-Za-z0-9_]{20,}"),
    _shape("akia asia", _START + r"(?:AKIA|ASIA)[A-Z2-7]{16}(?![A-Za-z0-9])"),
    _shape(
        "secret_access_key secretaccesskey",
        r"(secret_?access_?key[\"']?\s{0,3}[=:]\s{0,3}[\"']?)[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])",
        re.IGNORECASE,
    ),
    _shape("accountkey", r"(AccountKey=)[A-Za-z0-9/+]{60,}={0,2}"),
    _shape("xox xapp-", _START + r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,}"),
    _shape("hooks.slack.com", r"(hooks\.slack\.com/(?:services|workflows)/)[A-Za-z0-9/_-]{20,}"),
    _shape("hf_ api_org_", _START + r"(?:hf|api_org)_[A-Za-z0-9]{30,}(?![A-Za-z0-9_])"),
    _shape("sk-", _START + r"sk-(?:ant-|proj-|svcacct-|admin-|or-v1-)[A-Za-z0-9_-]{20,}"),
    _shape("sk- gsk_", _START + r"(?:sk-|gsk_)(?=[A-Za-z]{0,60}[0-9])[A-Za-z0-9]{20,}(?![A-Za-z0-9_-])"),
    _shape("sk_live_ sk_test_ rk_live_ rk_test_", _START + r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    _shape("gl", _START + r"gl(?:pat|dt|rt|ptt|agent|soat|ft|cbt|imt|oas|ffct)-[A-Za-z0-9_.-]{18,}[A-Za-z0-9_-]"),
    _shape("npm_", _START + r"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    _shape("pypi-age", _START + r"pypi-AgE[A-Za-z0-9_-]{40,}"),
    _shape("aiza", r"(?<![A-Za-z0-9_+/-])AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _shape("ya29.", _START + r"ya29\.[A-Za-z0-9_-]{20,}"),
    _shape("dckr_pat_", _START + r"dckr_pat_[A-Za-z0-9_-]{20,}"),
    _shape("sg.", _START + r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"),
    # Not after `-` and `_` either: a text of beginnings without the dot that one needs would be searched to its end from each of them.
    _shape("eyj", r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]{8,}){0,2}"),
    _shape("wandb_v1_", _START + r"wandb_v1_[A-Za-z0-9_]{20,}"),
    _shape("wandb", r"(wandb[^\n]{0,60}?key[^\n]{0,20}?(?<![0-9a-f]))[0-9a-f]{40}(?![0-9a-f])", re.IGNORECASE),
    _shape("authorization", r"(authorization[\"']?\s{0,3}[=:]\s{0,3}[\"']?(?:basic|bearer|token)\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE),
    _shape("://", r"(://)[^\s/:@'\"<>]{0,200}:[^\s/@'\"<>]{1,400}(?=@)"),
)
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")


def redact(text: str, known: Iterable[str] = ()) -> str:
    """`text` with every known secret (of SHORTEST characters and more, also in base64 or quoted) and every token-shaped word as MARK."""
    return _redacted(text, _spelled(frozenset(known)))


def redact_document(document: Any, known: Iterable[str] = ()) -> Any:
    """A JSON document with every text in it redacted, names of fields included.

    The words of the report's own schema stay: a password that is one of them gives nothing away there, and without them the document would
    be none. A private key is found over several lines of a list.
    """
    return _walk(document, _spelled(frozenset(known)))


def known_secrets(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values of variables that hold a secret by their name, longest first; switches and places of files are none."""
    found = {
        value
        for name, value in environment.items()
        if len(value) >= SHORTEST
        and (SECRET.search(name) or _PERSONAL.search(name))
        and not _NO_SECRET_NAME.search(name)
        and not _PLAIN_VALUE.fullmatch(value)
    }
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def _redacted(text: str, known: _Known | None) -> str:
    if len(text) < SHORTEST:
        return text
    if known is not None and any(spelling in text for spelling in known.spelled):
        text = known.pattern.sub(MARK, text)
    lower = text.lower()
    for shape in _SHAPES:
        if any(needle in lower for needle in shape.needles):
            text = shape.pattern.sub(_kept, text)
    return text


def _kept(found: re.Match[str]) -> str:
    return (found.group(1) if found.re.groups else "") + MARK


def _walk(value: Any, known: _Known | None) -> Any:
    if isinstance(value, str):
        return value if value in _vocabulary() else _redacted(value, known)
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        twice: Counter[str] = Counter()
        for name, item in value.items():
            found[_unlike(_walk(name, known), found, twice)] = _walk(item, known)
        return found
    if isinstance(value, list | tuple):
        return [MARK if hidden else _walk(item, known) for item, hidden in _key_lines(value)]
    return value


def _unlike(name: str, taken: Mapping[str, object], twice: Counter[str]) -> str:
    """Two names that were secrets are still two names. `twice` counts on where the last one ended: there may be 100,000 of them."""
    text = name
    while text in taken:
        twice[name] += 1
        text = f"{name} {twice[name] + 1}"
    return text


def _key_lines(rows: Iterable[Any]) -> Iterator[tuple[Any, bool]]:
    """Each row, and whether it is a line of a private key that began in an earlier row."""
    within = False
    for row in rows:
        ends = within and isinstance(row, str) and _KEY_ENDS.search(row) is not None
        yield row, within and isinstance(row, str)
        begun = isinstance(row, str) and [*_KEY_BEGINS.finditer(row)]
        if begun:
            within = _KEY_ENDS.search(row, begun[-1].end()) is None
        elif ends or not isinstance(row, str):
            within = False


@lru_cache(maxsize=1)
def _vocabulary() -> frozenset[str]:
    """Names of fields and the words that a field may be, by the report's schema."""

    def words(schema: Any) -> Iterator[str]:
        if isinstance(schema, list):
            for item in schema:
                yield from words(item)
        elif isinstance(schema, dict):
            yield from schema.get("properties", {})
            yield from (word for word in (*schema.get("enum", ()), schema.get("const")) if isinstance(word, str))
            for item in schema.values():
                yield from words(item)

    return frozenset(words(json.loads(schema_text())))


@lru_cache(maxsize=8)
def _spelled(known: frozenset[str]) -> _Known | None:
    """None where there is nothing to look for."""
    spelled = tuple(sorted({text for secret in known for text in _spellings(secret)}, key=lambda text: (-len(text), text)))
    return _Known(spelled, re.compile("|".join(map(re.escape, spelled)))) if spelled else None


def _spellings(secret: str) -> Iterator[str]:
    """As it is, line by line where it has several, quoted for a URL or for JSON, and in base64 wherever it may begin there."""
    secret = secret.strip()
    if len(secret) < SHORTEST:
        return
    lines = [line.strip() for line in secret.splitlines()]
    for text in (secret, *(line for line in lines if len(lines) > 1 and len(line) >= _SHORTEST_LINE)):
        quoted = (quote(text, safe="", errors="replace"), quote_plus(text, errors="replace"), quote(text, errors="replace"))
        yield from (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], *quoted)
        yield from (_lower_escapes(item) for item in quoted)
        yield from _base64(text.encode("utf-8", "surrogatepass"))


def _lower_escapes(text: str) -> str:
    return re.sub("%[0-9A-F]{2}", lambda found: found.group().lower(), text)


def _base64(secret: bytes) -> Iterator[str]:
    """The part of its base64 that does not depend on its neighbours, for each of the three ways in which it can lie (`user:secret`)."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + secret).decode().rstrip("=")
        first = -(-before * 8 // 6)  # characters that hold bits of what stands before
        whole = (before + len(secret)) * 8 // 6  # characters that hold bits of it alone
        fixed = encoded[first:whole]
        if len(fixed) >= _SHORTEST_BASE64:
            yield from {fixed, fixed.replace("+", "-").replace("/", "_")}
