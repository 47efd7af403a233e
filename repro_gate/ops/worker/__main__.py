"""What the gate starts in the training's interpreter: `python …/ops/worker REQUEST.json`.

It loads the measuring code under the private name that the probe has in a training: nothing of the
gate has to be installed there, and no `repro_gate` that is installed stands in its way.

The request is one JSON object; `measure.answer` says what is in it. The answer is JSON lines
appended to the file that it names as `answer`, since libraries print to standard output. Every
answer ends with {"done": true}.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import types
import warnings

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    package = types.ModuleType("_repro_gate")
    package.__path__ = [os.path.dirname(os.path.dirname(here))]
    sys.modules["_repro_gate"] = package
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    # Python puts the script's own folder first.
    sys.path[:1] = request["path"]
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    from _repro_gate.ops.worker import known, measure

    measure.answer(request, known.jobs(request["own"], request["known"]))
