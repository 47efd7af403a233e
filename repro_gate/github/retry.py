"""How a request to GitHub's API waits and is tried again: `GitHubRetry`, a `urllib3.Retry`. Where
it gives up, an ApiError says why.

The waits are those of "Rate limits for the REST API" and "Best practices for using the REST API"
(docs.github.com/rest). Durations are in seconds, times are UTC epoch seconds.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from urllib3.exceptions import (
    ConnectTimeoutError,
    DecodeError,
    HTTPError,
    MaxRetryError,
    NewConnectionError,
    ProxyError,
    ReadTimeoutError,
)
from urllib3.util import Retry

from repro_gate.escape import for_terminal
from repro_gate.github.api_errors import (
    FORBIDDEN,
    TOO_MANY,
    ApiError,
    Uncertain,
    json_of,
    lacks_permission,
    message_of,
)

if TYPE_CHECKING:
    from typing_extensions import Self
    from urllib3.connectionpool import ConnectionPool
    from urllib3.response import BaseHTTPResponse

SECONDARY = 60.0  # "wait for at least one minute before retrying", and double it each time
BETWEEN_WRITES = 1.0  # "wait at least one second between each request" that writes
_LONGEST = 10 * 24 * 3600  # no header may ask for more: its number would pass what a clock holds
_MOST_LIMITED = 8  # refusals of one request for a rate limit, however short each wait is
_CHUNK = 64 * 1024  # bytes
_RANDOM = random.SystemRandom()


@dataclass(frozen=True)
class Limits:
    """What one request may take: seconds to connect, seconds between two bytes, bytes of its
    answer, tries where an error may pass."""

    connect: float = 10.0
    read: float = 30.0
    # A page of 100 comments of 65,536 characters, each at most six bytes in JSON, is 39 MB:
    # nobody's comments may stop the paging.
    body: int = 48 * 2**20
    tries: int = 4


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request. Errors name it by `path`. `once`: repeat it only where it was surely not done;
    `write`: it changes something."""

    method: str
    url: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    once: bool = False
    write: bool = False
    graphql: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Pace:
    """The clock of all requests: together they wait at most `patience` seconds, and two writes are
    BETWEEN_WRITES apart."""

    def __init__(
        self, sleep: Callable[[float], None], now: Callable[[], float], patience: float
    ) -> None:
        self.sleep, self.now, self.left = sleep, now, patience
        self.last_write: float | None = None

    def wait(self, seconds: float) -> None:
        self.left -= seconds
        self.sleep(seconds)

    def before_write(self, call: Call) -> None:
        """Wait until the last write is long enough ago. Raises ApiError where the patience is used
        up."""
        seconds = (
            0.0
            if self.last_write is None
            else BETWEEN_WRITES - max(self.now() - self.last_write, 0.0)
        )
        if seconds > self.left:
            raise ApiError(
                f"{call}: the time to wait for GitHub is used up", reason_id="github/patience"
            )
        if seconds > 1e-3:  # a clock's rounding is no wait
            self.wait(seconds)


