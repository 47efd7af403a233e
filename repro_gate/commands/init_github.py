"""`repro-gate init --github`: writes the workflow that gates each pull request, by what it finds
here and in the checkout, and says what is left to do. On a terminal it asks one question at a time;
elsewhere it takes what it would propose."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from shutil import which

from repro_gate._version import DOCS_URL
from repro_gate.checkout.git import git_line
from repro_gate.commands import output
from repro_gate.commands.starting import checkout_at
from repro_gate.errors import GateError, UsageError
from repro_gate.escape import for_terminal
from repro_gate.files import Unreadable, read_text
from repro_gate.machine import gpu_devices

PLACE = ".github/workflows/repro-gate.yml"
# what says that the training has an image or an environment of its own
_OWN = ("Dockerfile", ".devcontainer/devcontainer.json", "environment.yml", "conda.yml")
_MAX_BYTES = 1024 * 1024
_IMAGE = re.compile(r'"image"\s*:\s*"([^"\s]+)"')
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_LABELS = re.compile(r"[\w.-]+(?:\s*,\s*[\w.-]+)*")
_REMOTE = re.compile(
    r"(?:https://|git@|ssh://git@)([\w.-]+)[/:]([\w.-]+)/([\w.-]+?)(?:\.git)?/?"
)
_HEAD = """\
# Written by `repro-gate init --github`; {docs}/start.md has other situations.
name: repro-gate

on:
  pull_request:

permissions: {{}}

concurrency: # after another push, only the newer commit is worth a run
  group: repro-gate-${{{{ github.ref }}}}
  cancel-in-progress: true

jobs:
  repro-gate:
"""
_CONTAINERS = """\
    runs-on: {runner}
    timeout-minutes: 60
    permissions:
      contents: read
      pull-requests: write # the comment
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
        with:
          fetch-depth: 0 # the base branch too: it shows which checks this change weakens
          persist-credentials: false # no token in .git/config, where training might read it
      - uses: repro-gate/repro-gate@v1
        with:
          policy: base # the base branch's repro.yml decides: merge one first
"""
_CALLED = """\
    permissions:
      contents: read
      pull-requests: write # the comment, in a job that runs nothing of the pull request
    uses: repro-gate/repro-gate/.github/workflows/gate.yml@v1
    with:
      runs-on: '["{labels}"]'
"""


def write_workflow(folder: Path, *, force: bool) -> None:
    """Write the workflow into the checkout of a folder, and print the three steps that are left.
    Raises UsageError if there is one already, or for an answer that is no label or image."""
    root = checkout_at(folder).root
    target = root / PLACE
    if not force and os.path.lexists(target):
        raise UsageError(
            f"{target}: already exists", remedy="write it anew with --force"
        )
    text = _workflow(root)
    target.parent.mkdir(parents=True, exist_ok=True)
    output.replace(target, text)
    site = "https://github.com/OWNER/NAME"
    with suppress(GateError, OSError):
        if found := _REMOTE.fullmatch(git_line(root, "remote", "get-url", "origin")):
            site = f"https://{found[1]}/{found[2]}/{found[3]}"
    print(f"wrote {target}")
    print("left to do:")
    print("  1. run `repro-gate run` here until it passes")
    print("  2. merge repro.yml, then the workflow, into the branch that is protected")
    # a workflow that is called names its own job
    check = "repro-gate / gate" if "gate.yml@" in text else "repro-gate"
    print(f"  3. require the check `{check}`: {for_terminal(site)}/settings/branches")


def _workflow(root: Path) -> str:
    slurm = which("sbatch") is not None
    proposed = (
        "self-hosted, slurm" if slurm else "self-hosted, gpu" if gpu_devices() else ""
    )
    labels = _asked(
        "labels of your runner", proposed or "ubuntu-latest", _LABELS
    ).split(",")
    head = _HEAD.format(docs=DOCS_URL)
    names = [label.strip() for label in labels]
    if slurm:
        return head + _CALLED.format(labels='", "'.join(names))
    runner = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
    text = head + _CONTAINERS.format(runner=runner)
    found = [name for name in _OWN if (root / name).is_file()]
    if not found:
        return text
    image = ""
    with suppress(Unreadable, OSError):
        named = _IMAGE.search(read_text(root / _OWN[1], root, _MAX_BYTES))
        image = named[1] if named and _NAME.fullmatch(named[1]) else ""
    image = _asked(f"image that you train in ({found[0]} is here)", image, _NAME)
    if image:
        return f"{text}          image: {image}\n"
    hint = f"# image: the one that {found[0]} makes, once it is in a registry"
    return f"{text}          {hint}\n"


def _asked(question: str, proposed: str, form: re.Pattern[str]) -> str:
    """Return the answer of a person, or what is proposed if there is none."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return proposed
    answer = input(f"{question} [{proposed or 'none yet'}]: ").strip() or proposed
    if answer and not form.fullmatch(answer):
        raise UsageError(f"{question}: {for_terminal(answer, 100)!r} is none")
    return answer
