"""The probe: lives in the training process, sets flags and seeds, records, never changes a number.

It is loaded by `inject/sitecustomize.py` under the name `_repro_gate.probe`, whatever the
training's interpreter has installed and whatever its script folder holds, and imports only the
standard library, `..trace` and what the training imports itself.
"""
