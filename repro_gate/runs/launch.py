"""One run: writes the probe's configuration, starts the command, follows its traces while it runs, and says how it ended.
What comes back is data; the workspace is made and removed by the caller.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from repro_gate.errors import held
from repro_gate.runs.arms import VARIABLES, Arm
from repro_gate.runs.compile_cache import variables
from repro_gate.runs.environment import training_environment, write_shims
from repro_gate.runs.process import Ended, supervise
from repro_gate.runs.watching import Tick, Watcher, failure_in
from repro_gate.sandbox.as_user import as_training_user
from repro_gate.sandbox.cleanup import Left, sweep
from repro_gate.sandbox.identity import Isolation
from repro_gate.sandbox.ownership import give, seal
from repro_gate.spec.model import Spec
from repro_gate.trace import format as fmt
from repro_gate.trace.model import Trace, TraceError
from repro_gate.trace.reader import read_folder

SNIPPET = "_repro_gate_snippet.py"
KEPT = ".safetensors"  # what `probe/distance.py` leaves for the second run of a pair
_ACCOUNT = "training"  # what a training with a user of its own is told that it is called
_SIMPLE = re.compile(r"(?:python[\d.]*|torchrun|accelerate|bash|sh|[\w.-]*/[\w./-]+) [^;&|<>()`\n#]*")
_KILLED = {  # by what the kernel's own count of out-of-memory kills on this machine says
    "none": "the kernel killed nothing for want of memory meanwhile: see who else ends processes here (a job, a time limit, a person)",
    "some": "the kernel killed for want of memory on this machine meanwhile, whom is in `dmesg`: lower the batch size if it was this run",
    "unknown": "whether memory was short cannot be read here: see `dmesg` on the host, and who else ends processes there",
}
_NO_DETERMINISTIC = re.compile(r"(\S+) does not have a deterministic implementation")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run: `name` is the run's own (`deterministic-2`), `reference` the traces of the first run of its pair, `keep_step` a step
    whose tensors are kept (a witness run), `keep_final` whether the final state is kept or measured, `observe` whether imported
    distributions and the records of DataLoaders are noted too (once is enough, and it takes time)."""

    name: str
    arm: Arm
    keep_final: bool = False
    keep_step: int | None = None
    reference: tuple[Trace, ...] = ()
    observe: bool = False


@dataclass(frozen=True, kw_only=True)
class Run:
    """What came of a plan. `outcome` is one of the report's; `problem` says in a sentence what went wrong, `remedy` what to do."""

    plan: Plan
    outcome: str
    ended: Ended
    traces: tuple[Trace, ...] = ()
    problem: str = ""
    remedy: str = ""
    reason_id: str = ""
    folder: Path = field(default_factory=Path)
    left: Left = field(default_factory=Left)  # what it left outside its own places, where it had a user of its own

    @property
    def good(self) -> bool:
        """Whether the run can be compared."""
        return self.outcome in ("finished", "stopped")

    @property
    def log_matters(self) -> bool:
        """Whether a person needs the end of its log: it ended badly, and not because the gate had seen enough."""
        return not self.good and self.reason_id != "run/ended-early"

    @property
    def steps(self) -> int:
        """Optimizer steps, the largest count among its processes."""
        return max((len(trace.steps) for trace in self.traces), default=0)


