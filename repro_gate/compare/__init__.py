"""Compares traces and artifacts: pure functions, no files. First divergence, noise floor,
determinism cost, tolerances."""
