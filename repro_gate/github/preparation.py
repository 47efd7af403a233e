"""What the action decides and prepares around the container that trains: whether that can work at
all, before its image is pulled; the packages of `env.install`, where there is a network; and
whether the image has a Python to train with. `entrypoint` starts the containers.
"""

from __future__ import annotations

import os
import posixpath
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from repro_gate._version import DOCS_URL
from repro_gate.checkout.inspection import inspect_checkout
from repro_gate.checkout.refs import export
from repro_gate.errors import Inconclusive, UsageError, obeyed
from repro_gate.escape import for_terminal
from repro_gate.files import scratch_folder
from repro_gate.gate.base_policy import effective_policy
from repro_gate.gate.evidence import GPUS_VARIABLE
from repro_gate.gate.options import Options
from repro_gate.gate.resolve import other_ref
from repro_gate.github import workflow
from repro_gate.github.report_folder import cache_folder
from repro_gate.github.settings import Inputs, Job
from repro_gate.install.install import environments_root, installed
from repro_gate.report.progress import Lines
from repro_gate.runs.interpreter import interpreter_on
from repro_gate.sandbox.confinement import confined
from repro_gate.sandbox.selection import choose
from repro_gate.sandbox.start import command
from repro_gate.spec.loader import load_spec
from repro_gate.spec.model import Spec

# set by `entrypoint`: the paths that are mounted read-only, one a line, and the input `python`
VOLUMES = "REPRO_GATE_VOLUMES"
PYTHON = "REPRO_GATE_PYTHON"
_SECONDS = 60.0
_PAGE = f"{DOCS_URL}/action.md"
# Alpine's Python names its C library in one of these.
_ASK = """
import sys, sysconfig
names = "HOST_GNU_TYPE", "MULTIARCH", "SOABI"
print(*sys.version_info[:2], "musl" in str(sysconfig.get_config_vars(*names)))
"""


def begun(
    inputs: Inputs, job: Job, environment: Mapping[str, str]
) -> tuple[Spec, Options]:
    """Return the checkout's own spec, and the options of its gate run. The working directory is the
    workspace. Raises UsageError for a spec with mistakes."""
    # relative to the workspace: how the report, the comment's marker and annotations name it
    name = inputs.spec
    if os.path.isdir(name):
        name = os.path.join(name, "repro.yml")
    spec = load_spec(Path(name), inputs.overrides)
    cache = None
    if inputs.cache is not None:
        cache = job.workspace / inputs.cache
        environment = {**environment, "XDG_CACHE_HOME": str(cache)}
    return spec, Options(
        spec_as_given=name,
        overrides=inputs.overrides,
        base=inputs.base,
        policy=inputs.policy,
        against=inputs.against,
        cache_root=cache,
        environment=environment,
        sandbox=choose(environment),
    )


def plan(inputs: Inputs, job: Job, environment: Mapping[str, str]) -> None:
    """Write the step's outputs `run` (true), `install` (whether packages have to be installed) and
    `device` (what the spec requires). Raises GateError for what cannot work on this host."""
    if inputs.cache and posixpath.isabs(inputs.cache):
        raise UsageError(
            f"cache: `{inputs.cache}` is outside the workspace, and so outside the container",
            remedy="name a folder of the workspace, which actions/cache restores",
            reason_id="action/input",
        )
    written, options = begun(inputs, job, environment)
    specs = [spec for spec, _ in _specs(written, options)]
    device = specs[0].hardware.device or ""
    _require_gpus(device, environment)
    for spec in specs:
        _require_data(spec, job.workspace, environment)
    install = any(spec.env.install for spec in specs)
    outputs = {"run": "true", "install": str(install).lower(), "device": device}
    workflow.write_outputs(job.output_file, outputs)