@dataclass(frozen=True)
class Original:
    """The checkout that the workspaces are copies of. `ignored` are its modules, and whole folders, that git ignores; `projects` the
    canonical names of the distributions that it makes."""

    root: Path
    ignored: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where runs take place: the same paths for each. `cwd` lies in the workspace, `traces` holds one folder for each run."""

    place: Path
    workspace: Path
    cwd: Path
    traces: Path
    outer: Mapping[str, str]  # the environment that the gate itself was started in
    data: tuple[Path, ...] = ()
    isolation: Isolation = field(default_factory=Isolation)
    original: Original | None = None
    began: float | None = None  # when the first run of the gate run may have begun, in seconds since 1970


def launch(spec: Spec, plan: Plan, site: Site, tick: Tick) -> Run:
    """Do one run. `tick(traces so far)` is called a few times a second; a text it returns ends the run."""
    folder = site.traces / plan.name
    folder.mkdir(parents=True)
    sweep(site.isolation, site.data)  # of what came before the first run: `env.install` starts untrusted code as well
    # Before the moment from which a changed inode is the run's.
    give(site.isolation, site.workspace, site.place / "home", site.place / "tmp")
    nonce = secrets.token_hex(16)
    _configure(spec, plan, site, folder, nonce)
    write_shims(site.place, spec.train.env.get("PATH", site.outer.get("PATH", os.defpath)))
    if not _may_enter(site):
        return _not_entered(spec, plan)
    give(site.isolation, folder)
    watcher = Watcher(folder, nonce, tick, site.isolation)
    with as_training_user(site.isolation):
        text = _command(spec, plan, site)
    if _SIMPLE.fullmatch(text.strip()):
        text = f"exec {text.strip()}"  # no shell between gate and training: signals and the kernel's notice of the gate's death reach it
    command = ["/bin/sh", "-c", text]
    cache = variables(site.place / "tmp") if spec.train.compile_cache else {}
    environment = training_environment(site.outer, plan.arm, {**cache, **spec.train.env}, site.place, spec.hardware.device)
    if site.isolation.own_user:
        environment |= {name: spec.train.env.get(name, _ACCOUNT) for name in ("USER", "LOGNAME")}
    ended = supervise(command, cwd=site.cwd, env=environment, timeout=spec.train.timeout, tick=watcher.look, isolation=site.isolation)
    watcher.look([])  # what came after the last tick
    run = _judge(spec, plan, folder, nonce, ended, watcher)
    with held():
        seal(site.isolation, folder, KEPT)
        return replace(run, left=sweep(site.isolation, site.data))


def _may_enter(site: Site) -> bool:
    """Whether there is a working directory. A user of its own is not led by a link to where it could not have gone by itself: a process is
    put into its folder while it is still root."""
    if not site.cwd.is_dir():
        return False
    return not site.isolation.own_user or Path(os.path.realpath(site.cwd)).is_relative_to(os.path.realpath(site.workspace))


def _not_entered(spec: Spec, plan: Plan) -> Run:
    return Run(
        plan=plan,
        outcome="crashed",
        ended=Ended(exit_code=None, signal=None, timed_out=False, stopped="", seconds=0.0, tail=(), left_running=0, out_of_memory=False),
        problem=f"train.working-directory {spec.train.working_directory!r} is not in the workspace",
        remedy="name a folder that git tracks, relative to the folder that holds the spec",
        reason_id="run/no-working-directory",
    )


def _configure(spec: Spec, plan: Plan, site: Site, folder: Path, nonce: str) -> None:
    """The probe's configuration, at the same path for every run; and the file that reports a full disk, its blocks taken now."""
    steps = spec.train.steps if plan.arm.steps is None else plan.arm.steps
    config = {
        "nonce": nonce,
        "gate": os.getpid(),
        "traces": str(folder),
        "seed": plan.arm.seed,
        "flags": dict(plan.arm.flags),
        "variables": list(VARIABLES),
        "steps": steps,
        "every": spec.capture.every,
        "artifacts": bool(spec.capture.artifacts),
        "workspace": str(site.workspace),
        "data": [str(path) for path in site.data],
        "checkout": None if site.original is None else {**asdict(site.original), "root": os.path.realpath(site.original.root)},
        "own": [*(str(site.place / name) for name in ("home", "tmp", "bin", "probe.json")), str(site.traces)],
        "started": time.time(),
        "began": site.began,
        "observe": plan.observe,
        "keep": {"final": plan.keep_final, "step": plan.keep_step, "reference": _reference(plan.reference)},
    }
    (site.place / "probe.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / fmt.FAILURE_FILE).write_bytes(b" " * fmt.FAILURE_BYTES)


def _reference(traces: Sequence[Trace]) -> dict[str, str] | None:
    """Process key -> stem of its kept files, for the keys that name one process."""
    trained = [trace for trace in traces if trace.trained]
    keys = [trace.key for trace in trained]
    return {trace.key: str(trace.path)[: -len(fmt.SUFFIX)] for trace in trained if keys.count(trace.key) == 1} if trained else None


def _command(spec: Spec, plan: Plan, site: Site) -> str:
    if spec.train.snippet is not None:
        path = site.cwd / SNIPPET
        path.unlink(missing_ok=True)  # a file or a link of that name in the checkout must not be written through
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "w", encoding="utf-8") as file:
            file.write(spec.train.snippet.replace("{seed}", str(plan.arm.seed)))
        return f"exec python {SNIPPET}"
    return (spec.train.run or "").replace("{seed}", str(plan.arm.seed))


