"""Claims about `probe.torch_hooks`: what is recorded of each shape of training, in which order and
under which names; also of training that no torch optimizer steps, or that is done by hand beside one.
The shapes are forks of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.checks.code import trains
from repro_gate.compare.traces import compare_runs
from repro_gate.trace.format import SCALER
from repro_gate.trace.model import Trace
from tests.support.built_traces import evidence, run
from tests.support.tracing import Case, blocks, names, trace_cases

SHAPES = """
import multiprocessing
import torch, torch._dynamo
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)
        self.last = nn.Linear(3, 1)
    def forward(self, x):
        return self.last(self.norm(self.first(x)).tanh())

def data(seed=0):
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))

def loss_of(net, part=0):
    return net(data(part)).square().mean()

def sgd(net, **options):
    return torch.optim.SGD(net.parameters(), lr=0.1, **options)

def fit(opt, net, step=None, parts=1, times=2):
    for _ in range(times):
        opt.zero_grad()
        for part in range(parts):
            loss_of(net, part).backward()
        (step or opt.step)()

def plain():
    net = Net()
    fit(sgd(net, momentum=0.9), net)

def idle(factor=0.0, rate=0.1, of=None):  # three trainings that train nothing
    net = nn.Linear(4, 1)
    opt = torch.optim.SGD((of or net).parameters(), lr=rate, weight_decay=0.1)
    for _ in range(2):
        opt.zero_grad()
        (factor * loss_of(net)).backward()
        opt.step()

def other_model():
    idle(1.0, of=nn.Linear(4, 1))

def swapped():  # another parameter takes the place of one in the optimizer's own list
    net = nn.Linear(4, 1)
    opt = sgd(net, momentum=0.9)
    fit(opt, net, parts=2, times=1)
    net.weight = opt.param_groups[0]["params"][0] = nn.Parameter(2 * net.weight.detach())
    fit(opt, net, times=1)

def closures(kind, **options):
    net = nn.Linear(4, 1)
    opt = kind(net.parameters(), **options)
    def closure():
        opt.zero_grad()
        loss = loss_of(net)
        loss.backward()
        return loss
    return opt, closure

def lbfgs():
    opt, closure = closures(torch.optim.LBFGS, max_iter=3)
    for _ in range(2):
        opt.step(closure)

def lightning_closure():
    opt, closure = closures(torch.optim.Adam)
    for _ in range(2):
        opt.step(closure=closure)

def gan():
    maker, critic = Net(), nn.Sequential(nn.Linear(1, 1))
    first, second = torch.optim.Adam(maker.parameters()), sgd(critic)
    for _ in range(2):
        second.zero_grad()
        critic(maker(data()).detach()).mean().backward()
        second.step()
        first.zero_grad()
        critic(maker(data())).mean().backward()
        first.step()

def accumulation():  # the optimizer's first step comes after some calls of backward()
    net = nn.Linear(4, 1)
    fit(sgd(net), net, parts=3)

def amp():
    net = nn.Linear(4, 1)
    opt = sgd(net)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(2):
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = net(data()).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        print(float(loss).hex())

def scaled_second():  # of two optimizers the first works without the scaler
    nets = nn.Linear(4, 1), nn.Linear(4, 1)
    first, second = map(sgd, nets)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    fit(first, nets[0], times=1)
    scaler.scale(loss_of(nets[1])).backward()
    scaler.step(second)
    fit(first, nets[0], times=1)

def compiled():
    net = Net()
    opt = sgd(net, momentum=0.9)
    fit(opt, torch.compile(net, backend="aot_eager"), torch.compile(opt.step, backend="eager"))

def in_part():  # a sparse gradient, a layer that the loss does not use, a checkpoint that is loaded late
    net = nn.ModuleDict({"used": nn.Embedding(10, 2, sparse=True), "idle": nn.Linear(4, 1)})
    opt = torch.optim.SGD(net.parameters(), lr=0.0)
    with torch.no_grad():
        net["used"].weight.fill_(1.0)
    fit(opt, lambda x: net["used"](torch.tensor([1, 3, 1])))

def update(parameters, grads=None):
    for index, p in enumerate(parameters):
        p.data.add_(p.grad if grads is None else grads[index], alpha=-0.1)

def backward():  # pytorch/examples: word_language_model, regression
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    for _ in range(3):
        net.zero_grad()
        loss_of(net).backward()
        update(net.parameters())

def grad():
    net = nn.Linear(4, 1)
    for _ in range(3):
        x = data().requires_grad_()
        slope, = torch.autograd.grad(net(x).square().mean(), x, create_graph=True)  # a penalty: no step
        update(net.parameters(), torch.autograd.grad(loss_of(net) + net(x + slope).mean(), net.parameters()))

