"""Claims about `probe.entropy`: a draw from the operating system is named, a seeded one is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from repro_gate.runs.launch import RunResult
from repro_gate.trace.model import Drawn
from tests.support.tracing import trace_script

HEAD = """
import copy, os, pickle, random, secrets, tempfile, uuid
import numpy, numpy as np
from numpy.random import default_rng
"""
DRAWS = {  # a line -> what it is called
    "os.urandom(4)": "os.urandom",
    "os.getrandom(4)": "os.getrandom",
    "open('/dev/urandom', 'rb').read(1)": "open('/dev/urandom')",
    "uuid.uuid4()": "uuid.uuid4",
    "uuid.uuid1()": "uuid.uuid1",
    "secrets.token_hex(4)": "secrets.token_hex",
    "secrets.randbits(8)": "random.SystemRandom",
    "secrets.randbelow(8)": "secrets.randbelow",
    "random.SystemRandom().random()": "random.SystemRandom",
    "random.Random().random()": "random.Random()",
    "random.seed()": "random.seed()",
    "random.Random(1).seed()": "random.seed()",
    "np.random.default_rng().random()": "numpy.random.default_rng()",
    "default_rng()": "numpy.random.default_rng()",
    "np.random.SeedSequence()": "numpy.random.SeedSequence()",
    "np.random.Generator(np.random.PCG64())": "numpy.random.PCG64()",
    "np.random.seed()": "numpy.random.seed()",
    "np.random.RandomState(  None )": "numpy.random.RandomState()",
}
CLEAN = """
random.random(); random.seed(3); random.Random(3).random(); random.Random('text').random()
np.random.default_rng(3); np.random.SeedSequence(3); np.random.RandomState(3); np.random.seed(3); np.random.PCG64(3)
np.random.default_rng(np.random.SeedSequence(3)).spawn(2)
uuid.uuid5(uuid.NAMESPACE_DNS, 'x'); uuid.UUID(int=3)
generator = random.Random(); generator.seed(3)
generator = random.Random(); generator.setstate(random.Random(3).getstate())
generators = [random.Random() for _ in range(3)]; [generator.seed(3) for generator in generators]
pickle.loads(pickle.dumps(random.Random(3))); copy.deepcopy(random.Random(3)); copy.copy(random.Random(3))
pickle.loads(pickle.dumps(np.random.default_rng(3))); copy.deepcopy(np.random.RandomState(3))
np.random.PCG64(3).jumped(); pickle.loads(pickle.dumps(np.random.PCG64(3)))
tempfile.mkdtemp(); tempfile.NamedTemporaryFile().close()
open('/dev/null').close()
"""


def drawn(run: RunResult) -> list[Drawn]:
    """What all processes of a run drew."""
    assert run.ended.exit_code == 0, run.ended.tail
    return [item for trace in run.traces for item in trace.drawn]


def test_each_way_to_the_entropy_is_named_and_what_has_a_seed_is_not(tmp_path: Path) -> None:
    lines = [line for line in DRAWS if sys.platform == "linux" or "getrandom" not in line]
    script = HEAD + "for _ in range(3):\n" + "".join(f"    {line}\n" for line in lines)
    found = {item.line: item for item in drawn(trace_script(tmp_path, script + CLEAN))}
    first = script.count("\n", 0, script.index("for _")) + 2
    named = {line - first: item.source for line, item in found.items()}
    assert named == dict(enumerate(DRAWS[line] for line in lines))
    assert {item.file for item in found.values()} == {"train.py"}


LIBRARY = """
import os, random, secrets, tempfile, uuid
import numpy as np
SEED = np.random.SeedSequence().entropy  # while it is imported
def reset(seed=None):
    sequence = np.random.SeedSequence(seed)
    return np.random.Generator(np.random.PCG64(sequence))
def shuffle(seed=None):
    generator = random.Random(seed)
    return int.from_bytes(os.urandom(2), "big") if seed is None else generator
def names():
    return uuid.uuid4(), secrets.token_hex(4), tempfile.mkdtemp(), np.random.RandomState(3)
"""


def test_a_library_that_draws_on_behalf_of_a_line_is_named(tmp_path: Path) -> None:
    library = tmp_path / "lib" / "site-packages"
    library.mkdir(parents=True)
    (library / "gym.py").write_text(LIBRARY)
    (library / "lazy.py").write_text("def make():\n    import gym\n    return gym\n")
    script = f"""import sys
