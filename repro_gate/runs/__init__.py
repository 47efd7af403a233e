"""Runs of the training: their arms and workspaces, their order, how one is started, watched and
ended, and what is kept of it."""
