"""Python imports this at its start where the gate put this folder first on PYTHONPATH. It starts
the probe and hands on to the user's own `sitecustomize`, if there is one. Nothing it does may stop
the interpreter from starting."""


def _start() -> None:
    import os
    import sys

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    config = os.environ.get("REPRO_GATE_PROBE", "")
    if config and not os.path.exists(config):
        # another machine, or a container, that does not share the run's folder
        node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
        sys.stderr.write("repro-gate: %s does not see %s\n" % (node, config))
    elif config and "_repro_gate" not in sys.modules:
        import types

        package = types.ModuleType(
            "_repro_gate"
            # a private name: no script folder's `trace.py`, no installed `repro_gate` stands in its
            # way
        )
        package.__path__ = [os.path.dirname(os.path.dirname(here))]
        sys.modules["_repro_gate"] = package
        try:
            from _repro_gate.probe.start import start
        except SyntaxError as error:  # an interpreter older than Python 3.9
            sys.stderr.write(
                "repro-gate: %s cannot be traced: %s\n" % (sys.executable, error)
            )
        else:
            start(here)

    own = sys.modules.pop(__name__, None)
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        if own is not None:
            sys.modules.setdefault(__name__, own)


_start()
