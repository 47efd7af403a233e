"""The probe ends and changes no training, however odd: each of `odd_trainings.txt` runs without the
probe and with it, in a fork of its own, and ends with the same status, parameters, generators and
output."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tracing import trace_script

CASES = Path(__file__).with_name("odd_trainings.txt")
# One of each kind of oddity; the others are slow.
QUICK = """
threads-own-models step-takes-model optimizer-dataclass parameters-with-argument lazy-linear
cut-storage lazy-import batch-lazy-mapping signature mock-clock no-optimizer workers-dropout-amp
batch-raising-eq-hash batch-containers optimizer-raising-state closure-identity pickled-scaled-loss
mode-counts-exactly mode-refuses subclass-function-counts mock-torch-functions mock-stdlib
"""
HEAD = """
import torch
X = torch.arange(64.).reshape(8, 8) / 64
def net(kind="SGD"):
    m = torch.nn.Linear(8, 2); return m, getattr(torch.optim, kind)(m.parameters(), lr=.1)
def step(m, o):
    o.zero_grad(); m(X).square().mean().backward(); o.step()
"""
DRIVER = """
import atexit, faulthandler, gc, hashlib, json, os, random, sys, time
import numpy, torch, torch._dynamo

mode = sys.argv[1]
if mode == "probed":
    json.dump(dict(os.environ), open("env.json", "w"))
else:  # what the gate sets beside the environment
    assert "_repro_gate.probe" not in sys.modules
    torch.use_deterministic_algorithms(True)
    torch.backends.mkldnn.deterministic = True
    torch.ones(1).sqrt()
numpy.random.seed(42), torch.manual_seed(42)

def tensors(space):
    for name, value in sorted(space.items()):
        for key, item in enumerate(value if type(value) in (tuple, list) else [value]):
            kind = type(item).__mro__  # no look at the object itself: it may be of any kind
            if torch.Tensor in kind:
                yield "%s.%s" % (name, key), item
            elif torch.nn.Module in kind:
                try:
                    held = sorted(torch.nn.Module.state_dict(item).items())
                except Exception:
                    continue
                yield from (("%s.%s.%s" % (name, key, path), leaf) for path, leaf in held if isinstance(leaf, torch.Tensor))

def write(space, path):
    state = hashlib.sha256()
    for name, tensor in tensors(space):
        if tensor.device.type == "cpu":
            try:
                content = bytes(tensor.detach().contiguous().view(torch.uint8).flatten().tolist())
            except Exception as error:
                content = type(error).__name__.encode()
            state.update(("%s %s %s" % (name, tensor.dtype, tuple(tensor.shape))).encode() + content)
    for generator in (torch.get_rng_state().tolist(), random.getstate(), numpy.random.get_state()[1].tolist()):
        state.update(repr(generator).encode())
    with open(path, "w") as file:
        file.write(state.hexdigest())

gc.freeze()  # what all trainings share is not collected as each ends, which takes half a second
for name in json.load(open("cases.json")):
    sys.stdout.flush()
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        open("%s.%s.status" % (name, mode), "w").write(str(status))
        continue
    random.seed(7)
    sys.argv = ["train.py"]
    os.dup2(os.open("%s.%s.out" % (name, mode), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.dup2(1, 2)
    faulthandler.dump_traceback_later(240, exit=True)  # what hangs says where
    space, me = {"__name__": "__main__"}, os.getpid()
    atexit.register(lambda: write(space, "%s.%s.sum" % (name, mode)) if os.getpid() == me else None)
    exec(compile(open("case-%s.py" % name).read(), "case.py", "exec"), space)
    break
"""


@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_no_training_is_ended_or_changed(quick: bool, short_path: Path) -> None:
    parts = re.split(r"^# --- (.*)\n", CASES.read_text(), flags=re.MULTILINE)[1:]
    both, few = dict(zip(parts[::2], parts[1::2], strict=True)), QUICK.split()
    cases = {name: source for name, source in both.items() if (name in few) is quick}
    assert len(cases) == (len(few) if quick else len(parts) // 2 - len(few))
    files = {f"case-{name}.py": HEAD + source for name, source in cases.items()}
    files |= {"train.py": DRIVER, "cases.json": json.dumps(list(cases))}
    run = trace_script(short_path, files, command="python train.py probed", timeout=1500.0)
    place = short_path / "place" / "workspace"
    for left in ("metrics.csv", "over", "f0", "f1", "f2", "f3"):
        (place / left).unlink(missing_ok=True)
    env = json.loads((place / "env.json").read_text())
    for name in ("REPRO_GATE_PROBE", "PYTHONPATH"):
        env.pop(name, None)
    subprocess.run([sys.executable, "train.py", "bare"], cwd=place, env=env, check=True)

    def ended(name: str, mode: str) -> list[str]:
        paths = [place / f"{name}.{mode}.{what}" for what in ("status", "sum", "out")]
        return [_told(path.read_text(errors="replace")) if path.exists() else "" for path in paths]

    for name in cases:
        probed, bare = ended(name, "probed"), ended(name, "bare")
        assert probed == bare, (name, probed, bare)
    failed = [note for trace in run.traces for note in trace.notes if note[0] == "probe-error"]
    assert not failed, failed


def _told(text: str) -> str:
    """What a training printed, without addresses, the lines of tracebacks, and what torch's own
    libraries print: it has times in it."""
    theirs = ("    ", "  File", "USDT", "nanobind", " - ")
    lines = [line for line in text.splitlines() if not line.startswith(theirs)]
    return re.sub(r"0x[0-9a-f]+", "@", "\n".join(lines))
