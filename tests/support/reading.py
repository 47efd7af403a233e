"""Loads a spec from a text, as `repro.yml` of the folder that a test stands in: what the tests of
loader and document stand on."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.spec.errors import SpecError
from repro_gate.spec.loader import load_spec
from repro_gate.spec.model import Spec

BASE = "version: 1\ntrain:\n  run: python t.py\n"


def load(text: str | bytes, *overrides: str, **options: int) -> Spec:
    """The spec of that text, with the command line laid over it."""
    Path("repro.yml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_spec(Path("repro.yml"), overrides, **options)


def lines(text: str | bytes, *overrides: str, **options: int) -> list[str]:
    """The lines of the error that the text must give."""
    with pytest.raises(SpecError) as caught:
        load(text, *overrides, **options)
    return caught.value.message.splitlines()
