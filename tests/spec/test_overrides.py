"""The command line over the file: what it sets, and how its mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.spec.errors import SpecError
from repro_gate.spec.loader import load_spec
from repro_gate.spec.model import DataItem, Spec

BASE = "version: 1\ntrain:\n  run: python t.py\n  steps: 50\n"


def load(folder: Path, *overrides: str, text: str = BASE, **options: int) -> Spec:
    (folder / "repro.yml").write_text(text)
    return load_spec(folder / "repro.yml", overrides, **options)


def lines(folder: Path, *overrides: str, text: str = BASE, **options: int) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(folder, *overrides, text=text, **options)
    return caught.value.message.splitlines()


def test_set_replaces_a_value_makes_what_is_missing_and_mends(tmp_path: Path) -> None:
    settings = ("train.steps=ten", "train.steps=10", "capture.artifacts=[a.pt]")
    settings += ("data=[{path: x}, {path: y}]", "train.env.A=010", "cost.measure=false")
    spec = load(tmp_path, *settings)
    assert (spec.train.steps, spec.train.env, spec.cost.measure) == (10, {"A": "010"}, False)
    assert spec.capture.artifacts == ("a.pt",)
    assert spec.data == (DataItem("x"), DataItem("y"))
    assert load(tmp_path, "train.steps=10", text=BASE.replace("50", "ten")).train.steps == 10
    bare = load(tmp_path, "train.run=python x.py", text="version: 1\ntrain:\n")
    assert bare.train.run == "python x.py"


def test_the_seed_and_steps_options_win_over_the_file_and_over_set(tmp_path: Path) -> None:
    for said in ("seeds: [1, 2]", "seed: 1"):
        text = BASE + f"random-state: {{{said}}}\n"
        assert load(tmp_path, text=text, seed=3).random_state.seeds == (3,)
    assert load(tmp_path, "train.steps=10", steps=4).train.steps == 4


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


@pytest.mark.parametrize(("setting", "said"), MISTAKES)
def test_a_mistake_is_named_as_the_option_that_made_it(
    tmp_path: Path, setting: str, said: str
) -> None:
    option = setting.replace("\n", "\\n")
    assert lines(tmp_path, setting)[0].startswith(f"--set {option}: {said}")


def test_mistakes_of_the_file_come_first_and_options_are_held_to_its_rules(tmp_path: Path) -> None:
    printed = lines(tmp_path, "train.warmup=x", text=BASE + "foo: 1\n")
    begins = [line.split(": ")[0].removeprefix(f"{tmp_path}/") for line in printed]
    assert begins == ["repro.yml:5:1", "--set train.warmup=x"]
    # a duplicate key is not mended by an option
    assert "stands twice" in lines(tmp_path, "train.steps=3", text=BASE + "  steps: 60\n")[0]
    (line,) = lines(tmp_path, "data.0.path=y", text=BASE + "data: [{path: x}]\n")
    assert line == "--set data.0.path=y: `data` is not a mapping, set it as a whole"
    steps, seed = lines(tmp_path, seed=-1, steps=0)
    assert steps.startswith("--steps 0: train.steps: ")
    assert seed.startswith("--seed -1: random-state.seed: ")
