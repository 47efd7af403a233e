"""The command line: parse, call, print. Errors are printed here and nowhere else; heavy imports
wait until a command needs them."""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import sys
from collections.abc import Sequence

from repro_gate.commands.arguments import parser
from repro_gate.errors import end_cleanly, for_person
from repro_gate.escape import for_log

# they start what the checkout names, and hold no secret while they do
_UNTRUSTED = ("run", "selftest", "check", "baseline", "compare", "ops")
# where each command is; a file is imported for its command alone
_MODULES = {
    "run": "gate",
    "baseline": "gate",
    "show": "gate",
    "schema": "explain",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    end_cleanly()
    try:
        options = parser().parse_args(arguments)
        name = options.command
        if arguments is None and name in _UNTRUSTED:
            from repro_gate.sandbox.reexec import handed_over, start_anew

            start_anew(os.environ)
            handed_over()
            _leave_own_environment()
        module = f"repro_gate.commands.{_MODULES.get(name, name)}"
        command = pkgutil.resolve_name(f"{module}:{name}_command")
        code: int = command(options)
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as a shell reports a process that SIGPIPE ended
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  no mistake of ours is a finding
        problem = for_person(error)
        for line in f"repro-gate: {problem.diagnostics()}".split("\n"):
            print(for_log(line), file=sys.stderr)
        return problem.exit_code


def _leave_own_environment() -> None:
    """Take the gate's environment off PATH where `uvx` or pipx put it first: it has no torch, and
    the training's `python` is the next one. One that a person activated stays."""
    first, _, rest = os.environ.get("PATH", "").partition(os.pathsep)
    is_ours = rest and os.path.dirname(first) == sys.prefix
    is_tool = is_ours and os.environ.get("VIRTUAL_ENV") != sys.prefix
    if is_tool and importlib.util.find_spec("torch") is None:
        os.environ["PATH"] = rest
