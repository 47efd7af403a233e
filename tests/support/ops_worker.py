"""Stands for the worker in `repro_gate/ops`: the same protocol, without torch. What each case does
is its name; `setting.json` beside this file says which cases there are, and what the controls come
to. It refuses a request that the real one would not understand."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
KNOWN = {
    "mode",
    "out",
    "device",
    "pattern",
    "quick",
    "user",
    "path",
    "cases",
    "skip",
    "dear",
    "settings",
}
SETTINGS = {"repeats", "contended", "seconds", "price", "seed", "flags", "sizes", "record"}
ABOUT = {
    "torch": "9.9.0",
    "python": "3.11.0",
    "device": "cpu",
    "threads": 2,
    "cpu_capability": "AVX9",
    "notes": ["a note"],
    "documented": {"raises": 1},
}


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    setting = json.loads((HERE / "setting.json").read_text())
    assert set(request) <= KNOWN and set(request.get("settings", {})) <= SETTINGS, request
    assert not {"GITHUB_TOKEN", "REPRO_GATE_PROBE"} & set(os.environ)
    if "fails" in setting:
        raise ModuleNotFoundError(setting["fails"])
    with open(request["out"], "a") as out:

        def write(line: object) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()

        write({"about": {**ABOUT, **setting.get("about", {})}})
        if request["mode"] == "controls":
            assert not {"pattern", "user", "cases"} & set(request), (
                "they would choose among the controls"
            )
            for name, came in {
                "races": "differs",
                "repeats": "repeats",
                **setting.get("controls", {}),
            }.items():
                write(
                    {
                        "began": {
                            "case": f"control/{name}",
                            "dtype": "float32",
                            "direction": "forward",
                            "at": 0.0,
                        }
                    }
                )
                write({**row(f"control/{name}", "float32", "forward"), "off": arm(came)})
        elif request["mode"] == "list":
            for name, more in setting["cases"].items():
                listed = {
                    "case": name,
                    "operator": name.split("/")[-1],
                    "source": "kernel",
                    "documented": "",
                    "random": False,
                }
                rows = [[dtype, "forward"] for dtype in more.get("dtypes", ["float32"])]
                write(
                    {**listed, "documented_on": more.get("on", {}), "dtypes": [], "rows": rows}
                    if request["pattern"] in name
                    else {}
                )
            write(
                {
                    "case": "documented/nothing",
                    "operator": "nothing",
                    "source": "documented",
                    "rows": [],
                    "documented_on": {"cpu": {"forward": "raises"}},
                }
            )
        else:
            measure(request, setting, write)
        write({"done": True})


def measure(request: dict, setting: dict, write) -> None:
    again = not request["settings"].get("record", True)
    for name in request["cases"]:
        more = setting["cases"][name]
        for dtype in more.get("dtypes", ["float32"]):
            if [name, dtype, "forward"] in request["skip"]:
                continue
            with open(HERE / "measured.txt", "a") as log:
                log.write(f"{2 if again else 1} {name} {dtype}\n")
            write({"began": {"case": name, "dtype": dtype, "direction": "forward", "at": 0.0}})
            write(
                {
                    **row(name, dtype, "forward"),
                    **do(name.split("/")[-1].split(" ")[0], again),
                    **more.get("row", {}),
                }
            )


def do(name: str, again: bool) -> dict:
    """What the operator does, and the arms of its row."""
    if name == "crash" or (name == "crash-later" and again):
        sys.stderr.write("free(): invalid pointer\n")
        sys.stderr.flush()
        os.abort()
    if name == "hang":
        time.sleep(60)
    if name == "eats":
        held = [bytearray(os.urandom(1 << 20)) for _ in range(300)]
        time.sleep(60)
        del held
    if name == "prints":
        print('{"done": true}\n::error::no\n\x1b[31m' + "x" * 100_000, flush=True)
    if name == "races":
        return {"off": {**arm("differs"), "differing": 5, "distinct": 3, "max_ulp": 7}}
    if name == "raises":
        return {
            "on": {**arm("raises"), "message": "races does not have a deterministic implementation"}
        }
    if name in ("no-kernel", "uninitialised"):
        return {"off": arm(name), "on": arm(name)}
    if name == "process":
        return {"off": arm("repeats", f"{os.getpid()}")}
    if name == "own-inputs":
        return {"off": arm("repeats", f"{os.getpid()}"), "inputs": f"{os.getpid()}"}
    return {}


def row(name: str, dtype: str, direction: str) -> dict:
    made = {
        "case": name,
        "operator": name,
        "source": "kernel",
        "dtype": dtype,
        "direction": direction,
        "documented": "",
        "random": False,
    }
    kernel = {
        "kernel": "aten.index_put_.default",
        "dispatched": ["aten.index_put_.default"],
        "size": "8x8",
        "inputs": "same",
    }
    times = {
        "times_off_ms": [1.0, 1.01, 0.99, 1.0],
        "times_on_ms": [2.0, 2.02, 1.98, 2.0],
        "seconds": 0.1,
    }
    return {**made, **kernel, **times, "off": arm("repeats"), "on": arm("repeats")}


def arm(outcome: str, digest: str = "d") -> dict:
    runs = 0 if outcome in ("raises", "no-kernel") else 8
    found = [digest] * bool(runs)
    counts = {"runs": runs, "differing": 0, "distinct": len(found)}
    return {
        "outcome": outcome,
        **counts,
        "max_ulp": None,
        "digests": found,
        "results": found,
        "message": "",
    }


if __name__ == "__main__":
    main()
