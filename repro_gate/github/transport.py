"""One request to GitHub's API over `requests`: the token goes to one server only, and what may pass
is waited for and tried again; what GitHub refuses is an error with GitHub's own message and the
line for the workflow that would mend it.

The waits are those of "Rate limits for the REST API" and "Best practices for using the REST API"
(docs.github.com/rest). Durations are in seconds, times are UTC epoch seconds. Errors of the HTTP
library never leave this file: what hangs on them (prepared requests, frames with headers) holds the
token.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from urllib.parse import urlsplit

import requests
import urllib3

from repro_gate import __version__
from repro_gate.errors import GateError, UsageError
from repro_gate.escape import clip, for_terminal
from repro_gate.github.event import Malformed, decode
from repro_gate.github.redact import redact
from repro_gate.github.settings import Secret, is_url

HEADERS = {
    "Accept": "application/vnd.github+json",
    "X-GitHub-Api-Version": "2022-11-28",
    "User-Agent": f"repro-gate/{__version__}",
}
TIMEOUTS = 10.0, 30.0  # to connect; between two bytes
TRIES = 5
PATIENCE = 300.0  # that all waiting together may take
SECONDARY = 60.0  # "wait for at least one minute before retrying", and double it each time
_LONGEST = 10 * 24 * 3600  # no header may ask for more: its number would pass what a clock holds
_CHUNK = 64 * 1024  # bytes
# bytes of an answer. A page of 100 comments of 65,536 characters, each at most six bytes in JSON,
# is 39 MB: nobody's comments may stop the paging.
MOST_BYTES = 48 * 2**20
_RANDOM = random.SystemRandom()
_LOOPBACK = re.compile(r"http://(?:localhost|127(?:\.[0-9]{1,3}){3})(?![A-Za-z0-9.-])")
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, TOO_MANY = 401, 403, 404, 429
_MESSAGE = 300  # characters of GitHub's own message that are shown
# reasons for a 403 that no permission solves: a locked conversation, an archived repository, an
# organization that asks for single sign-on
_CLOSED = re.compile("locked|archived|saml", re.IGNORECASE)
# What GitHub says to a token that lacks a permission: an installation's (GITHUB_TOKEN), a
# fine-grained and a classic one.
_LACKS_PERMISSION = re.compile(
    "resource not accessible by (integration|personal access token)|must have admin rights",
    re.IGNORECASE,
)


class ApiError(GateError):
    """GitHub could not be asked, or refused. `status` is the HTTP status, None if no whole answer
    came."""

    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        reason_id: str = "github/api",
        status: int | None = None,
    ) -> None:
        super().__init__(message, remedy=remedy, reason_id=reason_id)
        self.status = status


class Uncertain(ApiError):
    """A write that must not be repeated may or may not have been made: its whole answer never came.
    Look before trying again."""


@dataclass(frozen=True)
class Call:
    """One request. `once`: it is not repeated if it may have been done."""

    method: str
    url: str
    params: Mapping[str, str | int] = field(default_factory=dict)
    body: object = None
    once: bool = False

    def __str__(self) -> str:
        return f"{self.method} {urlsplit(self.url).path}"


@dataclass(frozen=True)
class Answer:
    """A whole answer. `more`: it names a next page."""

    status: int
    headers: Mapping[str, str]  # whatever the case
    body: bytes = field(repr=False)  # an error page may echo the request
    more: bool


@dataclass
class Transport:
    """Sends requests one after another. `sleep` and `now` are the clock, `patience` is what all
    waiting may still take."""

    token: Secret
    session: requests.Session
    sleep: Callable[[float], None]
    now: Callable[[], float]
    patience: float = PATIENCE

    def send(self, call: Call) -> Answer:
        """Return the answer to `call`, of status 2xx.

        Raises ApiError, and Uncertain if `call.once` may have been done.
        """
        earlier = 0
        while True:
            # half of it by chance, so that jobs do not come back together
            pause = 2.0**earlier * (0.5 + 0.5 * _RANDOM.random())
            outcome = self._exchange(call)
            if isinstance(outcome, Answer):
                if 200 <= outcome.status < 300:
                    return outcome
                outcome, pause = self._refusal(call, outcome, earlier, pause)
            last = isinstance(outcome, Uncertain) or earlier + 1 == TRIES
            if last or not 0 < pause <= self.patience:
                break
            earlier += 1
            self.patience -= pause
            self.sleep(pause)
        raise outcome  # out here, so that no error of the HTTP library hangs on it

    def _exchange(self, call: Call) -> Answer | ApiError:
        """Make one request and read its answer, within the limit."""
        body = bytearray()
        try:
            with self.session.request(
                call.method,
                call.url,
                params=call.params,
                json=call.body,
                headers=HEADERS,
                auth=self._authorize,
                timeout=TIMEOUTS,
                allow_redirects=False,
                stream=True,
            ) as response:
                for chunk in response.iter_content(_CHUNK):
                    body += chunk
                    if len(body) > MOST_BYTES:
                        raise ValueError(f"the answer is larger than {MOST_BYTES:,} bytes")
                return Answer(
                    response.status_code, response.headers, bytes(body), "next" in response.links
                )
        # every error of requests is an OSError
        except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:
            reason = redact(f"{type(error).__name__}: {error}", [self.token.reveal()])
        site = urlsplit(call.url)
        return (Uncertain if call.once else ApiError)(
            f"{call}: {for_terminal(reason, 300)}",
            remedy=f"see that this machine reaches {site.scheme}://{site.netloc}: proxy "
            "(HTTPS_PROXY, NO_PROXY), certificates (REQUESTS_CA_BUNDLE), GITHUB_API_URL",
            reason_id="github/unreachable",
        )

    def _authorize(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Set the header. As an `auth` of its own it also keeps requests from taking credentials
        out of a .netrc."""
        request.headers["Authorization"] = f"Bearer {self.token.reveal()}"
        return request

    def _refusal(
        self, call: Call, answer: Answer, earlier: int, pause: float
    ) -> tuple[ApiError, float]:
        """Return the error that an answer is, and how long to wait before the next try; 0 if that
        is of no use."""
        status = answer.status
        # a proxy's error page may echo the request
        message = message_of(answer.body).replace(self.token.reveal(), "***")
        if is_limited(answer, message):  # which means that nothing was done
            pause = limit_pause(answer.headers, self.now(), earlier)
            again = datetime.fromtimestamp(self.now() + pause, timezone.utc)
            return ApiError(
                f"GitHub's rate limit: {call} was answered {status}; it can go on in "
                f"{pause:.0f} s, at {again:%Y-%m-%d %H:%M:%S} UTC",
                remedy="run the job again after that, or have fewer jobs share the token",
                reason_id="github/rate-limit",
                status=status,
            ), pause
        if status >= 500:
            return (Uncertain if call.once else ApiError)(
                f"GitHub answered {status} to {call}",
                remedy="GitHub has trouble (www.githubstatus.com): run the job again later",
                reason_id="github/trouble",
                status=status,
            ), max(pause, _seconds(answer.headers, "retry-after") or 0)
        return refused(call.method, str(call), status, message), 0


