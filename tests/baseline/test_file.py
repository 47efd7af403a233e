"""Claims about `repro.baseline.yml` as text: it says what it is, loses nothing, and takes nothing on trust."""

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

from repro_gate.baseline.changes import changed_inputs
from repro_gate.baseline.config_hash import InputValue, hash_inputs
from repro_gate.baseline.file import MAX_BYTES, dump_baseline, parse_baseline, read_baseline
from repro_gate.baseline.model import FILE_NAME, Baseline
from repro_gate.compare.model import TimedArm
from repro_gate.errors import GateError, UsageError
from tests.support.config_hashes import LEAVES, TEXT
from tests.support.recorded import CPU, GPU, NOW, RECIPE, baseline, curve, digest, entry, outcome

TIMES: dict[TimedArm, tuple[float, ...]] = {"deterministic": (12.5, 13.0), "default": (9.25,)}
SAMPLE = baseline(entry(step_times=TIMES), entry(RECIPE, GPU, outcome(1), outcome(2, "second")))
DIGESTS = st.binary(min_size=32, max_size=32).map(lambda raw: f"sha256:{raw.hex()}")


def refusal(text: str | bytes) -> UsageError:
    with pytest.raises(UsageError) as refused:
        parse_baseline(text, FILE_NAME)
    assert refused.value.exit_code == 2 and refused.value.remedy
    assert "\n" not in refused.value.message
    return refused.value


def test_what_is_written_is_read_back() -> None:
    assert parse_baseline(dump_baseline(SAMPLE), FILE_NAME) == SAMPLE


def test_an_empty_baseline_is_a_baseline() -> None:
    assert parse_baseline(dump_baseline(Baseline()), FILE_NAME) == Baseline()


def test_the_text_says_what_it_is_and_reads_as_any_yaml() -> None:
    text = dump_baseline(SAMPLE)
    assert text.startswith("# What this training ended with") and "Review a change of it like code" in text
    data = yaml.safe_load(text)
    assert data["version"] == 1
    assert data["entries"][entry().platform]["recipe-inputs"]["steps"] == 50


def test_the_bytes_do_not_depend_on_the_order_in_which_things_came() -> None:
    shuffled = Baseline(
        {
            root: replace(
                item,
                recipe_inputs=dict(reversed([*item.recipe_inputs.items()])),
                outcomes=tuple(reversed(item.outcomes)),
                outside=dict(reversed([*item.outside.items()])),
            )
            for root, item in reversed([*SAMPLE.entries.items()])
        }
    )
    assert dump_baseline(shuffled) == dump_baseline(SAMPLE)


def test_a_new_platform_is_lines_added_and_none_changed() -> None:
    before, after = dump_baseline(baseline(entry())).splitlines(), dump_baseline(SAMPLE).splitlines()
    start = next(place for place, line in enumerate(after) if line not in before)
    added = len(after) - len(before)
    assert after[:start] + after[start + added :] == before


@settings(deadline=None, max_examples=60)
@given(
    LEAVES, LEAVES, st.dictionaries(TEXT, TEXT, max_size=3), st.dictionaries(TEXT, DIGESTS, max_size=3), st.lists(st.floats(), max_size=5)
)
def test_any_inputs_survive_to_the_last_bit_or_are_not_written(
    recipe: dict[str, InputValue], platform: dict[str, InputValue], outside: dict[str, str], artifacts: dict[str, str], losses: list[float]
) -> None:
    item = entry(recipe, platform, outcome(artifacts=artifacts, loss_curve=curve(*enumerate(losses))), outside=outside)
    try:
        text = dump_baseline(baseline(item))
    except GateError as error:
        assert error.reason_id == "baseline/unwritable"
        assert re.search("NUL|empty|digits|recipe-inputs|platform-inputs|character", error.message)
        return
    back = parse_baseline(text, FILE_NAME).entries[item.platform]
    assert (back.config_hash, back.outside, back.outcomes) == (item.config_hash, item.outside, item.outcomes)
    for before, after in ((item.recipe_inputs, back.recipe_inputs), (item.platform_inputs, back.platform_inputs)):
        assert changed_inputs(hash_inputs(before, {}), hash_inputs(after, {})) == ()


