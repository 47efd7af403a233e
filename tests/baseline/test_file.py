"""Claims about `repro.baseline.yml` as text."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from repro_gate.baseline.config_hash import InputValue, RootInputs, changed_inputs, hash_inputs
from repro_gate.baseline.file import MAX_NODES, dump_baseline, parse_baseline, read_baseline
from repro_gate.baseline.model import FILE_NAME, Baseline
from repro_gate.compare.model import TimedArm
from repro_gate.errors import GateError, UsageError
from repro_gate.spec.document import MAX_BYTES
from tests.support.config_hashes import LEAVES, TEXT
from tests.support.recorded import CPU, GPU, RECIPE, baseline, curve, digest, entry, outcome

TIMES: dict[TimedArm, tuple[float, ...]] = {"deterministic": (12.5, 13.0), "default": (9.25,)}
SAMPLE = baseline(entry(step_times=TIMES), entry(RECIPE, GPU, outcome(1), outcome(2, "second")))
TEXT_OF_ONE = dump_baseline(baseline(entry()))


def parsed(text: str) -> Baseline:
    return parse_baseline(text.encode(), FILE_NAME)


def refusal(raw: bytes) -> str:
    with pytest.raises(UsageError) as refused:
        parse_baseline(raw, FILE_NAME)
    assert refused.value.exit_code == 2 and refused.value.remedy
    assert refused.value.message.isprintable()
    return refused.value.message


def test_the_text_reads_as_any_yaml_in_one_order_and_a_platform_is_lines_added() -> None:
    text = dump_baseline(SAMPLE)
    assert {item["inputs"]["recipe"]["steps"] for item in yaml.safe_load(text)["entries"]} == {50}
    assert parsed(text) == SAMPLE and parsed(dump_baseline({})) == {}
    # as another library writes it
    assert parsed(edited(lambda data, first, result: None)) == baseline(entry())
    turned = {
        root: replace(
            item,
            inputs=RootInputs(dict(reversed(item.inputs.recipe.items())), item.inputs.platform),
        )
        for root, item in reversed(SAMPLE.items())
    }
    assert dump_baseline(turned) == dump_baseline(SAMPLE)
    before, after = TEXT_OF_ONE.splitlines(), dump_baseline(SAMPLE).splitlines()
    start = next(place for place, line in enumerate(after) if line not in before)
    added = len(after) - len(before)
    assert after[:start] + after[start + added :] == before


@settings(deadline=None, max_examples=60)
@given(LEAVES, LEAVES, st.dictionaries(TEXT, TEXT, max_size=3), st.lists(st.floats(), max_size=5))
def test_any_inputs_survive_to_the_last_bit_or_are_not_written(
    recipe: dict[str, InputValue],
    platform: dict[str, InputValue],
    outside: dict[str, str],
    losses: list[float],
) -> None:
    artifacts = {name: digest(name) for name in outside}
    result = outcome(artifacts=artifacts, loss_curve=curve(*enumerate(losses)))
    item = entry(recipe, platform, result, outside=outside)
    try:
        text = dump_baseline(baseline(item))
    except GateError as error:
        assert error.reason_id == "baseline/unwritable"
        return
    back = parsed(text)[item.platform]
    for part in ("config_hash", "outside", "outcomes"):
        assert getattr(back, part) == getattr(item, part)
    hashes = (hash_inputs(one.inputs.recipe, one.inputs.platform) for one in (item, back))
    assert changed_inputs(*hashes) == ()


def test_what_could_not_be_read_again_is_not_written_but_a_long_name_is() -> None:
    many = {f"{'out/' * 100}{number}.pt": digest(number) for number in range(2_500)}
    with pytest.raises(GateError, match="larger than") as refused:
        dump_baseline(baseline(entry(RECIPE, CPU, outcome(artifacts=many))))
    assert refused.value.reason_id == "baseline/unwritable"
    long = outcome(artifacts={"b" * 4_000: digest()})
    item = entry({**RECIPE, "data/" + "a" * 4_000: "sha256:0"}, CPU, long)
    assert parsed(dump_baseline(baseline(item))) == baseline(item)


# What anybody may have edited


def edited(change: Callable[[Any, Any, Any], None]) -> str:
    """The text of one entry after a change of its data, its entry or its outcome, as any YAML
    library writes it."""
    data = yaml.safe_load(TEXT_OF_ONE)
    (first,) = data["entries"]
    change(data, first, first["outcomes"][0])
    return yaml.safe_dump(data, sort_keys=False, width=10_000)


GONE = object()
MALFORMED, FORGED = "config_hash.inputs: ", "but what it is made of gives sha256:"
# (of the data, its entry, its outcome or the inputs: key, value; what is said)
EDITS: list[tuple[str, str, object, str]] = [
    ("data", "version", GONE, "missing required field `version`"),
    ("data", "version", 2, "version: invalid enum value 2"),
    ("data", "entries", "twice", "entries.1: a platform stands twice"),
    ("first", "platform", "x", "entries.0.platform: expected `str` matching"),
    ("first", "\x1b[31m\n", 1, r"unknown field `\x1b[31m\n`"),
    ("first", "outcomes", "twice", "entries.0.outcomes: a seed stands twice"),
    ("first", "step-times", {"pinned": [1.0]}, "invalid enum value 'pinned'"),
    ("result", "seed", -1, "outcomes.0.seed: expected `int` >= 0"),
    ("result", "loss-curve", {0: "one"}, "loss-curve: invalid enum value 'one'"),
    ("recipe", "steps", 2**53, MALFORMED),
    # hashes are made again
    ("recipe", "added", "one", FORGED),
    ("first", "recipe", digest(), FORGED),
    ("first", "config-hash", digest(), FORGED),
]


@pytest.mark.parametrize(("part", "key", "value", "message"), EDITS)
def test_every_field_is_checked(part: str, key: str, value: object, message: str) -> None:
    def change(data: Any, first: Any, result: Any) -> None:
        parts = {"data": data, "first": first, "result": result}
        whole = parts[part] if part in parts else first["inputs"][part]
        whole[key] = [*whole[key], copy.deepcopy(whole[key][0])] if value == "twice" else value
        if value is GONE:
            del whole[key]

    line = refusal(edited(change).encode())
    assert re.match(r"repro\.baseline\.yml:\d+:\d+: ", line) and message in line


def test_a_mistake_is_named_at_its_line_and_what_is_no_baseline_with_its_place() -> None:
    for old, new, column, message in (
        ("steps: 50\n    losses", "steps: fifty\n    losses", 12, "steps"),
        ("  recorded:", "<<<<<<< HEAD\n  recorded:", 1, "a merge conflict stands here"),
    ):
        text = TEXT_OF_ONE.replace(old, new)
        line = refusal(text.encode())
        number = text[: text.index(new)].count("\n") + 1
        assert line.startswith(f"repro.baseline.yml:{number}:{column}: ") and message in line
    for raw, message in (
        (b"", "1:1: expected `object`, got `null`"),
        (b"version: 1\nentries: []\nentries: []\n", "3:1: entries: stands twice, first on line 2"),
        (b"version: 1\n\xff\n", "2:1: not UTF-8"),
        (b"a: [" + b"1," * MAX_NODES + b"]\n", "more than 100,000 values"),
        (b"version: 1\nentries: []\n#".ljust(MAX_BYTES + 1, b"-"), "larger than 1 MiB"),
    ):
        assert message in refusal(raw)


# Files


def test_a_file_is_read_as_git_leaves_it_and_a_link_is_none(tmp_path: Path) -> None:
    assert read_baseline(tmp_path / FILE_NAME) == {}
    assert read_baseline(tmp_path / "no" / "folder" / FILE_NAME) == {}
    text = dump_baseline(SAMPLE).replace("\n", "\r\n")
    (tmp_path / FILE_NAME).write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_baseline(tmp_path / FILE_NAME) == SAMPLE
    (tmp_path / "real").write_text(TEXT_OF_ONE, encoding="utf-8")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    reasons = {"link": "a link", "dangling": "a link", "folder": "not a reg", "pipe": "not a reg"}
    for name, reason in reasons.items():
        with pytest.raises(UsageError, match=f"{name}: is {reason}"):
            read_baseline(tmp_path / name)
