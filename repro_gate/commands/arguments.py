"""The arguments of every command, and the formats that a report is written in."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro_gate import __version__

_RAW = argparse.RawDescriptionHelpFormatter


@dataclass(frozen=True)
class Format:
    """A format of a report: the option that names its file, and what renders it in
    `repro_gate.report`."""

    option: str
    render: str
    about: str


FORMATS = (
    Format("json", "document:render", "write report.json"),
    Format("markdown", "markdown:comment", "write the Markdown of the PR comment"),
    Format("html", "html:render", "write a page for a browser, in one file"),
    Format(
        "sarif", "exports:sarif", "write the findings as SARIF 2.1.0, for code scanning"
    ),
    Format(
        "junit",
        "exports:junit",
        "write checklist and verdict as JUnit XML, for CI servers",
    ),
)
# what renders a catalog of operators in `ops.pages`
CATALOG_FORMATS = (
    Format("json", "json", "write the catalog"),
    Format("markdown", "md", "write what is printed as Markdown, every row of it"),
    Format("html", "html", "write it as a page for a browser, in one file"),
)
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
EPILOG = """exit codes:
  0  pass: the runs are bitwise identical, every required check passed, the cost is in its budget
  1  fail: the runs diverged, a required check failed, the cost is over its budget, or drift from the baseline
  2  usage: bad arguments, a bad spec or a bad baseline
  3  inconclusive: the training crashed, timed out or left no trace; the required device is missing; a declared artifact is missing
     or could not be copied, or nothing could be compared; cost.max-percent is set and the runs are too short to measure the cost"""  # noqa: E501

_EPILOG_OF_DIAGNOSE = """exit codes:
  0  the runs are bitwise identical: there is nothing to diagnose
  1  the runs diverged, whether or not a cause was found
  2  usage: bad arguments or a bad spec
  3  inconclusive: the training crashed or timed out, no trace arrived"""

_EPILOG_OF_SELFTEST = """exit codes:
  0  every fault that applies to the training was caught where it was put in
  1  a fault was not caught
  2  usage: bad arguments or a bad spec
  3  inconclusive: the clean runs diverge or crash, or a fault could not be put in"""

_EPILOG_OF_SHOW = """exit codes:
  0  the report was shown, whatever its verdict is: nothing was gated
  2  usage: bad arguments, a file that is no report, or one that cannot be written"""

_EPILOG_OF_OPS = """exit codes:
  0  the catalog is whole, or was shown, or the two were compared
  2  usage: bad arguments, or a file that is no catalog
  3  inconclusive: no torch, a control came out wrong, or interrupted"""


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


# An argument: how it stands on the command line, with its metavar (in capitals) if it has a value;
# its help; and what argparse is told besides.
_Argument = tuple[Any, ...]
_PATHS = ["A", "B", "CATALOG", "FILE", "FOLDER", "OLD", "PATH", "REPORT"]
_TYPES: dict[str, Any] = {"N": int, **dict.fromkeys(_PATHS, _path)}  # else _text
_OFTEN = {"action": "append", "default": []}
_OPTIONAL = {"nargs": "?", "default": "repro.yml"}
_SPEC = (
    "spec SPEC",
    "repro.yml, or the folder that holds it (default: repro.yml)",
    _OPTIONAL,
)
_SEED = "--seed N", "random-state.seed instead of the spec's"
_STEPS = "--steps N", "train.steps instead of the spec's"
_SET = (
    "--set KEY=VALUE",
    "any key of the spec, the value as YAML; may be given often",
    {"dest": "overrides", **_OFTEN},
)
_VERBOSE = "-v --verbose", "the whole report: every check, figure and run"
_NO_CACHE = "--no-cache", "hash all declared data anew, whatever is known of it"
_QUIET = "--quiet", "no progress, only the answer"


def _files(formats: Sequence[Format]) -> list[_Argument]:
    return [(f"--{form.option} FILE", form.about) for form in formats]


# command -> its help, what is printed around its arguments, the arguments
_COMMANDS: dict[str, tuple[str, dict[str, Any], list[_Argument]]] = {
    "run": (
        "gate the training that a repro.yml declares",
        {"epilog": EPILOG},
        [
            _SPEC,
            *_files(FORMATS),
            _SEED,
            _STEPS,
            _SET,
            (
                "--against REF",
                "gate that ref's checkout too, and say whether this one changes its bits",
            ),
            (
                "--base REF",
                (
                    "the ref that this change is to be merged into: the report lists the checks "
                    "that the change weakens"
                ),
            ),
            (
                "--policy",
                "whose spec judges; without it, what the base's own spec says under `policy`",
                {"choices": ("head", "base")},
            ),
            (
                "--fail-fast",
                (
                    "stop at the first divergence; what later runs measure, such as the cost, is "
                    "left out"
                ),
            ),
            (
                "--keep-traces FOLDER",
                "keep the traces of all runs there, for `repro-gate compare`",
            ),
            _VERBOSE,
            _NO_CACHE,
            _QUIET,
        ],
    ),
    "diagnose": (
        "find out by experiment why two deterministic runs diverge",
        {
            "description": "Two deterministic runs; where they diverge, further short runs that "
            "hold one thing after the other fixed.",
            "epilog": _EPILOG_OF_DIAGNOSE,
        },
        [
            _SPEC,
            _SEED,
            _STEPS,
            _SET,
            (
                "--json-lines FILE",
                "write each pair of runs as a line of JSON, with what differed",
            ),
            ("--quiet", "no progress, only the story and the answer"),
        ],
    ),
    "selftest": (
        "put faults into the training on purpose, and see whether the gate catches each",
        {
            "description": "Two clean runs, then one short run for each fault (a flipped bit, a "
            "racing operator …), compared as the gate does.",
            "epilog": _EPILOG_OF_SELFTEST,
        },
        [
            _SPEC,
            ("--json FILE", "write what was put in, and what was found, as JSON"),
            (
                "--only FAULT",
                f"one of {', '.join(FAULTS)}; may be given often",
                {"choices": FAULTS, **_OFTEN},
            ),
            (
                "--steps N",
                (
                    "optimizer steps of each run (default: 6, or as the spec has it where that is "
                    "fewer)"
                ),
                {"dest": "short"},
            ),
            _SEED,
            _SET,
            ("--quiet", "no progress, only the table"),
        ],
    ),
    "check": (
        "the checks that need no training, in a moment",
        {},
        [_SPEC, ("--json FILE", "write the results as JSON"), _NO_CACHE, _QUIET],
    ),
    "baseline": (
        "gate the training and record its config hash and its results in repro.baseline.yml",
        {},
        [_SPEC, _VERBOSE, _NO_CACHE, _QUIET],
    ),
    "hash": (
        "print the config hash and its inputs, or the inputs in which two differ",
        {},
        [
            (
                "target SPEC",
                "a spec or its folder, a report.json, or a repro.baseline.yml",
                _OPTIONAL,
            ),
            (
                "--diff",
                "two of these: name the inputs that changed",
                {"metavar": ("A", "B"), "nargs": 2, "type": _text},
            ),
            (
                "--json FILE",
                "write the config hash (with --diff: the inputs that changed) as JSON",
            ),
            _NO_CACHE,
            _QUIET,
        ],
    ),
    "show": (
        "print a report.json again",
        {
            "description": "Prints a report.json as the gate run that made it did, or writes it in "
            "another format.",
            "epilog": _EPILOG_OF_SHOW,
        },
        [
            (
                "report REPORT",
                "report.json, or the folder that holds it; nothing in it is believed",
            ),
            _VERBOSE,
            *_files(FORMATS[1:]),
        ],
    ),
    "compare": (
        "compare two reports, folders of traces or checkpoints",
        {},
        [
            ("a A", None),
            ("b B", None),
            ("--json FILE", "write the differences as JSON"),
            (
                "--python PYTHON",
                "interpreter with torch, to measure how far tensors of two checkpoints are apart",
                {"default": "python3"},
            ),
        ],
    ),
    "ops": (
        (
            "measure which torch operators repeat their bits on this machine, or show and compare "
            "such catalogs"
        ),
        {
            "description": "Executes each operator again and again, flags off and on, alone and "
            "beside other work, in two processes of the interpreter that you train in. With a "
            "CATALOG, shows that one instead.",
            "epilog": _EPILOG_OF_OPS,
        },
        [
            (
                "catalog CATALOG",
                "a file of --json: nothing is measured; nothing in it is believed",
                {"nargs": "?"},
            ),
            (
                "--compare OLD",
                "an older catalog: print what changed since; CATALOG or a new measurement",
            ),
            (
                "--device",
                "default: cuda where there is a GPU",
                {"choices": ("cpu", "cuda")},
            ),
            (
                "--only PATTERN",
                "cases with this in their name, or that fit it: `index`, `*pool*`, `opinfo/*`",
            ),
            (
                "--op MODULE:FUNCTION",
                "your own operator instead; may be given often",
                _OFTEN,
            ),
            (
                "--python PYTHON",
                "the interpreter that you train in (default: `python` on PATH)",
            ),
            *_files(CATALOG_FORMATS),
            ("-v --verbose", "every row of each table"),
            _QUIET,
        ],
    ),
    "comment": (
        "post a report.json, or those of a matrix as one table, as the comment of its pull request",
        {
            "description": "In a workflow_run job, for the run that the event names; elsewhere, "
            "with --repository and --pull-request. The token comes from GITHUB_TOKEN or GH_TOKEN."
        },
        [
            (
                "report REPORT",
                (
                    "report.json, or the folder that holds it; several are those of one commit's "
                    "matrix; nothing in them is believed: workflow, job and this path say which "
                    "comment it is"
                ),
                {"nargs": "+"},
            ),
            (
                "--when",
                "always, on failure, or when the finding changed",
                {"choices": ("always", "on-failure", "on-change"), "default": "always"},
            ),
            (
                "--repository OWNER/NAME",
                "the repository of the pull request",
            ),
            (
                "--pull-request N",
                "the pull request, whose head must be the commit of the report",
            ),
            (
                "--matrix NAME",
                (
                    "one table of the reports under this name, however many there are; several "
                    "reports are one without a name"
                ),
            ),
            ("--dry-run", "print the Markdown and post nothing"),
        ],
    ),
    "explain": (
        "print what a check, a cause or a reason of a report is about, why, and how to mend it",
        {},
        [
            (
                "id ID",
                "such as data/checksums or unseeded-rng; left out: list the checks",
                {"nargs": "?"},
            )
        ],
    ),
    "init": (
        "write a commented repro.yml for this checkout",
        {},
        [
            ("folder FOLDER", None, {"nargs": "?", "default": Path()}),
            ("--stdout", "print it instead of writing FOLDER/repro.yml"),
            (
                "--script PATH",
                "the script that trains; without it, the likeliest is taken",
            ),
            ("--force", "write it anew where there is one"),
        ],
    ),
    "schema": (
        "print the JSON Schema of repro.yml (or, with --report, of report.json)",
        {},
        [
            ("--report", "the schema of report.json"),
            (
                "--ops",
                "the schema of the catalog that `repro-gate ops --json` writes",
            ),
        ],
    ),
}


def parser() -> argparse.ArgumentParser:
    """Return the whole parser; what it gives has the command's name in `command`."""
    top = argparse.ArgumentParser(
        prog="repro-gate",
        description="Fails a pull request when training is not reproducible.",
        epilog=EPILOG,
        formatter_class=_RAW,
    )
    top.add_argument("--version", action="version", version=f"repro-gate {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, dest="command")
    for name, (about, around, arguments) in _COMMANDS.items():
        layout = _RAW if "epilog" in around else argparse.HelpFormatter
        command = commands.add_parser(
            name, help=about, formatter_class=layout, **around
        )
        for usage, text, *more in arguments:
            words = usage.split()
            reading = dict[str, Any](*more)
            if words[-1].isupper():
                metavar = words.pop()
                reading = {
                    "metavar": metavar,
                    "type": _TYPES.get(metavar, _text),
                    **reading,
                }
            command.add_argument(
                *words, help=text, **(reading or {"action": "store_true"})
            )
    return top