def test_what_could_not_be_read_again_is_not_written() -> None:
    many = {f"out/{number}.pt": digest(number) for number in range(12_000)}
    with pytest.raises(GateError, match=r"cannot be recorded: .*larger than") as refused:
        dump_baseline(baseline(entry(RECIPE, CPU, outcome(artifacts=many))))
    assert "capture fewer artifacts" in refused.value.remedy


def test_a_name_as_long_as_a_path_may_be_is_no_hindrance() -> None:
    item = entry({**RECIPE, "data/" + "a" * 4_000: "sha256:0"}, CPU, outcome(artifacts={"b" * 4_000: digest()}))
    assert parse_baseline(dump_baseline(baseline(item)), FILE_NAME) == baseline(item)


# What anybody may have edited


def edited(change: Callable[[Any], None]) -> str:
    """The sample with its data changed, written as any YAML library would."""
    data = yaml.safe_load(dump_baseline(baseline(entry())))
    change(data)
    return yaml.safe_dump(data, sort_keys=False, width=10_000)


def first(data: Any) -> Any:
    return next(iter(data["entries"].values()))


def test_the_same_data_written_by_another_library_is_the_same_baseline() -> None:
    assert parse_baseline(edited(lambda data: None), FILE_NAME) == baseline(entry())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.clear(), r"repro\.baseline\.yml:1:1: `version` is missing"),
        (lambda data: data.pop("version"), r"`version` is missing"),
        (lambda data: data.update(version=True), r"version: found true, wanted 1"),
        (lambda data: data.update(version=0), r"version: found 0, wanted 1"),
        (lambda data: data.update(extra=1), r"extra: is not a key of a baseline"),
        (lambda data: data.update(entries=[]), r"entries: found an empty list, wanted a mapping"),
        (lambda data: data["entries"].update(x={}), r"entries\.x: expected `str` matching regex .*sha256"),
        (lambda data: first(data).pop("outside"), r"object missing required field `outside`"),
        (lambda data: first(data).update(losses=1), r"object contains unknown field `losses`"),
        (lambda data: first(data).update({"\x1b[31m\n": 1}), r"object contains unknown field `\\x1b\[31m\\n`"),
        (lambda data: first(data).update({" - at `$.x[9]\n": 1}), r"unknown field"),
        (lambda data: first(data).update(recorded="yesterday"), r"recorded: expected `str` matching regex"),
        (lambda data: first(data).update({"tool-version": 2}), r"tool-version: expected `str`, got `int`"),
        (
            lambda data: first(data).update({"config-hash": "sha256:" + "G" * 64}),
            r"config-hash: expected `str` matching regex .*sha256",
        ),
        (lambda data: first(data).update(recipe="md5:" + "0" * 64), r"recipe: expected `str` matching regex .*sha256"),
        (lambda data: first(data).update(outcomes=[]), r"outcomes: expected `array` of length >= 1"),
        (lambda data: first(data).update(outcomes={}), r"outcomes: expected `array`, got `object`"),
        (
            lambda data: first(data)["outcomes"].append(copy.deepcopy(first(data)["outcomes"][0])),
            r"outcomes\.1\.seed: seed 42 stands twice",
        ),
        (lambda data: first(data)["outcomes"][0].update(seed=-1), r"outcomes\.0\.seed: expected `int` >= 0"),
        (lambda data: first(data)["outcomes"][0].update(seed=2**32), r"outcomes\.0\.seed: expected `int` <= 4294967295"),
        (lambda data: first(data)["outcomes"][0].update(steps=True), r"outcomes\.0\.steps: expected `int`, got `bool`"),
        (lambda data: first(data)["outcomes"][0].update(losses="same"), r"outcomes\.0\.losses: expected `str` matching"),
        (lambda data: first(data)["outcomes"][0].update(artifacts={"a": None}), r"artifacts: expected `str`, got `null`"),
        (lambda data: first(data)["outcomes"][0].update({"loss-curve": "0 one"}), r'loss-curve: found "0 one", wanted a step and its loss'),
        (lambda data: first(data)["outcomes"][0].update({"loss-curve": "1 0.5\n1 0.5"}), r"loss-curve: step 1 comes after step 1"),
        (lambda data: first(data)["outcomes"][0].update({"loss-curve": "0 0.50"}), r"which no training writes so"),
        (lambda data: first(data)["outcomes"][0].update({"loss-curve": "0 1.0\n" * 101}), r"wanted at most 100"),
        (
            lambda data: first(data)["recipe-inputs"].update(steps=2**53),
            r"recipe-inputs\.steps: found 9007199254740992, wanted no number beyond",
        ),
        (lambda data: first(data)["recipe-inputs"].update(code="x" * 100_001), r"code: found 100,003 characters, wanted at most 100,000"),
        (
            lambda data: first(data)["recipe-inputs"].update(code=["x" * 60_000] * 2),
            r"code: found 120,008 characters, wanted at most 100,000",
        ),
        (lambda data: first(data)["platform-inputs"].update(x=[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]), r"x: nested deeper than 16 levels"),
        (lambda data: first(data)["outcomes"][0].update({"loss-curve": "0 1e+99999"}), r"which no training writes so"),
        (lambda data: first(data)["outside"].update(kernel=6.8), r"outside: expected `str`, got `float`"),
        (lambda data: first(data).update({"step-times": {"pinned": [1.0]}}), r"invalid enum value 'pinned'"),
        (lambda data: first(data).update({"step-times": {"default": [0.0]}}), r"step-times\.0: expected `float` > 0"),
        (lambda data: first(data).update({"step-times": {"default": [1.0] * 101}}), r"step-times: expected `array` of length <= 100"),
        (lambda data: first(data)["outside"].update(kernel="x" * 5_000), r"outside: expected `str` of length <= 4096"),
    ],
)
def test_every_field_is_checked(change: Callable[[Any], None], message: str) -> None:
    error = refusal(edited(change))
    assert re.match(r"repro\.baseline\.yml:\d+:\d+: ", error.message)
    assert re.search(message, error.message), error.message


