"""Claims about training that no torch optimizer steps, and about what is trained by hand beside
one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.compare.traces import compare_runs
from repro_gate.runs.launch import Run
from repro_gate.trace.model import Trace
from tests.support.tracing import blocks, names, trace_cases, trace_script

HEAD = """
import multiprocessing, sys
import torch, torch._dynamo
from torch import nn

def data(seed=0):
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))

def loss_of(net, seed=0):
    return net(data(seed)).square().mean()

def update(parameters, grads=None):
    for index, p in enumerate(parameters):
        p.data.add_(p.grad if grads is None else grads[index], alpha=-0.1)
"""
SHAPES = (
    HEAD
    + """
def backward():  # pytorch/examples: word_language_model, regression
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    for _ in range(3):
        net.zero_grad()
        loss_of(net).backward()
        update(net.parameters())

def plain_tensors():
    w, b = torch.zeros(4, 1, requires_grad=True), torch.zeros(1, requires_grad=True)
    for _ in range(3):
        (data() @ w + b - 1).square().mean().backward()
        with torch.no_grad():
            for p in (w, b):
                p -= 0.1 * p.grad
                p.grad = None

def grad():
    net = nn.Linear(4, 1)
    for _ in range(3):
        x = data().requires_grad_()
        slope, = torch.autograd.grad(net(x).square().mean(), x, create_graph=True)  # a penalty: no step
        update(net.parameters(), torch.autograd.grad(loss_of(net) + net(x + slope).mean(), net.parameters()))

def func():
    net = nn.Linear(4, 1)
    params = {name: p.detach() for name, p in net.named_parameters()}
    def loss(params):
        return torch.func.functional_call(net, params, (data(),)).square().mean()
    for _ in range(3):
        grads, value = torch.func.grad_and_value(loss)(params)
        params = {name: params[name] - 0.1 * grads[name] for name in params}
        print("loss", float(value).hex())

def per_sample():
    net = nn.Linear(4, 1)
    params = {name: p.detach() for name, p in net.named_parameters()}
    def loss(params, x):
        return torch.func.functional_call(net, params, (x[None],)).square().mean()
    for _ in range(3):
        grads = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(params, data())
        params = {name: params[name] - 0.1 * grads[name].mean(0) for name in params}

def large():
    w = torch.zeros(300, 300)
    for _ in range(3):
        w = w - 0.1 * torch.func.grad(lambda w: (w - 1).square().mean())(w)

def vjp():
    w = torch.zeros(4, 1)
    for _ in range(3):
        loss, back = torch.func.vjp(lambda w: (data() @ w - 1).square().mean(), w)
        w = w - 0.1 * back(torch.ones(()))[0]

def far_behind():  # what is updated lies behind the elements that are looked at
    w = nn.Parameter(torch.zeros(300, 300))
    for _ in range(3):
        w.grad = None
        (w - 1)[299].square().mean().backward()
        with torch.no_grad():
            w[299] -= 0.1 * w.grad[299]

def analytic():  # no gradient is taken
    w = torch.zeros(4, 1)
    for _ in range(3):
        w -= 0.1 * data().T @ (data() @ w - 1)

def unused_optimizer():
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(net).backward()
        update(net.parameters())

def late_step():  # the optimizer's first step comes after some calls of backward()
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        for part in range(3):
            loss_of(net, part).backward()
        optimizer.step()

def attacked():  # ten updates of an input for each step of the optimizer
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        noise = torch.zeros(6, 4, requires_grad=True)
        for _ in range(10):
            net(data() + noise).square().mean().backward()
            noise.data.add_(noise.grad.sign(), alpha=0.01)
            noise.grad.zero_()
        optimizer.zero_grad()
        net(data() + noise.detach()).square().mean().backward()
        optimizer.step()

def looked_at():  # gradients of inputs and of a batch before the optimizer is made: nothing is updated
    net = nn.Linear(4, 1)
    for part in range(5):
        x = data(part).requires_grad_()
        torch.autograd.grad(net(x).sum(), x)
        loss_of(net, part).backward()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()

def gradient_of(state):
    net = nn.Linear(4, 1)
    net.load_state_dict(state)
    loss_of(net).backward()
    return [p.grad for p in net.parameters()]

def pooled():  # the pool's worker takes gradients, this process steps
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        for _ in range(3):
            for p, grad in zip(net.parameters(), pool.map(gradient_of, [net.state_dict()] * 3, chunksize=1)[-1]):
                p.grad = grad
            optimizer.step()
        pool.close()
        pool.join()

