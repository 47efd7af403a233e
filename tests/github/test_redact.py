"""Claims about `repro_gate.github.redact`: what is a secret, or looks like a token, is gone; what a
report lives of stays."""

from __future__ import annotations

import base64
import json
import random
import string
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro_gate.github.redact import MARK, known_secrets, redact
from repro_gate.report.document import load, render
from repro_gate.report.model import Reason
from tests.support import reports

_RANDOM = random.Random(7)


def _letters(count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    """Made up here, so that no token-shaped text stands in this file."""
    return "".join(_RANDOM.choice(alphabet) for _ in range(count - 1)) + "7"


_HEX = "0123456789abcdef"
_TOKENS = {
    "github personal": "gh" + "p_" + _letters(36),
    "github oauth": "gh" + "o_" + _letters(36),
    "github user": "gh" + "u_" + _letters(36),
    "github server": "gh" + "s_" + _letters(36),
    "github refresh": "gh" + "r_" + _letters(76),
    "github server, long": "gh"
    "s_" + _letters(20) + "_ey" + "J" + _letters(60) + "." + _letters(80) + "." + _letters(43),
    "github fine-grained": "github_" + "pat_" + _letters(22) + "_" + _letters(59),
    "aws key id": "AK"
    "IA" + "".join(_RANDOM.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") for _ in range(16)),
    "aws session key id": "AS"
    "IA" + "".join(_RANDOM.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") for _ in range(16)),
    "hugging face": "h" + "f_" + _letters(34),
    "openai project": "s" + "k-proj-" + _letters(20) + "_" + _letters(30),
    "anthropic": "s" + "k-ant-api03-" + _letters(90) + "-" + _letters(6),
    "json web token": "eyJ" + _letters(20) + "." + "ey" + "J" + _letters(40) + "." + _letters(43),
    "wandb": "wandb" + "_v1_" + _letters(40),
}
_KEY = (
    f"-----BEGIN {'RSA'} PRIVATE KEY-----\n{_letters(64)}\n{_letters(64)}\n-----END RSA PRIVATE "
    "KEY-----"
)


@pytest.mark.parametrize("kind", _TOKENS)
@pytest.mark.parametrize(
    "frame",
    ["{}", "token={} and more", 'x("{}")', "({})", "{}\nnext", "https://h/?t={}&u=1", "'{}'."],
)
def test_what_has_the_shape_of_a_token_is_taken_out_wherever_it_stands(
    kind: str, frame: str
) -> None:
    assert redact(frame.format(_TOKENS[kind])) == frame.format(MARK)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"a {_KEY} b", f"a {MARK} b"),
        (_KEY.replace("\n", "\\n"), MARK),
        (_KEY[:90], MARK),
        ("cloning https://user:pa55word@host.example/x", f"cloning https://{MARK}@host.example/x"),
        ("redis://:pa55word@cache:6379/0", f"redis://{MARK}@cache:6379/0"),
    ],
)
def test_what_is_a_secret_by_what_stands_beside_it_is_taken_out(text: str, left: str) -> None:
    assert redact(text) == left


_HARMLESS = (
    "sha256:" + "5e" * 32,
    "0123456789abcdef0123456789abcdef01234567",
    "the gradient of blocks.3.attn.weight diverges at step 3",
    "123e4567-e89b-12d3-a456-426614174000",
    "model.layers.11.self_attn.q_proj.weight",
    "hf_model.encoder.layer.11.attention.output.dense.weight",
    "task-classification-with-a-very-long-name-indeed",
    "sk-learn-pipeline-column-transformer-with-many-parts",
    "sklearn.pipeline.make_pipeline",
    "ghp_ is how they begin",
    "git@github.com:octo/training.git",
    "ssh://git@github.com/octo/training.git",
    "https://github.com/octo/training/actions/runs/7",
    "http://localhost:8080/path@2x.png",
    "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
    "wandb run 0123456789abcdef0123456789abcdef01234567 is a commit",
    "eyJ is how a token begins. So does this. And this",
    "Authorization: none",
    "registry.example/train@sha256:" + "ab" * 32,
    base64.b64encode(bytes(range(256)) * 8).decode(),
    base64.b64encode(random.Random(3).randbytes(60_000)).decode(),
)


@pytest.mark.parametrize("text", _HARMLESS)
def test_what_a_report_lives_of_stays(text: str) -> None:
    assert redact(text, ["pa55word"]) == text


def test_no_sample_report_is_touched() -> None:
    for report in reports.ALL.values():
        assert redact(report, ["pa55word-that-is-nowhere"]) == report


def test_a_known_secret_is_taken_out_in_every_spelling() -> None:
    secret = 'p&ss "wörd"/+%'
    spellings = [
        secret,
        quote(secret, safe=""),
        quote(secret, safe="").lower(),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
    ]
    for spelled in spellings:
        assert redact(f"a {spelled} b", [secret]) == f"a {MARK} b", spelled


