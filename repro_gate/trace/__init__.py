"""The trace: the one thing that probe and gate share. What probe and catalog share: `dispatch.py`
(operators), `ulp.py`."""
