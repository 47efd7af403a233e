"""Pure functions over traces, no I/O: `compare` holds two runs against each other, `noise`, `cost` and `fingerprint` measure, `tolerance`
judges looser bars."""
