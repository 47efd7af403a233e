"""Training that is stopped and goes on: the example and its twin through the gate; each way in which
a checkpoint can lack something, one leg of real training each; bad input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.compare.model import Leg
from repro_gate.compare.resume import leg_of
from repro_gate.trace.model import Trace
from tests.support.gates import ROOT, Gated, gate
from tests.support.tracing import trace_cases, trace_script, trained

pytestmark = pytest.mark.slow
EXAMPLE = ROOT / "examples" / "resume"
FEW = ("--only", "resume")

SOUND = """
import copy, os, random, sys
import numpy
import torch
from torch.utils.data import DataLoader, TensorDataset

saved = torch.load(sys.argv[1], weights_only=False) if len(sys.argv) > 1 else None
torch.manual_seed(1)
random.seed(1)
numpy.random.seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
average = copy.deepcopy(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-3)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
noise = torch.Generator().manual_seed(7)
done, best = 0, 1e9
if saved:
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    schedule.load_state_dict(saved["schedule"])
    scaler.load_state_dict(saved["scaler"])
    average.load_state_dict(saved["average"])
    noise.set_state(saved["noise"])
    done = saved["step"]
    best = saved["best"]
step = 0
os.makedirs("out", exist_ok=True)
for epoch in range(3):
    order = torch.Generator().manual_seed(100 + epoch)
    for x, y in DataLoader(data, 8, shuffle=True, generator=order):
        step += 1
        if step <= done:
            continue
        if saved and step == done + 1:
            torch.set_rng_state(saved["torch"])
            random.setstate(saved["python"])
            numpy.random.set_state(saved["numpy"])
        x = x + 0.01 * torch.randn(x.shape, generator=noise) + 0.01 * random.random() + 0.01 * numpy.random.rand()
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        best = min(best, loss.item())
        for old, new in zip(average.parameters(), model.parameters()):
            old.data.lerp_(new.data, 0.1)
        if step % 4 == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(),
                "scaler": scaler.state_dict(), "average": average.state_dict(), "best": best, "step": step, "torch": torch.get_rng_state(),
                "python": random.getstate(), "numpy": numpy.random.get_state(), "noise": noise.get_state()}
            torch.save(state, "out/new")
            os.replace("out/new", "out/step%d.pt" % step)
