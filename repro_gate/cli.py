"""The command line: parse, call, print. Errors are printed here and nowhere else; heavy imports wait until a command needs them."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from repro_gate import __version__
from repro_gate.errors import GateError, UsageError

if TYPE_CHECKING:
    from repro_gate.report.model import Report

EPILOG = """exit codes:
  0  pass: the runs are the same bits, every required check passed, the cost is in its budget
  1  fail: the runs diverged, a required check failed, or the cost is over its budget
  2  usage: bad arguments or a bad spec
  3  inconclusive: the training crashed or timed out, no trace arrived, the required device is missing"""

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    for number in _ENDING:
        signal.signal(number, _ended)
    options = _parser().parse_args(arguments)
    try:
        return int(options.action(options))
    except GateError as error:
        print(f"repro-gate: {_printable(error.diagnostics())}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("repro-gate: interrupted", file=sys.stderr)
        return 3
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as a shell reports a process that SIGPIPE ended
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"repro-gate: {_printable(f'{where}{error.strerror or error}')}", file=sys.stderr)
        print(
            "  remedy: free space, or set TMPDIR to a folder that can be written; nothing was found out about the training", file=sys.stderr
        )
        return 3
    except Exception:  # noqa: BLE001  a mistake of ours must not look like a finding
        import traceback

        print("repro-gate: an error inside the gate, which says nothing about the training; please report it:", file=sys.stderr)
        print(_printable(traceback.format_exc().rstrip()), file=sys.stderr)
        return 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="repro-gate",
        description="Fails a pull request when training is not reproducible.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"repro-gate {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_run(commands)
    compare = commands.add_parser("compare", help="hold two reports, folders of traces or checkpoints against each other")
    compare.add_argument("a", metavar="A", type=Path)
    compare.add_argument("b", metavar="B", type=Path)
    compare.add_argument("--json", metavar="FILE", type=Path, help="write the differences as JSON")
    compare.add_argument(
        "--python",
        metavar="PYTHON",
        default="python3",
        help="interpreter with torch, to measure how far tensors of two checkpoints are apart",
    )
    compare.set_defaults(action=_compare)
    init = commands.add_parser("init", help="write a commented repro.yml for this checkout")
    init.add_argument("folder", metavar="FOLDER", nargs="?", type=Path, default=Path("."))
    init.add_argument("--stdout", action="store_true", help="print it instead of writing FOLDER/repro.yml")
    init.set_defaults(action=_init)
    schema = commands.add_parser("schema", help="print the JSON Schema of repro.yml (or, with --report, of report.json)")
    schema.add_argument("--report", action="store_true", help="the schema of report.json")
    schema.set_defaults(action=_schema)
    return parser


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = commands.add_parser(
        "run", help="gate the training that a repro.yml declares", epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    run.add_argument(
        "spec", metavar="SPEC", nargs="?", default="repro.yml", help="repro.yml, or the folder that holds it (default: repro.yml)"
    )
    run.add_argument("--json", metavar="FILE", type=Path, help="write report.json")
    run.add_argument("--markdown", metavar="FILE", type=Path, help="write the Markdown of the PR comment")
    run.add_argument("--seed", metavar="N", type=int, help="random-state.seed instead of the spec's")
    run.add_argument("--steps", metavar="N", type=int, help="train.steps instead of the spec's")
    run.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="any key of the spec, the value as YAML; may be given often",
    )
    run.add_argument("--fail-fast", action="store_true", help="stop at the first divergence; noise floor and cost are then not measured")
    run.add_argument("--keep-traces", metavar="FOLDER", type=Path, help="keep the traces of all runs there, for `repro-gate compare`")
    run.add_argument("--quiet", action="store_true", help="no progress, only the report")
    run.set_defaults(action=_run)


def _run(options: argparse.Namespace) -> int:
    from repro_gate.gate import Options, run_gate
    from repro_gate.progress import watching
    from repro_gate.report.model import EXIT_CODES
    from repro_gate.spec.loader import load_spec

    for path in (options.json, options.markdown):
        _writable(path)
        if path is not None:
            path.unlink(missing_ok=True)  # whoever reads it after us must not find an older report
    if (
        options.keep_traces is not None
        and options.keep_traces.exists()
        and (not options.keep_traces.is_dir() or any(options.keep_traces.iterdir()))
    ):
        raise UsageError(f"--keep-traces {options.keep_traces}: is there already and is not empty", remedy="name a new folder")
    spec = load_spec(Path(options.spec), options.overrides, seed=options.seed, steps=options.steps)
    chosen = Options(options.spec, tuple(options.overrides), options.seed, options.steps, options.fail_fast, options.keep_traces)
    with watching(
        sys.stderr, terminal=sys.stderr.isatty(), github=os.environ.get("GITHUB_ACTIONS") == "true", quiet=options.quiet
    ) as watch:
        report = run_gate(spec, chosen, watch)
    _show(report, options)
    return EXIT_CODES[report.verdict]


def _show(report: Report, options: argparse.Namespace) -> None:
    """Files first: a closed pipe must not lose them."""
    from rich.console import Console

    from repro_gate.report.json_face import dumps
    from repro_gate.report.terminal import render

    if options.json is not None:
        _write(options.json, dumps(report))
    if options.markdown is not None:
        from repro_gate.report.markdown import to_markdown

        _write(options.markdown, to_markdown(report))
    token = f"repro-gate-{secrets.token_hex(16)}" if os.environ.get("GITHUB_ACTIONS") == "true" else ""
    if token:
        print(f"::stop-commands::{token}", flush=True)  # a line of the report may start with anything
    render(report, Console(highlight=False, markup=False))
    if token:
        print(f"::{token}::", flush=True)


def _compare(options: argparse.Namespace) -> int:
    from repro_gate.comparing import compare_paths

    return compare_paths(options.a, options.b, options.python, options.json)


def _init(options: argparse.Namespace) -> int:
    from repro_gate.spec.init import draft_spec

    if not options.folder.is_dir():
        raise UsageError(f"{options.folder}: is no folder", remedy="name the folder of the checkout")
    text = draft_spec(options.folder)
    if options.stdout:
        print(text, end="")
        return 0
    target = options.folder / "repro.yml"
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{target}: is there already", remedy="remove it first, or see a draft with `repro-gate init --stdout`") from None
    except OSError as error:
        raise UsageError(f"{target}: cannot be written: {error.strerror}") from None
    print(f"wrote {target}; next: repro-gate run {options.folder}")
    return 0


def _schema(options: argparse.Namespace) -> int:
    from importlib.resources import files

    print((files("repro_gate") / ("report" if options.report else "spec") / "schema.json").read_text(encoding="utf-8"), end="")
    return 0


def _writable(path: Path | None) -> None:
    """A file that cannot be written is said before the runs, not after them."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise UsageError(
            f"{path}: cannot be written: {'it is a folder' if path.is_dir() else 'its folder does not exist'}",
            remedy="name a file in a folder that exists",
        )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"repro-gate: {path}: cannot be written: {error.strerror}", file=sys.stderr)


def _printable(text: str) -> str:
    from repro_gate.report.escape import for_log, for_terminal

    return "\n".join(for_log(for_terminal(line), os.environ) for line in text.split("\n"))


def _ended(number: int, frame: object) -> NoReturn:
    """The first signal ends the run and cleans up; later ones must not end the cleaning."""
    for other in _ENDING:
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt
