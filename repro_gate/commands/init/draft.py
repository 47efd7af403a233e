"""The first `repro.yml` of a checkout: every key with one sentence, filled in with what was found
and honest about what was guessed.

Returns text and writes nothing; what it returns always loads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from repro_gate._version import DOCS_URL, SCHEMAS_URL
from repro_gate.commands.init.scripts import TrainingScript
from repro_gate.commands.init.survey import (
    MAX_HASHED_BYTES,
    MAX_LISTED,
    Tree,
    data_files,
    lockfiles,
    training_reads,
)
from repro_gate.escape import and_more, clip
from repro_gate.spec.document import scalar

_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+@%={} -]*")

_TEXT = f"""\
# yaml-language-server: $schema={SCHEMAS_URL}/spec/schema.json
# repro.yml, drafted by `repro-gate init`. It says what trains and what has to repeat; every key is described in
# {DOCS_URL}/repro-yml.md
# A line that is a comment and a key is a suggestion. Editors complete and explain keys by the first line's schema.@partly

# The version of the spec format.
version: 1

train:
  # Any command for the shell, unmodified; {{seed}} is filled in. (`snippet: |` with inline Python is the other way.)
@notes
  run: @run
  # The folder in which it starts, relative to this file.
  working-directory: @folder
  # Stop after this many optimizer steps; without this key it runs to the end.
  steps: 50
  # Steps at the start that are left out of the timing.
  warmup: 5
  # How long one run may take: 90s, 20m, 1.5h.
  timeout: 20m
  # Variables for the training process; of the surroundings only an allow-list is passed on.
  env: @variables

random-state:
  # Python, NumPy, torch (CPU and every CUDA device) and DataLoader workers get this seed@guess.
  seed: @seed
  # seeds: [1, 2, 3]      # in place of `seed`: gate the training once with each

determinism:
  # What counts as the same: every bit, or a tolerance such as {{loss: 1.0e-6, weights: 1.0e-5}}.
  compare: bitwise
  # Determinism flags that are left off, each as {{flag: …, reason: …}}.
  allow: []
  # Losses and parameters that are not finite from the first steps on fail, unless this is `true`.
  allow-nonfinite: false

capture:
  # Steps between digests: larger is faster, and finds a divergence less exactly.
  every: 1
  # Files that the training writes, as globs below the working directory: they are compared value by value after the run.
  # artifacts: [out/*.pt, out/metrics.json]

cost:
  # Runs without the flags measure what determinism costs, and the noise it removes; `false` leaves them out.
  measure: true
  # The gate fails if a step is slower by more than this many percent.
  # max-percent: 30

# The code under test is the checkout; there is nothing to set yet.
code: {{}}

# The files that training reads: verified, and linked read-only into the workspace of every run.
@data

# The lockfile that pins every package, and the container image that training runs in, by its digest.
@env
#   image: ghcr.io/org/train@sha256:…

# The device: `cuda`, or `cpu`, which hides the GPUs (left out: whatever the training picks); how many GPUs are needed; and which
# model the result holds for.
# hardware:
#   device: cuda
#   gpus: 1
#   gpu-model: H100

checklist:
  # `basic`: what is declared must be true, what is missing warns. `strict`: what is missing fails too.
  profile: basic
  # Checks that may fail for now, each as {{check: env/image-digest, reason: …, until: 2027-06-30}}.
  waive: []
