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


_BASE32 = string.ascii_uppercase + "234567"
_TOKENS = {
    **{f"github {kind}": f"gh{kind}_" + _letters(36) for kind in "pous"},
    "github refresh": "gh" + "r_" + _letters(76),
    "github server, long": f"gh{'s'}_{_letters(20)}_ey{'J'}{_letters(60)}.{_letters(80)}.{_letters(43)}",
    "github fine-grained": "github_" + "pat_" + _letters(22) + "_" + _letters(59),
    "aws key id": "AK" + "IA" + _letters(16, _BASE32),
    "aws session key id": "AS" + "IA" + _letters(16, _BASE32),
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


def test_what_is_a_secret_by_its_shape_or_by_what_stands_beside_it_is_taken_out() -> None:
    for kind in _TOKENS:
        for frame in ("{}", "token={} and more", 'x("{}")', "({})", "{}\nnext", "'{}'."):
            assert redact(frame.format(_TOKENS[kind])) == frame.format(MARK)
        assert redact(f"https://h/?t={_TOKENS[kind]}&u=1") == f"https://h/?t={MARK}&u=1"
    for text, left in (
        (f"a {_KEY} b", f"a {MARK} b"),
        (_KEY.replace("\n", "\\n"), MARK),
        (_KEY[:90], MARK),
        ("cloning https://user:pa55word@host.example/x", f"cloning https://{MARK}@host.example/x"),
        ("redis://:pa55word@cache:6379/0", f"redis://{MARK}@cache:6379/0"),
    ):
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


def test_what_a_report_lives_of_stays() -> None:
    for text in _HARMLESS:
        assert redact(text, ["pa55word"]) == text
    for report in reports.ALL.values():
        assert redact(report, ["pa55word-that-is-nowhere"]) == report


def test_known_secrets_are_taken_out_in_every_spelling_longest_first() -> None:
    secret = 'p&ss "wörd"/+%'
    quoted = quote(secret, safe="")
    for spelled in (secret, quoted, quoted.lower(), quote_plus(secret), json.dumps(secret)[1:-1]):
        assert redact(f"a {spelled} b", [secret]) == f"a {MARK} b", spelled
    assert redact("abcdefgh", ["abcdef", "abcdefgh"]) == MARK
    assert redact("abcdef", ["abcdef"]) == MARK, "the shortest that is one"
    assert redact("a pass is no fail", ["pass", "", "is no", "  no  "]) == "a pass is no fail"
    lines = [_letters(40), "short", _letters(40)]
    assert redact(f"x {lines[2]} y short", ["\n".join(lines)]) == f"x {MARK} y short"


@given(
    st.binary(min_size=12, max_size=40), *[st.text(alphabet=string.ascii_letters, max_size=7)] * 2
)
def test_a_known_secret_is_taken_out_of_base64(raw: bytes, before: str, after: str) -> None:
    secret = raw.hex()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(f"{before}{secret}{after}".encode()).decode()
        left = redact(f"basic {text}", [secret])
        # what is left are its neighbours
        assert MARK in left and len(left) < len("basic ") + len(MARK) + 24


def test_a_private_key_is_found_over_lines_and_in_names_of_fields() -> None:
    log = ["before", *_KEY.split("\n"), "after", 7, "-----BEGIN PRIVATE KEY-----", "abc"]
    assert redact(log) == ["before", *[MARK] * 4, "after", 7, MARK, MARK]
    end, begin = "-----END PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----"
    assert redact([f"{end} {begin}", "abc", end, "x"]) == [f"{end} {MARK}", MARK, MARK, "x"]
    run = reports.run("deterministic-1", log_tail=tuple(log[:5]))
    (left,) = redact(replace(reports.INCONCLUSIVE, runs=(run,))).runs
    assert left.log_tail == ("before", *[MARK] * 4)
    one, other = _TOKENS["github p"], _TOKENS["hugging face"]
    document = {"settings": {one: 1, "n": {"deep": [other]}}, "n": None, "x": 1.5, "t": True}
    left = {"settings": {MARK: 1, "n": {"deep": [MARK]}}, "n": None, "x": 1.5, "t": True}
    assert redact(document) == left
    redacted = render(redact(reports.hostile("the key is pa55word!"), ["pa55word"]))
    assert "pa55word" not in redacted and f"the key is {MARK}!" in redacted


def test_untrusted_text_cannot_keep_the_search_going() -> None:
    """It took time that grows with the square of its length: hours at the size that a report may
    have."""
    beginnings = "-" + "ey" + "J"
    assert redact(beginnings * 400_000).endswith(beginnings)


def test_a_secret_that_is_a_word_of_the_report_does_not_break_it(tmp_path: Path) -> None:
    for word in (
        "checklist",
        "parameter",
        "verdict",
        "inconclusive",
        "random-state",
        "unseeded-rng",
    ):
        report = replace(reports.EXPLAINED, reasons=(Reason("a/b", f"the password is {word}!"),))
        path = tmp_path / "report.json"
        path.write_text(render(redact(report, [word])))
        assert load(path).reasons[0].message == f"the password is {MARK}!"


def test_a_variable_is_a_secret_by_its_name_and_known_once() -> None:
    secret = {"GITHUB_TOKEN", "INPUT_TOKEN", "MY_PAT", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY"}
    secret |= {"SENTRY_DSN", "SIGNING_KEY", "DB_PWD", "DATABASE_URL"}
    for name in secret:
        assert known_secrets({name: "abcdefgh"}) == {"abcdefgh"}, name
    for name, value in {
        "PATH": "/usr/bin:/bin",
        "TOKENIZERS_PARALLELISM": "false-ish",
        "GIT_AUTHOR_NAME": "Ada Lovelace",
        "SSH_AUTH_SOCK": "/tmp/agent.1",
        "PASSWORD_FILE": "/run/secrets/db",
        "GOOGLE_APPLICATION_CREDENTIALS": "/home/ada/key.json",
        "AUTH_REQUIRED": "disabled",
        "HOME": "/home/ada",
    }.items():
        assert known_secrets({name: value}) == set(), name
    several = {"A_TOKEN": "abcdef", "B_TOKEN": "abcdefgh", "C_TOKEN": "abcdef"}
    assert known_secrets(several) == {"abcdefgh", "abcdef"}


@given(st.text(), st.lists(st.text(max_size=20), max_size=3))
def test_any_text_and_any_secret_can_be_had(text: str, known: list[str]) -> None:
    left: Any = redact({text: [text]}, known)
    assert len(left) == 1
    for secret in known:
        if len(secret.strip()) >= 6 and secret.strip() not in MARK:
            assert secret.strip() not in redact(f"{text} {secret}", known)
