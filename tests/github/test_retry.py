"""Retries and errors of the API client: waits, rate limits, what is not tried again, permission
lines, messages of untrusted servers."""

from __future__ import annotations

import json
import ssl

import pytest
from urllib3.exceptions import DecodeError, MaxRetryError, ProtocolError, SSLError

from repro_gate.github.api_errors import ApiError, Uncertain, message_of, permission_line, refused
from repro_gate.github.retry import (
    Call,
    GitHubRetry,
    Limits,
    Pace,
    is_limited,
    limit_pause,
    retry_after,
)
from tests.support.github.api_calls import Clock

PATH = "/repos/o/r/issues/7/comments"


@pytest.mark.parametrize(
    ("accepted", "line"),
    [
        ("issues=write; pull_requests=write", "permissions: {pull-requests: write}"),
        ("issues=write", "permissions: {issues: write}"),
        (
            "pull_requests=read,contents=read; issues=read,contents=read",
            "permissions: {pull-requests: read, contents: read}",
        ),
        ("metadata=read", ""),
        ("contents=read,metadata=read", "permissions: {contents: read}"),
        ("", ""),
        (None, ""),
        ("issues=write}, evil: {x", ""),
        ("pull_requests=write,::error::", ""),
    ],
)
def test_the_permission_line_is_made_of_what_github_would_accept(
    accepted: str | None, line: str
) -> None:
    assert permission_line(accepted) == line


@pytest.mark.parametrize(
    "message",
    [
        "Resource not accessible by integration",
        "Resource not accessible by personal access token",
        "Must have admin rights to Repository.",
    ],
)
def test_a_token_that_may_not_write_is_read_only_and_one_that_may_not_read_is_not(
    message: str,
) -> None:
    assert refused("POST", PATH, 403, message, None).read_only
    assert refused("PATCH", PATH, 404, message, None).read_only
    assert not refused("GET", PATH, 403, message, None).read_only
    assert not refused("POST", PATH, 422, message, None).read_only
    assert not refused("POST", PATH, 404, "Not Found", None).read_only


def test_without_the_header_the_remedy_still_has_a_line() -> None:
    assert "permissions: {pull-requests: write}" in refused("POST", PATH, 403, "", None).remedy
    assert "permissions: {pull-requests: read}" in refused("GET", PATH, 403, "", None).remedy


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("Unable to create comment because issue is locked.", "unlock"),
        ("Repository was archived so is read-only.", "archived"),
        ("Resource protected by organization SAML enforcement.", "single sign-on"),
    ],
)
def test_a_refusal_that_no_permission_mends_has_a_remedy_of_its_own(
    message: str, remedy: str
) -> None:
    error = refused("POST", PATH, 403, message, "issues=write")
    assert remedy in error.remedy and "permissions" not in error.remedy
    assert not error.read_only


def test_what_github_says_is_shown_on_one_line_and_not_at_any_length() -> None:
    error = refused("POST", PATH, 422, "bad\n::error::x\x1b[31m\u202e" + "y" * 10_000, None)
    assert (
        "\n" not in error.message and "\x1b" not in error.message and "\u202e" not in error.message
    )
    assert len(error.message) <= 400


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {
                "message": "Validation Failed",
                "errors": [{"message": "body is too long"}, {"code": "custom"}],
            },
            "Validation Failed; body is too long; custom",
        ),
        ({"message": "No", "errors": ["first", {"field": "body"}, None, "fourth"]}, "No; first"),
        ({"message": "No", "errors": "text"}, "No"),
        ({"message": 7}, ""),
        (["message"], ""),
        (None, ""),
    ],
)
def test_the_message_of_an_error_is_found_in_whatever_form_it_comes(
    document: object, message: str
) -> None:
    assert message_of(json.dumps(document).encode()) == message


def test_a_page_that_is_no_json_has_no_message() -> None:
    assert (
        message_of(b"<html>")
        == message_of(b"\xff")
        == message_of(b'{"message": "\xff"}')
        == message_of(b"[" * 100_000)
        == ""
    )


