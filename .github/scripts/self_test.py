"""Holds what the steps `passing` and `failing` of a self-test gave against what they had to.

Started by self-test.yml and move-major.yml with `toJSON(steps)` in STEPS; standard library only,
since nothing of ours is installed there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any


def wrong(steps: Mapping[str, Any]) -> list[str]:
    """One sentence for each claim that does not hold."""
    passing, failing = steps["passing"], steps["failing"]
    good, bad = passing["outputs"], failing["outputs"]
    first = json.loads(bad.get("first_divergence") or "{}")
    claims = {
        "the step of the passing example is green": passing["outcome"] == "success",
        "the step of the broken example is red": failing["outcome"] == "failure",
        "the passing example passes": (good.get("verdict"), good.get("exit_code"))
        == ("pass", "0"),
        "the broken example fails": (bad.get("verdict"), bad.get("exit_code"))
        == ("fail", "1"),
        "identical says so": (good.get("identical"), bad.get("identical"))
        == ("true", "false"),
        "where all bits are the same there is no first divergence": good.get(
            "first_divergence"
        )
        == "",
        "a first divergence has its step, kind and name": isinstance(
            first.get("step"), int
        )
        and bool(first.get("kind") and first.get("name")),
        "the cost was measured": bool(good.get("determinism_cost_pct"))
        and len(json.loads(good.get("determinism_cost_ci95") or "[]")) == 2,
        "the config hash is a SHA-256": good.get("config_hash", "").startswith(
            "sha256:"
        )
        and len(good["config_hash"]) == 71,
        "every file that is named is there": all(
            os.path.isfile(outputs.get(name, ""))
            for outputs in (good, bad)
            for name in ("report", "markdown", "sarif")
        ),
    }
    return [claim for claim, holds in claims.items() if not holds]


def main() -> int:
    """Say what is wrong and return 1, or 0."""
    steps = json.loads(os.environ["STEPS"])
    found = wrong(steps)
    for claim in found:
        sys.stdout.write(f"::error title=self-test::not true: {claim}\n")
    if found:
        sys.stdout.write(json.dumps(steps, indent=2) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
