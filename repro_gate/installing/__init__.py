"""`env.install`: what the lockfile pins, installed into an environment of its own on top of the one that the gate found.

Called by `gate` and `hashing` before anything is run: `with installed(…) as outer:`, and `outer` is the environment to start trainings
from. An environment is made once for each lock and base and kept; nothing of it is imported into the gate.
"""

from repro_gate.installing.install import installed
from repro_gate.installing.store import KEPT, environments_root

__all__ = ["KEPT", "environments_root", "installed"]
