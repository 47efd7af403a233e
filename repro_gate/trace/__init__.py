"""The trace: the one thing that probe and gate share. `format` names what is in it, `writer` is used by the probe, `reader` by the gate."""
