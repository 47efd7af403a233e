"""The arguments of every command, and the formats that a report is written in."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from repro_gate import __version__

_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
_RAW = argparse.RawDescriptionHelpFormatter


@dataclass(frozen=True)
class Format:
    """A format of a report: the option that names its file, and the function of `repro_gate.report`
    that renders it. `views`: with a View."""

    option: str
    module: str
    about: str
    function: str = "render"
    views: bool = False


FORMATS = (
    Format("json", "document", "write report.json"),
    Format("markdown", "markdown", "write the Markdown of the PR comment", "comment"),
    Format("html", "html", "write a page for a browser, in one file", views=True),
    Format("sarif", "sarif", "write what is wrong as SARIF 2.1.0, for code scanning and editors"),
    Format("junit", "junit", "write the checklist and the verdict as JUnit XML, for CI servers"),
)
# What `selftest` puts in; `gate.faults` says what each is.
FAULTS = ("weight", "optimizer", "batch", "buffer", "generator", "race", "flag", "checkpoint")
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


def parser() -> argparse.ArgumentParser:
    """The whole parser; what it gives has the command's name in `command`."""
    top = argparse.ArgumentParser(
        prog="repro-gate",
        description="Fails a pull request when training is not reproducible.",
        epilog=EPILOG,
        formatter_class=_RAW,
    )
    top.add_argument("--version", action="version", version=f"repro-gate {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, dest="command")
    _add_run(commands)
    _add_diagnose(commands)
    _add_selftest(commands)
    check = commands.add_parser("check", help="the checks that need no training, in a moment")
    _add_spec(check)
    _file(check, "--json", "write the results as JSON")
    _add_quiet(check)
    baseline = commands.add_parser(
        "baseline",
        help="gate the training and record its config hash and its results in repro.baseline.yml",
    )
    _add_spec(baseline)
    _add_quiet(baseline, verbose=True)
    hashed = commands.add_parser(
        "hash", help="print the config hash and its inputs, or the inputs in which two differ"
    )
    hashed.add_argument(
        "target",
        metavar="SPEC",
        nargs="?",
        type=_text,
        default="repro.yml",
        help="a spec or its folder, a report.json, or a repro.baseline.yml",
    )
    hashed.add_argument(
        "--diff",
        metavar=("A", "B"),
        nargs=2,
        type=_text,
        help="two of these: name the inputs that changed",
    )
    _file(hashed, "--json", "write the config hash (with --diff: the inputs that changed) as JSON")
    _add_quiet(hashed)
    _add_show(commands)
    compare = commands.add_parser(
        "compare", help="compare two reports, folders of traces or checkpoints"
    )
    for name in ("a", "b"):
        compare.add_argument(name, metavar=name.upper(), type=_path)
    _file(compare, "--json", "write the differences as JSON")
    compare.add_argument(
        "--python",
        metavar="PYTHON",
        default="python3",
        help="interpreter with torch, to measure how far tensors of two checkpoints are apart",
    )
    _add_ops(commands)
    _add_comment(commands)
    explain = commands.add_parser(
        "explain",
        help="print what a check, a cause or a reason of a report is about, why, and how to mend "
        "it",
    )
    explain.add_argument(
        "id",
        metavar="ID",
        nargs="?",
        help="such as data/checksums or unseeded-rng; left out: list the checks",
    )
    init = commands.add_parser("init", help="write a commented repro.yml for this checkout")
    init.add_argument("folder", metavar="FOLDER", nargs="?", type=_path, default=Path("."))
    _switch(init, "print it instead of writing FOLDER/repro.yml", "--stdout")
    init.add_argument(
        "--script",
        metavar="PATH",
        type=_path,
        help="the script that trains; without it, the likeliest is taken",
    )
    _switch(init, "write it anew where there is one", "--force")
    schema = commands.add_parser(
        "schema", help="print the JSON Schema of repro.yml (or, with --report, of report.json)"
    )
    _switch(schema, "the schema of report.json", "--report")
    _switch(schema, "the schema of the catalog that `repro-gate ops --json` writes", "--ops")
    return top


def _add_run(commands: _Commands) -> None:
    about = "gate the training that a repro.yml declares"
    run = commands.add_parser("run", help=about, epilog=EPILOG, formatter_class=_RAW)
    _add_spec(run)
    _add_formats(run, FORMATS)
    _add_overrides(run)
    _text_option(
        run,
        "--against",
        "REF",
        "gate that ref's checkout too, and say whether this one changes its bits",
    )
    _text_option(
        run,
        "--base",
        "REF",
        "the ref that this change is to be merged into: the report lists the checks that the "
        "change weakens",
    )
    run.add_argument(
        "--policy",
        choices=("head", "base"),
        help="whose spec judges; without it, what the base's own spec says under `policy`",
    )
    _switch(
        run,
        "stop at the first divergence; what later runs measure, such as the cost, is left out",
        "--fail-fast",
    )
    run.add_argument(
        "--keep-traces",
        metavar="FOLDER",
        type=_path,
        help="keep the traces of all runs there, for `repro-gate compare`",
    )
    _add_quiet(run, verbose=True)


def _add_diagnose(commands: _Commands) -> None:
    diagnose = commands.add_parser(
        "diagnose",
        help="find out by experiment why two deterministic runs diverge",
        description="Two deterministic runs; where they diverge, further short runs that hold one "
        "thing after the other fixed.",
        epilog=_EPILOG_OF_DIAGNOSE,
        formatter_class=_RAW,
    )
    _add_spec(diagnose)
    _add_overrides(diagnose)
    _switch(diagnose, "no progress, only the story and the answer", "--quiet")


def _add_selftest(commands: _Commands) -> None:
    about = "put faults into the training on purpose, and see whether the gate catches each"
    selftest = commands.add_parser(
        "selftest",
        help=about,
        description="Two clean runs, then one short run for each fault (a flipped bit, a racing "
        "operator …), compared as the gate does.",
        epilog=_EPILOG_OF_SELFTEST,
        formatter_class=_RAW,
    )
    _add_spec(selftest)
    _file(selftest, "--json", "write what was put in, and what was found, as JSON")
    selftest.add_argument(
        "--only",
        metavar="FAULT",
        choices=FAULTS,
        action="append",
        default=[],
        help=f"one of {', '.join(FAULTS)}; may be given often",
    )
    selftest.add_argument(
        "--steps",
        metavar="N",
        type=int,
        dest="short",
        help="optimizer steps of each run (default: 6, or as the spec has it where that is fewer)",
    )
    _add_overrides(selftest, steps=False)
    selftest.set_defaults(steps=None)
    _switch(selftest, "no progress, only the table", "--quiet")


def _add_show(commands: _Commands) -> None:
    show = commands.add_parser(
        "show",
        help="print a report.json again",
        description="Prints a report.json as the gate run that made it did, or writes it in "
        "another format.",
        epilog=_EPILOG_OF_SHOW,
        formatter_class=_RAW,
    )
    show.add_argument(
        "report",
        metavar="REPORT",
        type=_path,
        help="report.json, or the folder that holds it; nothing in it is believed",
    )
    _switch(show, "all of it: every check, figure and run", "-v", "--verbose")
    _add_formats(show, [form for form in FORMATS if form.option != "json"])


def _add_ops(commands: _Commands) -> None:
    ops = commands.add_parser(
        "ops",
        help="measure which torch operators repeat their bits on this machine, or show and compare "
        "such catalogs",
        description="Executes each operator again and again, flags off and on, alone and beside "
        "other work, in two processes of the interpreter that you train in. With a CATALOG, shows "
        "that one instead.",
        epilog=_EPILOG_OF_OPS,
        formatter_class=_RAW,
    )
    ops.add_argument(
        "catalog",
        metavar="CATALOG",
        type=_path,
        nargs="?",
        help="a file of --json: nothing is measured; nothing in it is believed",
    )
    ops.add_argument(
        "--compare",
        metavar="OLD",
        type=_path,
        help="an older catalog: print what changed since; CATALOG or a new measurement",
    )
    ops.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is a GPU")
    ops.add_argument(
        "--only",
        metavar="PATTERN",
        help="cases with this in their name, or that fit it: `index`, `*pool*`, `opinfo/*`",
    )
    _switch(ops, "one size, three dtypes, fewer executions", "--quick")
    ops.add_argument(
        "--op",
        metavar="MODULE:FUNCTION",
        action="append",
        default=[],
        help="your own operator instead; may be given often",
    )
    ops.add_argument(
        "--python",
        metavar="PYTHON",
        help="the interpreter that you train in (default: `python` on PATH)",
    )
    _switch(ops, "begin anew, even where an interrupted start of this command left rows", "--fresh")
    _file(ops, "--json", "write the catalog")
    _file(ops, "--markdown", "write what is printed as Markdown, every row of it")
    _file(ops, "--html", "write it as a page for a browser, in one file")
    _switch(ops, "every row of each table", "-v", "--verbose")
    _switch(ops, "no progress, only the answer", "--quiet")


def _add_formats(command: argparse.ArgumentParser, formats: Sequence[Format]) -> None:
    for form in formats:
        _file(command, f"--{form.option}", form.about)


def _add_comment(commands: _Commands) -> None:
    comment = commands.add_parser(
        "comment",
        help="post a report.json, or those of a matrix as one table, as the comment of its pull "
        "request",
        description="In a workflow_run job, for the run that the event names; elsewhere, with "
        "--repository and --pull-request. The token comes from GITHUB_TOKEN or GH_TOKEN.",
    )
    what = (
        "report.json, or the folder that holds it; several are those of one commit's matrix; "
        "nothing in them is believed: workflow, job and this path say which comment it is"
    )
    comment.add_argument("report", metavar="REPORT", type=_path, nargs="+", help=what)
    comment.add_argument(
        "--when",
        choices=("always", "on-failure", "on-change"),
        default="always",
        help="always, on failure, or when the finding changed",
    )
    comment.add_argument(
        "--repository", metavar="OWNER/NAME", type=_text, help="the repository of the pull request"
    )
    _number(
        comment, "--pull-request", "the pull request, whose head must be the commit of the report"
    )
    _text_option(
        comment,
        "--matrix",
        "NAME",
        "one table of the reports under this name, however many there are; several reports are one "
        "without a name",
    )
    _switch(comment, "print the Markdown and post nothing", "--dry-run")


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


def _add_spec(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "spec",
        metavar="SPEC",
        nargs="?",
        type=_text,
        default="repro.yml",
        help="repro.yml, or the folder that holds it (default: repro.yml)",
    )


def _add_overrides(command: argparse.ArgumentParser, *, steps: bool = True) -> None:
    _number(command, "--seed", "random-state.seed instead of the spec's")
    if steps:
        _number(command, "--steps", "train.steps instead of the spec's")
    command.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="any key of the spec, the value as YAML; may be given often",
    )


def _add_quiet(command: argparse.ArgumentParser, *, verbose: bool = False) -> None:
    if verbose:
        _switch(command, "the whole report: every check, figure and run", "-v", "--verbose")
    _switch(command, "hash all declared data anew, whatever is known of it", "--no-cache")
    _switch(command, "no progress, only the answer", "--quiet")


def _file(command: argparse.ArgumentParser, name: str, about: str) -> None:
    command.add_argument(name, metavar="FILE", type=_path, help=about)


def _switch(command: argparse.ArgumentParser, about: str, *names: str) -> None:
    command.add_argument(*names, action="store_true", help=about)


def _number(command: argparse.ArgumentParser, name: str, about: str) -> None:
    command.add_argument(name, metavar="N", type=int, help=about)


def _text_option(command: argparse.ArgumentParser, name: str, shown: str, about: str) -> None:
    command.add_argument(name, metavar=shown, type=_text, help=about)