@pytest.mark.parametrize("root", ["recipe", "platform"])
def test_a_input_that_was_edited_is_found_by_its_root(root: str) -> None:
    error = refusal(edited(lambda data: first(data)[f"{root}-inputs"].update(added="one")))
    assert "the entry was edited by hand, or two were merged" in error.message
    assert f"{root}-inputs" in error.message and "repro-gate baseline" in error.remedy


def test_a_recipe_root_and_a_config_hash_are_not_believed() -> None:
    assert "the recipe-inputs below give sha256:" in refusal(edited(lambda data: first(data).update(recipe=digest()))).message
    error = refusal(edited(lambda data: first(data).update({"config-hash": digest()})))
    assert "config-hash: recipe and platform root give sha256:" in error.message


def test_an_entry_under_another_platform_is_refused_at_its_key() -> None:
    data = yaml.safe_load(dump_baseline(baseline(entry())))
    data["entries"] = {digest("elsewhere"): first(data)}
    error = refusal(yaml.safe_dump(data, sort_keys=False))
    assert error.message.startswith("repro.baseline.yml:3:3: ") and "stands under a platform root that is not its own" in error.message


def test_a_mistake_is_named_at_its_line() -> None:
    text = dump_baseline(baseline(entry()))
    wrong = text.replace("steps: 50\n        losses", "steps: fifty\n        losses")
    line = next(number for number, content in enumerate(wrong.splitlines(), 1) if "fifty" in content)
    assert refusal(wrong).message.startswith(f"repro.baseline.yml:{line}:16: ")