def functional():
    net = nn.Linear(4, 1)
    def loss(params, x):
        return torch.func.functional_call(net, params, (x,)).square().mean()
    return {name: p.detach() for name, p in net.named_parameters()}, loss

def func():
    params, loss = functional()
    for _ in range(3):
        grads, value = torch.func.grad_and_value(loss)(params, data())
        params = {name: params[name] - 0.1 * grads[name] for name in params}
        print(float(value).hex())

def per_sample():
    params, loss = functional()
    for _ in range(3):
        grads = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(params, data())
        params = {name: params[name] - 0.1 * grads[name].mean(0) for name in params}

def analytic():  # no gradient is taken
    w = torch.zeros(4, 1)
    for _ in range(3):
        w -= 0.1 * data().T @ (data() @ w - 1)

def unused_optimizer():
    net = nn.Linear(4, 1)
    fit(sgd(net), net, lambda: update(net.parameters()), times=3)

def attacked():  # ten updates of an input for each step of the optimizer
    net = nn.Linear(4, 1)
    optimizer = sgd(net)
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
    fit(sgd(net), net, times=3)

def gradient_of(state):
    net = nn.Linear(4, 1)
    net.load_state_dict(state)
    loss_of(net).backward()
    return [p.grad for p in net.parameters()]

def pooled():  # the pool's worker takes gradients, this process steps
    net = nn.Linear(4, 1)
    optimizer = sgd(net)
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
    small, (params, loss) = nn.Linear(4, 1), functional()
    optimizer = sgd(small)
    for _ in range(3):
        fit(optimizer, small, times=1)
        grads = torch.func.grad(loss)(params, data())
        params = {name: (params[name] - 0.1 * grads[name]).detach() for name in params}

def beside_backward():
    small, net = nn.Linear(4, 1), nn.Bilinear(4, 4, 1)
    optimizer = sgd(small)
    for _ in range(3):
        fit(optimizer, small, times=1)
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

def loaded():  # torch makes the optimizer's state by a step of its own
    from torch.distributed.checkpoint.state_dict import get_state_dict
    net = nn.Linear(4, 1)
    opt = torch.optim.Adam(net.parameters())
    get_state_dict(net, opt)
    fit(opt, net)

def steps_twice():  # made after a gradient as well, but steps without one too
    net = nn.Linear(4, 1)
    for _ in range(3):
        loss_of(net).backward()
        optimizer = sgd(net)
        optimizer.step()
        optimizer.step()
