"""Asks the training's interpreter to measure operators: the calls that a training's control run
recorded, or the known list and functions of a user. What comes back is untrusted, like a trace."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from repro_gate.compare.operators import OperatorArm, OperatorCall, Operators, longer
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.escape import for_terminal
from repro_gate.files import scratch_folder
from repro_gate.runs import arms
from repro_gate.runs.flags import IN_ENVIRONMENT, IN_PROCESS
from repro_gate.runs.interpreter import (
    Interpreter,
    NoAnswer,
    ask,
    interpreter_on,
    training_interpreter,
    unprobed,
)
from repro_gate.sandbox.identity import Sandbox
from repro_gate.spec.model import Spec
from repro_gate.trace.fields import Call, Location, Name, Short, Signed

_WORKER = Path(__file__).resolve().parent / "worker"
# importing torch from a cold network disk takes minutes, and a call that hangs takes one
_START_SECONDS = 300.0
_FORM = 1_000  # characters of a form that the report holds
_FACTS = 200  # on the interpreter, of all lines together
_TIMES = 3  # as much as the budget may pass: each call is executed at least a few times
_EXPECTED = {"control/races": "differs", "control/repeats": "repeats"}
_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"  # without it, the flags refuse cuBLAS
_UNMEASURED = OperatorArm(outcome="not measured")
_Milliseconds = Annotated[
    tuple[Annotated[float, Meta(ge=0, le=1e9)], ...], Meta(max_length=500)
]


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the worker's answer: `worker/measure.py` says which there are."""

    about: Annotated[dict[Short, Name | Signed], Meta(max_length=_FACTS)] = {}
    number: Annotated[int, Meta(ge=0, le=10_000)] = -1
    operator: Short = ""
    form: Short = ""
    off: OperatorArm = _UNMEASURED
    on: OperatorArm = _UNMEASURED
    off_ms: _Milliseconds = ()
    on_ms: _Milliseconds = ()
    unfilled_ms: _Milliseconds = ()
    done: bool = False


_LINE = msgspec.json.Decoder(_Line)


def of_training(
    spec: Spec,
    calls: Sequence[Call],
    outer: Mapping[str, str],
    sandbox: Sandbox,
    seconds: float,
    threads: int | None = None,
) -> Operators:
    """Measure the calls that a training made, in its interpreter and environment and with as many
    threads, within about so many seconds. Raises Inconclusive."""
    allow = arms.allowed(spec)
    environment = dict(arms.default(spec.seed, None).environment)
    if _CUBLAS not in allow:
        environment[_CUBLAS] = IN_ENVIRONMENT[_CUBLAS]
    with scratch_folder() as folder:
        variables = unprobed(
            arms.Arm("default", spec.seed, {}, environment),
            outer,
            sandbox,
            folder,
            spec.train.env,
            spec.hardware.device,
        )
        python = training_interpreter(spec, variables)
        request = {
            "calls": [(call.op, call.form) for call in calls],
            "flags": arms.deterministic(spec.seed, allow, None).flags,
            "seconds": seconds,
            "threads": threads,
        }
        return _measured(
            Interpreter(python, variables, sandbox, folder), request, calls
        )


def without_training(
    own: Sequence[str],
    python: str | None,
    outer: Mapping[str, str],
    sandbox: Sandbox,
    seconds: float,
) -> Operators:
    """Measure functions (`module:function`) of a user; if none are named, the known list. Raises
    Inconclusive, also if a control came out wrong, and UsageError."""
    off = arms.Arm("default", 0, {}, {_CUBLAS: IN_ENVIRONMENT[_CUBLAS]})
    with scratch_folder() as folder:
        variables = unprobed(off, outer, sandbox, folder, {}, None)
        search = variables["PATH"]
        if python and shutil.which(python, path=search) is None:
            raise UsageError(
                f"--python {python}: is no program",
                remedy="name the interpreter of the environment that you train in",
            )
        found = interpreter_on(search, [python] if python else [])
        request = {
            "own": own,
            "known": not own,
            "flags": IN_PROCESS,
            "seconds": seconds,
        }
        worker = Interpreter(found, variables, sandbox, folder)
        measured = _measured(worker, {**request, "path": [str(Path.cwd())]}, None)
    calls = [call for call in measured.calls if call.operator not in _EXPECTED]
    _require_controls(measured.calls)
    return replace(measured, calls=tuple(calls))


def _measured(
    worker: Interpreter, request: Mapping[str, object], calls: Sequence[Call] | None
) -> Operators:
    """Return what a worker measured: of `calls`, or of those that it names itself."""
    began = time.monotonic()
    lines = dict[int, _Line]()
    about = dict[str, str]()
    done = False

    def take(line: _Line) -> None:
        nonlocal done
        for name, value in line.about.items():
            if name in about or len(about) < _FACTS:
                about[name] = str(value)
        done = done or line.done
        if line.number >= 0 and (calls is None or line.number < len(calls)):
            lines.setdefault(line.number, line)

    whole = {"calls": [], "own": [], "known": False, "path": [], **request}
    longest = _START_SECONDS + _TIMES * float(str(request["seconds"]))
    try:
        ended = ask(worker, [str(_WORKER)], whole, _LINE, take, seconds=longest)
        why = ended.last_line or f"it ended with status {ended.exit_code}"
    except (NoAnswer, OSError) as error:
        done, why = False, getattr(error, "strerror", None) or str(error)
    if not done:
        raise Inconclusive(
            f"the measuring process's answer cannot be used: {worker.python}: "
            f"{for_terminal(why, 300)}",
            remedy="activate the environment that you train in, which needs torch, or name its "
            "`python` with `--python`",
            reason_id="ops/no-answer",
        )
    measured = [
        _call(line, calls[number] if calls is not None else None)
        for number, line in sorted(lines.items())
    ]
    took = time.monotonic() - began
    return Operators(calls=tuple(measured), seconds=round(took, 1), platform=about)


def _call(line: _Line, call: Call | None) -> OperatorCall:
    """Return one measured call, `call` being the training's."""
    measured = OperatorCall(
        operator=line.operator,
        form=line.form,
        off=line.off,
        on=line.on,
        flags=longer(line.unfilled_ms or line.on_ms, line.off_ms),
        filling=longer(line.on_ms, line.unfilled_ms),
    )
    if call is None:
        return measured
    return replace(
        measured,
        operator=call.op,
        form=_key(call.form),
        options=call.options,
        phase=call.phase,
        lines=tuple(Location(*site) for site in call.sites if site[0]),
        calls=call.count,
    )


def _key(form: str) -> str:
    """Return a form as the report holds it: a long one is cut, with a digest of all of it."""
    if len(form) <= _FORM:
        return form
    return f"{form[:_FORM]}… {hashlib.sha256(form.encode()).hexdigest()[:16]}"


def _require_controls(calls: Sequence[OperatorCall]) -> None:
    """Raise Inconclusive unless both controls came out as they must."""
    came = {call.operator: call.off for call in calls}
    for control, must in _EXPECTED.items():
        arm = came.get(control, _UNMEASURED)
        if arm.outcome != must:
            was = for_terminal(f"{arm.outcome} {arm.message}", 300).strip()
            raise Inconclusive(
                f"{control} came out wrong: {was}, not `{must}`; so no result could be believed",
                remedy="measure again while the machine is quieter and has more than one "
                "processor; if it stays, please report it",
                reason_id="ops/control",
            )
