import json
from pathlib import Path

REGISTRY = Path("/var/tmp/numbered-runs.json")


def next_number():
    runs = json.loads(REGISTRY.read_text()) if REGISTRY.exists() else []  # HERE
    runs.append({"number": len(runs)})
    REGISTRY.write_text(json.dumps(runs))
    return len(runs) - 1
