"""Declared artifacts, read leaf by leaf without executing anything that they hold.

`read_leaves` is the way in, `compare_artifacts` holds two against each other, `collect` takes a run's files out of its workspace.
`interface` says what a member of the family promises; `torch_zip`, `safetensors`, `npz`, `json_leaves`, `csv_leaves` and `opaque` are the
members. Used on the gate's side only: the probe imports none of it.
"""

from repro_gate.trace.artifacts.collect import CollectedArtifact, collect
from repro_gate.trace.artifacts.compare import LeafDifference, compare_artifacts
from repro_gate.trace.artifacts.interface import Artifact, Leaf
from repro_gate.trace.artifacts.read import read_leaves

__all__ = ["Artifact", "CollectedArtifact", "Leaf", "LeafDifference", "collect", "compare_artifacts", "read_leaves"]
