"""One request to GitHub's API over `requests`: the token goes to one server only, redirects
included, and every wait is `GitHubRetry`'s.

Errors of the HTTP library never leave this file: what hangs on them (prepared requests, frames with
headers) holds the token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urljoin, urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase

from repro_gate import __version__
from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal
from repro_gate.github.api_errors import ApiError, Uncertain, message_of, refused
from repro_gate.github.retry import Call, GitHubRetry, Limits, Pace
from repro_gate.github.settings import Secret, is_url

HEADERS = {
    "Accept": "application/vnd.github+json",
    "X-GitHub-Api-Version": "2022-11-28",
    "User-Agent": f"repro-gate/{__version__}",
}
_REDIRECTS = frozenset({301, 302, 307, 308})  # GitHub: repeat the same request at the new place
_MOST_REDIRECTS = 3
_LOOPBACK = re.compile(r"localhost|127(?:\.[0-9]{1,3}){3}")


@dataclass(frozen=True)
class Answer:
    """A whole answer. `next_url` is the next page's, on the same origin or not."""

    status: int
    headers: Mapping[str, str]  # whatever the case
    body: bytes = field(repr=False)  # an error page may echo the request
    url: str
    next_url: str | None


class _Bearer(AuthBase):
    """The Authorization header. As an `auth` of its own it also keeps requests from taking
    credentials out of a .netrc."""

    def __init__(self, token: Secret) -> None:
        self._token = token

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        r.headers["Authorization"] = f"Bearer {self._token.reveal()}"
        return r


class Transport:
    """Sends requests one after another. All their waits together stay under `patience` seconds."""

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
        self._token, self._limits, self._pace = token, limits, Pace(sleep, now, patience)
        self._session = session if session is not None else requests.Session()
        self._adapter = HTTPAdapter()
        for scheme in ("https://", "http://"):
            self._session.mount(scheme, self._adapter)
        # Even with allow_redirects=False requests prepares the next request, with the header on it.
        self._session.get_redirect_target = _nowhere  # type: ignore[method-assign,assignment]

    def send(self, call: Call) -> Answer:
        """The answer to `call`, status 2xx, after redirects inside the origin (a renamed
        repository).

        Raises ApiError, and Uncertain where `call.once` may have been done.
        """
        url, params = call.url, call.params
        for _ in range(_MOST_REDIRECTS + 1):
            answer = self._exchange(call, url, params)
            if answer.status not in _REDIRECTS:
                break
            url, params = (
                same_origin(
                    answer.url, urljoin(answer.url, answer.headers.get("location", "")), str(call)
                ),
                {},
            )
        else:
            raise ApiError(
                f"{call}: redirected more than {_MOST_REDIRECTS} times", reason_id="github/redirect"
            )
        if not 200 <= answer.status < 300:
            # a proxy's error page may echo the request
            message = message_of(answer.body).replace(self._token.reveal(), "***")
            raise refused(
                call.method,
                call.path,
                answer.status,
                message,
                answer.headers.get("x-accepted-github-permissions"),
            )
        return answer

    def _exchange(self, call: Call, url: str, params: Mapping[str, str]) -> Answer:
        """One request and its retries."""
        if call.write:
            self._pace.before_write(call)
        retry = self._adapter.max_retries = GitHubRetry(call, self._limits, self._pace)
        outcome: Answer | ApiError
        try:
            with self._session.request(
                call.method,
                url,
                params=params,
                json=call.body,
                headers=HEADERS,
                auth=_Bearer(self._token),
                timeout=(self._limits.connect, self._limits.read),
                allow_redirects=False,
                stream=True,
            ) as response:
                following = response.links.get("next", {}).get("url")
                outcome = Answer(
                    response.status_code, response.headers, retry.body, response.url, following
                )
        except (
            OSError,
            ValueError,
            urllib3.exceptions.HTTPError,
        ) as error:  # every error of requests is an OSError
            words = (
                f": {for_terminal(error.strerror, 200)}"
                if isinstance(error, OSError) and isinstance(error.strerror, str)
                else ""
            )
            # an OSError here came before anything was sent
            kind = Uncertain if call.once and not isinstance(error, OSError) else ApiError
            outcome = kind(
                f"{call}: the request failed ({type(error).__name__}){words}",
                reason_id="github/unreachable",
            )
        outcome = retry.failure or outcome
        if isinstance(outcome, ApiError):
            raise outcome  # out here, so that no error of the HTTP library hangs on it
        return outcome


def _nowhere(response: requests.Response) -> None:
    """No redirect is the HTTP library's to follow."""


def server(url: str, name: str) -> str:
    """`url` without a slash at its end. Raises UsageError, naming the setting `name`, for one that
    a token must not be sent to."""
    plain = url.rstrip("/")
    if not is_url(plain):
        raise UsageError(
            f"{name}: {for_terminal(url, 200)!r} is not the URL of an API",
            remedy="such as https://HOST/api/v3",
        )
    if not plain.startswith("https://") and not _LOOPBACK.fullmatch(urlsplit(plain).hostname or ""):
        raise UsageError(
            f"{name}: {for_terminal(url, 200)!r} would carry the token unencrypted",
            remedy="use https://",
        )
    return plain


def same_origin(asked: str, target: str, request: str) -> str:
    """`target`, where it lies on the origin of `asked`. Raises ApiError for `request` where it does
    not: the token is for one origin."""
    try:
        parts = urlsplit(target)
        same = (
            _origin(parts) == _origin(urlsplit(asked))
            and not parts.username
            and parts.password is None
        )
    except ValueError:  # a port that is not a number
        same = False
    if not same:
        raise ApiError(
            f"{request}: GitHub points to another place, {for_terminal(target, 200)}",
            remedy="the token is sent to one server only; set GITHUB_API_URL (or the repository's "
            "name) to what it is now",
            reason_id="github/redirect",
        )
    return target


def _origin(parts: SplitResult) -> tuple[str, str | None, int]:
    """Scheme, host and port, with the port that the scheme stands for. Raises ValueError for a port
    that is not a number."""
    return (
        parts.scheme,
        parts.hostname,
        parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0),
    )