"""
CASES = [
    "plain",
    "swapped",
    "lbfgs",
    "lightning_closure",
    "gan",
    "accumulation",
    "amp",
    "compiled",
    "in_part",
    "loaded",
]
BY_BACKWARD = "backward unused_optimizer checkpointed renewed one_each one_each_backwards"
BY_GRAD = "grad func per_sample"
OTHERS = "sdk beside_func beside_backward attacked looked_at pooled steps_twice"
BY_HAND = f"{BY_BACKWARD} {BY_GRAD} {OTHERS}".split()
STEPS = {**dict.fromkeys(BY_HAND, 3), "renewed": 12, "steps_twice": 5}
NET = [f"{layer}.{name}" for layer in ("first", "norm", "last") for name in ("weight", "bias")]
BUFFERS = ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]
STEP = ["rng", "loss", "gradient", "parameter", "optimizer", "optimizer"]
Shapes = Mapping[str, Trace]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Case]:
    """The functions, each in a fork of one run, which must end well."""
    calls = {name: f"{name}()" for name in (*CASES, *BY_HAND, "analytic", "scaled_second")}
    calls |= {"idle": "idle()", "rate": "idle(1.0, 0.0)", "other_model": "other_model()"}
    found = trace_cases(tmp_path_factory.mktemp("shapes"), calls, SHAPES)
    assert {name: case.printed for name, case in found.items() if case.exit_code} == {}
    return found


@pytest.fixture(scope="module")
def shapes(cases: Mapping[str, Case]) -> Shapes:
    return {name: case.trace for name, case in cases.items()}


def story(trace: Trace, step: int) -> list[str]:
    """The kinds of a step in the order in which they were recorded."""
    return [block.kind for block in trace.blocks if block.step == step]


@pytest.mark.parametrize("case", CASES)
def test_every_shape_is_traced_to_its_end(shapes: Shapes, case: str) -> None:
    trace = shapes[case]
    assert (len(trace.steps), trace.end, trace.notes) == (4 if case == "gan" else 2, "exit", [])
    assert story(trace, -1)[:2] == ["rng", "parameter"]
    assert all(mark.ms > 0 and mark.peak_bytes > 0 for mark in trace.steps)


def test_a_step_is_told_in_its_order_under_the_models_names(shapes: Shapes) -> None:
    plain = shapes["plain"]
    assert story(plain, -1) == ["rng", "parameter", "buffer"]
    assert story(plain, 0) == story(plain, 1) == [*STEP, "buffer", "rng"]
    assert names(plain, "parameter", -1) == names(plain, "parameter", 1) == NET
    assert names(plain, "gradient", 0) == names(plain, "gradient", 1)
    layers = [name.partition(".")[0] for name in names(plain, "gradient", 0)]
    assert layers == ["last", "last", "norm", "norm", "first", "first"]
    assert names(plain, "buffer", -1) == names(plain, "buffer", 1) == BUFFERS
    state = {f"{name}.momentum_buffer" for name in NET}
    state |= {"param_groups.0.lr", "param_groups.0.momentum"}
    assert state <= set(names(plain, "optimizer", 1))
    generators = names(plain, "rng", 0)[:3]
    assert generators in (["python", "numpy", "torch"], ["python", "torch", "python"])
    assert story(shapes["compiled"], 1) == story(plain, 1)


def test_closures_are_recorded_each_time_they_are_called(shapes: Shapes) -> None:
    lbfgs = shapes["lbfgs"]
    gradients = blocks(lbfgs, "gradient", 0)
    assert len(blocks(lbfgs, "loss", 0)) == len(gradients) >= 2
    assert [block.at for block in gradients] == list(range(len(gradients)))
    assert any(name.startswith("weight.") for name in names(lbfgs, "optimizer", 0))
    for step in (0, 1):
        assert story(shapes["lightning_closure"], step) == [*STEP, "rng"]


def test_two_optimizers_have_steps_each_and_a_step_all_its_losses(shapes: Shapes) -> None:
    gan, maker = shapes["gan"], [f"Net.{name}" for name in NET]
    critic = ["Sequential.0.weight", "Sequential.0.bias"]
    assert names(gan, "parameter", -1) == maker + critic
    assert names(gan, "gradient", 0) == critic[::-1]
    assert names(gan, "parameter", 1) == maker
    assert "Net.first.weight.exp_avg" in names(gan, "optimizer", 1)
    for step in (0, 1):
        losses = blocks(shapes["accumulation"], "loss", step)
        assert [len(block.values) for block in losses] == [1, 1, 1]
        assert len({block.values for block in losses}) == 3
        assert len(blocks(shapes["accumulation"], "gradient", step)) == 1


def test_a_loss_is_that_before_scaling_and_the_first_state_the_real_one(
    shapes: Shapes, cases: Mapping[str, Case]
) -> None:
    printed = [line for line in cases["amp"].printed if line.startswith("0x")]
    recorded = [blocks(shapes["amp"], "loss", step)[0].values[0] for step in (0, 1)]
    assert [*map(float.fromhex, recorded)] == [*map(float.fromhex, printed)] != []
    trace = shapes["in_part"]
    before, after = (blocks(trace, "parameter", step)[0].digests for step in (-1, 0))
    assert before == after  # the learning rate is zero


def test_what_an_optimizer_updates_is_looked_up_at_each_step(shapes: Shapes) -> None:
    for kind in ("gradient", "parameter"):
        found = []
        for step in range(2):
            block = blocks(shapes["swapped"], kind, step)[-1]
            found.append(dict(block.items()))
        assert found[0].keys() == found[1].keys() == {"weight", "bias"}
        assert found[0]["weight"] != found[1]["weight"]


def test_a_scaler_belongs_to_the_steps_that_it_has_scaled(shapes: Shapes) -> None:
    recorded = [names(shapes["scaled_second"], "optimizer", step) for step in range(3)]
    state = [[name for name in row if name.startswith(SCALER)] for row in recorded]
    assert state == [[], [f"{SCALER}_scale", f"{SCALER}_growth_tracker"], []]


def test_what_is_recorded_of_a_kind_has_the_models_names(shapes: Shapes) -> None:
    for case, kind, step, expected in (
        ("in_part", "gradient", 0, ["used.weight"]),
        ("compiled", "parameter", -1, NET),
        ("compiled", "gradient", 1, NET),
    ):
        assert sorted(names(shapes[case], kind, step)) == sorted(expected)


@pytest.mark.parametrize("case", BY_HAND)
def test_each_shape_has_its_steps_and_says_what_they_are(shapes: Shapes, case: str) -> None:
    assert not shapes["analytic"].trained, "it takes no gradient"
    trace, notes = shapes[case], [message for _, message in shapes[case].notes]
    assert (len(trace.steps), trace.end) == (STEPS[case], "exit")
    if case in OTHERS.split():
        assert notes == []
        return
    call = "backward()" if case in BY_BACKWARD.split() else "autograd.grad"
    assert len(notes) == 1 and notes[0].startswith(f"steps are calls of {call}: ")
    assert ("capture.artifacts" in notes[0]) == (case in ("func", "per_sample"))
    steps, kept = range(STEPS[case]), [item for item in trace.blocks if item.kind == "parameter"]
    # before, its optimizer's step was waited for
    late = steps[1:] if case == "unused_optimizer" else steps
    losses = [block for step in steps for block in blocks(trace, "loss", step)]
    assert len(losses) == len(steps) or case == "per_sample"
    assert all(blocks(trace, "gradient", step) for step in late)
    assert len({block.digests for block in kept}) >= len(steps)
    if call == "backward()":  # the state after the last update
        final = next(block for block in kept if block.step == STEPS[case])
        assert final.digests != kept[0].digests


def test_names_are_those_of_modules_and_losses_the_scripts(
    shapes: Shapes, cases: Mapping[str, Case]
) -> None:
    trace = shapes["backward"]
    net = [f"{layer}.{name}" for layer in range(3) for name in ("weight", "bias")]
    assert names(trace, "parameter", -1) == net
    for kind in ("gradient", "parameter"):
        assert sorted(names(trace, kind, 1)) == sorted(net)
    buffers = {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert set(names(trace, "buffer", 1)) == buffers
    assert names(shapes["func"], "parameter", 0) == names(shapes["func"], "gradient", 2)
    printed = cases["func"].printed
    recorded = [blocks(shapes["func"], "loss", step)[0].values[0] for step in range(3)]
    assert [*map(float.fromhex, printed)] == [*map(float.fromhex, recorded)] != []


def test_the_order_of_an_optimizer_for_each_parameter_is_free(shapes: Shapes) -> None:
    both = ("one_each", "one_each_backwards")
    first, second = (replace(shapes[case], key="main") for case in both)
    assert compare_runs([first], [second]).identical
    found = {row[0] for block in first.blocks for row in block.rows}
    assert {"weight.exp_avg", "bias.exp_avg_sq", "param_groups.0.0.exp_avg"} <= found


def test_what_is_trained_beside_an_optimizer_is_recorded(shapes: Shapes) -> None:
    by_func, trace = shapes["beside_func"].blocks, shapes["beside_backward"]
    weights = [item for item in by_func if item.kind == "parameter" and item.rows[0][2] == (1, 4)]
    assert len({item.digests for item in weights}) >= 6  # three states of each of the two
    assert "Bilinear.weight" in names(trace, "parameter", 3)  # at the end
    other = [item for item in trace.blocks if "Bilinear.weight" in {row[0] for row in item.rows}]
    assert len({item.digests for item in other if item.kind == "parameter"}) > 1


def test_what_does_not_train_is_told_and_no_other_shape(shapes: Shapes) -> None:
    told = {}
    for name, trace in shapes.items():
        result = trains(evidence(pair=(run("deterministic-1", trace),) * 2))
        if result.status == "warn":
            told[name] = result.message.partition(" stayed")[0]
    assert told.pop("idle") == "in 2 steps every gradient was zero, the loss"
    # a learning rate of 0, and gradients that another model has
    for name in ("rate", "in_part", "other_model"):
        assert told.pop(name) == "in 2 steps no parameter changed, the loss"
    assert told == {}


@pytest.mark.slow
def test_a_training_by_hand_ends_after_its_last_wanted_step(tmp_path: Path) -> None:
    source = SHAPES.replace("range(3)", "range(1000)")
    calls = {name: f"{name}()" for name in ("backward", "func", "grad")}
    for case in trace_cases(tmp_path, calls, source, steps=2).values():
        found = case.trace.stopped, len(case.trace.steps), case.exit_code
        assert found == (True, 2, 0), case.printed


UNDER_A_MODE = """
from collections import Counter
from torch.utils._python_dispatch import TorchDispatchMode
class Counting(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        seen[str(function)] += 1
        return function(*args, **(kwargs or {}))
seen = Counter()
net = torch.nn.Linear(4, 1)
x = torch.ones(2, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with Counting():
    for step in range(3):
        optimizer.zero_grad()
        net(x * FACTOR if step else x).square().mean().backward()
        optimizer.step()
print(seen["aten._to_copy.default"], seen["aten.stack.default"], seen["aten.isfinite.default"])
"""


def test_a_mode_sees_nothing_of_the_probe_and_hides_no_fault(tmp_path: Path) -> None:
    factors = {"one": "1", "again": "1", "other": "(1 + 1e-6)"}
    sources = {name: UNDER_A_MODE.replace("FACTOR", text) for name, text in factors.items()}
    found = trace_cases(tmp_path, sources)
    assert {case.printed for case in found.values()} == {("0 0 0",)}
    one, again, other = (
        [blocks(found[name].trace, "loss", step)[0].digest(0) for step in range(3)]
        for name in factors
    )
    assert one == again and one[0] == other[0] and one[1] != other[1]
