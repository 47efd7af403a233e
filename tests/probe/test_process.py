"""Claims about `probe.process`: a process is called by its rank, whoever started it."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from repro_gate.probe.process import process_key

TASK = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}


@pytest.mark.parametrize(
    ("environment", "key"),
    [
        ({}, "main"),
        ({"RANK": "3"}, "rank3"),
        ({"RANK": "0", "WORLD_SIZE": "1"}, "rank0"),
        (TASK, "rank1"),
        ({**TASK, "RANK": "5"}, "rank5"),  # torchrun in a task
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, "main"),
        ({"SLURM_PROCID": "1"}, "main"),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, "rank1"),
        ({"PMI_RANK": "x", "PMI_SIZE": "2"}, "main"),
    ],
)
def test_a_process_has_the_key_of_its_rank(
    environment: Mapping[str, str], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in os.environ.keys() - environment.keys():
        if "RANK" in name or "SLURM" in name:
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert process_key() == key
