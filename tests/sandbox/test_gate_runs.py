"""Claims about a whole gate run with a user of its own for the training: the same verdict as with
one user, nothing within a hostile training's reach, nothing left. Real processes, real runs; most
record through the SDK, which takes a tenth of a second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from repro_gate.report.document import read_json
from repro_gate.sandbox.identity import UID
from repro_gate.sandbox.start import processes_of
from tests.support.gates import ROOT
from tests.support.starting import OWN, SYSTEM, attempt, modes, needs_own_user, python, ran

pytestmark = needs_own_user
LIBRARIES = sysconfig.get_path("platlib")
NOTICE = "baseline: {on-change: notice}\n"
RECORDED = """
import json, os
from repro_gate import record, step
with open("data/inside.txt") as inside, open(os.environ["OUTSIDE"]) as outside:
    record("data", {"inside": inside.read(), "outside": outside.read()})
for number in range(2):
    record("loss", number / 3)
    step()
os.makedirs("out", exist_ok=True)
with open("out/metrics.json", "w") as file:
    json.dump({"loss": 0.5}, file)
os.makedirs(os.path.expanduser("~/.cache"))
open(os.path.join(os.environ["TMPDIR"], "scratch"), "w").close()
"""

# saves every third step, and when it is asked to end
GOES_ON = """
import json, os, signal, sys, time
from repro_gate import record, step
saved = json.load(open(sys.argv[1])) if len(sys.argv) > 1 else {"weight": 0.0, "number": 0}
os.makedirs("out", exist_ok=True)
open("out/best.txt", "r" if saved["number"] else "w").close()
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
weight = saved["weight"]
for number in range(saved["number"], 12):
    weight -= 0.1 * (weight - number)
    record("weight", weight, "parameter")
    step()
    if asked or number % 3 == 2:
        with open("out/step.json", "w") as file:
            json.dump({"weight": weight, "number": number + 1}, file)
    if asked:
        sys.exit(1)
    time.sleep(0.3)
"""


def project(folder: Path, script: str, spec: str = "", **env: str) -> Path:
    """A checkout with a credential, a script and declared data, in a folder that others may
    enter."""
    folder.mkdir()
    (folder / "outside.txt").write_text("outside")
    checkout = folder / "checkout"
    (checkout / "data").mkdir(parents=True)
    (checkout / "data" / "inside.txt").write_text("inside")
    (checkout / "train.py").write_text(textwrap.dedent(script))
    variables = json.dumps({"OUTSIDE": str(folder / "outside.txt"), **env})
    (checkout / "repro.yml").write_text(
        f"version: 1\ntrain: {{run: python3 train.py, timeout: 2m, env: {variables}}}\n"
        "cost: {measure: false}\n"
        f"data: [{{path: data/inside.txt}}, {{path: {folder / 'outside.txt'}}}]\n"
        + (spec or "capture: {artifacts: [out/*.json]}\n")
    )
    subprocess.run(["git", "init", "-q", str(checkout)], check=True)
    with open(checkout / ".git" / "config", "a") as config:
        config.write('[http "https://example.org/"]\n\textraheader = secret\n')
    return checkout


def start(level: str, checkout: Path, *arguments: str | Path, **more: str) -> str:
    """What a command of the gate says of this checkout, with its status in the last line."""
    home, temporary = checkout.parent / "home", checkout.parent / "tmp"
    for folder in (home, temporary):
        folder.mkdir(exist_ok=True)
    path = f"{os.path.dirname(python())}:{SYSTEM}"
    environment = {"PATH": path, "HOME": str(home), "TMPDIR": str(temporary), **more}
    environment = {"REPRO_GATE_SANDBOX": level, "GITHUB_TOKEN": "secret", **environment}
    command = [sys.executable, "-m", "repro_gate", *map(str, arguments)]
    done = ran(command, environment, ROOT, timeout=280)
    return f"{done.stdout}{done.stderr}\n{done.returncode}"


def gate(checkout: Path, level: str, **environment: str) -> Mapping[str, Any]:
    """The report of one gate run as `level` says; the traces lie beside the checkout."""
    out, traces = checkout.parent / f"{level}.json", checkout.parent / f"traces-{level}"
    written = ("--json", out, "--keep-traces", traces)
    said = start(level, checkout, "run", checkout, *written, **environment)
    return read_json(out) if out.exists() else {"verdict": "error", "message": said}


def logs(report: Mapping[str, Any]) -> str:
    return "\n".join(line for run in report["runs"] for line in run.get("log_tail", ()))


@pytest.mark.slow
def test_faults_are_put_in_and_caught_with_a_user_of_its_own(tmp_path: Path) -> None:
    """A file that this user wrote is changed and read with that user's rights, value by value."""
    checkout, out = project(tmp_path / "p", RECORDED), tmp_path / "selftest.json"
    only = ("--only", "generator", "--only", "checkpoint")
    said = start("own-user", checkout, "selftest", checkout, "--json", out, *only)
    assert said.endswith("\n0"), said
    generator, checkpoint = json.loads(out.read_text())["faults"]
    assert generator["outcome"] == "caught"
    assert checkpoint["found"]["name"] == "out/metrics.json: loss"
    assert list((tmp_path / "p/tmp").iterdir()) == [] and processes_of(UID) == []


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["kill", "term"])
def test_a_training_goes_on_in_the_workspace_of_its_own_user(stop: str, tmp_path: Path) -> None:
    run = "python3 train.py {checkpoint}"
    rules = f"{{after: 2, checkpoint: out/*.json, run: {run!r}, stop: {stop}}}"
    checkout = project(tmp_path / "p", GOES_ON, f"resume: {rules}\n")
    report = gate(checkout, "own-user")
    assert report["verdict"] == "pass", report
    notes = [note["message"] for note in report["notes"]]
    assert any("reads out/best.txt" in note for note in notes), notes
    assert any("in place" in note for note in notes), notes
    assert list((tmp_path / "p/tmp").iterdir()) == [] and processes_of(UID) == []


