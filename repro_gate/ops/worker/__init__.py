"""The half that runs in the training's interpreter. It imports torch, its own siblings, `probe/`
and `trace/`, and is in the syntax of Python 3.9."""
