"""`probe.operators`: what torch dispatched in a step, what a replay of it gives, which operators
torch refuses; and that watching changes no number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from repro_gate.probe.forms import described  # noqa: E402
from repro_gate.runs import arms  # noqa: E402
from repro_gate.runs.launch import RunResult  # noqa: E402
from repro_gate.trace import dispatch  # noqa: E402
from repro_gate.trace.model import OperatorLine  # noqa: E402
from tests.support.tracing import trace_script, trained  # noqa: E402

SCRIPT = """
import torch
torch.manual_seed(3)
torch.set_num_threads(4)
table = torch.nn.Parameter(torch.randn(64, 8))
index = torch.randint(0, 64, (20000,))
optimizer = torch.optim.SGD([table], lr=0.1)
for step in range(3):
    rows = table[index]
    noise = torch.rand(3)
    loss = rows.tanh().sum() * noise.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(torch.initial_seed(), torch.rand(1).item(), flush=True)
"""
STEP = 1
LAYER = """
import torch
torch.manual_seed(3)
layer = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
index = torch.tensor([1, 2])
for step in range(4):
    y = layer(torch.rand(4, 8))
    if {refused} and step >= 1:
        y = y.put(index, torch.ones(2))
    if {refused} and step >= 2:
        pooled, where = torch.nn.functional.max_pool2d(y[None, None], 2, return_indices=True)
        y = y + torch.nn.functional.max_unpool2d(pooled, where, 2)[0, 0]
    loss = y.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item(), torch.rand(1).item(), torch.are_deterministic_algorithms_enabled(), flush=True)
