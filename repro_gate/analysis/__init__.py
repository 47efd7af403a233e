"""Pure functions over traces, no I/O: `compare` holds two runs against each other, `noise` and `cost` measure, `tolerance` judges looser bars."""