@given(
    st.binary(min_size=12, max_size=40),
    st.text(alphabet=string.ascii_letters, max_size=7),
    st.text(alphabet=string.ascii_letters, max_size=7),
)
def test_a_known_secret_is_taken_out_of_base64_wherever_it_lies_in_it(
    raw: bytes, before: str, after: str
) -> None:
    secret = raw.hex()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(f"{before}{secret}{after}".encode()).decode()
        left = redact(f"basic {text}", [secret])
        # what is left are its neighbours
        assert MARK in left and len(left) < len("basic ") + len(MARK) + 24


def test_of_two_secrets_the_longer_is_taken_out_first() -> None:
    assert redact("abcdefgh", ["abcdef", "abcdefgh"]) == MARK
    assert redact("abcdef", ["abcdef"]) == MARK, "the shortest that is one"


def test_what_is_too_short_to_be_a_secret_stays() -> None:
    assert redact("a pass is no fail", ["pass", "", "is no", "  no  "]) == "a pass is no fail"


def test_the_lines_of_a_secret_of_several_lines_are_secrets() -> None:
    lines = [_letters(40), "short", _letters(40)]
    assert redact(f"x {lines[2]} y short", ["\n".join(lines)]) == f"x {MARK} y short"


def test_a_private_key_is_found_over_the_lines_of_a_log() -> None:
    log = ["before", *_KEY.split("\n"), "after", 7, "-----BEGIN PRIVATE KEY-----", "abc"]
    assert redact(log) == ["before", MARK, MARK, MARK, MARK, "after", 7, MARK, MARK]
    report = replace(
        reports.INCONCLUSIVE, runs=(reports.run("deterministic-1", log_tail=tuple(log[:5])),)
    )
    assert redact(report).runs[0].log_tail == ("before", MARK, MARK, MARK, MARK)


def test_names_of_fields_are_texts_too() -> None:
    one, other = _TOKENS["github personal"], _TOKENS["hugging face"]
    document = {"settings": {one: 1, "n": {"deep": [other]}}, "n": None, "x": 1.5, "t": True}
    assert redact(document) == {
        "settings": {MARK: 1, "n": {"deep": [MARK]}},
        "n": None,
        "x": 1.5,
        "t": True,
    }


def test_untrusted_text_cannot_keep_the_search_going() -> None:
    """It took time that grows with the square of its length: hours at the size that a report may
    have."""
    beginnings = "-" + "ey" + "J"
    assert redact(beginnings * 400_000).endswith(beginnings)


def test_no_text_of_a_diagnosis_keeps_a_secret() -> None:
    redacted = render(redact(reports.hostile("the key is pa55word!"), ["pa55word"]))
    assert "pa55word" not in redacted and f"the key is {MARK}!" in redacted


@pytest.mark.parametrize(
    "word", ["checklist", "parameter", "verdict", "inconclusive", "random-state", "unseeded-rng"]
)
def test_a_secret_that_is_a_word_of_the_report_does_not_break_it(word: str, tmp_path: Path) -> None:
    report = replace(reports.EXPLAINED, reasons=(Reason("a/b", f"the password is {word}!"),))
    path = tmp_path / "report.json"
    path.write_text(render(redact(report, [word])))
    assert load(path).reasons[0].message == f"the password is {MARK}!"


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("GITHUB_TOKEN", "abcdefgh", True),
        ("INPUT_TOKEN", "abcdefgh", True),
        ("MY_PAT", "abcdefgh", True),
        ("DB_PASSWORD", "hunter22", True),
        ("AWS_SECRET_ACCESS_KEY", "abcdefgh", True),
        ("GITHUB_TOKEN", "abc", False),
        ("PATH", "/usr/bin:/bin", False),
        ("TOKENIZERS_PARALLELISM", "false-ish", False),
        ("GIT_AUTHOR_NAME", "Ada Lovelace", False),
        ("SSH_AUTH_SOCK", "/tmp/agent.1", False),
        ("PASSWORD_FILE", "/run/secrets/db", False),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/home/ada/key.json", False),
        ("AUTH_REQUIRED", "disabled", False),
        ("HOME", "/home/ada", False),
    ],
)
def test_a_variable_is_a_secret_by_its_name(name: str, value: str, secret: bool) -> None:
    assert known_secrets({name: value}) == ((value,) if secret else ())


def test_known_secrets_come_longest_first_and_once() -> None:
    assert known_secrets({"A_TOKEN": "abcdef", "B_TOKEN": "abcdefgh", "C_TOKEN": "abcdef"}) == (
        "abcdefgh",
        "abcdef",
    )


@given(st.text(), st.lists(st.text(max_size=20), max_size=3))
def test_any_text_and_any_secret_can_be_had(text: str, known: list[str]) -> None:
    left: Any = redact({text: [text]}, known)
    assert len(left) == 1
    for secret in known:
        if len(secret.strip()) >= 6 and secret.strip() not in MARK:
            assert secret.strip() not in redact(f"{text} {secret}", known)
