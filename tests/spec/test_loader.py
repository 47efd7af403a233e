"""`load_spec` on real files: what loads, what is refused, and the line that says so."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date
from operator import attrgetter
from pathlib import Path

import pytest

from repro_gate.spec import model
from repro_gate.spec.errors import MAX_PRINTED, SpecError
from repro_gate.spec.loader import key_lines, load_spec
from repro_gate.spec.model import DataItem, DiagnosisBounds
from tests.support.reading import BASE, lines, load


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_two_keys_are_enough_and_a_diagnosis_is_bounded_and_can_be_left_out() -> None:
    spec = load(BASE)
    assert (spec.train.run, spec.random_state.seeds) == ("python t.py", (42,))
    assert spec.path == Path.cwd() / "repro.yml"
    assert spec.diagnosis == load(BASE + "diagnosis: {}\n").diagnosis == DiagnosisBounds(16, 600.0)
    assert load(BASE + "diagnosis: {runs: 4}\n", "diagnosis=false").diagnosis is None
    longer = load(BASE + "diagnosis: {runs: 4}\n", "diagnosis.timeout=2h").diagnosis
    assert longer == DiagnosisBounds(runs=4, timeout=7200.0)


def test_every_key_reaches_the_spec() -> None:
    allowed = (model.AllowedFlag("NCCL_ALGO", "why"),)
    dated = model.Waiver("env/image-digest", "r", date(2027, 6, 30))
    waive = (
        "{check: env/image-digest, reason: r, until: 2027-06-30}, {check: data/batches, reason: r}"
    )
    for key, text, value in (
        ("train", "{snippet: 'import x'}", model.Train(snippet="import x")),
        ("train.working-directory", "a/..", "a/.."),
        ("train.steps", "5e1", 50),
        ("train.warmup", "2", 2),
        ("train.timeout", "1.5h", 5400.0),
        ("random-state.seeds", "[1, 0x10]", (1, 16)),
        ("determinism.compare", "{loss: 1e-6, weights: 1.0e-5}", model.Tolerance(1e-6, 1e-5)),
        ("determinism.allow", "[{flag: NCCL_ALGO, reason: why}]", allowed),
        ("determinism.allow-nonfinite", "true", True),
        ("capture", "{every: 3, artifacts: [out/*.pt]}", model.Capture(3, ("out/*.pt",))),
        ("cost.max-percent", "30", 30),
        ("data", f"[{{path: d, sha256: {'A1' * 32}}}]", (DataItem("d", "a1" * 32),)),
        ("env.image", "'x@sha256:1'", "x@sha256:1"),
        ("env", "{lockfile: uv.lock, install: true}", model.Env("uv.lock", None, True)),
        ("hardware", "{device: cuda, gpus: 2, gpu-model: H100}", model.Hardware("cuda", 2, "H100")),
        ("checklist.waive", f"[{waive}]", (dated, model.Waiver("data/batches", "r"))),
        ("checklist.profile", "strict", "strict"),
        ("diagnosis", "{runs: 4e0, timeout: 1.5m}", DiagnosisBounds(4, 90.0)),
    ):
        place = key.replace("-", "_").replace("compare", "tolerance")
        assert attrgetter(place)(load(BASE, f"{key}={text}")) == value, key
    assert isinstance(load(BASE, "train.steps=5e1").train.steps, int)


TIMES = {"90s": 90, "20m": 1200, "1.5h": 5400, "45": 45, "0.5": 0.5, "999h": 3596400, "'90s'": 90}
NO_TIMES = ["0s", "0", "-1", "20:30", "5d", "1.h", "", "1000h", "1e9", ".inf", "'5s\n\n'", "[1]"]


def test_a_timeout_is_a_time_or_seconds_and_a_number_in_env_keeps_its_text() -> None:
    for written in (*TIMES, *NO_TIMES):
        text = BASE + f"  timeout: {written}\n"
        if written in TIMES:
            assert load(text).train.timeout == TIMES[written]
        else:
            (line,) = lines(text)
            assert line.startswith("repro.yml:4:") and "train.timeout: " in line
    texts = ["1.50", "010", "1e-6", "no", "20:30", "2027-06-30", "0x1F", "-0", "9" * 40, "9" * 41]
    env = "".join(f"    A{number}: {text}\n" for number, text in enumerate(texts))
    spec = load(BASE + f"  env:\n{env}    Q: 'true'\n    E: ''\n")
    assert [*spec.train.env.values()] == [*texts, "true", ""]


# (text behind the base, place and key of the first mistake, what is said of it)
MISTAKES = [
    ("version: 1\n", '1:1: train:', 'is missing'),
    ("train: {run: x}\n", '1:1: version:', 'is missing'),
    ("version: 2\ntrain: {run: x}\n", '1:10: version:', ''),
    ("version: 1\ntrain: {}\n", '2:1: train:', ''),
    ("version: 1\ntrain: {run: a, snippet: b}\n", '2:1: train:', ''),
    ("version: 1\ntrain: python x.py\n", '2:8: train:', ''),
    ("version: 1\ntrain: {run: ' '}\n", '2:14: train.run:', ''),
    (BASE + "steps: 3\n", '4:1: steps:', 'belongs under `train`'),
    (BASE + "  working_directory: src\n", '4:3: train.working_directory:', 'did you mean `working-directory`?'),
    (BASE + "  env: {A-B: x}\n", '4:9: train.env.A-B:', ''),
    (BASE + "foo: 1\n", '4:1: foo:', 'unknown key'),
    (BASE + "random-state: {seeds: [1, 2, 1.0]}\n", '4:30: random-state.seeds.2:', 'stands twice'),
    (BASE + f"random-state: {{seed: {'9' * 41}}}\n", '4:22: random-state.seed:', 'found "999'),
    (BASE + "determinism: {compare: {loss: 1, weigths: 1}}\n", '4:15: determinism.compare.weights:', 'is missing'),
    (BASE + "  steps: 5\nresume: {after: 5, checkpoint: out/*}\n", '5:17: resume.after:', 'fewer than train.steps'),
    (BASE + "capture: {every: 2}\nresume: {after: 1, checkpoint: out/*}\n", '4:18: capture.every:', 'every step'),
    (BASE + "equivalent: [{name: a, run: x}, {name: a, run: y}]\n", '4:40: equivalent.1.name:', 'stands twice'),
    (BASE + "equivalent: [{name: A b, run: x}]\n", '4:21: equivalent.0.name:', 'found "A b"'),
    (BASE + "determinism: {compare: {loss: 1, weights: 1}}\nresume: {after: 1, checkpoint: out/*}\n", '4:24: determinism.compare:', 'bit by bit'),
    ('version: "1"\ntrain: {run: x}\n', '1:10: version:', ''),
    ("version: 1\ntrain: {run: {seed}}\n", '2:14: train.run:', ''),
    (BASE + "  working-directory: /abs\n", '4:22: train.working-directory:', ''),
    (BASE + '  env: {A: "a\\0b"}\n', '4:12: train.env.A:', ''),
    (BASE + "random-state: {seed: 1, seeds: [2]}\n", '4:1: random-state:', ''),
    (BASE + "random-state: {seeds: []}\n", '4:23: random-state.seeds:', ''),
    (BASE + "random-state: {seed: 4294967296}\n", '4:22: random-state.seed:', ''),
    (BASE + f"random-state: {{seed: {'9' * 40}}}\n", '4:22: random-state.seed:', 'found 999'),
    (BASE + "determinism: {compare: {loss: .nan, weights: 1}}\n", '4:31: determinism.compare.loss:', ''),
    (BASE + "env: {install: true}\n", '4:1: env.lockfile:', 'is missing'),
    (BASE + "determinism: {allow: [{flag: NCCL_ALGO}]}\n", '4:23: determinism.allow.0.reason:', 'is missing'),
    (BASE + "capture: {artifacts: [a/../b]}\n", '4:23: capture.artifacts.0:', ''),
    (BASE + "hardware: {device: cpu, gpus: 1}\n", '4:25: hardware.gpus:', 'has no meaning'),
    (BASE + "data: [{path: a, sha256: 'sha256:ab'}]\n", '4:26: data.0.sha256:', ''),
    (BASE + "diagnosis: true\n", '4:12: diagnosis:', ''),
    (BASE + "diagnosis: {timeout: 1000h}\n", '4:22: diagnosis.timeout:', ''),
    (BASE + "determinism: {allow: [{flag: nccl_alg, reason: x}]}\n", '4:30: determinism.allow.0.flag:', ''),
    (BASE + "cost: {measure: false, max-percent: 3}\n", '4:24: cost.max-percent:', 'has no meaning'),
    (BASE + '  env: {"A\\n": x}\n', '4:9: train.env.A\\n:', ''),
    (BASE + "capture: {artifacts: out/*.pt}\n", '4:22: capture.artifacts:', ''),
    (BASE + "hardware:\n", '4:10: hardware:', ''),
    (BASE + "data: [{path: a}, {path: ./a}]\n", '4:26: data.1.path:', 'stands twice'),
    (BASE + "<<<<<<< HEAD\ncost: {}\n=======\n>>>>>>> other\n", '4:1:', 'merge conflict'),
    (BASE + "checklist: {waive: [{check: env/image-digest, reason: r, until: 2027-02-30}]}\n", '4:65: checklist.waive.0.until:', ''),
]  # fmt: skip


def test_mistakes_are_named_with_their_place_in_the_order_of_the_file() -> None:
    for text, place, said in MISTAKES:
        line = lines(text)[0]
        assert line.startswith(f"repro.yml:{place} ") and said in line
    found = lines(
        "train:\n  warmup: -1\n  stpes: 50\n  run: x\n  steps: ten\ncost: {max-percent: '30'}\n"
        "version: 1\nrandom-state: {seed: 4.5}\n"
    )
    assert [line.split()[:2] for line in found] == [
        ["repro.yml:2:11:", "train.warmup:"],
        ["repro.yml:3:3:", "train.stpes:"],
        ["repro.yml:5:10:", "train.steps:"],
        ["repro.yml:6:21:", "cost.max-percent:"],
        ["repro.yml:8:22:", "random-state.seed:"],
    ]
    printed = lines(BASE + "".join(f"zzz{i}: 1\n" for i in range(200)))
    assert len(printed) == MAX_PRINTED + 1
    assert printed[-1] == "repro.yml: … and 150 more"
    printed = lines(BASE + '"a\\n::error::x": 1\nb\u202ec: 2\ncapture: {every: "\\e[31m\\u2028"}\n')
    assert len(printed) == 3
    assert all(line.isprintable() for line in printed)


def test_what_is_no_file_is_refused_with_its_remedy() -> None:
    os.mkfifo("pipe")
    Path("sub").mkdir()
    for name, start in (
        ("/dev/zero", "/dev/zero: is not a regular file"),
        ("pipe", "pipe: is not a regular file"),
        ("\0", ""),
        ("nope.yml", "nope.yml: is not there"),
        ("sub", "sub/repro.yml: is not there"),
    ):
        with pytest.raises(SpecError) as caught:
            load_spec(Path(name))
        assert caught.value.exit_code == 2 and "`repro-gate init`" in caught.value.remedy
        assert caught.value.message.startswith(start)


def test_the_loader_needs_no_validator() -> None:
    code = "import sys, repro_gate.spec.loader; assert 'jsonschema' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.parametrize(
    "target", ["../secret.json", ".git/config", "/proc/self/environ", "../nothing"]
)
def test_a_link_to_what_is_not_the_checkouts_is_not_read(target: str) -> None:
    """An untrusted checkout, a gate that can read more than its author: mistakes are told in the
    file's own words."""
    Path("secret.json").write_text('{"token-of-somebody": "words-of-somebody"}')
    checkout = Path("checkout")
    (checkout / ".git").mkdir(parents=True)
    (checkout / ".git" / "config").write_text("extraheader: words-of-somebody\n")
    (checkout / "repro.yml").symlink_to(target)
    said = r"a link leads to a file that (lies outside the checkout|belongs to git itself)"
    with pytest.raises(SpecError, match=said) as refused:
        load_spec(checkout)
    shown = refused.value.diagnostics()
    assert "of-somebody" not in shown and "by its own path" in shown
    assert key_lines(checkout / "repro.yml") == {}