class GitHubRetry(Retry):
    """The tries of one request, for `HTTPAdapter(max_retries=…)`. It reads each whole answer, since
    rate limits are named in bodies and an answer may be cut in its middle, and keeps the last one
    in `body`. Where it gives up, `failure` says why.
    """

    def __init__(self, call: Call, limits: Limits, pace: Pace) -> None:
        super().__init__(redirect=False, raise_on_status=False)
        self.body = b""
        self.failure: ApiError | None = None
        self._call, self._limits, self._pace = call, limits, pace
        self._failures = self._limited = 0
        self._pause = 0.0

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:  # noqa: ARG002
        """True: `increment` decides, from the whole answer."""
        return True

    def increment(
        self,
        method: str | None = None,  # noqa: ARG002
        url: str | None = None,
        response: BaseHTTPResponse | None = None,
        error: Exception | None = None,
        _pool: ConnectionPool | None = None,
        _stacktrace: TracebackType | None = None,
    ) -> Self:
        """Prepare the next try. Raises MaxRetryError where there is none: the answer is final, or
        `failure` is set."""
        if self._call.write:
            self._pace.last_write = self._pace.now()
        if response is not None:
            error = self._read(response)
        if error is not None:
            self._after_failure(*_meaning(error, self._limits))
        elif response is not None and is_limited(
            response.status, response.headers, self.body, graphql=self._call.graphql
        ):
            self._after_limit(response)
        elif response is not None and response.status >= 500:
            self._after_failure(
                f"GitHub answered {response.status}",
                status=response.status,
                asked=retry_after(response.headers) or 0.0,
            )
        # without a pause the answer is final: urllib3 returns it
        if self.failure is not None or not self._pause:
            raise MaxRetryError(_pool, url or "", error)  # type: ignore[arg-type]
        return self

    def sleep(self, response: BaseHTTPResponse | None = None) -> None:  # noqa: ARG002
        """Wait for as long as `increment` found right."""
        self._pace.wait(self._pause)
        self._pause = 0.0

    def _read(self, response: BaseHTTPResponse) -> Exception | None:
        """Read the body, unpacked, within the limit. Returns what went wrong."""
        body = bytearray()
        try:
            for chunk in response.stream(_CHUNK, decode_content=True):
                body += chunk
                if len(body) > self._limits.body:
                    return OverflowError(f"the answer is larger than {self._limits.body:,} bytes")
        except HTTPError as error:
            return error
        self.body = bytes(body)
        return None

    def _after_failure(
        self,
        reason: str,
        arrived: bool = True,
        passing: bool = True,
        *,
        status: int | None = None,
        asked: float = 0.0,
    ) -> None:
        """Wait 1, 2, 4, … seconds, half of it by chance so that jobs do not come back together, and
        `asked` seconds at least.

        `arrived`: GitHub may have done what was asked; `passing`: trying again may help.
        """
        self._failures += 1
        times = f" ({self._failures} tries)" if self._failures > 1 else ""
        if self._call.once and arrived:
            remedy = "run the job again: it looks for what is there first"
            message = f"{self._call}: {reason}: it may or may not have been done"
            self.failure = Uncertain(
                message, remedy=remedy, reason_id="github/uncertain", status=status
            )
            return
        if status is None:
            parts = urlsplit(self._call.url)
            remedy = (
                f"see that this machine reaches {parts.scheme}://{parts.netloc}: proxy "
                "(HTTPS_PROXY, NO_PROXY), certificates "
            )
            failure = ApiError(
                f"{self._call}: {reason}{times}",
                remedy=f"{remedy}(REQUESTS_CA_BUNDLE), GITHUB_API_URL",
                reason_id="github/unreachable",
            )
        else:
            remedy = "GitHub has trouble (www.githubstatus.com): run the job again later"
            failure = ApiError(
                f"{reason} to {self._call}{times}",
                remedy=remedy,
                reason_id="github/trouble",
                status=status,
            )
        backoff = 2.0 ** (self._failures - 1) * (0.5 + 0.5 * _RANDOM.random())
        last = not passing or self._failures >= self._limits.tries
        self._pause_or_fail(
            failure, max(backoff, asked, BETWEEN_WRITES if self._call.write else 0.0), last=last
        )

    def _after_limit(self, response: BaseHTTPResponse) -> None:
        """GitHub refused for a rate limit, which means that it did nothing."""
        self._limited += 1
        seconds = limit_pause(response.headers, self._pace.now(), self._limited - 1)
        again = datetime.fromtimestamp(self._pace.now() + seconds, timezone.utc)
        said = (
            f"{self._call} was answered {response.status}; it can go on in {seconds:.0f} s, at "
            f"{again:%Y-%m-%d %H:%M:%S} UTC"
        )
        remedy = "run the job again after that, or have fewer jobs share the token"
        failure = ApiError(
            f"GitHub's rate limit: {said}",
            remedy=remedy,
            reason_id="github/rate-limit",
            status=response.status,
        )
        self._pause_or_fail(failure, seconds, last=self._limited > _MOST_LIMITED)

    def _pause_or_fail(self, failure: ApiError, seconds: float, *, last: bool) -> None:
        self._pause = seconds
        if last or seconds > self._pace.left:
            self.failure = failure