def install(inputs: Inputs, job: Job, environment: Mapping[str, str]) -> None:
    """Install everything once, so that the gate, which has no network, finds it in the cache, and
    write the output `installed`. Nothing of the training is started. Raises GateError."""
    written, options = begun(inputs, job, environment)
    options = with_python(options)
    root = inspect_checkout(written.path.parent).root
    outer, sandbox, cache = options.environment, options.sandbox, options.cache_root
    with (
        cache_folder(cache, job.workspace),
        scratch_folder() as scratch,
        # what is built must not read the checkout, which may hold a credential
        confined(sandbox, outer, root, [], [environments_root(outer, cache, sandbox)]),
        closing(Lines(sys.stderr, github=True)) as watch,
        obeyed(),
    ):
        for spec, commit in _specs(written, options):
            place, path = root, spec.path
            if commit:
                place = export(root, commit, scratch / commit).root
                path = place / os.path.relpath(os.path.realpath(spec.path), root)
            with installed(
                replace(spec, path=path),
                place,
                outer,
                sandbox,
                cache_root=cache,
                tell=watch.said,
            ):
                pass
    workflow.write_outputs(job.output_file, {"installed": "true"})


def _specs(written: Spec, options: Options) -> Iterator[tuple[Spec, str]]:
    """Yield the spec that judges, and that of `against` with its commit."""
    checkout = inspect_checkout(written.path.parent)
    spec = effective_policy(written, checkout, options).spec
    yield spec, ""
    if other := other_ref(spec, checkout, options):
        yield other.spec, other.commit


def _require_gpus(device: str, environment: Mapping[str, str]) -> None:
    """Raise Inconclusive where training would have no GPU and should."""
    given = environment.get(GPUS_VARIABLE, "")
    if given.startswith("refused") and device != "cpu":
        why = "this host has a GPU that its container engine cannot give to a container"
    elif device == "cuda" and given.startswith("none"):
        why = (
            f"hardware.device: cuda is required, and the container gets no GPU: {given}"
        )
    else:
        return
    raise Inconclusive(
        why,
        remedy="install the NVIDIA Container Toolkit and let it configure the engine "
        f"({DOCS_URL}/preflight.md#preflightdevice); to train on the CPU: `gpus: none`",
        reason_id="preflight/device",
    )


def _require_data(spec: Spec, workspace: Path, environment: Mapping[str, str]) -> None:
    """Raise UsageError for declared data that the container would not see."""
    volumes = environment.get(VOLUMES, "").splitlines()
    for item in spec.data:
        path = os.path.normpath(spec.path.parent / item.path)
        seen = (os.path.realpath(workspace), *volumes)
        if os.path.isabs(item.path) and not any(map(Path(path).is_relative_to, seen)):
            raise UsageError(
                f"data: {for_terminal(item.path, 200)} is outside the workspace and in no volume",
                remedy=f"add it to the step's `with:`, under `volumes: |`: {os.path.dirname(path)}",
                reason_id="action/volume",
            )


def with_python(options: Options) -> Options:
    """Return the options with the folder of the input `python` first on PATH. Raises Inconclusive
    unless the image has a Python that can be watched. It is asked as the training's user."""
    environment = options.environment
    chosen = environment.get(PYTHON, "")
    path = environment.get("PATH", os.defpath)
    if chosen:
        path = f"{os.path.dirname(chosen)}{os.pathsep}{path}"
    environment = {**environment, "PATH": path}
    python = chosen or interpreter_on(path)
    argv, started = command(
        options.sandbox, [python, "-I", "-S", "-c", _ASK], {"PATH": path}
    )
    why = "gives no answer"
    try:
        done = subprocess.run(
            argv,
            env=started,
            cwd="/",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
        lines = done.stderr.split("\n")
        why = f"cannot be started: {['it said nothing', *filter(None, lines)][-1]}"
        major, minor, musl = done.stdout.split()
        if musl == "True":
            why = "was built for musl, and torch is built for glibc alone"
        elif (int(major), int(minor)) < (3, 9):
            why = f"is Python {major}.{minor}, and 3.9 or newer is needed"
        else:
            return replace(options, environment=environment)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = f"{why} ({error})" if isinstance(error, OSError) else why
    raise Inconclusive(
        f"the image's {for_terminal(python, 200)} {for_terminal(why, 300)}",
        remedy="train in an image of Debian, Ubuntu or Red Hat with Python 3.9 or newer; "
        f"where it is not on PATH, name it: `python: /opt/conda/envs/train/bin/python` ({_PAGE})",
        reason_id="action/python",
    )