def test_a_linked_folder_does_not_lead_out_either_and_a_working_directory_stays_inside() -> None:
    checkout = Path("checkout")
    for folder in ("elsewhere", "checkout/.git", "checkout/common", "checkout/train"):
        Path(folder).mkdir(parents=True)
    Path("elsewhere/repro.yml").write_text(BASE)
    (checkout / "common" / "gate.yml").write_text(BASE)
    (checkout / "train" / "repro.yml").symlink_to("../common/gate.yml")
    (checkout / "out").symlink_to("../elsewhere")
    Path("train").symlink_to("checkout/train")
    with pytest.raises(SpecError, match="lies outside the checkout"):
        load_spec(checkout / "out")
    # `train` is reached through a link that is not the checkout's own
    for folder in (checkout / "train", Path("train")):
        assert load_spec(folder).train.run == "python t.py"
    (Path.cwd() / ".git").mkdir()
    (Path.cwd() / "a").mkdir()
    Path("a/repro.yml").write_text(BASE + "  working-directory: ../..\n")
    key = "train.working-directory"
    for options, said in (
        ([], f"a/repro.yml:4:22: {key}: "),
        ([f"{key}=../../b"], f"--set {key}="),
    ):
        with pytest.raises(SpecError, match="leads out of the checkout") as caught:
            load_spec(Path("a"), options)
        assert caught.value.message.startswith(said)
    assert load_spec(Path("a"), [f"{key}=../b"]).train.working_directory == "../b"