def test_every_api_error_is_inconclusive_and_uncertain_is_one() -> None:
    assert (
        issubclass(Uncertain, ApiError) and ApiError("x").exit_code == Uncertain("x").exit_code == 3
    )
    assert ApiError("x").status is None


def _limited(status: int, message: str = "", **headers: str) -> bool:
    return is_limited(
        status,
        {name.replace("_", "-"): value for name, value in headers.items()},
        json.dumps({"message": message}).encode(),
    )


def test_what_is_a_rate_limit_and_what_is_not() -> None:
    assert _limited(429)
    assert _limited(403, retry_after="1")
    assert _limited(403, x_ratelimit_remaining="0")
    assert _limited(403, "You have triggered an abuse detection mechanism.")
    assert not _limited(403, x_ratelimit_remaining="4999")
    assert not _limited(403, "Resource not accessible by integration", x_ratelimit_remaining="0")
    assert (
        not _limited(401, "rate limit")
        and not _limited(200, "rate limit")
        and not _limited(502, retry_after="1")
    )


@pytest.mark.parametrize("kind", ["RATE_LIMITED", "RATE_LIMIT"])
def test_a_limit_in_an_answer_of_200_counts_for_graphql_only(kind: str) -> None:
    body = json.dumps({"data": None, "errors": [{"type": kind}]}).encode()
    assert is_limited(200, {}, body, graphql=True) and not is_limited(200, {}, body)
    for other in (
        b"[]",
        b"x",
        b'{"errors": {}}',
        b'{"errors": [1]}',
        b'{"errors": [{"type": "FORBIDDEN"}]}',
        b'{"errors": [{"type": []}]}',
    ):
        assert not is_limited(200, {}, other, graphql=True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1500"}, 7.0),
        ({"retry-after": "0"}, 1.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1090"}, 91.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "900"}, 1.0),
        ({"x-ratelimit-remaining": "5", "x-ratelimit-reset": "1090"}, 240.0),
        ({"x-ratelimit-remaining": "0"}, 240.0),
        ({"retry-after": "soon"}, 240.0),
        ({"retry-after": "-5"}, 240.0),
        ({"retry-after": "1" * 15}, 864_000.0),
        ({"retry-after": "1" * 16}, 240.0),
        ({}, 240.0),
    ],
)
def test_the_wait_follows_githubs_order_of_headers(headers: dict[str, str], seconds: float) -> None:
    assert limit_pause(headers, now=1000.0, earlier=2) == seconds


def test_backing_off_doubles_and_is_never_the_same_for_two_jobs() -> None:
    jobs = []
    for _ in range(20):
        clock = Clock()
        retry = GitHubRetry(
            Call(method="GET", url="https://h/x", path="/x"),
            Limits(tries=6),
            Pace(clock.sleep, clock.now, 300.0),
        )
        for _ in range(5):
            retry.increment("GET", "/x", error=ProtocolError("cut")).sleep()
        jobs.append(clock.slept)
    assert all(
        0.5 * 2**earlier <= wait <= 2**earlier
        for slept in jobs
        for earlier, wait in enumerate(slept)
    )
    assert len({slept[0] for slept in jobs}) > 1


def _untrusted() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "verify failed")
    error.verify_message = "self-signed certificate"
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SSLError(_untrusted()), "certificate is not trusted: self-signed certificate"),
        (DecodeError("bad gzip"), "could not be unpacked"),
    ],
)
def test_what_time_does_not_change_is_not_tried_again(error: Exception, said: str) -> None:
    clock = Clock()
    retry = GitHubRetry(
        Call(method="GET", url="https://h/x", path="/x"),
        Limits(),
        Pace(clock.sleep, clock.now, 300.0),
    )
    with pytest.raises(MaxRetryError):
        retry.increment("GET", "/x", error=error)
    assert retry.failure is not None and said in retry.failure.message and not clock.slept


def test_a_date_in_retry_after_is_not_taken_for_a_number() -> None:
    assert retry_after({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}) is None
