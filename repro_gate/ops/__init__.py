"""Measures, in the training's interpreter, which torch operators repeat their bits on this machine.
`worker.py` has the protocol."""
