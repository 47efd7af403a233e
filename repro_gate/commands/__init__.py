"""One file for each command that is more than one call."""
