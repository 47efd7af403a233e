"""Declared artifacts, read leaf by leaf without executing anything that they hold: `read_leaves` in `read` is the way in."""
