"""One request to GitHub, and what it takes: time-outs, a size limit, retries, rate limits, redirects, and a token that goes nowhere else.
 Nothing here knows what a comment is. Errors of the HTTP library never leave this file: what hangs on them
(prepared requests, frames with headers) holds the token.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from requests.auth import AuthBase

from repro_gate import __version__
from repro_gate.escape import for_terminal
from repro_gate.github.client_errors import ApiError, Uncertain, message_of, refused
from repro_gate.github.model import Secret
from repro_gate.github.rate_limit import BETWEEN_WRITES, backoff, is_limited, limit_pause, retry_after
from repro_gate.github.servers import origin_of, same_origin

HEADERS = {
    "Accept": "application/vnd.github+json",
    "X-GitHub-Api-Version": "2022-11-28",
    "User-Agent": f"repro-gate/{__version__}",
}
_REDIRECTS = frozenset({301, 302, 307, 308})  # GitHub: repeat the same request at the new place
_MOST_REDIRECTS = 3
_MOST_LIMITED = 8  # refusals of one request, whatever they ask to wait
_CHUNK = 64 * 1024


@dataclass(frozen=True)
class Limits:
    """What one request may take: seconds to connect, seconds between two bytes, bytes of its answer, tries where an error may pass."""

    connect: float = 10.0
    read: float = 30.0
    # A page of 100 comments of 65,536 characters, each at most six bytes in JSON, is 39 MB: a stranger must not be able to stop the paging.
    body: int = 48 * 2**20
    tries: int = 4


@dataclass(frozen=True)
class Call:
    """One request. `path` is what errors name it by; `once`: it must not be made twice; `write`: it changes something on GitHub."""

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


@dataclass(frozen=True)
class Answer:
    """A whole answer. `next_url` is the next page's, on the same origin or not."""

    status: int
    headers: Mapping[str, str]  # whatever the case
    body: bytes = field(repr=False)  # an error page may echo the request
    url: str
    next_url: str | None


@dataclass(frozen=True)
class _Broken:
    """No whole answer came. `arrived`: GitHub may have had the request; `passing`: trying again may help."""

    reason: str
    arrived: bool = True
    passing: bool = True


class _Bearer(AuthBase):
    """The Authorization header. As an `auth` of its own it also keeps requests from taking credentials out of a .netrc."""

    def __init__(self, token: Secret) -> None:
        self._token = token

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        r.headers["Authorization"] = f"Bearer {self._token.reveal()}"
        return r


class Transport:
    """Sends requests one after another; what it has waited so far is kept, so that all of them together wait no longer than `patience`."""

    def __init__(
        self,
        token: Secret,
        *,
        sleep: Callable[[float], None],
        now: Callable[[], float],
        session: requests.Session | None,
        patience: float,
        limits: Limits,
    ) -> None:
        self._token, self._sleep, self._now = token, sleep, now
        self._session = session if session is not None else requests.Session()
        # Even with allow_redirects=False requests reads a redirect's whole body and prepares the next request, with the header on it.
        self._session.get_redirect_target = _nowhere  # type: ignore[method-assign,assignment]
        self._patience = self._left = patience
        self._limits = limits
        self._last_write: float | None = None

    def send(self, call: Call) -> Answer:
        """The answer to `call`, status 2xx. Raises ApiError, and Uncertain where `call.once` may have been done."""
        failures = limited = 0
        while True:
            self._keep_apart(call)
            outcome = self._follow(call)
            if isinstance(outcome, _Broken):
                failures += 1
                if call.once and outcome.arrived:
                    raise _uncertain(call, outcome.reason)
                self._after_failure(call, outcome, failures)
            elif is_limited(outcome.status, outcome.headers, outcome.body, graphql=call.graphql):
                limited += 1
                self._after_limit(call, outcome, limited)
            elif outcome.status >= 500:
                failures += 1
                if call.once:
                    raise _uncertain(call, f"GitHub answered {outcome.status}", outcome.status)
                self._after_failure(call, outcome, failures)
            elif not 200 <= outcome.status < 300:
                raise self._refused(call, outcome)
            else:
                return outcome

    def _keep_apart(self, call: Call) -> None:
        if call.write and self._last_write is not None:
            seconds = BETWEEN_WRITES - max(self._now() - self._last_write, 0.0)
            if seconds > 1e-3:  # a clock's rounding is no wait
                self._wait(seconds, ApiError(f"{call}: the time to wait for GitHub is used up", reason_id="github/patience"))

    def _after_failure(self, call: Call, outcome: Answer | _Broken, failures: int) -> None:
        """Wait before the next try, or raise where there is none."""
        times = f" ({failures} tries)" if failures > 1 else ""
        if isinstance(outcome, _Broken):
            error = ApiError(f"{call}: {outcome.reason}{times}", remedy=_reach_remedy(call.url), reason_id="github/unreachable")
            if not outcome.passing:
                raise error
            asked = None
        else:
            remedy = "GitHub has trouble (www.githubstatus.com): run the job again later"
            error = ApiError(
                f"GitHub answered {outcome.status} to {call}{times}", remedy=remedy, reason_id="github/trouble", status=outcome.status
            )
            asked = retry_after(outcome.headers)
        if failures >= self._limits.tries:
            raise error
        self._wait(max(backoff(failures - 1), asked or 0.0, BETWEEN_WRITES if call.write else 0.0), error)

    def _after_limit(self, call: Call, answer: Answer, limited: int) -> None:
        seconds = limit_pause(answer.headers, self._now(), limited - 1)
        again = datetime.fromtimestamp(self._now() + seconds, timezone.utc)
        error = ApiError(
            f"GitHub's rate limit: {call} was answered {answer.status}; it can go on in {seconds:.0f} s, at {again:%Y-%m-%d %H:%M:%S} UTC",
            remedy="run the job again after that, or have fewer jobs share the token",
            reason_id="github/rate-limit",
            status=answer.status,
        )
        if limited > _MOST_LIMITED:
            raise error
        self._wait(seconds, error)

    def _wait(self, seconds: float, otherwise: ApiError) -> None:
        if seconds > self._left:
            raise otherwise
        self._left -= seconds
        self._sleep(seconds)

    def _refused(self, call: Call, answer: Answer) -> ApiError:
        message = message_of(answer.body).replace(self._token.reveal(), "***")  # a proxy's error page may echo the request
        return refused(call.method, call.path, answer.status, message, answer.headers.get("x-accepted-github-permissions"))

    def _follow(self, call: Call) -> Answer | _Broken:
        """The answer, after redirects (a renamed repository) inside the origin. Raises ApiError for one that leads elsewhere."""
        url, params = call.url, call.params
        for _ in range(_MOST_REDIRECTS + 1):
            outcome = self._exchange(call, url, params)
            if isinstance(outcome, _Broken) or outcome.status not in _REDIRECTS:
                return outcome
            url, params = same_origin(outcome.url, urljoin(outcome.url, outcome.headers.get("location", "")), str(call)), {}
        raise ApiError(f"{call}: redirected more than {_MOST_REDIRECTS} times", reason_id="github/redirect")

    def _exchange(self, call: Call, url: str, params: Mapping[str, str]) -> Answer | _Broken:
        timeout = (self._limits.connect, self._limits.read)
        try:
            with self._session.request(
                call.method, url, params=params, json=call.body, headers=HEADERS, auth=_Bearer(self._token),
                timeout=timeout, allow_redirects=False, stream=True,
            ) as response:  # fmt: skip
                body = _read(response, self._limits.body)
                following = response.links.get("next", {}).get("url")
                answer = None if body is None else Answer(response.status_code, response.headers, body, response.url, following)
        except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:  # every error of requests is an OSError
            return _broken(error, self._limits)
        finally:
            if call.write:
                self._last_write = self._now()
        return answer or _Broken(f"the answer is larger than {self._limits.body:,} bytes", passing=False)