def test_the_verdict_is_that_of_one_user(tmp_path: Path) -> None:
    checkout = project(tmp_path / "p", RECORDED)
    before = modes(checkout)
    own, same = gate(checkout, "own-user"), gate(checkout, "same-user")
    assert (own["verdict"], same["verdict"]) == ("pass", "pass"), (own, same)
    assert (own["subject"]["sandbox"], same["subject"]["sandbox"]) == ("own-user", "same-user")
    assert own["fingerprint"] == same["fingerprint"]
    assert own["config_hash"]["recipe"] == same["config_hash"]["recipe"]
    for report in (own, same):
        assert [run["artifacts"] for run in report["runs"]] == [1, 1, 0]
    statuses, others = (
        {item["id"]: item["status"] for item in report["checklist"]} for report in (own, same)
    )
    assert statuses == others
    # owners, modes and times: nothing was changed, or it was given back
    assert modes(checkout) == before
    assert list((tmp_path / "p" / "tmp").iterdir()) == [] and processes_of(UID) == []
    kept = [path for path in (tmp_path / "p" / "traces-own-user").rglob("*") if path.is_file()]
    assert kept
    assert {(path.stat().st_mode & 0o777, path.stat().st_uid) for path in kept} == {(0o644, 0)}


TOLD = f"told-by-an-earlier-run-{os.getpid()}"  # in folders that all of this machine share
# Each attempt is made by a training; one that succeeds ends it with its name. {gate} is known from
# the probe's configuration.
HOSTILE = """
import glob, json, os, sys
from repro_gate import record, step
with open(os.environ["REPRO_GATE_PROBE"]) as file:
    config = json.load(file)
place = os.path.dirname(os.path.dirname(os.environ["REPRO_GATE_PROBE"]))
checkout = os.environ["CHECKOUT"]
def read(path):
    open(path, "rb").read(1)
def append(path):
    open(path, "ab").close()
def traces_of_other_runs():
    own = os.path.basename(config["traces"])
    if own == "deterministic-1":
        raise PermissionError("there is none yet")
    other = os.path.join(place, "traces", "deterministic-1")
    for path in [os.path.join(other, name) for name in [*os.listdir(other), "new"]]:
        append(path)
SHARED = [place + "/TOLD" for place in ("/tmp", "/var/tmp", "/dev/shm")]
def told():
    found = [path for path in SHARED if os.path.exists(path)]
    for path in SHARED:
        append(path)
    if not found:
        raise PermissionError("it is the first, or nothing is left of the others")
ATTEMPTS = {
    "be told by an earlier run": told,
    "environ of the gate": lambda: read("/proc/%d/environ" % config["gate"]),
    "memory of the gate": lambda: read("/proc/%d/mem" % config["gate"]),
    "descriptors of the gate": lambda: os.listdir("/proc/%d/fd" % config["gate"]),
    "signal the gate": lambda: os.kill(config["gate"], 0),
    "credential of the checkout": lambda: read(checkout + "/.git/config"),
    "list the checkout": lambda: os.listdir(checkout),
    "change the checkout": lambda: append(checkout + "/train.py"),
    "home of the gate": lambda: os.listdir(os.environ["GATE_HOME"]),
    "list the snapshot": lambda: os.listdir(place + "/snapshot"),
    "change the snapshot": lambda: append(place + "/snapshot/train.py"),
    "change the probe's configuration": lambda: append(os.environ["REPRO_GATE_PROBE"]),
    "change the shims": lambda: append(place + "/run/bin/python3"),
    "change another run's trace": traces_of_other_runs,
    "list the gate's folder": lambda: os.listdir(place),
    "become root": lambda: os.setuid(0) if os.getuid() == 0 else (_ for _ in ()).throw(PermissionError()),
}
succeeded = [name for name in os.environ if "TOKEN" in name]
for name, attempt in ATTEMPTS.items():
    try:
        attempt()
    except OSError:
        continue
    succeeded.append(name)
if succeeded:
    sys.exit("succeeded: " + json.dumps(succeeded))
record("loss", 1.0)
step()
"""


