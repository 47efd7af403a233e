"""The config hash over the inputs of a run, the baseline file that records it, and drift."""
