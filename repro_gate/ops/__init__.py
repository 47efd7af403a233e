"""The operators of a training, or of a short known list, measured on this machine: `worker/` in the
training's interpreter, `measure` on the gate's side, `compare` between two measurements."""
