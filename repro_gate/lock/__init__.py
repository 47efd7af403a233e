"""`repro.lock`: what a gating ended with, remembered; and what the next one says about it."""
