"""Does one run: writes the probe's configuration, starts the command, follows its traces, and
returns how it ended. The caller makes and removes the workspace."""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from repro_gate.compare.model import GpuState
from repro_gate.compare.traces import with_own_key
from repro_gate.compare.unrecorded import Left as Unrecorded
from repro_gate.data.declared import resolve_data
from repro_gate.errors import held
from repro_gate.files import is_inside, list_anew, remove_tree
from repro_gate.machine import gpu_states
from repro_gate.runs import variation
from repro_gate.runs.arms import Arm
from repro_gate.runs.artifacts import Collected
from repro_gate.runs.ending import (
    Ending,
    Raised,
    ending_of,
    last_exception,
    leave_out_idle,
)
from repro_gate.runs.environment import (
    CONFIGURATION,
    EXTENSION,
    Variables,
    training_environment,
    write_shims,
)
from repro_gate.runs.flags import VARIABLES
from repro_gate.runs.legs import LegEnd, LegStart
from repro_gate.runs.process import Ended, supervise
from repro_gate.runs.scheduler import slurm, submits
from repro_gate.runs.stress import STRESS, load
from repro_gate.runs.watching import Tick, Watcher
from repro_gate.runs.workspaces import GateFolder, Workspace
from repro_gate.sandbox.cleanup import Left, sweep
from repro_gate.sandbox.identity import (
    as_training_user,
    chown_to_training,
    seal,
)
from repro_gate.spec.model import Spec
from repro_gate.trace import format as fmt
from repro_gate.trace.model import Trace