def renewed():  # new parameters for each step: old ones must not stay in memory
    import gc
    net = nn.Linear(4, 1)
    for _ in range(12):
        net.zero_grad()
        loss_of(net).backward()
        net.weight, net.bias = (nn.Parameter((p - 0.1 * p.grad).detach()) for p in (net.weight, net.bias))
    left = sum(isinstance(item, nn.Parameter) for item in gc.get_objects())
    assert left <= 8, left

def gan_by_hand():
    maker, critic = nn.Linear(4, 4), nn.Linear(4, 1)
    for _ in range(3):
        critic.zero_grad()
        critic(maker(data()).detach()).mean().backward()
        update(critic.parameters())
        maker.zero_grad()
        critic(maker(data())).mean().backward()
        update(maker.parameters())

def checkpointed():
    from torch.utils.checkpoint import checkpoint
    net = nn.Linear(4, 1)
    for _ in range(3):
        net.zero_grad()
        checkpoint(net, data().requires_grad_(), use_reentrant=True).square().mean().backward()
        update(net.parameters())

def sdk():
    from repro_gate import record, step
    net = nn.Linear(4, 1)
    for _ in range(3):
        for part in range(2):
            net.zero_grad()
            loss = loss_of(net, part)
            loss.backward()
            update(net.parameters())
            record("loss", loss.item())
        step()

def beside_func():
    small, net = nn.Linear(4, 1), nn.Linear(4, 1)
    optimizer = torch.optim.SGD(small.parameters(), lr=0.1)
    params = dict(net.named_parameters())
    def loss(params):
        return torch.func.functional_call(net, params, (data(),)).square().mean()
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(small).backward()
        optimizer.step()
        grads = torch.func.grad(loss)(params)
        params = {name: (params[name] - 0.1 * grads[name]).detach() for name in params}

