"""GitHub's side of the gate: event, API, comment, workflow commands. Calls `gate` and `report`; of
the rest only `cli` calls it."""
