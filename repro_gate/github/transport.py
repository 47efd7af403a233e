"""One request to GitHub's API over `requests`: the token goes to one server only, and what may pass
is waited for and tried again; what GitHub refuses is an error with GitHub's own message and the
line for the workflow that would mend it.

Errors of the HTTP library never leave this file: what hangs on them (prepared requests, frames with
headers) holds the token.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from urllib.parse import urlsplit

import msgspec
import requests
import urllib3

from repro_gate import __version__
from repro_gate.errors import GateError
from repro_gate.escape import for_terminal
from repro_gate.github.event import Malformed, decode
from repro_gate.github.redact import redact
from repro_gate.github.settings import Secret

HEADERS = {
    "Accept": "application/vnd.github+json",
    "X-GitHub-Api-Version": "2022-11-28",
    "User-Agent": f"repro-gate/{__version__}",
}
TIMEOUTS = 10.0, 30.0  # to connect; between two bytes
PAUSES = 0.5, 1.0, 2.0, 4.0  # seconds before another try
# seconds for all requests together, with the waits that GitHub asks for
PATIENCE = 300.0
_CHUNK = 64 * 1024  # bytes
# bytes of an answer. A page of 100 comments of 65,536 characters, each at most six bytes in JSON,
# is 39 MB: nobody's comments may stop the paging.
MOST_BYTES = 48 * 2**20
_MESSAGE = 300  # characters of GitHub's own message that are shown
_SECONDS = re.compile("[0-9]{1,6}")
_LIMITED = re.compile("rate limit|abuse detection", re.IGNORECASE)
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
    """GitHub could not be reached, or refused. `status` is the HTTP status; None if no complete
    answer came."""

    exit_code = 3
    reason_id = "github/api"
    status: int | None = None


class Uncertain(ApiError):
    """A write that must not be repeated may or may not have been made, since no complete answer
    came. Check before trying again."""


@dataclass(frozen=True)
class Call:
    """One request."""

    method: str
    url: str
    params: Mapping[str, str | int] = field(default_factory=dict)
    body: object = None

    def __str__(self) -> str:
        return f"{self.method} {urlsplit(self.url).path}"

    @property
    def repeatable(self) -> bool:
        """Return whether the call may be sent twice. GraphQL is only used for queries."""
        return self.method != "POST" or self.url.endswith("/graphql")

    @property
    def error(self) -> type[ApiError]:
        """Return the error of a call whose whole answer never came."""
        return ApiError if self.repeatable else Uncertain


@dataclass(frozen=True)
class Answer:
    """A whole answer. `more`: it names a next page."""

    status: int
    headers: Mapping[str, str]  # whatever the case
    body: bytes = field(repr=False)  # an error page may echo the request
    more: bool


class _Refusal(msgspec.Struct):
    message: str = ""
    errors: list[object] = []


def message_of(body: bytes) -> str:
    """Return GitHub's `message` from the body of an error, with `errors` behind it; empty for a
    body that is not GitHub's JSON."""
    try:
        refusal = decode(body, _Refusal)
    except Malformed:
        return ""
    errors = json.dumps(refusal.errors) if refusal.errors else ""
    return "; ".join(filter(None, (refusal.message, errors)))