def test_a_newer_baseline_is_refused_whatever_it_holds() -> None:
    error = refusal("version: 2\nplatforms: []\n")
    assert error.message == "repro.baseline.yml:1:10: version: written by a newer repro-gate: version 2, this one reads 1"
    assert "install the repro-gate that wrote it" in error.remedy


def test_a_merge_conflict_has_a_line_of_its_own() -> None:
    text = dump_baseline(baseline(entry())).replace("    recorded:", "<<<<<<< HEAD\n    recorded:")
    line = next(number for number, content in enumerate(text.splitlines(), 1) if content.startswith("<<<"))
    error = refusal(text)
    assert error.message.startswith(f"repro.baseline.yml:{line}:1: a merge conflict stands here")
    assert "restore it from the base branch" in error.remedy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1:1: found no value, wanted a mapping"),
        ("- a\n", "1:1: found a list, wanted a mapping"),
        ("version: 1\nentries: {}\nentries: {}\n", "3:1: entries: stands twice, first on line 2, keep one"),
        ("version: 1\nversion: 1\n", "2:1: version: stands twice"),
        ("version: 1\nentries: {a: b: c}\n", "2:15: a mapping that is not closed"),
        ("version: 1\nentries: !!python/object:os.system []\n", "2:10: the tag"),
        ("a: &a [*a]\n", "1:8: aliases are not supported, write the value out"),
        (b"version: 1\n\xff\n", "2:1: not UTF-8: byte 0xff"),
        (b"\0" * (MAX_BYTES + 1), "larger than 1 MiB"),
        ("#" * (MAX_BYTES + 1), "larger than 1 MiB"),
    ],
)
def test_what_is_no_baseline_at_all_is_refused_with_its_place(text: str | bytes, message: str) -> None:
    assert message in refusal(text).message


def test_a_million_values_end_early() -> None:
    assert "more than 100,000 values" in refusal("version: 1\nentries: [" + "1," * 500_000 + "]\n").message


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=200))
def test_any_text_is_a_baseline_or_one_line(text: str) -> None:
    try:
        parse_baseline(text, FILE_NAME)
    except UsageError as error:
        assert "\n" not in error.message and error.message.startswith("repro.baseline.yml:")


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_baseline_with_any_piece_replaced_is_read_or_refused(data: st.DataObject) -> None:
    text = dump_baseline(baseline(entry()))
    start = data.draw(st.integers(0, len(text)))
    piece = data.draw(
        st.sampled_from(["", "\n", "  ", "- ", "{}", "[", '"', ": 1", "null", "1e5", "true", "sha256:" + "0" * 64, "\t", "?"])
    )
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    try:
        parse_baseline(text[:start] + piece + text[end:], FILE_NAME)
    except UsageError as error:
        assert "\n" not in error.message and error.remedy


# Files


def test_there_may_be_no_file(tmp_path: Path) -> None:
    assert read_baseline(tmp_path / FILE_NAME) is None
    assert read_baseline(tmp_path / "no" / "folder" / FILE_NAME) is None


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(dump_baseline(SAMPLE), encoding="utf-8")
    assert read_baseline(tmp_path / FILE_NAME) == SAMPLE
    assert SAMPLE.entries[entry().platform].recorded == NOW


def test_git_on_windows_may_have_changed_the_line_ends(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"\xef\xbb\xbf" + dump_baseline(SAMPLE).replace("\n", "\r\n").encode())
    assert read_baseline(tmp_path / FILE_NAME) == SAMPLE


def test_a_link_a_folder_and_a_pipe_are_no_baselines(tmp_path: Path) -> None:
    (tmp_path / "real").write_text(dump_baseline(SAMPLE), encoding="utf-8")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (
        ("link", "it is a link"),
        ("dangling", "it is a link"),
        ("folder", "not a regular file"),
        ("pipe", "not a regular file"),
    ):
        with pytest.raises(UsageError, match=f"{name}: cannot be read: .*{reason}"):
            read_baseline(tmp_path / name)
