"""The fleet check with real trainings: each node records one run, and one of them computes other bits.
The training needs no torch; `NODE_NAME` makes one machine several nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.gates import ROOT, call, environment, training, with_line
from tests.support.shell import shellcheck

FLIP = "x += 2**-40 * (os.environ['NODE_NAME'] == os.environ['FLIP_ON'] and {})"
ONCE, RANDOM = "number == 3", "int.from_bytes(os.urandom(4), 'big')"
SPEC = """
version: 1
train: {run: "python train.py {seed}", steps: 5, timeout: 1m, env: {FLIP_ON: gpu2}}
cost: {measure: false}
"""


def recorded(place: Path, when: str, *nodes: str) -> list[Path]:
    """A report of each node, with its traces beside it; a node that is named twice has two."""
    source = with_line(FLIP.format(when)).replace("import random, sys", "import os, random, sys")
    folder = training(place / "code", source, SPEC)
    reports = []
    for number, node in enumerate(nodes):
        report = place / f"{node}-{number}.json"
        kept = report.with_suffix("")
        options = ("--record", "--quiet", "--json", report, "--keep-traces", kept)
        done = call("run", folder, *options, NODE_NAME=node)
        assert done.returncode == 0 and "nothing was compared" in done.stdout, done.stderr
        reports.append(report)
    return reports


def last_line(*arguments: str | Path) -> tuple[int, str]:
    done = call("compare", *arguments)
    return done.returncode, done.stdout.splitlines()[-1]


def test_a_recording_is_one_run_and_the_node_with_other_bits_is_named_with_step_and_quantity(
    tmp_path: Path,
) -> None:
    reports = recorded(tmp_path, ONCE, "gpu1", "gpu2", "gpu3")
    found = json.loads(reports[0].read_text())
    assert found["verdict"] == "recorded" and found["fingerprint"] and found["config_hash"]
    assert [run["name"] for run in found["runs"]] == ["deterministic-1"]
    assert not any(found[part] for part in ("determinism", "cost", "noise_floor", "diagnosis"))
    assert found["subject"]["versions"]["host"] == "gpu1" and found["checklist"]
    assert [item.name for item in reports[0].with_suffix("").iterdir()] == ["deterministic-1"]
    line = "2 of 3 nodes agree; gpu2 differs from step 3 on, first in the loss"
    assert last_line(*reports) == (1, line)
    assert (
        last_line(*reports, "--nodes", "4")[1]
        == line.replace("of 3", "of 4") + "; 1 of 4 nodes left no report"
    )
    assert last_line(reports[0], reports[2], "--nodes", "2") == (0, "all 2 nodes agree")
    # `comment` and `show` know what it is
    assert call("comment", "--dry-run", reports[0]).returncode == 3
    assert "RECORDED" in call("show", reports[0]).stdout


def test_a_node_that_flips_at_random_differs_from_itself(tmp_path: Path) -> None:
    reports = recorded(tmp_path, RANDOM, "gpu1", "gpu2", "gpu2", "gpu3")
    code, line = last_line(*reports)
    assert code == 1
    assert line.startswith("2 of 3 nodes agree; gpu2 (")
    assert line.endswith("gpu2 differs from itself, or a report of another node has its name")


def test_a_gate_run_of_each_node_does_as_well_and_shows_itself_who_differs_from_itself(
    tmp_path: Path,
) -> None:
    reports = recorded(tmp_path, RANDOM, "gpu1", "gpu3")
    gated = tmp_path / "gpu2.json"
    options = ("--quiet", "--json", gated, "--set", "robustness.vary=false")
    assert call("run", tmp_path / "code", *options, NODE_NAME="gpu2").returncode == 1
    code, line = last_line(*reports, gated)
    assert code == 1 and line.startswith("2 of 3 nodes agree; gpu2 differs from itself from step ")


def test_options_that_compare_contradict_it(tmp_path: Path) -> None:
    training(tmp_path, "")
    for option in (("--against", "HEAD"), ("--only", "resume"), ("--fail-fast",)):
        done = call("run", tmp_path, "--record", *option)
        assert done.returncode == 2 and "--record does one run and compares nothing" in done.stderr
    # no spec can ask for it: a pull request could
    assert call("run", tmp_path, "--set", "determinism.repeat=1").returncode == 2


def programs(place: Path, **scripts: str) -> dict[str, str]:
    """An environment in which these scripts and `repro-gate` are programs."""
    folder = place / "bin"
    folder.mkdir()
    ours = f'exec "{sys.executable}" -m repro_gate "$@"'
    for name, line in {"repro-gate": ours, **scripts}.items():
        (folder / name).write_text(f"#!/bin/bash\n{line}\n")
        (folder / name).chmod(0o755)
    around = environment(PYTHONPATH=str(ROOT))
    return {**around, "PATH": os.pathsep.join([str(folder), around["PATH"]])}


def called(*words: str | Path, **around: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=600, check=False, **around)


def test_the_scripts_of_the_example_for_kubernetes_record_and_compare(tmp_path: Path) -> None:
    claim, record, compare = yaml.safe_load_all(
        (ROOT / "examples/kubernetes/fleet.yml").read_text()
    )
    nodes = record["spec"]["completions"]
    assert nodes == record["spec"]["parallelism"]
    scripts = []
    for job in (record, compare):
        pod = job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["command"] == ["bash", "-c"] and pod["restartPolicy"] == "Never"
        assert claim["metadata"]["name"] in {item["name"] for item in container["volumeMounts"]}
        scripts += container["args"]
    assert container["env"] == [{"name": "NODES", "value": str(nodes)}]
    shellcheck({"record": scripts[0], "compare": scripts[1]}, tmp_path)
    (tmp_path / "fleet").mkdir()
    code = training(tmp_path / "code", with_line(""), SPEC)
    around = programs(tmp_path, sleep="exit 0")
    first, last = (script.replace("/fleet/", f"{tmp_path}/fleet/") for script in scripts)
    for number in range(nodes - 1):
        again = {**around, "NODE_NAME": f"worker-{number}"}
        assert called("bash", "-c", first, cwd=code, env=again).returncode == 0
    # a node that cannot train leaves a report that says why
    (code / "train.py").write_text("raise ValueError('no GPU')")
    told = called("bash", "-c", last, env={**around, "NODES": str(nodes)})
    assert told.returncode == 3, told.stderr
    assert told.stdout.splitlines()[-1] == "3 of 4 nodes agree; 1 of 4 nodes left no report"
    called("bash", "-c", first, cwd=code, env={**around, "NODE_NAME": "worker-3"})
    told = called("bash", "-c", last, env={**around, "NODES": str(nodes)})
    assert told.stdout.splitlines()[-1] == "3 of 4 nodes agree; worker-3 has no result"
    assert "no GPU" in told.stdout and (tmp_path / "fleet/fleet.md").exists()


@pytest.mark.slow
def test_the_example_for_slurm_names_the_node_with_step_and_tensor(tmp_path: Path) -> None:
    """With an `srun` that runs the task of each node on this machine, one after the other."""
    pytest.importorskip("torch")
    node = 'SLURMD_NODENAME="gpu$node" "$@"'
    around = programs(tmp_path, srun=f"shift; for node in 1 2 3; do {node}; done")
    around |= {"RECORDINGS": "2", "SLURM_JOB_NUM_NODES": "3"}
    flip = ["train.env.FLIP_ON=gpu2", "train.env.FLIP=random"]
    for options, words in (
        (flip[:1], "differs from step 7 on, first in the gradient of blocks.3.mlp.weight"),
        (flip, "("),
    ):
        out = tmp_path / f"out-{len(options)}"
        told = called(
            ROOT / "examples/slurm/fleet.sbatch",
            ROOT / "examples/slurm/fleet",
            *(word for option in options for word in ("--set", option)),
            env={**around, "OUT": str(out)},
        )
        log = (out / "fleet.log").read_text().splitlines()
        assert told.returncode == 1, log
        line = log[-1]
        assert line.startswith(f"2 of 3 nodes agree; gpu2 {words}"), line
    assert (tmp_path / "out-1/fleet.md").read_text().startswith("## ❌ Fleet: 2 of 3 nodes agree")
