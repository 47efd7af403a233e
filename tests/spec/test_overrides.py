"""The command line over the file: what it sets, and how its mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.spec.model import DataItem
from tests.support import reading
from tests.support.reading import lines, load

BASE = reading.BASE + "  steps: 50\n"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_set_replaces_a_value_makes_what_is_missing_and_mends() -> None:
    settings = ("train.steps=ten", "train.steps=10", "capture.artifacts=[a.pt]")
    settings += ("data=[{path: x}, {path: y}]", "train.env.A=010", "cost.measure=false")
    spec = load(BASE, *settings)
    assert (spec.train.steps, spec.train.env, spec.cost.measure) == (10, {"A": "010"}, False)
    assert spec.capture.artifacts == ("a.pt",)
    assert spec.data == (DataItem("x"), DataItem("y"))
    assert load(BASE.replace("50", "ten"), "train.steps=10").train.steps == 10
    assert load("version: 1\ntrain:\n", "train.run=python x.py").train.run == "python x.py"


def test_the_seed_and_steps_options_win_over_the_file_and_over_set() -> None:
    for seeds in ("seeds: [1, 2]", "seed: 1"):
        text = BASE + f"random-state: {{{seeds}}}\n"
        assert load(text, seed=3).random_state.seeds == (3,)
    assert load(BASE, "train.steps=10", steps=4).train.steps == 4


# (setting, what its problem begins with)
MISTAKES = [
    ("train.stpes=10", "unknown key, did you mean `steps`?"),
    ("train.steps=ten", 'found "ten", wanted a whole number'),
    ("train.steps=", "has no value, wanted a whole number"),
    ("steps=10", "unknown key here, `steps` belongs under `train`"),
    ("train.run.x=3", "`train.run` is not a mapping"),
    ("nokey", "wanted `key=value`"),
    ("=3", "wanted `key=value`"),
    ("train..steps=3", "wanted `key=value`"),
    ("train.env={B: 1, B: 2}", "train.env.B: stands twice"),
    ("capture={evry: 1}", "capture.evry: unknown key, did you mean `every`?"),
    ("train.env.5=x", "no name for an environment variable"),
    ("capture.artifacts=[a", "a list that is not closed"),
    ("train.run=!!python/none x", "the tag `tag:yaml.org,2002:python/none` is not supported"),
    ("random-state={seed: 1, seeds: [2]}", "wanted one of `seed` and `seeds`"),
    ("train.env.A=a\n::error::", "a `:` stands where no key can be"),
]


@pytest.mark.parametrize(("setting", "message"), MISTAKES)
def test_a_mistake_is_named_as_the_option_that_made_it(setting: str, message: str) -> None:
    option = setting.replace("\n", "\\n")
    assert lines(BASE, setting)[0].startswith(f"--set {option}: {message}")


def test_mistakes_of_the_file_come_first_and_options_are_held_to_its_rules() -> None:
    printed = lines(BASE + "foo: 1\n", "train.warmup=x")
    assert [line.split(": ")[0] for line in printed] == ["repro.yml:5:1", "--set train.warmup=x"]
    # a duplicate key is not mended by an option
    assert "stands twice" in lines(BASE + "  steps: 60\n", "train.steps=3")[0]
    (line,) = lines(BASE + "data: [{path: x}]\n", "data.0.path=y")
    assert line == "--set data.0.path=y: `data` is not a mapping, set it as a whole"
    steps, seed = lines(BASE, seed=-1, steps=0)
    assert steps.startswith("--steps 0: train.steps: ")
    assert seed.startswith("--seed -1: random-state.seed: ")
