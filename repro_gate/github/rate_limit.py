"""How long to wait before GitHub is asked again: GitHub's documented rules for its rate limits, and our own for errors that pass.

The rules are those of "Rate limits for the REST API" and "Best practices for using the REST API" (docs.github.com/rest). Pure functions,
called by `transport`. All durations are in seconds, all times UTC epoch seconds.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from repro_gate.github.client_errors import FORBIDDEN, json_of, lacks_permission, message_of

TOO_MANY = 429
SECONDARY = 60.0  # "wait for at least one minute before retrying", and double it each time
BETWEEN_WRITES = 1.0  # "wait at least one second between each request" that writes
_LONGEST = 10 * 24 * 3600  # no header may ask for more: its number would pass what a clock holds
_GRAPHQL_LIMITS = ("RATE_LIMITED", "RATE_LIMIT")  # GitHub has used both; a tuple, for a type may be anything
_LIMIT_WORDS = ("rate limit", "abuse detection")
_RANDOM = random.SystemRandom()


def is_limited(status: int, headers: Mapping[str, str], body: bytes, *, graphql: bool = False) -> bool:
    """Whether GitHub refused for a rate limit, which means that it did nothing. GraphQL says so in an answer of 200."""
    if graphql and status == 200:
        return _graphql_limited(body)
    if status == TOO_MANY:
        return True
    if status != FORBIDDEN:
        return False
    message = message_of(body)
    if lacks_permission(status, message):
        return False
    spent = headers.get("x-ratelimit-remaining") == "0"
    return "retry-after" in headers or spent or any(word in message.lower() for word in _LIMIT_WORDS)


def _graphql_limited(body: bytes) -> bool:
    document = json_of(body)
    errors = document.get("errors") if isinstance(document, dict) else None
    return isinstance(errors, list) and any(isinstance(item, dict) and item.get("type") in _GRAPHQL_LIMITS for item in errors)


def limit_pause(headers: Mapping[str, str], now: float, earlier: int) -> float:
    """How long GitHub wants to be left alone. `earlier` counts the refusals of this request before this one."""
    after = retry_after(headers)
    if after is not None:
        return after
    reset = _number(headers.get("x-ratelimit-reset"))
    if headers.get("x-ratelimit-remaining") == "0" and reset is not None:
        return min(max(reset - now, 0.0) + 1.0, _LONGEST)  # a second more: the header has whole seconds, and clocks differ
    return min(SECONDARY * 2.0**earlier, _LONGEST)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The header `retry-after` in seconds, at least one; None where it is missing or is a date, which GitHub never sends."""
    seconds = _number(headers.get("retry-after"))
    return None if seconds is None else min(max(seconds, 1.0), _LONGEST)


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdecimal() and len(text) <= 15 else None


def backoff(earlier: int) -> float:
    """The wait after an error that passes by itself: 1, 2, 4, … seconds, half of it by chance, so that jobs do not come back together."""
    whole = 2.0**earlier
    return whole * (0.5 + 0.5 * _RANDOM.random())
