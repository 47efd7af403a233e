"""Claims about `runs.legs`: how a leg is ended, and what is seen of its checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from repro_gate.runs import legs
from repro_gate.runs.ending import PREEMPTED
from repro_gate.runs.legs import LegEnd, LegStart, LegWatch, following, open_for_writing
from repro_gate.runs.process import Ended
from repro_gate.runs.workspaces import Workspace
from repro_gate.sandbox.identity import Sandbox
from repro_gate.trace.model import Trace

OURS = ("Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "E: no")
THEIRS = (OURS[0], '  File "/env/bin/torchrun", line 8, in <module>', "E: no")


def watching(place: Path, reason: str | None = None, **start: Any) -> Any:
    """Follow a leg in this workspace, which `tick` ends for this reason."""
    root = place / "workspace"
    (root / "out").mkdir(parents=True, exist_ok=True)
    snapshot = SimpleNamespace(root=place / "snapshot")
    folder: Any = SimpleNamespace(sandbox=Sandbox(), snapshot=snapshot)
    space = Workspace(root, root, place / "home", place / "tmp")
    return following(LegStart(pattern="out/*.pt", **start), space, folder, lambda _: reason)


def seen(watch: LegWatch, traces: Sequence[Trace] = ()) -> LegEnd:
    watch.began = 0.0
    return watch.end(traces)


def test_a_leg_that_is_killed_ends_at_once_and_its_checkpoint_is_the_newest(tmp_path: Path) -> None:
    with watching(tmp_path, PREEMPTED) as watch:
        for number, name in enumerate(("b.pt", "a.pt", "c.txt")):
            path = tmp_path / "workspace/out" / name
            path.write_text("x")
            os.utime(path, (number, number))
        assert watch.look(()) == PREEMPTED
        assert seen(watch) == LegEnd(checkpoint="out/a.pt")
        watch.writing = (os.path.realpath(tmp_path / "workspace/out/a.pt"),)
        assert seen(watch) == LegEnd(checkpoint="out/a.pt", half_written=True)


@pytest.mark.parametrize("replaced", [True, False])
def test_a_checkpoint_that_was_written_over_is_told_from_a_new_one(
    replaced: bool, tmp_path: Path
) -> None:
    with watching(tmp_path):
        path = tmp_path / "workspace/out/a.pt"
        path.write_text("one")
    with watching(tmp_path, checkpoint="out/a.pt") as watch:
        if replaced:
            path.with_suffix(".new").write_text("three")
            path.with_suffix(".new").rename(path)
        else:
            path.write_text("three")
        assert watch.look(()) is None
        end = seen(watch)
    assert (end.resumed_from, end.in_place) == ("out/a.pt", not replaced)


def test_a_leg_that_gets_sigterm_has_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    child: Any = SimpleNamespace(
        pid=7, uids=lambda: SimpleNamespace(real=os.getuid()), send_signal=sent.append
    )
    trace: Any = SimpleNamespace(pid=7, trained=True)
    monkeypatch.setattr(legs, "descendants", lambda _: [child])
    monkeypatch.setattr(legs, "open_for_writing", lambda _: ("/run/out/a.pt",))
    with watching(tmp_path, PREEMPTED, grace=30.0) as watch:
        assert watch.look(()) is None and not sent, "nothing trains"
        assert watch.look([trace]) is watch.look([trace]) is None
        assert len(sent) == 1 and not watch.writing
        watch.asked_at -= 31
        assert watch.look([trace]) == PREEMPTED and watch.writing


@pytest.mark.parametrize(
    ("ended", "outcome"),
    [
        (Ended(exit_code=0), PREEMPTED),
        (Ended(exit_code=143), PREEMPTED),
        (Ended(exit_code=1, tail=THEIRS), PREEMPTED),  # a launcher's
        (Ended(exit_code=1, tail=OURS), "crashed"),
        (Ended(exit_code=1, tail=OURS, stopped=PREEMPTED), None),  # it was killed
        (Ended(exit_code=1, tail=OURS, timed_out=True), None),
    ],
)
def test_what_a_leg_does_when_it_is_asked_to_end_is_how_it_ended(
    ended: Ended, outcome: str | None, tmp_path: Path
) -> None:
    with watching(tmp_path) as watch:
        assert watch.ending(ended) is None, "nobody asked"
        watch.asked_at = 1.0
        ending = watch.ending(ended)
    assert (ending and ending.outcome) == outcome
    assert outcome != "crashed" or (ending.reason_id == "run/crashed" and ending.remedy)


def test_what_a_leg_read_beside_its_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot/data.bin").write_text("")
    names = ("data.bin", "out/a.pt", "out/best.txt", "out/\\udcff")
    opened = [SimpleNamespace(path=name, inside=True, sought=False) for name in names]
    opened += [SimpleNamespace(path="none", inside=True, sought=True)]
    opened += [SimpleNamespace(path="/etc/x", inside=False, sought=False)]
    trace: Any = SimpleNamespace(opened=opened)
    with watching(tmp_path, checkpoint="out/a.pt") as watch:
        assert seen(watch, [trace]).read_beside == ("out/best.txt",)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_what_a_process_below_writes_is_seen_but_for_its_logs(tmp_path: Path) -> None:
    source = "import sys; files = [open('new', 'w'), open('log', 'a'), open(sys.executable)]"
    command = [sys.executable, "-IS", "-c", f"{source}; print(flush=True); sys.stdin.read()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None and process.stdout.readline()
        names = [path for path in open_for_writing(Sandbox()) if path.startswith(str(tmp_path))]
    assert names == [str(tmp_path / "new")]
