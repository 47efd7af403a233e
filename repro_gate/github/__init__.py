"""GitHub's side of the gate: the event, the API, the comment, workflow commands. Calls `gate` and `report`; nothing of the rest calls it."""
