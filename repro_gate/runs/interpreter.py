"""Facts of the training's interpreter without a run: `python probe facts`, with the `python` that
the training would find.

The interpreter and what it imports belong to the training, so the answer is untrusted: it is read
within limits, and whatever it leaves running is ended.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from repro_gate.errors import Inconclusive
from repro_gate.files import scratch_folder
from repro_gate.runs import arms
from repro_gate.runs.arms import Arm
from repro_gate.runs.environment import EXTENSION, training_environment, without_probe
from repro_gate.runs.process import supervise
from repro_gate.sandbox.identity import Sandbox, chown_to_training, let_group_pass
from repro_gate.spec.model import Spec

ASK = Path(__file__).resolve().parent.parent / "probe"
ASK_SECONDS = 300.0  # importing torch from a cold network disk takes minutes
_Text = Annotated[str, Meta(max_length=4_096)]
_FACTS = msgspec.json.Decoder(Annotated[dict[_Text, _Text | int], Meta(max_length=200)])
_SAME_USER = Sandbox()
_PYTHON = re.compile(r"python[\d.]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_REMEDY = (
    "activate the environment that you train in, so that its `python` is first on PATH and has "
    "torch"
)


def interpreter_facts(
    spec: Spec, outer_environment: Mapping[str, str], sandbox: Sandbox = _SAME_USER
) -> dict[str, str]:
    """Return facts as in a trace, by name: `python`, `torch`, `device`, `threads` … Asked in the
    environment of a deterministic run.

    Raises Inconclusive where there is no interpreter, or it has no torch, or it gives no answer.
    """
    try:
        with scratch_folder() as folder:
            environment = prepared(spec, outer_environment, sandbox, folder)
            python = training_interpreter(spec, environment)
            ended = supervise(
                [python, str(ASK), "facts", EXTENSION or ""],
                cwd=folder / "empty",
                env=environment,
                timeout=ASK_SECONDS,
                sandbox=sandbox,
            )
    except OSError as error:
        raise _unanswered(
            f"the training's interpreter cannot be started: {error.strerror or error}"
        ) from None
    if ended.timed_out:
        raise _unanswered(f"{python} gave no answer in {ASK_SECONDS:g} s")
    lines = [line for line in reversed(ended.tail) if line.strip()]
    facts = next(filter(None, map(_facts, lines)), None)
    texts = (line.strip()[:300] for line in lines if not line.startswith("{"))
    said = next(texts, f"it ended with status {ended.exit_code}")
    if facts is None or ended.exit_code:
        raise _unanswered(f"{python} cannot say what it trains with: {said}")
    if "torch" not in facts:
        raise _unanswered(f"{python} has no torch: {said}")
    return facts


def prepared(
    spec: Spec, outer: Mapping[str, str], sandbox: Sandbox, folder: Path
) -> dict[str, str]:
    """Make folders for a process of the training's in `folder`, and return its environment: a
    deterministic run's, but for the probe, which has nothing to record here."""
    arm = arms.deterministic(
        spec.random_state.seeds[0], arms.allowed(spec), spec.train.steps
    )
    return unprobed(arm, outer, sandbox, folder, spec.train.env, spec.hardware.device)


def unprobed(
    arm: Arm,
    outer: Mapping[str, str],
    sandbox: Sandbox,
    folder: Path,
    train_env: Mapping[str, str],
    device: str | None,
) -> dict[str, str]:
    """Make folders for a process of the training's in `folder` (`home`, `tmp` and the `empty` one
    to start in), and return an arm's environment without the probe."""
    for name in ("home", "tmp", "empty"):
        (folder / name).mkdir()
    let_group_pass(sandbox, folder)
    chown_to_training(sandbox, *(folder / name for name in ("home", "tmp", "empty")))
    return without_probe(training_environment(outer, arm, train_env, folder, device))


def training_interpreter(spec: Spec, environment: Mapping[str, str]) -> str:
    """Return the Python that the command names, where it begins with one; else `python` on the
    training's PATH."""
    return interpreter_on(environment["PATH"], _named(spec.train.run or ""))


def interpreter_on(path: str, named: Sequence[str] = ()) -> str:
    """Return the first of these, else `python` or `python3`, on a PATH. Raises Inconclusive if
    there is none."""
    for name in dict.fromkeys([*named, "python", "python3"]):
        found = shutil.which(name, path=path)
        if found is not None:
            return os.path.abspath(found)
    raise Inconclusive(
        "the training's PATH has no `python`",
        remedy=_REMEDY,
        reason_id="config-hash/no-interpreter",
    )


def _named(command: str) -> list[str]:
    """Return `python3.11` of `FOO=1 exec python3.11 train.py`, as a list; empty if the command
    begins with something else."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return []
    first = next(
        (
            word
            for word in words
            if not _ASSIGNMENT.match(word) and word not in ("exec", "env")
        ),
        "",
    )
    is_python = _PYTHON.fullmatch(os.path.basename(first)) and (
        os.path.isabs(first) or os.sep not in first
    )
    return [first] if is_python else []


def _facts(line: str) -> dict[str, str] | None:
    """Return one line of output as facts, None if it is none."""
    try:
        found = _FACTS.decode(line)
    except (ValueError, RecursionError):
        return None
    return (
        {name: str(value) for name, value in found.items()}
        if "python" in found
        else None
    )


def _unanswered(message: str) -> Inconclusive:
    return Inconclusive(message, remedy=_REMEDY, reason_id="config-hash/no-facts")
