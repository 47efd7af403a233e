"""Which servers the token may be sent to: one origin, over TLS, and nowhere that an answer points to.
Pure functions.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit

from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal
from repro_gate.github.client_errors import ApiError


def server(url: str, name: str) -> str:
    """`url` without a slash at its end. Raises UsageError, naming the setting `name`, for one that a token must not be sent to."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for one that is no number
        host = parts.hostname or ""
    except ValueError:
        parts, host = urlsplit(""), ""
    plain = not (parts.username or parts.password or parts.query or parts.fragment) and url.isprintable() and " " not in url
    if not host or not plain or parts.scheme not in {"https", "http"}:
        raise UsageError(f"{name}: {for_terminal(url, 200)!r} is not the URL of an API", remedy="such as https://HOST/api/v3")
    if parts.scheme == "http" and not _loopback(host):
        raise UsageError(f"{name}: {for_terminal(url, 200)!r} would carry the token unencrypted", remedy="use https://")
    return url.rstrip("/")


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def graphql_beside(api_url: str) -> str:
    """Where GraphQL is when nothing says so: /api/v3 and /api/graphql on a GitHub Enterprise Server, /graphql on github.com."""
    return f"{api_url.removesuffix('/v3')}/graphql" if api_url.endswith("/api/v3") else f"{api_url}/graphql"


def same_origin(asked: str, target: str, request: str) -> str:
    """`target`, where it lies on the origin of `asked`. Raises ApiError for `request` where it does not: the token is for one origin."""
    try:
        parts = urlsplit(target)
        same = origin_of(parts) == origin_of(urlsplit(asked)) and not parts.username and parts.password is None
    except ValueError:  # a port that is no number
        same = False
    if not same:
        raise ApiError(
            f"{request}: GitHub points to another place, {for_terminal(target, 200)}",
            remedy="the token is sent to one server only; set GITHUB_API_URL (or the repository's name) to what it is now",
            reason_id="github/redirect",
        )
    return target


def origin_of(parts: SplitResult) -> str:
    """Scheme, host and port, with the port that the scheme stands for. Raises ValueError for a port that is no number."""
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0)
    host = parts.hostname or ""
    return f"{parts.scheme}://[{host}]:{port}" if ":" in host else f"{parts.scheme}://{host}:{port}"