sys.path.append({str(library)!r})
import lazy
gym = lazy.make()
gym.names(); gym.reset(3); gym.shuffle(3)
gym.reset()
gym.shuffle()
"""
    assert drawn(trace_script(tmp_path, script)) == [
        Drawn("numpy.random.SeedSequence() by gym", "train.py", 6),
        Drawn("random.Random() by gym", "train.py", 7),
        Drawn("os.urandom by gym", "train.py", 7),
    ]


WORKER = """
import os, sys, random, multiprocessing
import numpy as np
def work():
    np.random.default_rng()
    random.Random().seed(3)
    random.Random()
    if len(sys.argv) > 1:
        os.kill(os.getpid(), 9)
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join()
"""


def test_a_forked_worker_names_its_own_also_when_it_is_killed(short_path: Path) -> None:
    certain = Drawn("numpy.random.default_rng()", "train.py", 5)
    run = trace_script(short_path, WORKER)
    assert drawn(run) == [certain, Drawn("random.Random()", "train.py", 7)]
    assert [trace.forked for trace in run.traces if trace.drawn] == [True]
    killed = trace_script(short_path, WORKER, command="python train.py x", name="killed")
    assert drawn(killed) == [certain]


KINDS = """
import copy, inspect, os, pickle, random, secrets, uuid
import numpy as np
class Mine(random.Random):
    def __init__(self):
        super().__init__(7)
assert type(random.Random(1)) is random.Random and isinstance(secrets._sysrand, random.SystemRandom)
assert type(random.seed) is type(random.shuffle) and random.seed.__self__ is random._inst
for thing in (os.urandom, random.Random.seed, uuid.uuid1, np.random.default_rng, np.random.seed):
    assert pickle.loads(pickle.dumps(thing)) == thing, thing
assert list(inspect.signature(random.Random.seed).parameters) == ["self", "a", "version"]
old = random.Random()
old.seed("text", version=1)
twin = pickle.loads(pickle.dumps(old))
numbers = [Mine().random(), random.Random(b"x").getrandbits(70), old.random(), twin.random()]
random.seed(11)
state = random.getstate()
numbers += [random.random(), random.gauss(0, 1)]
random.setstate(state)
np.random.seed(4)
numbers += [random.random(), np.random.rand(), np.random.default_rng(5).random()]
for wrong in (lambda: os.urandom(-1), lambda: os.urandom("x"), lambda: random.Random([1]), lambda: random.setstate(1)):
    try:
        wrong()
    except (TypeError, ValueError) as error:
        numbers.append((type(error).__name__, str(error)))
print(numbers)
"""


def test_types_numbers_and_errors_are_as_without_the_probe(tmp_path: Path) -> None:
    run = trace_script(tmp_path, KINDS)
    assert run.ended.exit_code == 0, run.ended.tail
    script = tmp_path / "bare.py"
    script.write_text(KINDS)
    environment = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": "42"}
    printed = subprocess.check_output([sys.executable, script], env=environment, text=True)
    assert run.ended.tail == (printed.strip(),) and printed.count("Error") >= 4


def test_a_mistake_in_here_ends_nothing_and_the_first_thousand_are_kept(tmp_path: Path) -> None:
    script = (
        "import os, random\n"
        + "os.urandom(1)\n" * 1_100
        + "import _repro_gate.probe.entropy as part\npart.source_line.inside = None\n"
        "print(len(os.urandom(3)), random.Random(3).random() == random.Random(3).random())\n"
        "print(random.Random() is None)\n"
    )
    run = trace_script(tmp_path, script)
    assert run.ended.tail == ("3 True", "False")
    assert [item.line for item in drawn(run)] == list(range(2, 1_002))


def test_a_module_of_the_workspaces_own_by_a_known_name_is_left_alone(tmp_path: Path) -> None:
    own = {f"{name}.py": f"def uuid1():\n    return '{name}'\n" for name in ("uuid", "secrets")}
    source = "import secrets, uuid\nprint(secrets.uuid1(), uuid.uuid1())\n"
    run = trace_script(tmp_path, {"train.py": source, **own})
    assert run.ended.tail == ("secrets uuid",) and drawn(run) == []


@pytest.mark.slow
def test_torch_seed_is_named_and_manual_seed_is_not(tmp_path: Path) -> None:
    seeds = ("torch.initial_seed()", "torch.seed()", "torch.random.seed()")
    clean = ("torch", "torch.random", "torch.Generator()")
    script = "\n".join(["import torch", *seeds, *(f"{place}.manual_seed(3)" for place in clean)])
    found = drawn(trace_script(tmp_path, script))
    assert found == [Drawn("torch.seed()", "train.py", line) for line in (3, 4)]
