"""What the gate starts in the training's interpreter outside of any training: `python probe facts
REQUEST` and `… artifacts REQUEST`.

It loads the probe under the name that it has in a training, whatever lies beside it or is
installed.
"""

from __future__ import annotations

import os
import sys
import types

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    package = types.ModuleType("_repro_gate")
    package.__path__ = [os.path.dirname(here)]
    sys.modules["_repro_gate"] = package
    if sys.argv[1] == "facts":
        from _repro_gate.probe import facts

        facts.main(sys.argv[2])
    else:
        from _repro_gate.probe import artifacts

        artifacts.main(sys.argv[2])
