"""The operator catalog: which torch operators repeat their bits on this machine. `worker/` measures
in the training's interpreter; the gate asks `lookup`, the command line `command`."""