def _judge(spec: Spec, plan: Plan, folder: Path, nonce: str, ended: Ended, watcher: Watcher) -> Run:
    """How the run ended, from most to least specific."""

    def bad(outcome: str, reason: str, problem: str, remedy: str) -> Run:
        return Run(
            plan=plan, outcome=outcome, ended=ended, traces=tuple(traces), problem=problem, remedy=remedy, reason_id=reason, folder=folder
        )

    traces: list[Trace] = []
    trace_problem = failure_in(folder, watcher.isolation) or watcher.trace_problem
    try:
        traces = read_folder(folder, nonce, watcher.followers, watcher.opener)
        removed = watcher.followers.keys() - {trace.path.name for trace in traces}
        trace_problem = trace_problem or (f"{min(removed)}: was removed during the run" if removed else None)
    except TraceError as error:
        trace_problem = trace_problem or str(error)
    _only_artifacts(spec, traces)
    steps_done = bool(traces) and any(trace.trained for trace in traces) and all(trace.stopped for trace in traces if trace.trained)
    if ended.timed_out:
        return bad(
            "timed-out",
            "run/timeout",
            f"it was still running after {spec.train.timeout:g} s and was ended",
            "raise train.timeout, lower train.steps, or find what it waits for in the log's end",
        )
    if ended.stopped and ended.stopped not in ("trace", "steps"):
        return Run(
            plan=plan,
            outcome="interrupted",
            ended=ended,
            traces=tuple(traces),
            problem=ended.stopped,
            remedy="",
            reason_id="run/ended-early",
            folder=folder,
        )
    crash = None if ended.stopped == "trace" else _crash(ended)  # that signal was the gate's own
    if crash and not steps_done and not (trace_problem and "cannot" in trace_problem):
        return bad(*crash)
    if trace_problem:
        return bad("untraced", "trace/unreadable", f"its trace cannot be used: {trace_problem}", _trace_remedy(trace_problem))
    if watcher.untraced:
        pid, command = next(iter(watcher.untraced.items()))
        return bad(
            "untraced",
            "probe/untraced-process",
            f"process {pid} had torch loaded and could not be traced: {command}",
            "start it without -I, -E or -S and with the environment that it was given, so that PYTHONPATH reaches it",
        )
    errors = [message for trace in traces for identifier, message in trace.notes if identifier == "probe-error"]
    if errors:
        return bad("untraced", "probe/error", f"the probe itself failed: {errors[0]}", "please report this line; training was not affected")
    if any(trace.end == "exception" for trace in traces if trace.trained):
        return bad("crashed", "run/crashed", "the training ended by an exception that its command did not report", "see the log's end")
    if not any(trace.steps for trace in traces):
        return bad(
            "untraced",
            "run/nothing-recorded",
            _nothing(traces),
            "train with a torch optimizer or backward(), name what it writes under capture.artifacts, or call "
            "`from repro_gate import record, step`",
        )
    return Run(plan=plan, outcome="stopped" if steps_done else "finished", ended=ended, traces=tuple(traces), folder=folder)


def _only_artifacts(spec: Spec, traces: Sequence[Trace]) -> None:
    """A process that took no step counts only where no process took one and the spec names artifacts to compare."""
    whole = [trace for trace in traces if any(identifier == fmt.WHOLE_RUN for identifier, _ in trace.notes)]
    if len(whole) < sum(trace.trained for trace in traces) or not spec.capture.artifacts:
        for trace in whole:
            trace.steps.clear()
            trace.blocks.clear()
            trace.notes = [note for note in trace.notes if note[0] != fmt.WHOLE_RUN]


def _crash(ended: Ended) -> tuple[str, str, str, str] | None:
    """(outcome, reason, problem, remedy) where the command ended badly."""
    if ended.out_of_memory:
        return (
            "out-of-memory",
            "run/out-of-memory",
            "the kernel killed it, or a process of it, for want of memory (counted in its control group)",
            "lower the batch size or train.steps, or use a larger machine",
        )
    if ended.signal == signal.SIGKILL:
        return ("killed", "run/killed", "it was killed by signal 9 from outside the gate", _KILLED[_known(ended.machine_kills)])
    memory = ended.group_killed * "; the kernel killed a process of this control group for want of memory meanwhile, perhaps of another job"
    if ended.signal is not None:
        return ("killed", "run/killed", f"it was ended by signal {ended.signal}", f"see the log's end{memory}")
    if not ended.exit_code:
        return None
    blocked = next((found.group(1) for line in reversed(ended.tail) if (found := _NO_DETERMINISTIC.search(line))), None)
    if blocked:
        return (
            "crashed",
            "run/no-deterministic-implementation",
            f"`{blocked}` has no deterministic implementation on this device, so torch refused to run it",
            "replace the operator, or name torch.use_deterministic_algorithms under determinism.allow with a reason",
        )
    remedy = "see the log's end"
    if ended.exit_code in (126, 127):
        remedy = (
            "the command was not found in the workspace: git-ignored files (a .venv, say) are not copied; put its folder on PATH instead"
        )
    elif any("No module named 'torch'" in line for line in ended.tail):
        remedy = "the `python` on PATH has no torch: activate the environment that you train in"
    return "crashed", "run/crashed", f"it exited with status {ended.exit_code}", remedy + memory


def _known(kills: int | None) -> str:
    return "unknown" if kills is None else "some" if kills else "none"


def _nothing(traces: Sequence[Trace]) -> str:
    if not traces:
        return "no Python process of it could be traced"
    return "no torch optimizer took a step, no gradient was taken, and nothing was recorded through repro_gate.record and step"


def _trace_remedy(problem: str) -> str:
    if "No space" in problem or "too large" in problem.lower():
        return "free space in the temporary folder (TMPDIR), or raise capture.every"
    return "the training process must not write to, cut or remove the trace; run it again"
