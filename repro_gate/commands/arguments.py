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
  3  inconclusive: no torch, a control came out wrong, or interrupted (the same command goes on where it stopped)"""  # noqa: E501


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


def _as_path(shown: str, **more: Any) -> dict[str, Any]:
    return {"metavar": shown, "type": _path, **more}


def _as_text(shown: str, **more: Any) -> dict[str, Any]:
    return {"metavar": shown, "type": _text, **more}


_Argument = tuple[str, dict[str, Any], str | None]
_FILE, _NUMBER, _SWITCH = (
    _as_path("FILE"),
    {"metavar": "N", "type": int},
    {"action": "store_true"},
)
_OFTEN = {"action": "append", "default": []}
_OPTIONAL_SPEC = _as_text("SPEC", nargs="?", default="repro.yml")
_SPEC = (
    "spec",
    _OPTIONAL_SPEC,
    "repro.yml, or the folder that holds it (default: repro.yml)",
)


def _files(formats: Sequence[Format]) -> list[_Argument]:
    return [(f"--{form.option}", _FILE, form.about) for form in formats]


_SEED = "--seed", _NUMBER, "random-state.seed instead of the spec's"
_STEPS = "--steps", _NUMBER, "train.steps instead of the spec's"
_SET: _Argument = (
    "--set",
    {"metavar": "KEY=VALUE", "dest": "overrides", **_OFTEN},
    "any key of the spec, the value as YAML; may be given often",
)
_VERBOSE = "-v --verbose", _SWITCH, "the whole report: every check, figure and run"
_NO_CACHE = (
    "--no-cache",
    _SWITCH,
    "hash all declared data anew, whatever is known of it",
)
_QUIET = "--quiet", _SWITCH, "no progress, only the answer"
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
                "--against",
                _as_text("REF"),
                "gate that ref's checkout too, and say whether this one changes its bits",
            ),
            (
                "--base",
                _as_text("REF"),
                (
                    "the ref that this change is to be merged into: the report lists the checks "
                    "that the change weakens"
                ),
            ),
            (
                "--policy",
                {"choices": ("head", "base")},
                "whose spec judges; without it, what the base's own spec says under `policy`",
            ),
            (
                "--fail-fast",
                _SWITCH,
                (
                    "stop at the first divergence; what later runs measure, such as the cost, is "
                    "left out"
                ),
            ),
            (
                "--keep-traces",
                _as_path("FOLDER"),
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
                "--json-lines",
                _FILE,
                "write each pair of runs as a line of JSON, with what differed",
            ),
            ("--quiet", _SWITCH, "no progress, only the story and the answer"),
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
            ("--json", _FILE, "write what was put in, and what was found, as JSON"),
            (
                "--only",
                {"metavar": "FAULT", "choices": FAULTS, **_OFTEN},
                f"one of {', '.join(FAULTS)}; may be given often",
            ),
            (
                "--steps",
                {**_NUMBER, "dest": "short"},
                (
                    "optimizer steps of each run (default: 6, or as the spec has it where that is "
                    "fewer)"
                ),
            ),
            _SEED,
            _SET,
            ("--quiet", _SWITCH, "no progress, only the table"),
        ],
    ),
    "check": (
        "the checks that need no training, in a moment",
        {},
        [_SPEC, ("--json", _FILE, "write the results as JSON"), _NO_CACHE, _QUIET],
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
                "target",
                _OPTIONAL_SPEC,
                "a spec or its folder, a report.json, or a repro.baseline.yml",
            ),
            (
                "--diff",
                {"metavar": ("A", "B"), "nargs": 2, "type": _text},
                "two of these: name the inputs that changed",
            ),
            (
                "--json",
                _FILE,
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
                "report",
                _as_path("REPORT"),
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
            ("a", _as_path("A"), None),
            ("b", _as_path("B"), None),
            ("--json", _FILE, "write the differences as JSON"),
            (
                "--python",
                {"metavar": "PYTHON", "default": "python3"},
                "interpreter with torch, to measure how far tensors of two checkpoints are apart",
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
                "catalog",
                _as_path("CATALOG", nargs="?"),
                "a file of --json: nothing is measured; nothing in it is believed",
            ),
            (
                "--compare",
                _as_path("OLD"),
                "an older catalog: print what changed since; CATALOG or a new measurement",
            ),
            (
                "--device",
                {"choices": ("cpu", "cuda")},
                "default: cuda where there is a GPU",
            ),
            (
                "--only",
                {"metavar": "PATTERN"},
                "cases with this in their name, or that fit it: `index`, `*pool*`, `opinfo/*`",
            ),
            ("--quick", _SWITCH, "one size, three dtypes, fewer executions"),
            (
                "--op",
                {"metavar": "MODULE:FUNCTION", **_OFTEN},
                "your own operator instead; may be given often",
            ),
            (
                "--python",
                {"metavar": "PYTHON"},
                "the interpreter that you train in (default: `python` on PATH)",
            ),
            (
                "--fresh",
                _SWITCH,
                "begin anew, even where an interrupted start of this command left rows",
            ),
            *_files(CATALOG_FORMATS),
            ("-v --verbose", _SWITCH, "every row of each table"),
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
                "report",
                _as_path("REPORT", nargs="+"),
                (
                    "report.json, or the folder that holds it; several are those of one commit's "
                    "matrix; nothing in them is believed: workflow, job and this path say which "
                    "comment it is"
                ),
            ),
            (
                "--when",
                {"choices": ("always", "on-failure", "on-change"), "default": "always"},
                "always, on failure, or when the finding changed",
            ),
            (
                "--repository",
                _as_text("OWNER/NAME"),
                "the repository of the pull request",
            ),
            (
                "--pull-request",
                _NUMBER,
                "the pull request, whose head must be the commit of the report",
            ),
            (
                "--matrix",
                _as_text("NAME"),
                (
                    "one table of the reports under this name, however many there are; several "
                    "reports are one without a name"
                ),
            ),
            ("--dry-run", _SWITCH, "print the Markdown and post nothing"),
        ],
    ),
    "explain": (
        "print what a check, a cause or a reason of a report is about, why, and how to mend it",
        {},
        [
            (
                "id",
                {"metavar": "ID", "nargs": "?"},
                "such as data/checksums or unseeded-rng; left out: list the checks",
            )
        ],
    ),
    "init": (
        "write a commented repro.yml for this checkout",
        {},
        [
            ("folder", _as_path("FOLDER", nargs="?", default=Path(".")), None),
            ("--stdout", _SWITCH, "print it instead of writing FOLDER/repro.yml"),
            (
                "--script",
                _as_path("PATH"),
                "the script that trains; without it, the likeliest is taken, or asked for",
            ),
            ("--force", _SWITCH, "write it anew where there is one"),
        ],
    ),
    "schema": (
        "print the JSON Schema of repro.yml (or, with --report, of report.json)",
        {},
        [
            ("--report", _SWITCH, "the schema of report.json"),
            (
                "--ops",
                _SWITCH,
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
        for names, reading, text in arguments:
            command.add_argument(*names.split(), help=text, **reading)
    return top
