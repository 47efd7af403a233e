"""A composite action's steps, started as GitHub's runner starts them: expressions in `env`, the
script in a file, bash with `-eo pipefail`.

It knows the two kinds of expression that our actions use in `env`, and fails on any other.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"container": "", "native": "native", "comment": "comment"}
ACTIONS = {name: ROOT / folder / "action.yml" for name, folder in FOLDERS.items()}
_EXPRESSION = re.compile(
    r"\$\{\{ (?:inputs\.(?P<input>\w+)|steps\.(?P<step>\w+)\.outputs\.(?P<output>[\w-]+)) \}\}"
)


def load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(ACTIONS[name].read_text(encoding="utf-8"))
    return document


def steps(name: str) -> dict[str, dict[str, Any]]:
    """The steps of a composite action by id; one without an id by `#` and its place."""
    found = enumerate(load(name)["runs"]["steps"])
    return {step.get("id", f"#{place}"): step for place, step in found}


@dataclass
class Job:
    """One job of a runner in `folder`: its workspace, its files for commands, and the outputs of
    the steps that have run.

    `environment` is that of the next step: what a step wrote to GITHUB_ENV is in it. `start`: what
    stands before `bash`.
    """

    folder: Path
    environment: dict[str, str]
    action_path: Path
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    start: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("workspace", "temp", "commands"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "event.json").write_text("{}")

    def run(
        self, action: str, step: str, inputs: Mapping[str, str], **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run one step; `inputs` as in `with:`, the others have their defaults."""
        known = load(action)["inputs"].items()
        given = {**{name: str(item["default"]) for name, item in known}, **inputs}
        return self.run_step(step, steps(action)[step], given, **environment)

    def run_step(
        self, step: str, chosen: Mapping[str, Any], given: Mapping[str, str], **environment: str
    ) -> subprocess.CompletedProcess[str]:
        names = ("ENV", "PATH", "OUTPUT", "STEP_SUMMARY")
        files = {name: self.folder / "commands" / f"{step}_{name}" for name in names}
        for file in files.values():
            file.write_text("")
        script = self.folder / "temp" / f"{step}.sh"
        script.write_text(chosen["run"])
        own = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(self.action_path),
            "GITHUB_WORKSPACE": str(self.folder / "workspace"),
            "GITHUB_EVENT_PATH": str(self.folder / "event.json"),
            "RUNNER_TEMP": str(self.folder / "temp"),
            **{f"GITHUB_{name}": str(file) for name, file in files.items()},
        }
        for name, value in chosen.get("env", {}).items():
            own[name] = self._expanded(str(value), given)
        ended = subprocess.run(
            [*self.start, "bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.folder / "workspace",
            env={**self.environment, **own, **environment},
            capture_output=True,
            text=True,
            timeout=600,  # a venv on a busy machine takes minutes
            check=False,
        )
        self.outputs[step] = pairs(files["OUTPUT"].read_text())
        self.environment |= pairs(files["ENV"].read_text())
        return ended

    def command_file(self, step: str, name: str) -> str:
        """What a step left in one of the runner's files: `ENV`, `PATH`, `OUTPUT`,
        `STEP_SUMMARY`."""
        return (self.folder / "commands" / f"{step}_{name}").read_text()

    def _expanded(self, text: str, inputs: Mapping[str, str]) -> str:
        def value(found: re.Match[str]) -> str:
            if found["input"]:
                return inputs[found["input"]]
            return self.outputs.get(found["step"], {}).get(found["output"], "")

        expanded = _EXPRESSION.sub(value, text)
        assert "${{ steps" not in expanded and "${{ inputs" not in expanded, text
        return expanded


def pairs(text: str) -> dict[str, str]:
    """What the runner reads from GITHUB_OUTPUT and GITHUB_ENV: lines end at LF only; `name=value`,
    or `name<<END`, lines, `END`. It fails at any other line, and where there is no end."""
    found, lines = {}, iter(text.split("\n"))
    for line in filter(None, lines):
        name, sign, rest = re.split(r"(=|<<)", line, maxsplit=1)
        value = [rest] if sign == "=" else []
        while sign == "<<" and (part := next(lines)) != rest:
            value.append(part)
        found[name] = "\n".join(value)
    return found
