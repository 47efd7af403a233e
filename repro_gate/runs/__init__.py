"""Runs of the training: their arms, workspaces and order, and how one is started, watched, ended
and recorded."""
