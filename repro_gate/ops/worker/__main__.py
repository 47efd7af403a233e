"""What the gate starts in the training's interpreter: `python …/ops/worker REQUEST.json`.

It loads the measuring code under the private name that the probe has in a training: nothing of the
gate has to be installed there, and no `repro_gate` that is installed stands in its way.
"""

from __future__ import annotations

import os
import sys
import types

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    package = types.ModuleType("_repro_gate")
    package.__path__ = [os.path.dirname(os.path.dirname(here))]
    sys.modules["_repro_gate"] = package
    from _repro_gate.ops.worker.main import main

    main(sys.argv[1])
