"""The second way into a Python that imports no `sitecustomize` of ours, because it is started with
`-I`, `-E` or `-S`.

Its command is changed to start this file with the same options: it starts the probe and then runs
what was asked for, in `__main__`, with `sys.argv`, `sys.path` and `sys.flags` as they would be.
`python isolated.py --exec PYTHON …` starts PYTHON with its command changed.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, List


def _run(arguments: List[str]) -> None:
    """Run what was asked for, as the interpreter would have: a script, `-c CODE`, `-m MODULE`, or
    `-` for standard input."""
    import importlib.machinery  # not at the top, where this file's folder is on sys.path
    import runpy

    what, main = arguments[0], sys.modules["__main__"]
    namespace: Dict[str, Any] = vars(main)
    for name in [
        name for name in namespace if name not in ("__name__", "__builtins__", "__annotations__")
    ]:
        del namespace[name]
    namespace.update(
        __doc__=None,
        __package__=None,
        __spec__=None,
        __loader__=importlib.machinery.BuiltinImporter,
    )
    # the program's folder is on sys.path
    searched = not (sys.flags.isolated or getattr(sys.flags, "safe_path", False))
    if what[:2] == "-m":
        sys.argv[:] = ["-m", *arguments[1 if what[2:] else 2 :]]
        if searched:
            sys.path.insert(0, os.getcwd())
        runpy._run_module_as_main(what[2:] or arguments[1])  # type: ignore[attr-defined]
        return
    if what[:2] == "-c":
        sys.argv[:] = ["-c", *arguments[1 if what[2:] else 2 :]]
        if searched:
            sys.path.insert(0, "")
        code: Any = compile(what[2:] or arguments[1], "<string>", "exec", dont_inherit=True)
    elif what == "-":
        sys.argv[:] = arguments
        if searched:
            sys.path.insert(0, "")
        code = compile(sys.stdin.read(), "<stdin>", "exec", dont_inherit=True)
        namespace.update(__file__="<stdin>", __cached__=None)
    elif os.path.isfile(what) and not what.endswith((".pyc", ".pyz", ".zip")):
        sys.argv[:] = arguments
        if searched:
            sys.path.insert(0, os.path.dirname(os.path.realpath(what)))
        path = os.path.join(os.getcwd(), what)
        with open(what, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        namespace.update(
            __file__=path,
            __cached__=None,
            __loader__=importlib.machinery.SourceFileLoader("__main__", path),
        )
    else:
        sys.argv[:] = arguments
        runpy.run_path(what, run_name="__main__")
        return
    exec(code, namespace)  # noqa: S102  the training's own program


def _main(entry: str, started: bool) -> None:
    from .reached import ENTRY, reached

    if sys.argv[1:2] == ["--exec"]:
        command = reached(sys.argv[2:])
        os.execv(command[0], command)
    arguments = sys.argv[1:]
    if hasattr(sys, "orig_argv"):
        at = sys.orig_argv.index(entry)
        sys.orig_argv[:] = [*sys.orig_argv[:at], *sys.orig_argv[at + 1 :]]
    sys.argv[:] = arguments
    inject = os.path.join(os.path.dirname(ENTRY), "inject")
    sys.path[:] = [item for item in sys.path if item != inject]
    if "REPRO_GATE_PROBE" in os.environ and not started:
        try:
            from .start import start

            start(inject)
        except Exception as error:  # an interpreter older than Python 3.9, say
            sys.stderr.write("repro-gate: %s cannot be traced: %s\n" % (sys.executable, error))
    _run(arguments)


if __name__ == "__main__":
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        del sys.path[0]  # this file's folder
    _started = "_repro_gate" in sys.modules
    if not _started:
        import types

        _package = types.ModuleType("_repro_gate")
        _package.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
        sys.modules["_repro_gate"] = _package
    from _repro_gate.probe import isolated

    isolated._main(sys.argv[0], _started)