def _meaning(error: Exception, limits: Limits) -> tuple[str, bool, bool]:
    """What an error of urllib3 means: the reason as a clause, whether GitHub may have had the
    request, whether trying again may help."""
    inner = list(_inside(error))
    if isinstance(error, OverflowError | DecodeError):
        return (
            str(error) if isinstance(error, OverflowError) else "the answer could not be unpacked",
            True,
            False,
        )
    for item in inner:
        if isinstance(item, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not trusted: {for_terminal(item.verify_message, 200)}",
                False,
                False,
            )
    system = next(
        (
            item.strerror
            for item in inner
            if isinstance(item, OSError) and isinstance(item.strerror, str)
        ),
        "",
    )
    words = f": {for_terminal(system, 200)}" if system else ""
    if any(isinstance(item, NewConnectionError | ProxyError) for item in inner):
        return f"no connection could be made{words}", False, True
    if any(isinstance(item, ConnectTimeoutError) for item in inner):
        return f"no connection within {limits.connect:g} s", False, True
    if any(isinstance(item, ReadTimeoutError) for item in inner):
        return f"no answer within {limits.read:g} s", True, True
    return f"the connection was cut before the whole answer had come{words}", True, True


def _inside(error: object, depth: int = 8) -> Iterator[BaseException]:
    """`error` and every error inside it: urllib3 wraps the system's in arguments and causes."""
    if isinstance(error, BaseException) and depth:
        yield error
        for item in (
            *error.args,
            getattr(error, "original_error", None),
            error.__cause__,
            error.__context__,
        ):
            yield from _inside(item, depth - 1)


def is_limited(
    status: int, headers: Mapping[str, str], body: bytes, *, graphql: bool = False
) -> bool:
    """Whether GitHub refused for a rate limit. GraphQL says so in an answer of 200."""
    if graphql and status == 200:
        document = json_of(body)
        errors = document.get("errors") if isinstance(document, dict) else None
        kinds = (
            [item.get("type") for item in errors if isinstance(item, dict)]
            if isinstance(errors, list)
            else []
        )
        return "RATE_LIMITED" in kinds or "RATE_LIMIT" in kinds  # GitHub has used both
    message = message_of(body)
    if status != FORBIDDEN or lacks_permission(status, message):
        return status == TOO_MANY
    spent = headers.get("x-ratelimit-remaining") == "0"
    return (
        "retry-after" in headers
        or spent
        or any(words in message.lower() for words in ("rate limit", "abuse detection"))
    )


def limit_pause(headers: Mapping[str, str], now: float, earlier: int) -> float:
    """How long GitHub wants to be left alone. `earlier` counts the refusals of this request before
    this one."""
    after, reset = retry_after(headers), _number(headers.get("x-ratelimit-reset"))
    if after is not None:
        return after
    if headers.get("x-ratelimit-remaining") == "0" and reset is not None:
        # a second more: the header has whole seconds, and clocks differ
        return min(max(reset - now, 0.0) + 1.0, _LONGEST)
    return min(SECONDARY * 2.0**earlier, _LONGEST)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The header `retry-after` in seconds, at least one; None where it is missing or is a date,
    which GitHub never sends."""
    seconds = _number(headers.get("retry-after"))
    return None if seconds is None else min(max(seconds, 1.0), _LONGEST)


def _number(text: str | None) -> float | None:
    return (
        float(text)
        if text is not None and text.isascii() and text.isdecimal() and len(text) <= 15
        else None
    )