"""


MODEL, DONE = 'model.load_state_dict(saved["model"])', 'done = saved["step"]'
SCHEDULE = 'schedule.load_state_dict(saved["schedule"])'
RUNNING = '{k: v for k, v in saved["model"].items() if "running" not in k}, strict=False'
STATES = "for item in optimizer.state.values() if saved else (): item['{}'].zero_()\nstep = 0\n"
# the component that is lost, and what is written otherwise in the part that only a resumed training
# runs
FAULTS = [
    ("parameters", MODEL, "pass"),
    ("scratch", "len(sys.argv) > 1", "len(sys.argv) > 9"),
    ("buffers", MODEL, f"model.load_state_dict({RUNNING})"),
    ("optimizer-state", 'optimizer.load_state_dict(saved["optimizer"])', "pass"),
    ("optimizer-state", "step = 0\n", STATES.format("exp_avg")),
    ("step-count", "step = 0\n", STATES.format("step")),
    ("step-count", "range(3)", "range(4 if saved else 3)"),  # all epochs are trained again
    (
        *("param-groups", "step = 0\n"),  # a hyperparameter has its default again
        "if saved: optimizer.param_groups[0]['weight_decay'] = 0.0\nstep = 0\n",
    ),
    ("scheduler", SCHEDULE, "pass"),
    ("scheduler", SCHEDULE, "optimizer.param_groups[0]['lr'] = 1e-2"),
    ("scaler", 'scaler.load_state_dict(saved["scaler"])', "pass"),
    ("rng:torch", 'torch.set_rng_state(saved["torch"])', "pass"),
    ("rng:python", 'random.setstate(saved["python"])', "pass"),
    ("rng:numpy", 'numpy.random.set_state(saved["numpy"])', "pass"),
    ("unrecorded", 'noise.set_state(saved["noise"])', "pass"),  # a generator of its own
    ("unrecorded", 'noise.set_state(saved["noise"])', "noise.manual_seed(os.urandom(1)[0])"),
    ("batches", DONE, "done = 0"),  # the data begins anew
    ("batches", DONE, f"{DONE} + 1"),  # one batch is left out
    ("batches", "manual_seed(100 + epoch)", "manual_seed(100 + (0 if saved else epoch))"),
    ("ema", 'average.load_state_dict(saved["average"])', "pass"),
]


def stopped(traces: Sequence[Trace]) -> str | None:
    return "preempted" if any(trace.preempted for trace in traces) else None


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Leg]:
    """How the sound training goes on from the checkpoint of a first leg that was killed, and how
    each faulty one does, all in one process that forks: the real starts are those of the gates
    below."""
    return second_legs(tmp_path_factory.mktemp("resume"), SOUND, FAULTS, 6)


def second_legs(
    folder: Path, sound: str, faults: Sequence[tuple[str, str, str]], after: int
) -> Mapping[str, Leg]:
    """The second leg of a training that is stopped after so many steps, and of it with each
    fault."""
    reference = trace_script(folder / "reference", sound)
    again = trace_script(folder / "again", sound)
    preempt = {"after": after, "checkpoint": "out/step*.pt", "stop": "kill"}
    probe = {"boundary": True, "preempt": preempt}
    first = trace_script(folder / "legs", sound, name="leg-1", probe=probe, tick=stopped)
    assert (reference.outcome, first.outcome) == ("finished", "preempted"), first.problem
    leg = leg_of(reference.traces, first.traces, number=1, reached_end=False, expected=0)
    assert (leg.ends, leg.identical) == (after, True)
    (checkpoint,) = {trace.preempted for trace in first.traces if trace.preempted}

    path = next((folder / "legs").rglob(Path(checkpoint).name))
    sources = {"sound": sound}
    for number, (_, was, instead) in enumerate(faults):
        assert was in sound
        sources[f"fault-{number}"] = sound.replace(was, instead, 1)
    cases = trace_cases(
        folder / "seconds",
        {name: (source, str(path)) for name, source in sources.items()},
        "import torch, torch._dynamo, numpy",
        probe={"boundary": True},
    )
    key = trained(reference).key
    found = {}
    for name, case in cases.items():
        assert case.exit_code == 0, (name, case.printed)
        found[name] = leg_of(
            reference.traces,
            [replace(case.trace, key=key)],
            number=2,
            reached_end=True,
            expected=after,
            again=again.traces,
        )
    return found


def test_the_sound_training_goes_on_from_its_checkpoint(legs: Mapping[str, Leg]) -> None:
    leg = legs["sound"]
    assert (leg.begins, leg.ends, leg.identical, leg.not_restored) == (4, 24, True, ())


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=[fault[0] for fault in FAULTS])
def test_what_a_checkpoint_lacks_is_named(number: int, legs: Mapping[str, Leg]) -> None:
    leg = legs[f"fault-{number}"]
    assert not leg.identical
    assert {item.component for item in leg.not_restored} == {FAULTS[number][0]}, leg
    places = [place for item in leg.not_restored for place in item.locations]
    assert [place.file for place in places] == [f"fault-{number}.py"] * (
        "urandom" in FAULTS[number][2]
    )


# Checkpoints between two passes of an update. Nobody seeded Python's generator, nor draws from it.
PASSES = """
import os, sys
import torch
saved = torch.load(sys.argv[1]) if len(sys.argv) > 1 else None
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
data = [(torch.randn(8, 8), torch.randn(8, 1)) for _ in range(32)]
done = 0
if saved:
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    for parameter, gradient in zip(model.parameters(), saved["gradients"]):
        parameter.grad = gradient
    done = saved["done"]
os.makedirs("out", exist_ok=True)
loader = torch.utils.data.DataLoader(data, None, sampler=range(done, 32))
for number, (x, y) in enumerate(loader, done + 1):
    if saved:
        torch.set_rng_state(saved["torch"])
        saved = None
    torch.nn.functional.mse_loss(model(x), y).div(4).backward()
    if number % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
    if number == 10:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "done": number,
            "gradients": [item.grad for item in model.parameters()], "torch": torch.get_rng_state()}
        torch.save(state, "out/step.pt")