"""  # noqa: E501


def draft_spec(
    directory: Path, tree: Tree, scripts: list[TrainingScript], doubt: Callable[[str], str | None]
) -> str:
    """The text of a commented `repro.yml` for the checkout at `directory`, whose first script is
    run. `doubt` says of a lockfile, by its path, why the environment was not built from it, or
    None."""
    script = scripts[0] if scripts else None
    read = training_reads(
        tree,
        PurePosixPath(script.path).parent.as_posix() if script else None,
        script.named if script else frozenset(),
    )
    variables = script.env if script else {}
    given = ", ".join(f"{name}: {_in_braces(value)}" for name, value in variables.items())
    filled = {
        "partly": ""
        if tree.complete
        else "\n\n# The checkout is large: only a part of it was looked at, so check what was "
        "picked below.",
        "notes": "\n".join(f"  # {line}" for line in _notes(scripts)),
        "run": yaml_text(script.run) if script else "python train.py",
        "folder": yaml_text(script.working_directory) if script else ".",
        "variables": f"{{{given}}}",
        "guess": " (the default of the script's own option)"
        if script and script.default_seed is not None
        else "",
        "seed": str(script.default_seed if script and script.default_seed is not None else 42),
        "data": _data(directory, tree, read),
        "env": _env({path: doubt(path) for path in lockfiles(directory, tree)}),
    }
    return re.sub(
        r"@(" + "|".join(filled) + r")\b(?!sha256)", lambda found: filled[found[1]], _TEXT
    )


def yaml_text(text: str) -> str:
    """A printable text as a YAML scalar that reads back as that very text: plain where that is
    safe, else in double quotes."""
    plain = (
        _PLAIN.fullmatch(text)
        and not text.endswith(" ")
        and scalar(text) == text
        and not re.fullmatch(r"[._]*[0-9][0-9._:+-]*", text)
    )
    # for readers that still follow YAML 1.1
    if plain and text.lower() not in (
        "yes",
        "no",
        "on",
        "off",
        "y",
        "n",
    ):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _notes(scripts: list[TrainingScript]) -> list[str]:
    """What was guessed about the command, and what a person should look at."""
    if not scripts:
        return ["FILL IN: no training script was found here; put the command that trains."]
    best, others = scripts[0], scripts[1:]
    notes = [f"Guessed: {best.path} ({', '.join(best.reasons) or 'by its name'})."]
    notes += [
        f"{'FILL IN' if best.missing and not number else 'Note'}: {_one_line(note)}."
        for number, note in enumerate(best.notes)
    ]
    also = ", ".join(other.path for other in others)
    return [
        *notes,
        *([f"Also possible, with `repro-gate init --script PATH`: {also}."] if also else []),
    ]


def _one_line(note: str) -> str:
    return clip("".join(letter if letter.isprintable() else " " for letter in note), 160)


def _data(directory: Path, tree: Tree, read: Callable[[str], bool]) -> str:
    found = data_files(directory, tree, read)
    if not found:
        return (
            "# None was found; name each, with the checksum from `sha256sum`.\n# data:\n#   - "
            "{path: data/train.bin, sha256: …}"
        )
    small, large = (
        [item for item in found if item.sha256],
        [item for item in found if not item.sha256],
    )
    lines = [
        (
            "# Guessed from what the script names, folders and suffixes: remove what training "
            "writes, or does not read."
        )
    ]
    lines.append("data:" if small else "# data:")
    lines += [f"  - {{path: {_in_braces(item.path)}, sha256: {item.sha256}}}" for item in small]
    if large:
        limit = f"{MAX_HASHED_BYTES // 2**20} MiB and {MAX_LISTED} files"
        lines.append(
            f"  # Not read here (limits: {limit}); add the checksum from `sha256sum` and uncomment:"
        )
    lines += [
        f"#   - {{path: {_in_braces(item.path)}, sha256: …}}  # {item.size:,} bytes"
        for item in large[:MAX_LISTED]
    ]
    more = and_more(len(large) - MAX_LISTED)
    return "\n".join([*lines, *([f"  # … {more}"] if more else [])])


def _in_braces(path: str) -> str:
    """A path for a flow mapping, where braces and `=` at a word's end have a meaning of their
    own."""
    written = yaml_text(path)
    return written if re.fullmatch(r"[A-Za-z0-9_./ -]+|\".*\"", written) else f'"{written}"'


def _env(locks: Mapping[str, str | None]) -> str:
    good = [path for path, doubt in locks.items() if doubt is None]
    lines = [
        f"# {path} is left out: {_one_line(doubt)}."
        for path, doubt in list(locks.items())[:5]
        if doubt
    ]
    if not locks:
        lines.append(
            "# No lockfile was found: `uv lock`, or `pip-compile --generate-hashes`, makes one."
        )
    lines += [f"# Also found: {_one_line(', '.join(good[1:]))}."] if good[1:] else []
    lines += (
        ["env:", f"  lockfile: {yaml_text(good[0])}"]
        if good
        else ["# env:", f"#   lockfile: {yaml_text(next(iter(locks), 'uv.lock'))}"]
    )
    return "\n".join(lines)
