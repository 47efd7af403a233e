"""Does one run: writes the probe's configuration, starts the command, follows its traces, and
returns how it ended. The caller makes and removes the workspace.

A stressed run shares the machine with a load (`load`) and gets extra variables (`STRESS`);
`probe/stress.py` is the part inside its processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from repro_gate.compare.traces import alone
from repro_gate.compare.unrecorded import Left as Unrecorded
from repro_gate.data.declared import resolve_data
from repro_gate.errors import held
from repro_gate.files import is_inside, list_anew, remove_tree
from repro_gate.runs import variation
from repro_gate.runs.arms import Arm
from repro_gate.runs.artifacts import Collected
from repro_gate.runs.ending import Ending, ending_of, leave_out_idle
from repro_gate.runs.environment import (
    EXTENSION,
    Variables,
    training_environment,
    usable_processors,
    write_shims,
)
from repro_gate.runs.flags import VARIABLES
from repro_gate.runs.process import Ended, supervise
from repro_gate.runs.scheduler import slurm, submits
from repro_gate.runs.watching import Tick, Watcher, failure_in
from repro_gate.runs.workspaces import GateFolder, Workspace
from repro_gate.sandbox.cleanup import Left, sweep
from repro_gate.sandbox.identity import (
    as_training_user,
    chown_to_training,
    seal,
)
from repro_gate.spec.model import Spec
from repro_gate.trace import format as fmt
from repro_gate.trace.model import Trace, TraceError
from repro_gate.trace.reader import TraceCutOff, read_folder

SNIPPET = "_repro_gate_snippet.py"
KEPT = ".kept"  # `probe/distance.py` saves these tensors for the second run of a pair.
# The name that a training with its own user gets.
_ACCOUNT = "training"
_SIMPLE = re.compile(
    r"(?:python[\d.]*|torchrun|accelerate|bash|sh|[\w.-]*/[\w./-]+) [^;&|<>()`\n#]*"
)

# personality(ADDR_NO_RANDOMIZE) for the whole process tree; a container that refuses it leaves the
# layout random.
_FIXED_ADDRESSES = (
    "import ctypes, os, sys; ctypes.CDLL(None).personality(0x0040000); os.execvp(sys.argv[1], "
    "sys.argv[1:])"
)


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A run before it starts: everything except the spec and the folders."""

    name: str  # the run's own: `deterministic-2`
    arm: Arm
    second_of: str = ""  # the name of the first run of its pair
    reference: tuple[Trace, ...] = ()  # the first run's traces
    # what differs from the first run (`variation.py`)
    varied: frozenset[str] = frozenset()
    keep_final: bool = False  # whether the final state is kept, or measured
    # steps at which a replay saves or measures the tensors
    keep_steps: tuple[int, ...] = ()
    # whether imported distributions are noted too, which takes time
    observe: bool = False
    # whether artifacts are taken out, and other written files looked at
    collect: bool = False
    # more of the probe's configuration
    probe: Mapping[str, Any] = field(default_factory=dict)
    environment: Variables = field(default_factory=dict)  # more variables
    stress: bool = False  # whether its timing is disturbed
    fixed_addresses: bool = False  # whether addresses are not randomised
    # without probe and flags; the training runs to its own end
    bare: bool = False
    auxiliary: bool = False  # it only explains other runs
    dispensable: bool = False  # it does not count if it ends badly
    command: str = ""  # in place of `train.run`, its blanks filled in
    goes_on: bool = False  # in the workspace as the run before it left it
    checkpoint: str = ""  # from which it goes on, relative to its folder
    # seconds that it has after SIGTERM, where `tick` ends it; 0: it is killed
    grace: float = 0.0
    announcement: str = ""  # a sentence before it starts


@dataclass(frozen=True, kw_only=True)
class RunResult(Ending):
    """The result of a request."""

    request: RunRequest
    ended: Ended
    traces: tuple[Trace, ...] = ()
    folder: Path = field(default_factory=Path)
    # what it left outside its own places, if it had a user of its own
    left: Left = field(default_factory=Left)
    artifacts: Mapping[str, Collected] = field(default_factory=dict)  # by their names
    checkpoint: str = ""  # at which a leg was stopped, relative to its folder
    half_written: bool = False  # the checkpoint was open for writing then
    # the one from which it went on was written over, not replaced
    in_place: bool = False
    # what it read of the leg before, but for the checkpoint
    read_beside: tuple[str, ...] = ()
    # files that were being written when the gate ended it
    writing: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()  # globs of capture.artifacts that matched nothing
    unrecorded: Unrecorded = field(default_factory=Unrecorded)  # what nothing compares

    @property
    def name(self) -> str:
        """Return the name of its request."""
        return self.request.name

    @property
    def arm(self) -> Arm:
        """Return the arm of its request."""
        return self.request.arm

    @property
    def good(self) -> bool:
        """Return whether the run can be compared."""
        return self.outcome in ("finished", "stopped")

    @property
    def log_matters(self) -> bool:
        """Return whether the log is useful to a person: the run ended badly, and the gate did not
        end it itself."""
        return not self.good and self.reason_id != "run/ended-early"

    @property
    def steps(self) -> int:
        """Return the optimizer steps of the process that made the most."""
        return max((len(trace.steps) for trace in self.traces), default=0)


def launch(
    spec: Spec,
    request: RunRequest,
    gate: GateFolder,
    place: Workspace,
    tick: Tick = lambda _: None,
) -> RunResult:
    """Do one run. Calls `tick(traces so far)` a few times a second; a text that it returns ends the
    run."""
    folder = gate.path / "traces" / request.name
    remove_tree(folder)  # A dropped run may have left this folder.
    folder.mkdir(parents=True)
    data = resolve_data(spec.data, spec.path.parent)
    # Processes may be left from before the first run: `env.install` runs untrusted code as well.
    sweep(gate.sandbox, data)
    # Before the moment from which a changed inode is the run's. The workspace of a resumed leg
    # belongs to the training already, and may contain hard links to files of others.
    new = (place.tmp,) if request.goes_on else (place.root, place.home, place.tmp)
    chown_to_training(gate.sandbox, *new)
    nonce = secrets.token_hex(16)
    _configure(spec, request, gate, place, folder, nonce)
    write_shims(
        place.run_folder,
        spec.train.env.get("PATH", gate.outer.get("PATH", os.defpath)),
    )
    # The process enters its folder while it is still root, so a link must not lead it where its own
    # user could not go.
    may_enter = not gate.sandbox.own_user or is_inside(place.cwd, place.root)
    if not (place.cwd.is_dir() and may_enter):
        folder_name = repr(spec.train.working_directory)
        return RunResult(
            request=request,
            outcome="crashed",
            ended=Ended(),
            problem=f"train.working-directory {folder_name} is not in the workspace",
            remedy="name a folder that git tracks, relative to the folder that holds the spec",
            reason_id="run/no-working-directory",
        )
    chown_to_training(gate.sandbox, folder)
    watcher = Watcher(
        folder, nonce, tick, gate.sandbox, spec.train.timeout, request.grace
    )
    with as_training_user(gate.sandbox):
        text = _command(spec, request, place.cwd)
        is_submitted = submits(text, place.cwd)
    if _SIMPLE.fullmatch(text.strip()):
        # Replace the shell by the training, so that signals and the notice of the gate's death
        # reach it.
        text = f"exec {text.strip()}"
    command = ["/bin/sh", "-c", text]
    own = {
        **(STRESS if request.stress else {}),
        **variation.environment(request.varied, gate.outer, request.arm.environment),
        **spec.train.env,
        **request.environment,
    }
    environment = training_environment(
        gate.outer,
        request.arm,
        own,
        place.run_folder,
        spec.hardware.device,
        probed=not request.bare,
    )
    environment |= {"HOME": str(place.home), "TMPDIR": str(place.tmp)}
    if gate.sandbox.own_user:
        environment |= {
            name: spec.train.env.get(name, _ACCOUNT) for name in ("USER", "LOGNAME")
        }
    if request.fixed_addresses:
        command = [sys.executable, "-I", "-c", _FIXED_ADDRESSES, *command]
    jobs = slurm(environment, gate.sandbox, gate.tell) if is_submitted else None
    with load() if request.stress else nullcontext():
        ended = supervise(
            command,
            cwd=place.cwd,
            env=environment,
            timeout=spec.train.timeout,
            tick=watcher.look,
            sandbox=gate.sandbox,
            umask=variation.umask(request.varied),
            slurm=jobs,
        )
    if jobs is not None:
        list_anew(folder)
    watcher.look([])  # what came after the last tick
    traces, problem = _traces(folder, nonce, watcher)
    leave_out_idle(traces)
    ending = ending_of(spec, traces, problem, ended, watcher)
    with held():
        seal(gate.sandbox, folder, KEPT)
        left = sweep(gate.sandbox, data)
    return RunResult(
        **vars(ending),
        request=request,
        ended=ended,
        traces=tuple(traces),
        folder=folder,
        left=left,
        writing=watcher.writing,
    )