"""


def test_half_an_update_is_restored_or_its_gradients_are_named(tmp_path: Path) -> None:
    faults = [("gradients", "parameter.grad = gradient", "pass")]
    faults += [("rng:torch", 'torch.set_rng_state(saved["torch"])', "pass")]
    found = second_legs(tmp_path, PASSES, faults, 3)
    lost = [[item.component for item in leg.not_restored] for leg in found.values()]
    assert lost == [[], ["gradients"], ["rng:torch"]]
    assert [leg.identical for leg in found.values()] == [True, False, False]
    assert {leg.begins for leg in found.values()} == {2}


def test_the_example_passes_and_its_twin_fails(tmp_path: Path) -> None:
    for name in ("sound", "broken"):
        (tmp_path / name).mkdir()
    gated = gate(EXAMPLE, *FEW, out=tmp_path / "sound")
    gated.must(0)
    found = gated.report["resume"]
    assert found["identical"] and found["not_restored"] == []
    assert [(leg["from"], leg["to"]) for leg in found["legs"]] == [(0, 10), (6, 16), (12, 40)]
    assert "resume       leg 1, steps 0 to 9: bitwise identical; leg 2, " in gated.stdout
    twin = gate(EXAMPLE / "broken", *FEW, out=tmp_path / "broken")
    twin.must(1)
    assert twin.report["determinism"]["identical"] and twin.reason_ids == ["resume/diverged"]
    assert twin.stdout.startswith(" FAIL   resumed at step ")
    assert twin.report["resume"]["not_restored"] == ["rng:torch"]
    assert "out/step6.pt" in twin.stderr


# training without an optimizer: `python -m tests.corpus.ways` gates it
BY_HAND = """
import os, sys
import torch
saved = torch.load(sys.argv[1]) if len(sys.argv) > 1 else {"weight": torch.ones(4), "step": 0}
weight = saved["weight"].requires_grad_()
os.makedirs("out", exist_ok=True)
for step in range(saved["step"], 12):
    (weight * (step + 1)).square().mean().backward()
    with torch.no_grad():
        weight -= 0.01 * weight.grad
    weight.grad = None
    if step % 3 == 2:
        torch.save({"weight": weight.detach().clone(), "step": step + 1}, "out/step.pt")
"""


# without torch: its runs take a tenth of a second
RECORDS = """
import json, os, sys, time
from repro_gate import record, step
saved = json.load(open(sys.argv[1])) if len(sys.argv) > 1 else {"weight": 0.0, "number": 0}
weight = saved["weight"]
os.makedirs("out", exist_ok=True)
for number in range(saved["number"], 12):
    weight -= 0.1 * (weight - number)
    record("weight", weight, "parameter")
    step()
    if number % 3 == 2:
        with open("out/step%d.json" % (number + 1), "w") as file:
            json.dump({"weight": weight, "number": number + 1}, file)
"""
GOES_ON = "resume.run=python train.py {checkpoint}"


SAVES = """        with open("out/step%d.json" % (number + 1), "w") as file:
            json.dump({"weight": weight, "number": number + 1}, file)
"""
# takes its time, in the file that the last leg left
SLOWLY = """        text = json.dumps({"weight": weight, "number": number + 1})
        with open("out/step.json", "w", 1) as file:
            file.write(text[:9] + "\\n")
            time.sleep(2.5 if saved["number"] == 3 else 0.0)
            file.write(text[9:])