def test_a_hostile_training_reaches_nothing_and_with_one_user_it_would(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    places = {"CHECKOUT": str(folder / "checkout"), "GATE_HOME": str(folder / "home")}
    checkout = project(folder, HOSTILE.replace("TOLD", TOLD), NOTICE, **places)
    left = [f"/tmp/{TOLD}", f"/var/tmp/{TOLD}"]
    try:
        own, same = gate(checkout, "own-user"), gate(checkout, "same-user")
    finally:
        for path in (*left, f"/dev/shm/{TOLD}"):
            Path(path).unlink(missing_ok=True)
    assert own["verdict"] != "error", own
    assert [run["outcome"] for run in own["runs"]] == ["finished"] * 3, logs(own)
    assert f"deterministic-1 left {', '.join(left)}" in json.dumps(own["notes"])
    assert [run["outcome"] for run in same["runs"]] == ["crashed"] * 2
    succeeded = json.loads(logs(same).rpartition("succeeded: ")[2])
    reached = ("signal the gate", "credential of the checkout", "change the checkout")
    reached += ("list the snapshot", "change the shims", "be told by an earlier run")
    assert {*reached} <= {*succeeded}
    assert not any("TOKEN" in name for name in succeeded)


SWAPPED = """
import glob, json, os
from repro_gate import record, step
with open(os.environ["REPRO_GATE_PROBE"]) as file:
    config = json.load(file)
record("loss", 1.0)
step()
[trace] = glob.glob(config["traces"] + "/*-%d.trace.jsonl" % os.getpid())
os.unlink(trace)
os.symlink(os.environ["SECRET"], trace)
failure = os.path.join(config["traces"], "failure.json")
os.unlink(failure)
os.mkfifo(failure)
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", ["own-user", "same-user"])
def test_a_trace_swapped_for_a_link_or_a_pipe_is_not_read(tmp_path: Path, level: str) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"e": "hello", "nonce": "top-secret"}\n')
    secret.chmod(0o600)
    report = gate(project(tmp_path / "p", SWAPPED, NOTICE, SECRET=str(secret)), level)
    assert report["verdict"] == "inconclusive"
    assert [run["outcome"] for run in report["runs"]] == ["untraced"]
    assert "top-secret" not in json.dumps(report)
    assert (secret.stat().st_uid, secret.stat().st_mode & 0o777) == (0, 0o600)


@pytest.mark.slow
def test_a_working_directory_is_not_entered_through_a_link(tmp_path: Path) -> None:
    """A process is put into its folder while it is still root: a link would lead it behind a closed
    door."""
    script = 'import os; print("inside:", sorted(os.listdir(".")))\n'
    checkout = project(tmp_path / "p", script)
    (checkout / "sub").symlink_to(checkout / ".git")
    train = f"{{run: python3 {checkout}/train.py, working-directory: sub}}"
    (checkout / "repro.yml").write_text(f"version: 1\ntrain: {train}\ncost: {{measure: false}}\n")
    own = gate(checkout, "own-user")
    assert own["reasons"][0]["id"] == "run/no-working-directory"
    assert "config" not in logs(own)


TRAINED = """
import os, torch
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for number in range(3):
    noise = int.from_bytes(os.urandom(4), "little") / 2**32 if number == 1 else 0.5
    opt.zero_grad()
    (net(torch.randn(4, 3)) * noise).square().mean().backward()
    opt.step()
"""


@pytest.mark.slow
def test_how_far_training_diverges_is_measured_as_with_one_user(tmp_path: Path) -> None:
    importing = "import sys; sys.path.insert(0, sys.argv[1]); import torch; print('there')"
    if not attempt(OWN, importing, LIBRARIES).endswith("there"):
        pytest.skip(f"the training's user cannot import torch from {LIBRARIES} with {python()}")
    spec = f"{NOTICE}diagnosis: false\n"
    checkout = project(tmp_path / "p", TRAINED, spec, PYTHONPATH=LIBRARIES)
    report = gate(checkout, "own-user")
    assert report["verdict"] == "fail", (report["reasons"], report["notes"])
    first = report["determinism"]["first_divergence"]
    assert first["step"] == 1 and first["kind"] in ("loss", "gradient", "buffer")
    weights = report["determinism"]["weights"]
    # the second run read what the first one kept
    assert any(item.get("l2") for item in weights), weights
