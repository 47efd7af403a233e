"""The arguments of every command, and the formats that a report is written in."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate import __version__


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
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"repro-gate {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, dest="command")
    _add_run(commands)
    _add_diagnose(commands)
    _add_selftest(commands)
    check = commands.add_parser("check", help="the checks that need no training, in a moment")
    _add_spec(check)
    check.add_argument("--json", metavar="FILE", type=_path, help="write the results as JSON")
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
    hashed.add_argument(
        "--json",
        metavar="FILE",
        type=_path,
        help="write the config hash (with --diff: the inputs that changed) as JSON",
    )
    _add_quiet(hashed)
    _add_show(commands)
    compare = commands.add_parser(
        "compare", help="compare two reports, folders of traces or checkpoints"
    )
    for name in ("a", "b"):
        compare.add_argument(name, metavar=name.upper(), type=_path)
    compare.add_argument("--json", metavar="FILE", type=_path, help="write the differences as JSON")
    measure = "interpreter with torch, to measure how far tensors of two checkpoints are apart"
    compare.add_argument("--python", metavar="PYTHON", default="python3", help=measure)
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
    init.add_argument(
        "--stdout", action="store_true", help="print it instead of writing FOLDER/repro.yml"
    )
    likeliest = "the script that trains; without it, the likeliest is taken, or asked for"
    init.add_argument("--script", metavar="PATH", type=_path, help=likeliest)
    init.add_argument("--force", action="store_true", help="write it anew where there is one")
    schema = commands.add_parser(
        "schema", help="print the JSON Schema of repro.yml (or, with --report, of report.json)"
    )
    schema.add_argument("--report", action="store_true", help="the schema of report.json")
    schema.add_argument(
        "--ops",
        action="store_true",
        help="the schema of the catalog that `repro-gate ops --json` writes",
    )
    return top


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    formatter, about = (
        argparse.RawDescriptionHelpFormatter,
        "gate the training that a repro.yml declares",
    )
    run = commands.add_parser("run", help=about, epilog=EPILOG, formatter_class=formatter)
    _add_spec(run)
    _add_formats(run, FORMATS)
    _add_overrides(run)
    run.add_argument(
        "--against",
        metavar="REF",
        type=_text,
        help="gate that ref's checkout too, and say whether this one changes its bits",
    )
    base = (
        "the ref that this change is to be merged into: the report lists the checks that the "
        "change weakens"
    )
    run.add_argument("--base", metavar="REF", type=_text, help=base)
    judge = "whose spec judges; without it, what the base's own spec says under `policy`"
    run.add_argument("--policy", choices=("head", "base"), help=judge)
    run.add_argument(
        "--fail-fast",
        action="store_true",
        help="stop at the first divergence; what later runs measure, such as the cost, is left out",
    )
    run.add_argument(
        "--keep-traces",
        metavar="FOLDER",
        type=_path,
        help="keep the traces of all runs there, for `repro-gate compare`",
    )
    _add_quiet(run, verbose=True)


def _add_diagnose(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    diagnose = commands.add_parser(
        "diagnose",
        help="find out by experiment why two deterministic runs diverge",
        description="Two deterministic runs; where they diverge, further short runs that hold one "
        "thing after the other fixed.",
        epilog=_EPILOG_OF_DIAGNOSE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_spec(diagnose)
    diagnose.add_argument(
        "--json-lines",
        metavar="FILE",
        type=_path,
        help="write each pair of runs as a line of JSON, with what differed",
    )
    _add_overrides(diagnose)
    diagnose.add_argument(
        "--quiet", action="store_true", help="no progress, only the story and the answer"
    )


def _add_selftest(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = "put faults into the training on purpose, and see whether the gate catches each"
    selftest = commands.add_parser(
        "selftest",
        help=about,
        description="Two clean runs, then one short run for each fault (a flipped bit, a racing "
        "operator …), compared as the gate does.",
        epilog=_EPILOG_OF_SELFTEST,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_spec(selftest)
    selftest.add_argument(
        "--json",
        metavar="FILE",
        type=_path,
        help="write what was put in, and what was found, as JSON",
    )
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
    selftest.add_argument("--quiet", action="store_true", help="no progress, only the table")


def _add_show(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    show = commands.add_parser(
        "show",
        help="print a report.json again",
        description="Prints a report.json as the gate run that made it did, or writes it in "
        "another format.",
        epilog=_EPILOG_OF_SHOW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    show.add_argument(
        "report",
        metavar="REPORT",
        type=_path,
        help="report.json, or the folder that holds it; nothing in it is believed",
    )
    show.add_argument(
        "-v", "--verbose", action="store_true", help="all of it: every check, figure and run"
    )
    _add_formats(show, [form for form in FORMATS if form.option != "json"])


def _add_ops(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    ops = commands.add_parser(
        "ops",
        help="measure which torch operators repeat their bits on this machine, or show and compare "
        "such catalogs",
        description="Executes each operator again and again, flags off and on, alone and beside "
        "other work, in two processes of the interpreter that you train in. With a CATALOG, shows "
        "that one instead.",
        epilog=_EPILOG_OF_OPS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
    ops.add_argument(
        "--quick", action="store_true", help="one size, three dtypes, fewer executions"
    )
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
    ops.add_argument(
        "--fresh",
        action="store_true",
        help="begin anew, even where an interrupted start of this command left rows",
    )
    ops.add_argument("--json", metavar="FILE", type=_path, help="write the catalog")
    ops.add_argument(
        "--markdown",
        metavar="FILE",
        type=_path,
        help="write what is printed as Markdown, every row of it",
    )
    ops.add_argument(
        "--html", metavar="FILE", type=_path, help="write it as a page for a browser, in one file"
    )
    ops.add_argument("-v", "--verbose", action="store_true", help="every row of each table")
    ops.add_argument("--quiet", action="store_true", help="no progress, only the answer")


def _add_formats(command: argparse.ArgumentParser, formats: Sequence[Format]) -> None:
    for form in formats:
        command.add_argument(f"--{form.option}", metavar="FILE", type=_path, help=form.about)


def _add_comment(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
    when = "always, on failure, or when the finding changed"
    comment.add_argument(
        "--when", choices=("always", "on-failure", "on-change"), default="always", help=when
    )
    comment.add_argument(
        "--repository", metavar="OWNER/NAME", type=_text, help="the repository of the pull request"
    )
    comment.add_argument(
        "--pull-request",
        metavar="N",
        type=int,
        help="the pull request, whose head must be the commit of the report",
    )
    table = (
        "one table of the reports under this name, however many there are; several reports are one "
        "without a name"
    )
    comment.add_argument("--matrix", metavar="NAME", type=_text, help=table)
    comment.add_argument(
        "--dry-run", action="store_true", help="print the Markdown and post nothing"
    )


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
    where = "repro.yml, or the folder that holds it (default: repro.yml)"
    command.add_argument(
        "spec", metavar="SPEC", nargs="?", type=_text, default="repro.yml", help=where
    )


def _add_overrides(command: argparse.ArgumentParser, *, steps: bool = True) -> None:
    command.add_argument(
        "--seed", metavar="N", type=int, help="random-state.seed instead of the spec's"
    )
    if steps:
        command.add_argument(
            "--steps", metavar="N", type=int, help="train.steps instead of the spec's"
        )
    any_key = "any key of the spec, the value as YAML; may be given often"
    command.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="overrides", help=any_key
    )


def _add_quiet(command: argparse.ArgumentParser, *, verbose: bool = False) -> None:
    if verbose:
        command.add_argument(
            "-v",
            "--verbose",
            action="store_true",
            help="the whole report: every check, figure and run",
        )
    command.add_argument(
        "--no-cache",
        action="store_true",
        help="hash all declared data anew, whatever is known of it",
    )
    command.add_argument("--quiet", action="store_true", help="no progress, only the answer")
