"""Speed and memory of the gate against the same work without it: `python benchmarks/run.py`.
`README.md` says what each figure means."""
