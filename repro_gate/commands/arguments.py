"""The arguments of every command, and the formats that a report is written in."""
# ruff: noqa: E501  what a person reads is here as it is printed

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from repro_gate import __version__

# option of a format of a report -> what renders it in `repro_gate.report`
FORMATS = {
    "json": "document:render",
    "markdown": "markdown:comment",
    "html": "html:render",
    "sarif": "exports:sarif",
    "junit": "exports:junit",
    "badge": "exports:badge",
}
# What `selftest` puts in; `gate.faults` says what each is.
FAULTS = (
    "weight",
    "optimizer",
    "batch",
    "buffer",
    "generator",
    "race",
    "flag",
    "checkpoint",
)
_EPILOGS = {
    "run": """exit codes:
  0  pass: the runs are bitwise identical, every required check passed, the cost is in its budget
     with --only diagnosis: the runs are bitwise identical, so there is nothing to diagnose
     recorded: with --record the run ended well and no check failed; nothing was compared
  1  fail: the runs diverged, a required check failed, the cost is over its budget, drift from the baseline,
     or a change that is too large (baseline.on-change) or worse (effect.fail)
  2  usage: bad arguments, a bad spec or a bad baseline
  3  inconclusive: the training crashed, timed out or left no trace; the required device is missing; a declared artifact is missing
     or could not be copied, or nothing could be compared; cost.max-percent is set and the runs are too short to measure the cost""",
    "selftest": """exit codes:
  0  every fault that applies to the training was caught where it was put in
  1  a fault was not caught
  2  usage: bad arguments or a bad spec
  3  inconclusive: the clean runs diverge or crash, or a fault could not be put in""",
    "show": """exit codes:
  0  the report was shown, whatever its verdict is: nothing was gated
  2  usage: bad arguments, a file that is no report, or one that cannot be written""",
    "compare": """exit codes:
  0  the same; of two config hashes: the same inputs; of many reports: all nodes agree
  1  different; of many reports: a node differs from the others, or from itself
  2  usage: a path that cannot be read, or reports of different recipes
  3  inconclusive: tensors were digested in two ways; of many reports: all agree that have a result, and a node has none""",
    "ops": """exit codes:
  0  the operators were measured
  2  usage: bad arguments, a bad spec, or a file without operators
  3  inconclusive: the training crashed or recorded no operator, no torch, or a control came out wrong""",
}  # fmt: skip
# Each command with its help, its description if it has one, and its arguments. What an argument
# takes is in capitals: `?` if it may be left out, `+` if there may be several, `*` if the option may
# be given often; bars stand between values to choose from. Where an argument has no help, it is that
# of the first command which takes the same.
_COMMANDS = """
run  gate the training that a repro.yml declares
  spec SPEC?  repro.yml, or the folder that holds it (default: repro.yml)
  --json FILE  write report.json
  --markdown FILE  write the Markdown of the PR comment
  --html FILE  write a page for a browser, in one file
  --sarif FILE  write the findings as SARIF 2.1.0, for code scanning
  --junit FILE  write checklist and verdict as JUnit XML, for CI servers
  --badge FILE  write the verdict as the JSON that shields.io's endpoint badge reads
  --seed N  random-state.seed instead of the spec's
  --steps N  train.steps instead of the spec's
  --set KEY=VALUE*  any key of the spec, the value as YAML; may be given often
  --against REF  gate that ref's checkout too, and say how large the change is: rounding, seed noise, or an effect
  --against-env ENV  gate the same code in another environment too, and say what differs: a lockfile, or an interpreter
  --seeds N  effect.seeds instead of the spec's: what the change does to the metrics, over so many seeds
  --bisect  for `git bisect run`, with --against: exit 0 where the results are that ref's, 1 where not, 125 where nobody can tell
  --size |rounding|within-seed-noise  with --bisect: a change of this size is none
  --base REF  the ref that this change is to be merged into: the report lists the checks that the change weakens
  --policy |head|base  whose spec judges; without it, what the base's own spec says under `policy`
  --quick  a first look: two runs and one of 2 steps with another seed; no cost, no noise floor, no diagnosis
  --fail-fast  stop at the first divergence; what later runs measure, such as the cost, is left out
  --only |resume|equivalent|diagnosis  resume, equivalent: one pair of runs and this section of the spec, no cost, no surroundings that vary; diagnosis: the deterministic runs, and why they diverge, told as it is found out; no report
  --json-lines FILE  with --only diagnosis: write each pair of runs as a line of JSON, with what differed
  --operators  measure the operators of the training too: which make the cost, which give other bits (`operators` of the spec)
  --record  one run with the flags on and its fingerprint, to compare machines: nothing is compared here
  --scratch FOLDER  an existing folder for the workspaces and traces of the runs, which all nodes see where the training runs on several (default: `scratch` of the spec, else TMPDIR)
  --keep-traces FOLDER  keep the traces of all runs there, for `repro-gate compare`
  -v --verbose  the whole report: every check, figure and run
  --no-cache  hash all declared data anew, whatever is known of it
  --quiet  no progress, only the answer

selftest  put faults into the training on purpose, and see whether the gate catches each
  Two clean runs, then one short run for each fault (a flipped bit, a racing operator …), compared as the gate does.
  spec SPEC?
  --json FILE  write what was put in, and what was found, as JSON
  --only FAULT*  one of {faults}; may be given often
  --steps N  optimizer steps of each run (default: 6, or as the spec has it where that is fewer)
  --seed N
  --set KEY=VALUE*
  --scratch FOLDER
  --quiet  no progress, only the table

check  the checks that need no training, in a moment
  spec SPEC?
  --inputs  no checks: print the config hash of the checkout on this machine, and its inputs
  --json FILE  write the results as JSON; with --inputs the config hash
  --no-cache
  --quiet

baseline  gate the training and record its config hash and its results in repro.baseline.yml
  spec SPEC?
  --seeds N
  -v --verbose
  --no-cache
  --quiet

show  print a report.json again
  Prints a report.json as the gate run that made it did, or writes it in another format.
  report REPORT  report.json, or the folder that holds it; nothing in it is believed
  -v --verbose
  --markdown FILE
  --html FILE
  --sarif FILE
  --junit FILE
  --badge FILE

compare  compare two reports, baselines, folders of traces or checkpoints; or the reports of many nodes
  Two paths: what differs. Three or more, or with --markdown, --html or --nodes: which node computes other bits than most.
  paths PATH+  two reports, folders or files; two files that carry a config hash (a baseline, a report, what `check --inputs --json` wrote), of which the inputs are compared; or any number of reports of one recipe, a node's each
  --nodes N  how many nodes there should be: one without a report counts as one without a result
  --json FILE  write the differences as JSON
  --markdown FILE  write the table of all nodes as Markdown
  --html FILE  write the table of all nodes as a page for a browser
  --python PYTHON  interpreter with torch, to measure how far tensors of two checkpoints are apart

ops  measure the operators of a training with its own shapes: what they cost, and which give other bits
  A few runs of the training, of which one records its operators; then each is executed again and again in a fresh process, flags off and on, alone and beside other work.
  spec SPEC?
  --known  no training: about 40 calls that torch documents as nondeterministic or as raising
  --op MODULE:FUNCTION*  no training: your own operator; may be given often
  --compare OLD  what changed since an older file of --json, or a report.json with operators; nothing in it is believed
  --seconds N  about how long is measured (default: `operators.seconds` of the spec, else 60)
  --python PYTHON  for --known and --op: the interpreter that you train in (default: `python` on PATH)
  --set KEY=VALUE*
  --scratch FOLDER
  --json FILE  write what was measured as JSON
  -v --verbose  every row of the table
  --quiet

comment  post a report.json, or those of a matrix as one table, as the comment of its pull request
  In a workflow_run job, for the run that the event names; elsewhere, with --repository and --pull-request. The token comes from GITHUB_TOKEN or GH_TOKEN.
  report REPORT+  report.json, or the folder that holds it; several are those of one commit's matrix; nothing in them is believed: workflow, job and this path say which comment it is
  --when |always|on-failure|on-change  always, on failure, or when the finding changed
  --repository OWNER/NAME  the repository of the pull request
  --pull-request N  the pull request, whose head must be the commit of the report
  --matrix NAME  one table of the reports under this name, however many there are; several reports are one without a name
  --dry-run  print the Markdown and post nothing

explain  print what a check, a cause or a reason of a report is about, why, and how to mend it
  id ID?  such as data/checksums or unseeded-rng; left out: list the checks

init  write a commented repro.yml for this checkout
  folder FOLDER?
  --stdout  print it instead of writing FOLDER/repro.yml
  --script PATH  the script that trains; without it, the likeliest is taken
  --github  write the workflow for pull requests too, by what is found here; a repro.yml that is there is kept
  --force  write it anew where there is one

schema  print the JSON Schema of repro.yml or of report.json
  format |spec|report?  repro.yml (the default), or report.json
"""


