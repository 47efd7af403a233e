"""The command line: parse, call, print. Errors are printed here and nowhere else; heavy imports
wait until a command needs them."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro_gate._version import DOCS_URL
from repro_gate.commands.arguments import parser
from repro_gate.errors import UsageError, end_cleanly, for_person
from repro_gate.github.workflow import log_guard

if TYPE_CHECKING:
    from repro_gate.gate.options import Options
    from repro_gate.runs.progress import Watch
    from repro_gate.spec.model import Spec

# they start what the checkout names, and hold no secret while they do
_UNTRUSTED = ("run", "diagnose", "selftest", "baseline", "hash", "compare", "ops")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    end_cleanly()
    try:
        options = parser().parse_args(arguments)
        if arguments is None and options.command in _UNTRUSTED:
            from repro_gate.sandbox.reexec import handed_over, start_anew

            start_anew(os.environ)
            handed_over()
        return _COMMANDS[options.command](options)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as a shell reports a process that SIGPIPE ended
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  no mistake of ours is a finding
        found = for_person(error)
        print(f"repro-gate: {_printable(found.diagnostics())}", file=sys.stderr)
        return found.exit_code


def _run(options: argparse.Namespace) -> int:
    from repro_gate.commands import output
    from repro_gate.gate.run import run_gate
    from repro_gate.report.model import EXIT_CODES

    files = output.files_of(options)
    output.remove(files)
    spec, chosen = _asked(
        options,
        base=options.base,
        policy=options.policy,
        against=options.against,
        fail_fast=options.fail_fast,
        keep_traces=options.keep_traces,
        cache=not options.no_cache,
    )
    output.make_empty(options.keep_traces)
    with _watch(options) as watch:
        report = run_gate(spec, chosen, watch)
    output.show(report, files, verbose=options.verbose)
    return EXIT_CODES[report.verdict]


def _show(options: argparse.Namespace) -> int:
    from repro_gate.commands.show import show

    return show(options)


def _diagnose(options: argparse.Namespace) -> int:
    from repro_gate.commands.diagnose import diagnose
    from repro_gate.commands.output import view, writable

    spec, chosen = _asked(options, policy="head")
    writable(options.json_lines)

    def tell(line: str) -> None:
        print(_printable(line), flush=True)

    path = options.json_lines
    opened = nullcontext() if path is None else path.open("w", encoding="utf-8")
    with opened as lines, _watch(options) as watch:
        return diagnose(spec, chosen, watch, tell, lines, view())


def _selftest(options: argparse.Namespace) -> int:
    from repro_gate.commands.output import writable
    from repro_gate.commands.selftest import show_selftest
    from repro_gate.gate.selftest import selftest

    writable(options.json)
    if options.short is not None and options.short < 1:
        raise UsageError(
            f"--steps {options.short}: a run takes one step at least",
            remedy="leave it out for a few steps",
        )
    spec, chosen = _asked(options, policy="head")
    with _watch(options) as watch:
        found = selftest(spec, chosen, watch, options.only, options.short)
    show_selftest(found, options.spec, options.json)
    return found.exit_code


def _asked(options: argparse.Namespace, **more: Any) -> tuple[Spec, Options]:
    """The spec of a command that trains, and what the command line says besides."""
    from repro_gate.gate.options import Options
    from repro_gate.sandbox.selection import choose
    from repro_gate.spec.loader import load_spec

    laid_over = {
        "overrides": tuple(options.overrides),
        "seed": options.seed,
        "steps": getattr(options, "steps", None),  # `selftest` has steps of its own
    }
    spec = load_spec(Path(options.spec), **laid_over)
    return spec, Options(
        spec_as_given=options.spec, **laid_over, sandbox=choose(os.environ), **more
    )


def _check(options: argparse.Namespace) -> int:
    from repro_gate.commands import output
    from repro_gate.gate.evidence import NEED_TRAINING, check
    from repro_gate.report.terminal import checklist_json, render_checklist
    from repro_gate.spec.loader import load_spec

    output.writable(options.json)
    spec = load_spec(Path(options.spec))
    with _watch(options) as watch:
        results = check(spec, watch.verifying, cached=not options.no_cache)
    if options.json is not None:
        output.write(options.json, checklist_json(results, options.spec, NEED_TRAINING))
    with log_guard(os.environ):
        print(render_checklist(results, NEED_TRAINING, output.view()), end="", flush=True)
    return 1 if any(item.status == "fail" for item in results) else 0


def _baseline(options: argparse.Namespace) -> int:
    from repro_gate.commands import output
    from repro_gate.commands.baseline import baseline
    from repro_gate.report.model import EXIT_CODES

    with _watch(options) as watch:
        result, path = baseline(
            Path(options.spec), options.spec, watch, cached=not options.no_cache
        )
    output.print_report(result.report, options.verbose)
    code = EXIT_CODES[result.report.verdict]
    if path is not None:
        print(_printable(f"wrote {path}: review it and commit it"))
        return code
    why = (
        "two runs are within the tolerance but not bitwise identical"
        if code == 0
        else f"the verdict is {result.report.verdict}"
    )
    print(f"repro-gate: nothing was recorded: {why}", file=sys.stderr)
    return code or EXIT_CODES["inconclusive"]


def _hash(options: argparse.Namespace) -> int:
    from repro_gate.baseline.config_hash import changed_inputs, diff_lines, tree_lines
    from repro_gate.commands import output
    from repro_gate.commands.hash import address_at, as_json, diff_as_json

    output.writable(options.json)
    with _watch(options) as watch:
        found = [
            address_at(Path(name), watch, cached=not options.no_cache)
            for name in options.diff or [options.target]
        ]
    moves = changed_inputs(*found) if options.diff else ()
    if options.json is not None:
        output.write(options.json, diff_as_json(moves) if options.diff else as_json(found[0]))
    with log_guard(os.environ):
        for line in diff_lines(moves) if options.diff else tree_lines(found[0]):
            print(_printable(line))
    return 1 if moves else 0


def _explain(options: argparse.Namespace) -> int:
    from repro_gate.checks import ALL
    from repro_gate.checks.pages import cause_page, page, reasons
    from repro_gate.factors import CAUSES

    if options.id is None:
        width = max(len(item.id) for item in ALL)
        for item in ALL:
            print(f"{item.id:<{width}}  {item.title}")
        return 0
    causes: dict[str, str] = {name: cause_page(name) for name in CAUSES}
    known = {**{item.id: item.title for item in ALL}, **reasons(), **causes}
    if options.id not in known:
        close = difflib.get_close_matches(options.id, known, 1)
        hint = f", did you mean `{close[0]}`?" if close else ""
        raise UsageError(
            f"explain {options.id}: there is no such id{hint}",
            remedy=f"`repro-gate explain` lists the checks, {DOCS_URL}/reasons.md the reasons",
        )
    found = causes.get(options.id) or page(options.id)
    print(found or f"# {options.id}\n\n{known[options.id]}\n", end="")
    return 0


def _watch(options: argparse.Namespace) -> AbstractContextManager[Watch]:
    from repro_gate.report.progress import watching

    github = os.environ.get("GITHUB_ACTIONS") == "true"
    return watching(sys.stderr, terminal=sys.stderr.isatty(), github=github, quiet=options.quiet)


def _compare(options: argparse.Namespace) -> int:
    from repro_gate.commands.compare import compare_paths

    return compare_paths(options.a, options.b, options.python, options.json)


def _ops(options: argparse.Namespace) -> int:
    from repro_gate.commands.ops import ops

    return ops(options, _watch(options))


def _comment(options: argparse.Namespace) -> int:
    from repro_gate.commands.comment import comment_command

    return comment_command(options, os.environ)


def _init(options: argparse.Namespace) -> int:
    from repro_gate.commands.init import init

    if not options.folder.is_dir():
        raise UsageError(
            f"{options.folder}: is not a folder", remedy="name the folder of the checkout"
        )
    return init(options.folder, options.script, to_stdout=options.stdout, force=options.force)


def _schema(options: argparse.Namespace) -> int:
    from importlib.resources import files

    room = "report" if options.report else "ops" if options.ops else "spec"
    path = files("repro_gate") / room / "schema.json"
    print(path.read_text(encoding="utf-8"), end="")
    return 0


_COMMANDS = {
    "run": _run,
    "show": _show,
    "diagnose": _diagnose,
    "selftest": _selftest,
    "check": _check,
    "baseline": _baseline,
    "hash": _hash,
    "explain": _explain,
    "compare": _compare,
    "ops": _ops,
    "comment": _comment,
    "init": _init,
    "schema": _schema,
}


def _printable(text: str) -> str:
    from repro_gate.escape import for_log, for_terminal

    return "\n".join(for_log(for_terminal(line), os.environ) for line in text.split("\n"))