def _traces(
    folder: Path, nonce: str, watcher: Watcher
) -> tuple[list[Trace], str | None]:
    """Return the traces of a run that has ended, and their problem, if any."""
    problem = failure_in(folder, watcher.sandbox) or watcher.trace_problem
    followers = watcher.followers
    traces: list[Trace] = []
    try:
        traces = read_folder(folder, nonce, followers, watcher.opener)
        removed = followers.keys() - {trace.path.name for trace in traces}
        if removed:
            problem = problem or f"{min(removed)}: was removed during the run"
    except TraceError as error:
        problem = problem or str(error)
        if isinstance(error, TraceCutOff):
            traces = [follower.trace for follower in followers.values()]
    return traces, problem


def _configure(
    spec: Spec,
    request: RunRequest,
    gate: GateFolder,
    place: Workspace,
    folder: Path,
    nonce: str,
) -> None:
    """Write the probe's configuration, at the same path for every run. Also write the file that can
    report a full disk, since its blocks must be allocated now."""
    keeps = request.keep_final or bool(request.keep_steps)
    checkout = gate.original
    configuration = place.run_folder / "probe.json"
    shims = place.run_folder / "bin"
    own = (place.home, place.tmp, shims, configuration, folder.parent)
    config: dict[str, Any] = {
        "nonce": nonce,
        "extension": EXTENSION,
        "gate": os.getpid(),
        "traces": str(folder),
        "seed": request.arm.seed,
        "flags": dict(request.arm.flags),
        "variables": VARIABLES,
        "steps": request.arm.steps or spec.train.steps,
        "every": spec.capture.every,
        "artifacts": bool(spec.capture.artifacts),
        "cwd": str(place.cwd),
        "workspace": str(place.root),
        "data": list(map(str, resolve_data(spec.data, spec.path.parent))),
        "checkout": checkout and {**asdict(checkout), "root": str(checkout.root)},
        "own": list(map(str, own)),
        "folders": {"home": str(place.home), "tmpdir": str(place.tmp)},
        "started": time.time(),
        "began": gate.began,
        "observe": request.observe,
        "stress": request.stress,
        "keep": {
            "final": request.keep_final,
            "steps": request.keep_steps,
            "reference": saved_tensors(request.reference)
            if keeps and any(trace.trained for trace in request.reference)
            else None,
        },
        **request.probe,
    }
    if request.varied or "factors" in request.probe:
        varied = filter(request.varied.__contains__, variation.PROBE)
        vary = [variation.PROBE[name] for name in varied]
        config["factors"] = {"vary": vary, **request.probe.get("factors", {})}
    text = json.dumps(config)
    # It has one length in both runs of a pair, since the first data read decides all later memory
    # addresses.
    text += " " * (-len(text) % 256)
    configuration.write_text(text, encoding="utf-8")
    (folder / fmt.FAILURE_FILE).write_bytes(b" " * fmt.FAILURE_BYTES)


def saved_tensors(traces: Sequence[Trace]) -> dict[str, str]:
    """Return process key -> path stem of its saved tensors, for keys of exactly one process."""
    return {
        key: str(trace.path).removesuffix(fmt.SUFFIX)
        for key, trace in alone(traces).items()
    }


def _command(spec: Spec, request: RunRequest, cwd: Path) -> str:
    if request.command:
        return request.command
    if spec.train.snippet is not None:
        path = cwd / SNIPPET
        # The checkout may have a file or a link of that name, which must not be followed.
        path.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(path, flags, 0o644), "w", encoding="utf-8") as file:
            file.write(spec.train.snippet.replace("{seed}", str(request.arm.seed)))
        return f"exec python {SNIPPET}"
    return (spec.train.run or "").replace("{seed}", str(request.arm.seed))


# Inductor chooses kernels by random instead of measured times; the C library fills memory when it
# is allocated and freed.
STRESS: Variables = {
    "TORCHINDUCTOR_DISTORT_BENCHMARKING_RESULT": "inverse",
    "MALLOC_PERTURB_": "170",
}
# Alternates between computing and waiting for irregular times, and ends with the gate.
_LOAD = """
import os, random, time
parent = os.getppid()
while os.getppid() == parent:
    end = time.monotonic() + random.uniform(0.01, 0.2)
    while time.monotonic() < end:
        sum(range(1000))
    time.sleep(random.uniform(0, 0.05))
"""


@contextlib.contextmanager
def load() -> Iterator[None]:
    """Keep every processor busy inside the block."""
    command = [sys.executable, "-I", "-S", "-c", _LOAD]
    with contextlib.ExitStack() as started:
        for _ in range(usable_processors()):
            process = subprocess.Popen(command, env={}, cwd="/", start_new_session=True)
            started.enter_context(process)
            started.callback(process.kill)
        yield