class Transport:
    """Sends requests one after another, all of them within PATIENCE."""

    def __init__(self, token: Secret) -> None:
        self._token = token
        self._session = requests.Session()
        self._until = time.monotonic() + PATIENCE

    def send(self, call: Call) -> Answer:
        """Return the answer to `call`, with status 2xx. At a rate limit nothing was done, so it
        waits as `Retry-After` says and tries again. After a fault it repeats a repeatable call,
        with a pause that doubles. Raises ApiError, or Uncertain if a call that must not be repeated
        may have been done.
        """
        pauses = iter(PAUSES)
        while True:
            outcome = self._exchange(call)
            pause = next(pauses, None)
            wait = pause if call.repeatable else None
            if isinstance(outcome, Answer) and outcome.status < 500:
                after = outcome.headers.get("retry-after", "")
                limited = outcome.status in {403, 429} and _SECONDS.fullmatch(after)
                wait = float(after) if limited and pause else None
            if wait is None or time.monotonic() + wait > self._until:
                break
            time.sleep(wait)
        if isinstance(outcome, ApiError):
            raise outcome  # out here, so that no error of the HTTP library hangs on it
        if outcome.status >= 300:
            # a proxy's error page may echo the request
            message = message_of(outcome.body).replace(self._token.reveal(), "***")
            raise refused(call, outcome, message)
        return outcome

    def _exchange(self, call: Call) -> Answer | ApiError:
        """Make one request and read its answer, within the limit."""
        body = bytearray()
        try:
            self._require_time()
            with self._session.request(
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
                    self._require_time()
                    if len(body) > MOST_BYTES:
                        raise ValueError(
                            f"the answer is larger than {MOST_BYTES:,} bytes"
                        )
                return Answer(
                    response.status_code,
                    response.headers,
                    bytes(body),
                    "next" in response.links,
                )
        # every error of requests is an OSError
        except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:
            reason = redact(f"{type(error).__name__}: {error}", [self._token.reveal()])
        site = urlsplit(call.url)
        return call.error(
            f"{call}: {for_terminal(reason, 300)}",
            remedy=f"see that this machine reaches {site.scheme}://{site.netloc}: proxy "
            "(HTTPS_PROXY, NO_PROXY), certificates (REQUESTS_CA_BUNDLE), GITHUB_API_URL",
            reason_id="github/unreachable",
        )

    def _require_time(self) -> None:
        if time.monotonic() > self._until:
            raise TimeoutError(f"all requests took more than {PATIENCE:g} s together")

    def _authorize(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Set the header. As an `auth` of its own it also keeps requests from taking credentials
        out of a .netrc."""
        request.headers["Authorization"] = f"Bearer {self._token.reveal()}"
        return request


def refused(call: Call, answer: Answer, message: str) -> ApiError:
    """Return the error for an unsuccessful answer. `message` is GitHub's."""
    status = answer.status
    write = call.method != "GET"
    reason_id = ""
    remedy = ""
    lacking = status in {403, 404} and _LACKS_PERMISSION.search(message)
    after = answer.headers.get("retry-after", "")
    spent = answer.headers.get("x-ratelimit-remaining") == "0"
    limited = status == 403 and (after or spent or _LIMITED.search(message))
    if not lacking and (limited or status == 429):
        reason_id = "github/rate-limit"
        reset = answer.headers.get("x-ratelimit-reset", "")
        when = ""
        if _SECONDS.fullmatch(after):
            when = f" in {after} s"
        elif re.fullmatch("[0-9]{1,10}", reset):
            moment = datetime.fromtimestamp(int(reset), timezone.utc)
            when = f" after {moment:%Y-%m-%d %H:%M:%S} UTC"
        remedy = f"run the job again{when}, or have fewer jobs share the token"
    elif status >= 500:
        reason_id = "github/trouble"
        remedy = "GitHub has trouble (www.githubstatus.com): run the job again later"
    elif status < 400:
        reason_id = "github/redirect"
        remedy = (
            "the token is sent to one place only; set GITHUB_API_URL, or the repository's name, to "
            "what it is now"
        )
    elif status == 401:
        reason_id = "github/unauthorized"
        remedy = (
            "the token is wrong or has expired: pass `token: ${{ github.token }}`, or renew the "
            "secret that holds it"
        )
    elif status == 403 and not lacking and _CLOSED.search(message):
        reason_id = "github/closed"
    elif lacking or status == 403:
        reason_id = "github/permission"
        remedy = f"give the job `permissions: {{pull-requests: {'write' if write else 'read'}}}`"
        if write:
            remedy += (
                "; for a pull request from a fork or from Dependabot GitHub keeps the token "
                "read-only whatever the workflow says: post from a `workflow_run` workflow with "
                "`repro-gate/repro-gate/comment`"
            )
    elif status == 404:
        remedy = (
            "see that the number is right and that the token may read this repository"
        )
    kind = call.error if status >= 500 else ApiError
    text = f"GitHub answered {status} to {call}"
    text += f": {for_terminal(message, _MESSAGE)}" if message else ""
    error = kind(text, remedy=remedy, reason_id=reason_id)
    error.status = status
    return error