"""
CLEAN, FAULTY = (LAYER.replace("{refused}", each) for each in ("False", "True"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    arm = arms.deterministic(42, frozenset({"torch.use_deterministic_algorithms"}), None)
    asked = {"step": STEP, "replay": ["aten.index_put.default", 1, 30]}
    place, probe = tmp_path_factory.mktemp("operators"), {"factors": {}, "operators": asked}
    return trace_script(place, SCRIPT, arm=arm, env={"OMP_NUM_THREADS": "4"}, probe=probe)


def operators(run: RunResult, phase: str) -> list[OperatorLine]:
    return [item for item in trained(run).operators if item.phase == phase]


@pytest.mark.slow
def test_a_record_changes_no_number_and_no_generator(recorded: RunResult, tmp_path: Path) -> None:
    plain = trace_script(tmp_path, SCRIPT, arm=recorded.request.arm, env={"OMP_NUM_THREADS": "4"})
    assert recorded.ended.tail == plain.ended.tail and len(plain.ended.tail) == 3
    forward = operators(recorded, "forward")
    assert len([item for item in forward if item.op.startswith("aten.tanh")]) == STEP + 1
    assert not trained(plain).operators


def test_operators_have_their_line_and_draws_their_state(recorded: RunResult) -> None:
    lines, forward = SCRIPT.splitlines(), operators(recorded, "forward")
    backward = [item for item in operators(recorded, "backward") if "index_put" in item.op]
    taken = [item for item in forward if item.op.startswith("aten.index.")]
    for item in (taken[0], *backward):
        assert lines[item.line - 1].strip() == "rows = table[index]"
    assert operators(recorded, "optimizer")
    draws = [item for item in forward if item.op.startswith("aten.rand.")]
    assert {len(item.inputs) for item in draws} == {1}
    assert draws[0].inputs != draws[1].inputs
    assert next(item for item in forward if item.op.startswith("aten.tanh")).simple
    assert backward and not backward[0].simple


def test_a_replay_tells_an_operator_that_adds_in_any_order(recorded: RunResult) -> None:
    [found] = [item.distinct for item in trained(recorded).operators if item.distinct]
    assert found["deterministic"] == found["one-thread"] == 1 <= found["as-trained"]


@pytest.mark.slow
def test_equal_values_in_another_order_in_memory_or_with_other_plain_arguments_have_another_form(
    tmp_path: Path,
) -> None:
    script = """
    import torch
    wide = torch.arange(12.0).view(3, 4)
    tall = wide.t().contiguous().t()
    for kept in (wide, wide, tall):
        kept.sum()
    for places in (1, 1, 2):
        wide.roll(places)
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    """
    run = trace_script(tmp_path, script, probe={"factors": {}, "operators": {"step": -1}})
    for name in ("aten.sum.default", "aten.roll.default"):
        found = [item for item in trained(run).operators if item.op == name][:3]
        assert len({item.inputs for item in found}) == 1 and found[0].device == "cpu"
        assert found[0].form == found[1].form != found[2].form


@pytest.mark.slow
def test_what_unwritten_memory_holds_is_no_input_of_what_writes_to_it_first(tmp_path: Path) -> None:
    script = """
    import torch
    pages = [torch.rand(1000) for _ in range(50)]
    del pages
    weight = torch.empty(1000)
    filled = weight.view(1000).uniform_(generator=torch.Generator().manual_seed(1))
    weight.mul_(2.0)
    pair = [torch.empty(10), torch.empty(10)]
    torch._foreach_zero_(pair)
    torch._foreach_add_(pair, 1.0)
    weight = torch.nn.Parameter(weight)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    """
    allowed = frozenset({"torch.utils.deterministic.fill_uninitialized_memory"})
    probe = {"factors": {}, "operators": {"step": 0, "replay": None}}
    run = trace_script(tmp_path, script, arm=arms.deterministic(42, allowed, None), probe=probe)
    found = {item.op.split(".")[1]: item for item in trained(run).operators}
    counts = {"uniform_": 1, "mul_": 1, "_foreach_zero_": 0, "_foreach_add_": 2}
    assert {name: len(found[name].inputs) for name in counts} == counts
    assert found["mul_"].inputs == found["uniform_"].outputs[:1]


def test_every_refused_operator_is_named_once_with_its_line(tmp_path: Path) -> None:
    run, lines = trace_script(tmp_path, FAULTY, probe={"refused": 10}), FAULTY.splitlines()
    refused = trained(run).refused
    texts = [lines[item.line - 1].strip() for item in refused]
    assert [(item.op, item.phase) for item in refused] == [
        ("put_", "forward"),
        ("put_", "backward"),
        ("max_unpooling2d_forward_out", "forward"),
    ]
    assert all("y.put(" in text for text in texts[:2]) and "max_unpool2d(" in texts[2]
    assert run.good and len(run.ended.tail) == 4
    assert all(line.endswith(" True") for line in run.ended.tail)  # the flag as it was
    assert not trained(run).undone  # the probe's own switch is no line of the training


@pytest.mark.slow
def test_another_error_of_an_operator_ends_the_training_as_it_would(tmp_path: Path) -> None:
    run = trace_script(tmp_path, CLEAN.replace("y.square()", "y.view(7)"), probe={"refused": 10})
    assert not run.good and "shape '[7]' is invalid" in run.ended.tail[-1]


@pytest.mark.slow
def test_each_distinct_call_is_noted_with_its_form_how_often_and_its_line(tmp_path: Path) -> None:
    noted = trace_script(tmp_path / "noted", CLEAN, probe={"calls": 1})
    plain = trace_script(tmp_path / "plain", CLEAN)
    calls = {(call.op, call.phase): call for call in trained(noted).calls}
    forward = calls["aten.addmm.default", "forward"]
    assert (forward.dtype, forward.count) == ("float32", 1)
    ((file, line),) = forward.sites
    assert file == "train.py" and "layer(" in CLEAN.splitlines()[line - 1]
    bias, given, weight = json.loads(forward.form)[0]
    assert bias["size"] == [8] and weight["stride"] == [1, 8] and given["tensor"] == "float32"
    # the backward belongs to the line of its forward
    assert calls["aten.mm.default", "backward"].sites == forward.sites
    assert not any("hash" in name or ".t.default" in name for name, _ in calls)
    assert noted.ended.tail == plain.ended.tail and not trained(plain).calls
    with_note, without = (
        [(item.step, item.kind, item.digests) for item in trained(run).blocks]
        for run in (noted, plain)
    )
    assert with_note == without


@pytest.mark.slow
def test_a_form_that_is_too_long_has_its_digest_instead(tmp_path: Path) -> None:
    long = "    torch.cat([torch.ones({n}) for _ in range(2_000)])\n"
    both = long.format(n=1) + long.format(n=2) + "    optimizer.step()\n"
    script = CLEAN.replace("    optimizer.step()\n", both)
    calls = trained(trace_script(tmp_path, script, probe={"calls": 1})).calls
    forms = [call.form for call in calls if call.op == "aten.cat.default"]
    assert len({*forms}) == 2 and all(form.startswith("blake2b:") for form in forms)


def test_an_operator_that_takes_functions_has_no_schema() -> None:
    class HigherOrder:
        """Stands for `torch.cond`."""

    assert not dispatch.is_view(HigherOrder()) and not dispatch.is_mutable(HigherOrder())
    add = torch.ops.aten.add_.Tensor
    assert dispatch.is_mutable(add) and not dispatch.is_view(add)
    assert dispatch.is_view(torch.ops.aten.t.default)


def test_of_indices_only_range_and_repetition_are_noted() -> None:
    index, mask = torch.tensor([3, 3, 9]), torch.tensor([True, False, True])
    (found, true, floats), _ = described(([index, mask, torch.tensor([17.0])], {}), elements=True)
    assert found["elements"] == [3, 9, 2] and true["elements"] == [0, 1, 2]
    assert "elements" not in floats


@pytest.mark.slow
def test_if_something_is_compiled_nothing_is_noted_and_it_compiles(tmp_path: Path) -> None:
    """A compiled graph dispatches nothing, and under the watch it would not run. What is compiled
    behind the first step, with `fullgraph`, refuses to run without being compiled."""
    early = CLEAN.replace("index =", "layer = torch.compile(layer, backend='eager')\nindex =")
    found = trained(trace_script(tmp_path, early, probe={"calls": 1}))
    assert len(found.steps) == 4 and not found.calls
    average = """
mean = torch.zeros(8, 8)
@torch.compile(fullgraph=True, backend='eager')
def average(weight, mean):
    mean.lerp_(weight, 0.5)
"""
    call = "    optimizer.step()\n    average(layer.weight.detach(), mean)\n"
    late = CLEAN.replace("for step in", average + "for step in")
    late = late.replace("    optimizer.step()\n", call)
    run = trace_script(tmp_path, late, probe={"calls": 1}, name="late")
    assert run.good and len(trained(run).steps) == 4, run.ended.tail
