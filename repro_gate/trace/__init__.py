"""The trace: the one thing that probe and gate share."""