FIFTY = BASE + "  steps: 50\n"


def test_set_replaces_makes_or_mends_a_value_and_seed_and_steps_win() -> None:
    settings = ("train.steps=ten", "train.steps=10", "capture.artifacts=[a.pt]")
    settings += ("data=[{path: x}, {path: y}]", "train.env.A=010", "cost.measure=false")
    spec = load(FIFTY, *settings)
    assert (spec.train.steps, spec.train.env, spec.cost.measure) == (10, {"A": "010"}, False)
    assert spec.capture.artifacts == ("a.pt",)
    assert spec.data == (DataItem("x"), DataItem("y"))
    assert load(FIFTY.replace("50", "ten"), "train.steps=10").train.steps == 10
    assert load("version: 1\ntrain:\n", "train.run=python x.py").train.run == "python x.py"
    for seeds in ("seeds: [1, 2]", "seed: 1"):
        text = FIFTY + f"random-state: {{{seeds}}}\n"
        assert load(text, seed=3).random_state.seeds == (3,)
    assert load(FIFTY, "train.steps=10", steps=4).train.steps == 4


# (setting, what its problem begins with)
SETTINGS = [
    ("train.stpes=10", "unknown key, did you mean `steps`?"),
    ("train.steps=ten", 'found "ten", wanted a whole number'),
    ("steps=10", "unknown key here, `steps` belongs under `train`"),
    ("train.run.x=3", "`train.run` is not a mapping"),
    ("nokey", "wanted `key=value`"),
    ("train..steps=3", "wanted `key=value`"),
    ("a." * 60 + "b=1", "wanted `key=value`"),
    (r'train.run="\UFFFFFFFF"', "an escape that no character has"),
    ("train.env.5=x", "no name for an environment variable"),
    ("train.run=!!python/none x", "the tag `tag:yaml.org,2002:python/none` is not supported"),
    ("random-state={seed: 1, seeds: [2]}", "wanted one of `seed` and `seeds`"),
]


def test_a_mistake_is_named_as_the_option_that_made_it_after_those_of_the_file() -> None:
    for setting, message in SETTINGS:
        option = setting.replace("\n", "\\n")
        assert lines(FIFTY, setting)[0].startswith(f"--set {option}: {message}")
    printed = lines(FIFTY + "foo: 1\n", "train.warmup=x")
    assert [line.split(": ")[0] for line in printed] == ["repro.yml:5:1", "--set train.warmup=x"]
    # a duplicate key is not mended by an option
    assert "stands twice" in lines(FIFTY + "  steps: 60\n", "train.steps=3")[0]
    (line,) = lines(FIFTY + "data: [{path: x}]\n", "data.0.path=y")
    assert line == "--set data.0.path=y: `data` is not a mapping, set it as a whole"
    steps, seed = lines(FIFTY, seed=-1, steps=0)
    assert steps.startswith("--steps 0: train.steps: ")
    assert seed.startswith("--seed -1: random-state.seed: ")


def test_a_script_is_no_spec(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    for name in ("train.py", "none.ipynb"):
        with pytest.raises(SpecError, match=r"is a script, no spec") as caught:
            load_spec(tmp_path / name)
        assert f"init --script {tmp_path / name}" in caught.value.remedy
