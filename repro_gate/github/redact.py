"""Takes secrets out of a report before it is posted or uploaded: the values that this job was
given, GitHub's tokens and private keys.

GitHub masks its logs, never its comments. This is the second line of defence; the first is that
training is started without the secrets.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus

from repro_gate.baseline.model import STATUSES as BASELINE_STATUSES
from repro_gate.checks.interface import CATEGORIES, STATUSES
from repro_gate.compare.model import KINDS
from repro_gate.errors import GateError
from repro_gate.factors import CAUSES
from repro_gate.report.model import EXIT_CODES
from repro_gate.sandbox.reexec import is_secret

MARK = "[redacted]"
# A known secret shorter than this is not replaced: it would occur in ordinary words.
SHORTEST = 6
# characters of its base64 that do not depend on what stands next to it
_SHORTEST_BASE64 = 8
_SHORTEST_LINE = 16  # characters of one line of a secret of several lines

_NO_SECRET_NAME = re.compile(
    r"TOKENIZ|AUTHOR|_(FILE|PATH|DIR|HOST|USER|NAME|TYPE|MODE)$|^GOOGLE_APPLICATION_CREDENTIALS$",
    re.IGNORECASE,
)
_PLAIN_VALUE = re.compile(
    r"(?:true|false|enabled?|disabled?|required|optional|always|never|default|\d{1,9}|\*{3,})",
    re.IGNORECASE,
)

# Tokens of GitHub, of the hubs that training loads from, and of clouds; JSON web tokens; the user
# and password of a URL. A token does not begin inside a word, which also keeps a text of beginnings
# from being searched to its end from each of them.
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9_-]{20,}(?:\.[A-Za-z0-9_-]{10,}){0,2}|github_pat_[A-Za-z0-9_]{20,}"
    r"|hf_[A-Za-z0-9]{30,}(?![A-Za-z0-9_])|wandb_v1_[A-Za-z0-9_]{20,}|(?:AKIA|ASIA)[A-Z2-7]{16}(?![A-Za-z0-9])"
    r"|sk-(?:ant|proj)-[A-Za-z0-9_-]{20,})|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"
    r"|(?<=://)[^\s/:@'\"<>]{0,200}:[^\s/@'\"<>]{1,400}(?=@)"
    r"|-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 "
    r"]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"
)
_KEY_EDGE = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# A field that holds one of the report's own words keeps it, whatever the secrets are: a password
# that is one gives nothing away there.
_OWN_WORDS = {
    *(*EXIT_CODES, *STATUSES, *CATEGORIES, *KINDS, *BASELINE_STATUSES, *CAUSES),
    *("recipe", "platform", "head", "base"),
}
_Value = TypeVar("_Value")


def redact(value: _Value, secrets: Iterable[str] = ()) -> _Value:
    """Return a text, an error, or a report with all texts in it, with MARK in the place of each
    secret (of SHORTEST characters and more, also in base64 or quoted) and of whatever looks
    like a token, also in the names of mappings. A private key is found over several lines of a
    log."""
    spellings = {text for secret in secrets for text in _spellings(secret.strip())}
    longest_first = sorted(spellings, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first))
    redacted: _Value = _redacted(value, re.compile(pattern or r"(?!)"))
    return redacted


def known_secrets(environment: Mapping[str, str]) -> set[str]:
    """Return the values of variables that hold a secret by their name; switches and places of files
    are none."""
    return {
        value
        for name, value in environment.items()
        if is_secret(name)
        and not (_NO_SECRET_NAME.search(name) or _PLAIN_VALUE.fullmatch(value))
    }


def _redacted(value: Any, secrets: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        if len(value) < SHORTEST or value in _OWN_WORDS:
            return value
        return _TOKEN.sub(MARK, secrets.sub(MARK, value))
    if isinstance(value, tuple | list):
        rows = []
        within = False  # a private key that began in an earlier row
        for row in value:
            is_line = isinstance(row, str)
            rows.append(MARK if within and is_line else _redacted(row, secrets))
            edges = _KEY_EDGE.findall(row) if is_line else ["END"]
            within = edges[-1] == "BEGIN" if edges else within
        return type(value)(rows)
    if isinstance(value, Mapping):
        return {
            _redacted(name, secrets): _redacted(item, secrets)
            for name, item in value.items()
        }
    if isinstance(value, GateError):
        message = _redacted(value.message, secrets)
        remedy = _redacted(value.remedy, secrets)
        error = GateError(message, remedy=remedy, reason_id=value.reason_id)
        error.exit_code = value.exit_code
        return error
    fields = getattr(value, "__dataclass_fields__", ())
    names = getattr(value, "__struct_fields__", fields)
    parts = {name: _redacted(getattr(value, name), secrets) for name in names}
    return type(value)(**parts) if parts else value


def _spellings(secret: str) -> Iterator[str]:
    """Yield a secret as it is, line by line if it has several, quoted for a URL or for JSON, and in
    base64 wherever it may begin there."""
    if len(secret) < SHORTEST:
        return
    lines = map(str.strip, secret.splitlines())
    for text in (secret, *(line for line in lines if len(line) >= _SHORTEST_LINE)):
        yield from (
            text,
            json.dumps(text)[1:-1],
            json.dumps(text, ensure_ascii=False)[1:-1],
        )
        url = text.encode(errors="replace")
        for quoted in (quote(url, safe=""), quote_plus(url), quote(url)):
            yield quoted
            yield re.sub("%[0-9A-F]{2}", lambda byte: byte.group().lower(), quoted)
        data = text.encode("utf-8", "surrogatepass")
        # the part of its base64 that does not depend on its neighbours (`user:secret`)
        for before in range(3):
            encoded = base64.b64encode(bytes(before) + data).decode().rstrip("=")
            # from the first character that holds no bit of what stands before, to the last that
            # holds bits of this text alone
            first = -(-before * 8 // 6)
            whole = (before + len(data)) * 8 // 6
            fixed = encoded[first:whole]
            if len(fixed) >= _SHORTEST_BASE64:
                yield from {fixed, fixed.replace("+", "-").replace("/", "_")}
