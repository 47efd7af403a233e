"""Asks the training's interpreter questions outside of any run: its versions and device, the
content of artifacts, the behaviour of operators.

The interpreter and its packages belong to the training, so the answer is untrusted: it is decoded
line by line as one type, within limits, and all processes that it leaves running are ended.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import psutil
from msgspec import Meta

from repro_gate.errors import Inconclusive
from repro_gate.files import scratch_folder
from repro_gate.runs import arms
from repro_gate.runs.arms import Arm
from repro_gate.runs.environment import EXTENSION, Variables, training_environment
from repro_gate.runs.process import Ended, supervise
from repro_gate.sandbox.identity import Sandbox, chown_to_training, let_group_pass
from repro_gate.spec.model import Spec

ASK = Path(__file__).resolve().parent.parent / "probe"
ASK_SECONDS = 300.0  # Importing torch from a slow network disk can take minutes.
MAX_LINE, MAX_ANSWER = 1 << 20, 128 << 20  # bytes
_Text = Annotated[str, Meta(max_length=4_096)]
_FACTS = msgspec.json.Decoder(Annotated[dict[_Text, _Text | int], Meta(max_length=200)])
_Row = TypeVar("_Row")
# by its name alone, or its absolute path
_PYTHON = re.compile(r"(?:/.*/)?python[\d.]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_REMEDY = (
    "activate the environment that you train in, so that its `python` is first on PATH and has "
    "torch"
)


@dataclass(frozen=True)
class Interpreter:
    """The training's Python, its environment and user, and a folder with a subfolder `empty` to
    start in."""

    python: str
    environment: Variables
    sandbox: Sandbox
    folder: Path


class NoAnswer(Exception):
    """The interpreter's output is not a valid answer; the message says why."""


def ask(
    interpreter: Interpreter,
    program: Sequence[str],
    request: Mapping[str, object],
    decoder: msgspec.json.Decoder[_Row],
    take: Callable[[_Row], None],
    *,
    seconds: float = inf,
) -> Ended:
    """Start a program with a request, pass each line of its answer to `take`, and return how it
    ended. Raises OSError if the program cannot be started, NoAnswer for an invalid line.
    """
    # A new folder each time: the previous one belongs to the training's user.
    folder = Path(tempfile.mkdtemp(prefix="asked-", dir=interpreter.folder))
    path = folder / "answer.jsonl"
    question = folder / "request.json"
    whole = {**request, "extension": EXTENSION, "answer": str(path)}
    question.write_text(json.dumps(whole), encoding="utf-8")
    # Open it before its new owner can replace the name by another file.
    with path.open("x+b") as file:
        chown_to_training(interpreter.sandbox, folder)

        def look(_: list[psutil.Process]) -> None:
            while text := file.readline(MAX_LINE):
                if len(text) == MAX_LINE or file.tell() > MAX_ANSWER:
                    raise NoAnswer("it is too long")
                if not text.endswith(b"\n"):
                    # the last line is not complete yet
                    file.seek(-len(text), os.SEEK_CUR)
                    break
                try:
                    row = decoder.decode(text)
                except (ValueError, RecursionError) as error:
                    raise NoAnswer(str(error)[:200]) from None
                take(row)

        ended = supervise(
            [interpreter.python, *program, str(question)],
            cwd=interpreter.folder / "empty",
            env=interpreter.environment,
            timeout=seconds,
            tick=look,
            sandbox=interpreter.sandbox,
        )
        look([])
    return ended


def interpreter_facts(
    spec: Spec, outer_environment: Variables, sandbox: Sandbox
) -> dict[str, str]:
    """Return the facts that a trace has, by name (`python`, `torch`, `device`, `threads` …), as in
    the environment of a deterministic run. Raises Inconclusive if there is no interpreter, if it
    has no torch, or if it does not answer.
    """
    facts = dict[str, str | int]()
    python = "the training's interpreter"
    try:
        with scratch_folder() as folder:
            environment = prepared(spec, outer_environment, sandbox, folder)
            python = training_interpreter(spec, environment)
            ended = ask(
                Interpreter(python, environment, sandbox, folder),
                (str(ASK), "facts"),
                {},
                _FACTS,
                facts.update,
                seconds=ASK_SECONDS,
            )
    except OSError as error:
        problem = f"cannot be started: {error.strerror or error}"
    except NoAnswer as error:
        problem = f"gave no answer that can be used: {error}"
    else:
        why = ended.last_line or f"it ended with status {ended.exit_code}"
        if ended.timed_out:
            problem = f"gave no answer in {ASK_SECONDS:g} s"
        elif "python" not in facts or ended.exit_code:
            problem = f"cannot say what it trains with: {why}"
        elif "torch" not in facts:
            problem = f"has no torch: {why}"
        else:
            return {name: str(value) for name, value in facts.items()}
    raise Inconclusive(
        f"{python} {problem}", remedy=_REMEDY, reason_id="config-hash/no-facts"
    )


def prepared(
    spec: Spec, outer: Variables, sandbox: Sandbox, folder: Path
) -> dict[str, str]:
    """Make folders in `folder` for a process of the training, and return its environment: that of a
    deterministic run, without the probe."""
    arm = arms.deterministic(spec.seed, arms.allowed(spec), spec.train.steps)
    return unprobed(arm, outer, sandbox, folder, spec.train.env, spec.hardware.device)


def unprobed(
    arm: Arm,
    outer: Variables,
    sandbox: Sandbox,
    folder: Path,
    train_env: Variables,
    device: str | None,
) -> dict[str, str]:
    """Make folders in `folder` for a process of the training (`home`, `tmp`, and `empty` to start
    in), and return an arm's environment without the probe."""
    folders = [folder / name for name in ("home", "tmp", "empty")]
    for made in folders:
        made.mkdir()
    let_group_pass(sandbox, folder)
    chown_to_training(sandbox, *folders)
    return training_environment(outer, arm, train_env, folder, device, probed=False)


def training_interpreter(spec: Spec, environment: Variables) -> str:
    """Return the Python with which the command begins (`python3.11` for `FOO=1 exec python3.11
    train.py`), else `python` on the training's PATH."""
    words = []
    with suppress(ValueError):
        words = shlex.split(spec.train.run or "", comments=True)
    while words and (_ASSIGNMENT.match(words[0]) or words[0] in ("exec", "env")):
        words.pop(0)
    return interpreter_on(environment["PATH"], [*filter(_PYTHON.fullmatch, words[:1])])


def interpreter_on(path: str, names: Sequence[str] = ()) -> str:
    """Return the first of these, else `python` or `python3`, on a PATH. Raises Inconclusive if
    there is none."""
    for name in (*names, "python", "python3"):
        found = shutil.which(name, path=path)
        if found is not None:
            return os.path.abspath(found)
    raise Inconclusive(
        "the training's PATH has no `python`",
        remedy=_REMEDY,
        reason_id="config-hash/no-interpreter",
    )