def is_limited(answer: Answer, message: str) -> bool:
    """Return whether GitHub refused for a rate limit."""
    if answer.status != FORBIDDEN or lacks_permission(answer.status, message):
        return answer.status == TOO_MANY
    spent = answer.headers.get("x-ratelimit-remaining") == "0"
    named = re.search("rate limit|abuse detection", message, re.IGNORECASE)
    return spent or "retry-after" in answer.headers or named is not None


def limit_pause(headers: Mapping[str, str], now: float, earlier: int) -> float:
    """Return how long GitHub wants to be left alone. `earlier` counts the tries before this one."""
    after, reset = _seconds(headers, "retry-after"), _seconds(headers, "x-ratelimit-reset")
    pause = SECONDARY * 2.0**earlier
    if after is not None:
        pause = max(after, 1.0)
    elif headers.get("x-ratelimit-remaining") == "0" and reset is not None:
        # a second more: the header has whole seconds, and clocks differ
        pause = max(reset - now, 0.0) + 1.0
    return min(pause, _LONGEST)


def _seconds(headers: Mapping[str, str], name: str) -> float | None:
    """Return a header's number; None if it is missing or a date, which GitHub never sends."""
    text = headers.get(name, "")
    return float(text) if re.fullmatch("[0-9]{1,15}", text) else None


def server(url: str, name: str) -> str:
    """Return `url` without a slash at its end. Raises UsageError, naming the setting `name`, for
    one that a token must not be sent to."""
    secure = url.startswith("https://") or _LOOPBACK.match(url)
    if is_url(url) and secure:
        return url.rstrip("/")
    why = "would carry the token unencrypted" if is_url(url) else "is not the URL of an API"
    raise UsageError(
        f"{name}: {for_terminal(url, 200)!r} {why}", remedy="such as https://HOST/api/v3"
    )


def refused(method: str, request: str, status: int, message: str) -> ApiError:
    """Return the error for a redirect or a 4xx. `message` is GitHub's."""
    text = f"GitHub answered {status} to {request}" + (
        f": {for_terminal(message, _MESSAGE)}" if message else ""
    )
    lacking, write = lacks_permission(status, message), method != "GET"
    reason_id, remedy = "github/api", ""
    if status < 400:
        reason_id = "github/redirect"
        remedy = (
            "the token is sent to one place only; set GITHUB_API_URL, or the repository's name, to "
            "what it is now"
        )
    elif status == UNAUTHORIZED:
        reason_id = "github/unauthorized"
        remedy = (
            "the token is wrong or has expired: pass `token: ${{ github.token }}`, or renew the "
            "secret that holds it"
        )
    elif status == FORBIDDEN and not lacking and _CLOSED.search(message):
        reason_id = "github/closed"
    elif lacking or status == FORBIDDEN:
        reason_id = "github/permission"
        remedy = f"give the job `permissions: {{pull-requests: {'write' if write else 'read'}}}`"
        if write:
            remedy += (
                "; for a pull request from a fork or from Dependabot GitHub keeps the token "
                "read-only whatever the workflow says: post from a `workflow_run` workflow with "
                "`repro-gate/repro-gate/comment`"
            )
    elif status == NOT_FOUND:
        remedy = "see that the number is right and that the token may read this repository"
    return ApiError(text, remedy=remedy, reason_id=reason_id, status=status)


def lacks_permission(status: int, message: str) -> bool:
    """Return whether GitHub says that the token itself may not, which waiting does not change."""
    return status in {FORBIDDEN, NOT_FOUND} and _LACKS_PERMISSION.search(message) is not None


def message_of(body: bytes) -> str:
    """Return GitHub's `message` from the body of an error, with `errors` behind it; empty for a
    body that is not GitHub's JSON."""
    try:
        document = decode(body, dict[str, object])
    except Malformed:
        return ""
    errors = json.dumps(document["errors"]) if "errors" in document else ""
    parts = (str(part) for part in (document.get("message"), errors) if part)
    return clip("; ".join(parts), 3000)
