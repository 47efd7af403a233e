"""`python -m repro_gate` is `repro-gate`."""

from __future__ import annotations

import sys

from repro_gate.cli import main

sys.exit(main())
