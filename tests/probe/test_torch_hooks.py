"""Claims about `probe.torch_hooks`: what is recorded of each shape of training, in which order and
under which names. The shapes are forks of one run, each with a trace that carries its name."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from repro_gate.trace.model import Trace
from tests.support.tracing import Case, blocks, names, trace_shapes

SHAPES = """
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

def squared(net):
    return lambda: net(data()).square().mean()

def fit(opt, loss, step=None):
    for _ in range(2):
        opt.zero_grad()
        loss().backward()
        (step or opt.step)()

def plain():
    net = Net()
    fit(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), squared(net))

def closures(kind, **options):
    net = nn.Linear(4, 1)
    opt = kind(net.parameters(), **options)
    def closure():
        opt.zero_grad()
        loss = net(data()).square().mean()
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
    first, second = torch.optim.Adam(maker.parameters()), torch.optim.SGD(critic.parameters(), lr=0.1)
    for _ in range(2):
        second.zero_grad()
        critic(maker(data()).detach()).mean().backward()
        second.step()
        first.zero_grad()
        critic(maker(data())).mean().backward()
        first.step()

def accumulation():
    net = nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        opt.zero_grad()
        for part in range(3):
            (net(data(part)).square().mean() / 3).backward()
        opt.step()

def amp():
    net = nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(2):
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = net(data()).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        print(float(loss).hex())

def compiled():
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    fit(opt, squared(torch.compile(net, backend="aot_eager")))

def compiled_step():
    net = nn.Linear(4, 1)
    opt = torch.optim.Adam(net.parameters())
    fit(opt, squared(net), torch.compile(opt.step, backend="eager"))

def sparse():
    net = nn.Embedding(10, 2, sparse=True)
    fit(torch.optim.SparseAdam(net.parameters()), lambda: net(torch.tensor([1, 3, 1])).square().mean())

def optimizer_made_first_weights_changed_after():
    net = nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.0)
    with torch.no_grad():
        net.weight.fill_(1.0)  # a checkpoint that is loaded late
    fit(opt, squared(net))

def unused_in_loss():
    net = nn.ModuleDict({"used": nn.Linear(4, 1), "idle": nn.Linear(4, 1)})
    fit(torch.optim.SGD(net.parameters(), lr=0.1), squared(net["used"]))
"""
CASES = ["plain", "lbfgs", "lightning_closure", "gan", "accumulation", "amp", "compiled", "compiled_step", "sparse", "optimizer_made_first_weights_changed_after", "unused_in_loss"]
NET = [f"{layer}.{name}" for layer in ("first", "norm", "last") for name in ("weight", "bias")]
BUFFERS = ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]
STEP = ["rng", "loss", "gradient", "parameter", "optimizer", "optimizer"]
Shapes = Mapping[str, Trace]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Case]:
    return trace_shapes(tmp_path_factory.mktemp("shapes"), SHAPES, CASES)


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
    assert story(shapes["compiled_step"], 1) == story(shapes["lightning_closure"], 1)


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
    losses = blocks(shapes["accumulation"], "loss", 1)
    assert [len(block.values) for block in losses] == [1, 1, 1]
    assert len({block.values for block in losses}) == 3
    assert len(blocks(shapes["accumulation"], "gradient", 1)) == 1


def test_a_loss_is_that_before_scaling_and_the_first_state_the_real_one(
    shapes: Shapes, cases: Mapping[str, Case]
) -> None:
    printed = [line for line in cases["amp"].printed if line.startswith("0x")]
    recorded = [blocks(shapes["amp"], "loss", step)[0].values[0] for step in (0, 1)]
    assert [*map(float.fromhex, recorded)] == [*map(float.fromhex, printed)] != []
    trace = shapes["optimizer_made_first_weights_changed_after"]
    before, after = (blocks(trace, "parameter", step)[0].digests for step in (-1, 0))
    assert before == after  # the learning rate is zero


@pytest.mark.parametrize(
    ("case", "kind", "step", "expected"),
    [
        ("unused_in_loss", "gradient", 0, ["used.bias", "used.weight"]),
        ("sparse", "gradient", 0, ["weight"]),
        ("compiled", "parameter", -1, NET),
        ("compiled", "gradient", 1, NET),
        ("compiled", "buffer", 1, BUFFERS),
        ("compiled_step", "parameter", 1, ["bias", "weight"]),
    ],
)
def test_what_is_recorded_of_a_kind_has_the_models_names(
    shapes: Shapes, case: str, kind: str, step: int, expected: list[str]
) -> None:
    assert sorted(names(shapes[case], kind, step)) == sorted(expected)