def _text(value: str) -> str:
    """Return an argument as it is given. An empty one is a variable that was not set: raise
    ArgumentTypeError."""
    if not value:
        raise argparse.ArgumentTypeError("is empty: is a variable not set?")
    return value


def _path(value: str) -> Path:
    """Return an argument as a path. Raise ArgumentTypeError for an empty one, which would be the
    current folder."""
    return Path(_text(value))


_PATHS = ("FILE", "FOLDER", "OLD", "PATH", "REPORT")
_TYPES: dict[str, Any] = {"N": int, **dict.fromkeys(_PATHS, _path)}  # else _text
_MARKS: dict[str, dict[str, Any]] = {
    "?": {"nargs": "?"},
    "+": {"nargs": "+"},
    "*": {"action": "append", "default": []},
}
_MORE: dict[str, dict[str, Any]] = {
    "SPEC": {"default": "repro.yml"},
    "FAULT": {"choices": FAULTS},
    "KEY=VALUE": {"dest": "overrides"},
    "|spec|report": {"default": "spec"},
    "|always|on-failure|on-change": {"default": "always"},
}


def parser() -> argparse.ArgumentParser:
    """Return the whole parser; what it gives has the command's name in `command`."""
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="repro-gate",
        description="Fails a pull request when training is not reproducible.",
        epilog=_EPILOGS["run"],
        formatter_class=raw,
    )
    top.add_argument("--version", action="version", version=f"repro-gate {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, dest="command")
    known: dict[str, str] = {}
    for block in _COMMANDS.format(faults=", ".join(FAULTS)).strip().split("\n\n"):
        head, *lines = block.split("\n  ")
        name, about = head.split(maxsplit=1)
        command = commands.add_parser(name, help=about)
        if name in _EPILOGS:
            command.epilog = _EPILOGS[name]
            command.formatter_class = raw
        if lines[0][0].isupper():
            command.description = lines.pop(0)
        for line in lines:
            usage, _, text = line.partition("  ")
            known.setdefault(usage, text)
            names, reading = _argument(usage)
            command.add_argument(*names, help=text or known[usage] or None, **reading)
    return top


def _argument(usage: str) -> tuple[list[str], dict[str, Any]]:
    """Return the names of an argument, and what argparse is to do with its value."""
    *names, last = usage.split()
    value = last.rstrip("?+*")
    more = {**_MARKS.get(last[len(value) :], {}), **_MORE.get(value, {})}
    if "|" in value:
        return names, {"choices": value.split("|")[1:], **more}
    if value.isupper():
        return names, {"metavar": value, "type": _TYPES.get(value, _text), **more}
    return [*names, last], {"action": "store_true"}