def beside_backward():
    small, net = nn.Linear(4, 1), nn.Bilinear(4, 4, 1)
    optimizer = torch.optim.SGD(small.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(small).backward()
        optimizer.step()
        net.zero_grad()
        net(data(), data()).mean().backward()
        update(net.parameters())

def one_each(backwards=False):  # Pyro: an optimizer for each parameter, made when it first has a gradient, stepped in any order
    net, scale, optimizers = nn.Linear(4, 1), torch.ones(1, requires_grad=True), {}
    for _ in range(3):
        (loss_of(net) * scale).sum().backward()
        for p in [*net.parameters(), scale][:: -1 if backwards else 1]:
            if p not in optimizers:
                optimizers[p] = torch.optim.Adam([p])
            optimizers[p].step()
            optimizers[p].zero_grad()

def one_each_backwards():
    one_each(backwards=True)

def steps_twice():  # made after a gradient as well, but steps without one too
    net = nn.Linear(4, 1)
    for _ in range(3):
        loss_of(net).backward()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        optimizer.step()
        optimizer.step()

if __name__ == "__main__":
    for case in (*SHAPES, "analytic"):
        process = multiprocessing.get_context("fork").Process(target=globals()[case], name=case)
        process.start()
        process.join()
        if process.exitcode:
            sys.exit("%s failed" % case)
"""
)
BY_BACKWARD = {
    "backward": 3,
    "plain_tensors": 3,
    "unused_optimizer": 3,
    "gan_by_hand": 6,
    "checkpointed": 3,
    "renewed": 12,
    "far_behind": 3,
    "one_each": 3,
    "one_each_backwards": 3,
}
BY_GRAD = {"grad": 3, "func": 3, "per_sample": 3, "large": 3, "vjp": 3}
OTHERS = {
    "late_step": 3,
    "sdk": 3,
    "beside_func": 3,
    "beside_backward": 3,
    "attacked": 3,
    "looked_at": 3,
    "pooled": 3,
    "steps_twice": 5,
}
CASES = {**BY_BACKWARD, **BY_GRAD, **OTHERS}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    found = trace_script(
        tmp_path_factory.mktemp("by-hand"), f"SHAPES = {tuple(CASES)!r}\n" + SHAPES
    )
    assert found.outcome == "finished", (found.problem, found.ended.tail)
    return found


@pytest.fixture(scope="module")
def shapes(run: Run) -> Mapping[str, Trace]:
    return {trace.key: trace for trace in run.traces if trace.trained}


def test_a_training_that_takes_no_gradient_records_nothing(shapes: Mapping[str, Trace]) -> None:
    assert "analytic" not in shapes


@pytest.mark.parametrize("case", CASES)
def test_each_shape_has_its_steps_and_says_what_they_are(
    shapes: Mapping[str, Trace], case: str
) -> None:
    trace, call = shapes[case], "backward()" if case in BY_BACKWARD else "autograd.grad"
    last = (
        "; the last update is compared only in capture.artifacts"
        if case in ("func", "per_sample", "large", "vjp")
        else ""
    )
    why = (
        "each optimizer is made after one"
        if case.startswith("one_each")
        else "no torch optimizer took a step"
    )
    notes = [] if case in OTHERS else [("steps", f"steps are calls of {call}: {why}{last}")]
    assert (len(trace.steps), trace.end, trace.notes) == (CASES[case], "exit", notes)


@pytest.mark.parametrize("case", [*BY_BACKWARD, *BY_GRAD])
def test_each_step_has_a_loss_gradients_and_parameters_that_move(
    shapes: Mapping[str, Trace], case: str
) -> None:
    trace, steps = shapes[case], range(CASES[case])
    # before, its optimizer's step was waited for
    late = steps[1:] if case == "unused_optimizer" else steps
    losses = [block.values for step in steps for block in blocks(trace, "loss", step)]
    assert len(losses) == len(steps) or case == "per_sample"
    assert all(blocks(trace, "gradient", step) for step in late)
    values = [
        block.digests
        for block in trace.blocks
        if block.kind == "parameter" and (case != "gan_by_hand" or len(block.rows) > 2)
    ]
    assert len(set(values)) >= len(steps) or case == "gan_by_hand"


def test_parameters_have_the_names_of_their_modules(shapes: Mapping[str, Trace]) -> None:
    net = ["0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"]
    assert names(shapes["backward"], "parameter", -1) == net
    assert (
        sorted(names(shapes["backward"], "gradient", 1))
        == sorted(names(shapes["backward"], "parameter", 1))
        == sorted(net)
    )
    assert set(names(shapes["backward"], "buffer", 1)) == {
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    }
    assert names(shapes["func"], "parameter", 0) == names(shapes["func"], "gradient", 2)


def test_the_state_after_the_last_update_is_recorded(shapes: Mapping[str, Trace]) -> None:
    for case in BY_BACKWARD:
        final = [
            block
            for block in shapes[case].blocks
            if block.kind == "parameter" and block.step == CASES[case]
        ]
        assert (
            final
            and final[-1].digests
            != next(block for block in shapes[case].blocks if block.kind == "parameter").digests
        )


def test_the_order_in_which_an_optimizer_for_each_parameter_steps_is_no_difference(
    shapes: Mapping[str, Trace],
) -> None:
    first, second = (
        replace(shapes[case], key="main") for case in ("one_each", "one_each_backwards")
    )
    assert compare_runs([first], [second]).identical
    assert {"weight.exp_avg", "bias.exp_avg_sq", "param_groups.0.0.exp_avg"} <= {
        row[0] for block in first.blocks for row in block.rows
    }


def test_losses_of_functions_are_those_that_the_script_sees(
    shapes: Mapping[str, Trace], run: Run
) -> None:
    printed = [line.split()[1] for line in run.ended.tail if line.startswith("loss ")]
    recorded = [blocks(shapes["func"], "loss", step)[0].values[0] for step in range(3)]
    assert (
        [float.fromhex(value) for value in printed]
        == [float.fromhex(value) for value in recorded]
        != []
    )


def test_an_accumulated_step_stays_one_step_where_an_optimizer_makes_it(
    shapes: Mapping[str, Trace],
) -> None:
    assert [len(blocks(shapes["late_step"], "loss", step)) for step in range(3)] == [3, 3, 3]
    assert len(blocks(shapes["late_step"], "gradient", 0)) == 1


def test_a_model_trained_by_hand_beside_an_optimizer_is_recorded(
    shapes: Mapping[str, Trace],
) -> None:
    by_func = [
        block.digests
        for block in shapes["beside_func"].blocks
        if block.kind == "parameter" and block.rows[0][2] == (1, 4)
    ]
    assert len(set(by_func)) >= 6  # three states of each of the two
    trace = shapes["beside_backward"]
    assert "Bilinear.weight" in names(trace, "parameter", 3)  # at the end
    assert (
        len(
            {
                block.digests
                for block in trace.blocks
                if block.kind == "parameter" and "Bilinear.weight" in {row[0] for row in block.rows}
            }
        )
        > 1
    )


@pytest.mark.slow
def test_a_training_by_hand_ends_after_its_last_wanted_step(tmp_path: Path) -> None:
    source = SHAPES.replace("range(3)", "range(1000)").partition("if __name__")[0]
    cases = trace_cases(
        tmp_path, {case: source + f"\n{case}()\n" for case in ("backward", "func", "grad")}, steps=2
    )
    for name, case in cases.items():
        assert (case.trace.stopped, len(case.trace.steps), case.exit_code) == (True, 2, 0), (
            name,
            case.printed,
        )
