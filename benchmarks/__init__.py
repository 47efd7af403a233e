"""Speed and memory of the gate against the same work without it: `python benchmarks/run.py`. What each figure means: `README.md` beside it."""
