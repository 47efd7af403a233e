"""What the gate starts in the training's interpreter outside of any training: `python probe facts
REQUEST` and `… artifacts REQUEST`, a file of JSON. Its `extension` is the file of the gate's own
xxhash extension, or null.

It loads the probe under the name that it has in a training, whatever lies beside it or is
installed.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import types

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    package = types.ModuleType("_repro_gate")
    package.__path__ = [os.path.dirname(here)]
    sys.modules["_repro_gate"] = package
    with open(sys.argv[2], encoding="utf-8") as file:
        request = json.load(file)
    from _repro_gate.probe.digest import EXTENSION

    EXTENSION[:] = [request["extension"]]
    importlib.import_module("_repro_gate.probe." + sys.argv[1]).main(request)
