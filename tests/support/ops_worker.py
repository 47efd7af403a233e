"""Stands for the worker in `repro_gate/ops/worker`: the same protocol, without torch. What each
case does is its name; `setting.json` beside this file says which cases there are, and what the
controls come to. It refuses a request that the real one would not understand."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
KNOWN = {"answer", "extension", "device", "pattern", "user", "path", "rows"}
ABOUT = {"device": "cpu", "torch": "9.9.0", "python": "3.11.0", "threads": "2", "cpu-isa": "AVX9"}


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    setting = json.loads((HERE / "setting.json").read_text())
    assert set(request) - {"again"} == KNOWN, request
    assert not {"GITHUB_TOKEN", "REPRO_GATE_PROBE"} & set(os.environ)
    if "fails" in setting:
        raise ModuleNotFoundError(setting["fails"])
    with open(request["answer"], "a") as out:

        def write(line: object) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()

        if request["rows"] is None:
            listed(request, setting, write)
        else:
            measure(request, setting, write)
        write({"done": True})


def listed(request: dict, setting: dict, write) -> None:
    write({"about": {**ABOUT, **setting.get("about", {})}})
    controls = {"races": "differs", "repeats": "repeats", **setting.get("controls", {})}
    for name, came in controls.items():
        write({"began": [f"control/{name}", "float32", "forward"]})
        write({"row": {**row(f"control/{name}", "float32"), "off": arm(came)}})
    for name, more in setting["cases"].items():
        if request["pattern"] in name:
            for dtype in more.get("dtypes", ["float32"]):
                write({"listed": [name, dtype, "forward"]})
    write({"note": "a note"})


def measure(request: dict, setting: dict, write) -> None:
    again = "again" in request
    for name, dtype, direction in request["rows"]:
        more = setting["cases"][name]
        with open(HERE / "measured.txt", "a") as log:
            log.write(f"{2 if again else 1} {name} {dtype}\n")
        write({"began": [name, dtype, direction]})
        done = do(name.split("/")[-1].split(" ")[0], again)
        write({"row": {**row(name, dtype), **done, **more.get("row", {})}})


def do(name: str, again: bool) -> dict:
    """What the operator does, and the arms of its row."""
    if name == "crash" or (name == "crash-later" and again):
        sys.stderr.write("free(): invalid pointer\n")
        sys.stderr.flush()
        os.abort()
    if name == "hang":
        time.sleep(60)
    if name == "eats":
        held = b"x" * (300 << 20)
        time.sleep(60)
        del held
    if name == "prints":
        print('{"done": true}\n::error::no\n\x1b[31m' + "x" * 100_000, flush=True)
    if name == "races":
        return {"off": {**arm("differs"), "differing": 5, "max_ulp": 7}}
    if name == "raises":
        return {"on": {**arm("raises"), "message": "does not have a deterministic implementation"}}
    if name in ("no-kernel", "uninitialised"):
        return {"off": arm(name), "on": arm(name)}
    if name == "process":
        return {"off": arm("repeats", f"{os.getpid()}")}
    if name == "own-inputs":
        return {"off": arm("repeats", f"{os.getpid()}"), "inputs": f"{os.getpid()}"}
    return {}


def row(name: str, dtype: str) -> dict:
    of = {"case": name, "dtype": dtype, "direction": "forward"}
    of |= {"kernel": "aten.index_put_.default", "inputs": "same"}
    took = {"off_ms": [1.0, 1.01, 0.99, 1.0], "on_ms": [2.0, 2.02, 1.98, 2.0]}
    return {**of, **took, "off": arm("repeats"), "on": arm("repeats")}


def arm(outcome: str, digest: str = "d") -> dict:
    runs = 0 if outcome in ("raises", "no-kernel") else 8
    return {"outcome": outcome, "runs": runs, "digests": [digest] * bool(runs)}


if __name__ == "__main__":
    main()
