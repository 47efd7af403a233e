"""Lockfiles, and `env.install`: what a lockfile pins, installed into an environment of its own on
top of the one that the gate found."""