def _nowhere(response: requests.Response) -> None:
    """No redirect is the HTTP library's to follow."""


def _read(response: requests.Response, limit: int) -> bytes | None:
    """The body, unpacked; None where it passes `limit` bytes."""
    body = bytearray()
    for chunk in response.iter_content(_CHUNK):
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)


def _uncertain(call: Call, reason: str, status: int | None = None) -> Uncertain:
    return Uncertain(
        f"{call}: {reason}: it may or may not have been done",
        remedy="run the job again: it looks for what is there first",
        reason_id="github/uncertain",
        status=status,
    )


def _broken(error: Exception, limits: Limits) -> _Broken:
    """What an error of the HTTP library means, without the error: its frames hold the token."""
    chain = _chain(error)
    certificate = next((item for item in chain if isinstance(item, ssl.SSLCertVerificationError)), None)
    if certificate is not None:
        return _Broken(f"its certificate is not trusted: {for_terminal(certificate.verify_message, 200)}", arrived=False, passing=False)
    if any(isinstance(item, urllib3.exceptions.ConnectTimeoutError) and not isinstance(item, _NEVER_MADE) for item in chain):
        return _Broken(f"no connection within {limits.connect:g} s", arrived=False)
    if any(isinstance(item, _NEVER_MADE) for item in chain):
        return _Broken(f"no connection could be made{_system_words(chain)}", arrived=False)
    if any(isinstance(item, (requests.Timeout, urllib3.exceptions.ReadTimeoutError)) for item in chain):
        return _Broken(f"no answer within {limits.read:g} s")
    if isinstance(error, OSError) and (isinstance(error, ValueError) or not isinstance(error, requests.RequestException)):
        # A proxy's URL that is none, a folder of certificates that is not there: found before anything is sent.
        return _Broken(f"the request could not be made ({type(error).__name__}){_system_words(chain)}", arrived=False, passing=False)
    if isinstance(error, ValueError):
        return _Broken(f"the answer could not be read ({type(error).__name__})", passing=False)
    return _Broken(f"the connection was cut before the whole answer had come{_system_words(chain)}")


_NEVER_MADE = urllib3.exceptions.NewConnectionError


def _chain(error: BaseException) -> list[BaseException]:
    """`error` and every error inside it: requests and urllib3 wrap each other's in arguments and attributes."""
    found: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        item = waiting.pop()
        if isinstance(item, BaseException) and not any(item is other for other in found):
            found.append(item)
            waiting += [*item.args, getattr(item, "reason", None), item.__cause__, item.__context__]
    return found


def _system_words(chain: list[BaseException]) -> str:
    """`: Connection refused`, from the operating system's own error where there is one."""
    words = [item.strerror for item in chain if isinstance(item, OSError) and isinstance(item.strerror, str)]
    return f": {for_terminal(words[-1], 200)}" if words else ""


def _reach_remedy(url: str) -> str:
    place = origin_of(urlsplit(url))
    return f"see that this machine reaches {place}: proxy (HTTPS_PROXY, NO_PROXY), certificates (REQUESTS_CA_BUNDLE), GITHUB_API_URL"