"""
PLAIN_NAME = SAVES.replace('"out/step%d.json" % (number + 1)', '"out/step.json"')
# what is written otherwise, the settings, the code and the reason, and what a note says
ODD = [
    ((SAVES, PLAIN_NAME), (), 0, [], "overwritten in place"),
    (
        (
            SAVES,
            PLAIN_NAME.replace('.json"', '.new"')
            + '        os.replace("out/step.new", "out/step.json")\n',
        ),
        (),
        0,
        [],
        "",
    ),
    (
        (
            SAVES,
            SAVES
            + '        if not saved["number"]: open("out/best.txt", "w").write("1")\n    if saved["number"] and number == 11: open("out/best.txt").read()\n',
        ),
        (),
        0,
        [],
        "reads out/best.txt",
    ),
    (("", ""), ("resume.after=7",), 0, [], "stopped only once"),
    (
        (
            SAVES,
            '        half = open("out/step%d.json" % (number + 1), "w", 1)\n        half.write("{\\n")\n',
        ),
        (),
        1,
        ["resume/half-written"],
        "",
    ),
    (
        (
            SAVES,
            '        half = open("out/step%d.json" % (number + 1), "w", 1)\n        half.write(json.dumps({"weight": 0.0, "number": number + 1}) + "\\n")\n',
        ),
        (),
        1,
        ["resume/half-written"],
        "",
    ),
]
ODD += [
    ((SAVES, SLOWLY), (), 1, ["resume/in-place"], "overwritten in place"),  # the third leg is quick
    ((SAVES, SLOWLY.replace("step.json", "new") + '        os.replace("out/new", "out/step.json")\n'), (), 0, [], ""),
    # the loop counts from where it resumes
    (('range(saved["number"], 12)', 'range(saved["number"], 12 + saved["number"])'), ("resume.after=7",), 1, ["resume/diverged"], ""),
    # a log in the folder that is the checkpoint; the fault is another one
    (
        ("    weight -= 0.1", '    log = open("out/log", "a", 1)\n    log.write("x\\n")\n    weight -= (0.2 if saved["number"] else 0.1)'),
        ("resume.checkpoint=out", 'resume.run=python train.py {checkpoint}/step3.json'),
        1, ["resume/diverged"], "",
    ),
]  # fmt: skip
ASKED = """
import signal
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
"""


@pytest.mark.parametrize(("change", "settings", "code", "reasons", "note"), ODD)
def test_what_is_odd_about_a_checkpoint_is_told(
    change: tuple[str, str],
    settings: tuple[str, ...],
    code: int,
    reasons: list[str],
    note: str,
    tmp_path: Path,
) -> None:
    gated = go_on_from_text(tmp_path, RECORDS.replace(*change), GOES_ON, *settings)
    gated.must(code, *reasons)
    notes = [item["message"] for item in gated.report["notes"] if "resume" in item["message"]]
    assert note in notes[0] if note else not notes, notes


# what it does when it is asked, the code and the reason
ANSWERS = {
    "saves": (SAVES + "        sys.exit(143)\n", 0, []),
    "saves nothing": ("        sys.exit(0)\n", 3, ["resume/no-checkpoint"]),
    "crashes": ('        raise RuntimeError("no space")\n', 3, ["resume/crashed"]),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_training_that_is_asked_to_end_saves_where_it_is(answer: str, tmp_path: Path) -> None:
    does, code, reasons = ANSWERS[answer]
    source = ASKED + RECORDS.replace(
        "    if number % 3 == 2:\n" + SAVES, f"    if asked:\n{does}    time.sleep(0.3)\n"
    )
    gated = go_on_from_text(tmp_path, source, GOES_ON, "resume.after=3", "resume.stop=term")
    gated.must(code, *reasons)
    if not code:
        legs = gated.report["resume"]["legs"]
        assert [leg["from"] for leg in legs[1:]] == [leg["to"] for leg in legs[:-1]]
        assert len(legs) == 3 and legs[-1]["to"] == 12


def go_on_from_text(folder: Path, source: str, *settings: str) -> Gated:
    (folder / "train.py").write_text(source)
    resume = "resume: {after: 4, checkpoint: out/step*.json}"
    (folder / "repro.yml").write_text(f"version: 1\ntrain: {{run: python train.py}}\n{resume}\n")
    options = (part for item in settings for part in ("--set", item))
    return gate(folder, *FEW, *options, out=folder)


@pytest.mark.parametrize(
    ("settings", "code", "reasons", "reached"),
    [
        ((GOES_ON,), 0, [], 12),
        ((GOES_ON, "train.steps=9"), 0, [], 9),
        (("resume.run=python train.py out/step3.json",), 1, ["resume/no-progress"], 12),
        (("resume.run=python train.py",), 1, ["resume/diverged"], 4),
        (("resume.run=python train.py none.json",), 3, ["resume/crashed"], None),
        ((GOES_ON, "resume.checkpoint=out/none*"), 3, ["resume/no-checkpoint"], None),
    ],
)
def test_how_it_goes_on_is_one_verdict(
    settings: tuple[str, ...], code: int, reasons: list[str], reached: int | None, tmp_path: Path
) -> None:
    gated = go_on_from_text(tmp_path, RECORDS, *settings)
    gated.must(code, *reasons)
    found = gated.report["resume"]
    assert (found and found["legs"][-1]["to"]) == reached


def test_what_is_saved_again_before_the_first_step_is_no_checkpoint(tmp_path: Path) -> None:
    """As nanoGPT does: it saves, and takes a step then."""
    loop, saves = RECORDS.split("    step()\n")
    saves = saves.replace("number + 1", "number").replace("== 2", "== 0")
    source = loop.replace("    weight -=", f"{saves}    weight -=") + "    step()\n"
    (tmp_path / "train.py").write_text(source)
    resume = "resume: {after: 2, checkpoint: out/step*.json}"
    (tmp_path / "repro.yml").write_text(f"version: 1\ntrain: {{run: python train.py}}\n{resume}\n")
    gated = gate(tmp_path, *FEW, "--set", GOES_ON, out=tmp_path)
    gated.must(0)
    legs = gated.report["resume"]["legs"]
    assert [(leg["from"], leg["to"]) for leg in legs] == [(0, 4), (3, 7), (6, 12)]