SNIPPET = "_repro_gate_snippet.py"
# Characters of a run's own configuration: the paths of a first run of some hundred processes fit.
_OWN = 1 << 14
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
class Recording:
    """What the probe notes and keeps of a run beside its digests."""

    final: bool = False  # the final state is kept, or measured
    # steps at which a replay saves or measures the tensors
    steps: tuple[int, ...] = ()
    distributions: bool = False  # imported ones are noted, which takes time


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A run before it starts: everything except the spec and the folders."""

    name: str  # the run's own: `deterministic-2`
    arm: Arm
    command: str = ""  # in place of `train.run`, its blanks filled in
    second_of: str = ""  # the name of the first run of its pair
    reference: tuple[Trace, ...] = ()  # the first run's traces
    # what differs from the first run (`variation.py`)
    varied: frozenset[str] = frozenset()
    # without probe and flags; the training runs to its own end
    bare: bool = False
    recording: Recording = field(default_factory=Recording)
    # more of the probe's configuration
    probe: Mapping[str, Any] = field(default_factory=dict)
    # whether artifacts are taken out, and other written files looked at
    collect: bool = False
    environment: Variables = field(default_factory=dict)  # more variables
    stress: bool = False  # whether its timing is disturbed
    fixed_addresses: bool = False  # whether addresses are not randomised
    # `never`: it only explains other runs
    counts: Literal["always", "if good", "never"] = "always"
    announcement: str = ""  # a sentence before it starts
    leg: LegStart | None = None  # of a resumed training


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
    unmatched: tuple[str, ...] = ()  # globs of capture.artifacts that matched nothing
    unrecorded: Unrecorded = field(default_factory=Unrecorded)  # what nothing compares
    gpus: tuple[GpuState, ...] = ()  # before and after it
    leg: LegEnd = field(default_factory=LegEnd)

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
    def raised(self) -> Raised | None:
        """Return the exception that ended the training, as its log has it."""
        return last_exception(self.ended.tail)

    @property
    def last_words(self) -> str:
        """Return the exception that ended the training, else what its log ends with."""
        return str(self.raised or self.ended.last_line)

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
    # Before the moment from which a changed inode is the run's. A workspace that is used already is
    # the training's, and may contain hard links to files of others.
    new = (place.tmp,) if place.is_used else (place.root, place.home, place.tmp)
    chown_to_training(gate.sandbox, *new)
    nonce = secrets.token_hex(16)
    text = configuration(spec, request, gate, place, folder, nonce, data)
    (place.run_folder / CONFIGURATION).write_text(text, encoding="utf-8")
    # This file can report a full disk, so its blocks are allocated now.
    (folder / fmt.FAILURE_FILE).write_bytes(b" " * fmt.FAILURE_BYTES)
    path = spec.train.env.get("PATH", gate.outer.get("PATH", os.defpath))
    write_shims(place.run_folder, path)
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
        folder=folder,
        nonce=nonce,
        tick=tick,
        sandbox=gate.sandbox,
        timeout=spec.train.timeout,
    )
    before = _gpus(spec, request, "before")
    ended = _trained(spec, request, gate, place, watcher)
    gpus = (*before, *(before and _gpus(spec, request, "after")))
    traces, problem = watcher.read_to_end()
    leave_out_idle(traces)
    ending = ending_of(spec, traces, problem, ended, watcher.untraced)
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
        gpus=gpus,
    )


def _gpus(
    spec: Spec, request: RunRequest, when: Literal["before", "after"]
) -> tuple[GpuState, ...]:
    """Return the state of the GPUs before or after a run that may be timed."""
    is_timed = spec.cost.measure and spec.hardware.device != "cpu"
    states = gpu_states() if is_timed else []
    of_run: dict[str, Any] = {
        "run": request.name,
        "arm": request.arm.name,
        "when": when,
    }
    return tuple(GpuState(**of_run, **state) for state in states)


def _trained(
    spec: Spec,
    request: RunRequest,
    gate: GateFolder,
    place: Workspace,
    watcher: Watcher,
) -> Ended:
    """Start the command in its environment, and watch it to its end."""
    with as_training_user(gate.sandbox):
        text = _command(spec, request, place.cwd)
        is_submitted = submits(text, place.cwd)
    if _SIMPLE.fullmatch(text.strip()):
        # Replace the shell by the training, so that signals and the notice of the gate's death
        # reach it.
        text = f"exec {text.strip()}"
    command = ["/bin/sh", "-c", text]
    if request.fixed_addresses:
        command = [sys.executable, "-I", "-c", _FIXED_ADDRESSES, *command]
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
    jobs = None
    if is_submitted:
        jobs = slurm(
            environment, gate.sandbox, gate.tell, lambda: bool(watcher.followers)
        )
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
        list_anew(watcher.folder)
    return ended


def configuration(
    spec: Spec,
    request: RunRequest,
    gate: GateFolder,
    place: Workspace,
    folder: Path,
    nonce: str,
    data: Sequence[Path],
) -> str:
    """Return the probe's configuration as JSON. It has one length in all runs of a gate run, since
    the first data read decides all later memory addresses: paths of varied runs are as long as
    those of others, and what else a run has of its own has _OWN characters of room."""
    recording = request.recording
    keeps = request.reference and (recording.final or recording.steps)
    of_all = {
        "nonce": nonce,
        "extension": EXTENSION,
        "gate": os.getpid(),
        "variables": VARIABLES,
        "artifacts": bool(spec.capture.artifacts),
        "cwd": place.cwd,
        "workspace": place.root,
        "data": data,
        "checkout": gate.original and asdict(gate.original),
        "own": (
            place.home,
            place.tmp,
            place.run_folder / "bin",
            place.run_folder / CONFIGURATION,
            folder.parent,
        ),
        "folders": {"home": place.home, "tmpdir": place.tmp},
        "started": time.time_ns(),  # always as many digits
        "began": gate.began,
    }
    own = {
        "traces": folder,
        "seed": request.arm.seed,
        "flags": dict(request.arm.flags),
        "steps": request.arm.steps or spec.train.steps,
        "every": spec.capture.every,
        "observe": recording.distributions,
        "stress": request.stress,
        "keep": {
            "final": recording.final,
            "steps": recording.steps,
            "reference": stems(request.reference) if keeps else None,
        },
        **request.probe,
    }
    if request.varied or "factors" in request.probe:
        varied = filter(request.varied.__contains__, variation.PROBE)
        vary = [variation.PROBE[name] for name in varied]
        own["factors"] = {"vary": vary, **request.probe.get("factors", {})}
    texts = [json.dumps(part, default=os.fspath) for part in (of_all, own)]
    return f"{texts[0][:-1]}, {texts[1][1:]}".ljust(len(texts[0]) + _OWN)


def stems(traces: Sequence[Trace]) -> dict[str, str]:
    """Return process key -> path stem of its saved tensors, for keys of exactly one process."""
    return {
        key: str(trace.path).removesuffix(fmt.SUFFIX)
        for key, trace in with_own_key(traces).items()
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
