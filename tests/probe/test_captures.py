"""Claims about a process that trains on GPUs, by a stand-in for `torch.cuda`: no device is asked
anything while a CUDA graph is captured, and none but those of the training is touched."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from repro_gate.probe import end_state, facts, flags, rng
from repro_gate.probe.digest import UNREAD
from repro_gate.probe.patch import WeakByIdentity
from repro_gate.probe.session import Session
from repro_gate.probe.shared import PROCESS
from repro_gate.probe.step_time import StepTimes
from repro_gate.probe.torch_hooks import Hooks
from repro_gate.trace.model import Trace
from repro_gate.trace.reader import TraceFollower
from tests.support.cuda import Cuda, Graph, Stream, in_torch

CONFIG = {"nonce": "ab", "every": 1, "steps": None, "keep": {"steps": []}, "variables": []}


@dataclass
class Training:
    """A process that has two GPUs, the second for its parameters, and whose current one is the
    first; on the first nothing was done."""

    cuda: Cuda
    session: Session
    hooks: Hooks
    folder: Path

    def trace(self) -> Trace:
        """What the gate can read now; no mistake of the probe's is among it."""
        [path] = self.folder.iterdir()
        found = TraceFollower(path, "ab").poll()
        assert not self.session.broken, found.notes
        return found

    def on(self, device: int) -> None:
        """Learn of parameters on a device."""
        there = SimpleNamespace(is_cuda=True, device=SimpleNamespace(index=device))
        self.session.runs_on([("w", there)])

    def step(self) -> None:
        self.session.end_step()


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Training:
    cuda = Cuda()
    for place, name, value in (
        (PROCESS, "torch", in_torch(cuda)),
        (PROCESS, "captures", WeakByIdentity()),
        (PROCESS, "observers", []),
        (PROCESS, "sessions", []),
        (facts, "_IN_USE", []),
        (facts, "_PEAKS", {}),
        (rng, "states", lambda: ((("python", "state", (1,)),), bytes(16))),
        (end_state, "roots", list),
    ):
        monkeypatch.setattr(place, name, value)
    session = Session({**CONFIG, "traces": str(tmp_path)})
    PROCESS.sessions.append(session)
    session.start()
    cuda.allocate(1, 100)
    return Training(cuda, session, Hooks(session), tmp_path)


def capture(training: Training, graph: Graph) -> None:
    training.hooks.graph_begins(Graph.capture_begin, graph)


def test_a_training_on_the_second_gpu_leaves_the_first_alone(training: Training) -> None:
    training.on(1)
    training.step()
    training.cuda.current_stream(1).work(20)
    training.step()
    training.cuda.finish()
    training.session.close("exit")
    trace = training.trace()
    assert [mark.ms for mark in trace.steps[1:]] == [20.0]
    assert (trace.facts["gpu-model"], trace.end) == ("GPU 1", "exit")
    assert training.cuda.contexts == {1}
    assert set(training.cuda.synchronized) == {1}


@pytest.mark.parametrize("begun", ["by torch", "on the current stream"])
def test_what_is_noticed_during_a_capture_waits_for_its_end(training: Training, begun: str) -> None:
    cuda, session = training.cuda, training.session
    training.on(1)
    training.step()
    cuda.current_stream(1).work(20)
    training.step()  # its times are on their way
    UNREAD.clear()
    graph = cuda.Graph()
    with cuda.stream(Stream(cuda, 1)):
        if begun == "by torch":
            capture(training, graph)
        else:
            graph.capture_begin()
        # on another stream than that of the capture, which torch's question does not see
        current = cuda.of_thread[1] if begun != "by torch" else cuda.streams[0][0]
        with cuda.stream(current):
            flags._undone("torch.backends.cudnn.benchmark", "True", ("train.py", 3), False)
            session.note("slow-digest", "a note")
            training.hooks.initial_state()
            assert not training.hooks._captured
            training.hooks.optimizer_made(lambda _: None, SimpleNamespace(param_groups=[]))
            with session.in_hook():
                facts.used()
            training.step()  # none: it is captured
        cuda.finish()
        waiting = training.trace()
        training.hooks.graph_made(Graph.capture_end, graph)
    assert (len(waiting.steps), waiting.undone, waiting.notes) == (1, [], [])
    training.step()
    cuda.finish()
    session.close("exit")
    trace = training.trace()
    assert [mark.ms for mark in trace.steps[1:]] == [20.0, 0.0]
    assert [item.value for item in trace.undone] == ["True"]
    assert trace.notes == [("slow-digest", "a note")]


def test_a_capture_that_cannot_begin_or_end_is_none(training: Training) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    graph = training.cuda.Graph()
    for call in (training.hooks.graph_begins, training.hooks.graph_made):
        with pytest.raises(RuntimeError, match="not permitted"):
            call(fails, graph)
        assert not facts.capturing()
    capture(training, graph)
    training.cuda.streams[0][0].capturing = False  # but for what was noted
    assert facts.capturing()
    del graph  # it was thrown away in the middle
    assert not facts.capturing()


def test_only_steps_since_its_beginning_are_a_graphs(training: Training) -> None:
    """Those of another thread, as they are not recorded while this one captures, are not its
    own."""
    hooks, graph, early, late = training.hooks, training.cuda.Graph(), object(), object()
    other = training.cuda.Graph()
    capture(training, other)
    hooks.after_step(early)
    hooks.graph_made(Graph.capture_end, other)
    hooks._in_graph = [early]
    capture(training, graph)
    hooks.after_step(late)
    hooks.graph_made(Graph.capture_end, graph)
    assert (hooks._graphs.get(other), hooks._graphs.get(graph)) == ([early], [late])


def test_a_process_may_end_while_it_captures(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    training.on(1)
    training.step()
    training.cuda.current_stream(1).work(20)
    training.step()
    for name in ("at_stop", "at_close"):
        monkeypatch.setattr(training.hooks, name, lambda *_: pytest.fail("state is read"))
    graph = training.cuda.Graph()
    capture(training, graph)
    training.session.close("exit")
    trace = training.trace()
    assert (trace.end, len(trace.steps), training.cuda.synchronized) == ("exit", 2, [])
    [(name, text)] = trace.notes
    assert name == "lost" and text.endswith("a CUDA graph is being captured")


@pytest.mark.parametrize("reason", ["exit", "exception"])
def test_state_is_read_after_a_synchronize_of_each_gpu_in_use(
    training: Training, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """The device writes a buffer on a stream of its own: what is read before it has ended is the
    old value."""
    net = torch.nn.Linear(2, 1)
    hooks, cuda = training.hooks, training.cuda
    optimizer = torch.optim.SGD(net.parameters())
    hooks.optimizer_made(lambda _: None, optimizer)
    read: list[tuple[str, bool]] = []

    def record(kind: str, items: Any, label: str = "") -> None:
        read.append((kind + label, cuda.clocks[1] == max(stream.at for stream in cuda.streams[1])))

    monkeypatch.setattr(hooks.tensors, "record", record)
    monkeypatch.setattr(end_state, "look", lambda names: (record("look", [])) or ([], 0))
    side = Stream(cuda, 1)
    cuda.streams[1].append(side)
    side.work(10)
    hooks.initial_state()
    training.session.trains()
    training.step()
    hooks._used = [optimizer]
    side.work(10)
    training.session.close(reason)
    initial = [("parameterinitial", True), ("buffer", True)]
    final = [("parameterfinal", True), ("parameterfinal", True), ("buffer", True)]
    kinds = [item for item in read if item[0] != "optimizer"]
    assert kinds == [*initial, ("look", True), *(final if reason == "exit" else [])]
    assert set(cuda.synchronized) == {1} and cuda.contexts == {1}
    training.trace()


def test_a_gpu_that_fails_ends_no_step_and_the_loss_is_said(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    training.on(1)
    training.step()

    def fails(times: StepTimes) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    training.cuda.current_stream(1).work(20)
    training.step()
    training.cuda.finish()
    monkeypatch.setattr(StepTimes, "fields", fails)
    training.session.close("exit")
    trace = training.trace()
    assert [mark.step for mark in trace.steps] == [0, 1] and trace.notes[0][0] == "lost"


def test_a_thread_has_the_devices_of_its_own_parameters(training: Training) -> None:
    training.on(1)
    other = Session({**CONFIG, "traces": str(training.folder)}, "second")
    thread = threading.Thread(target=other.runs_on, args=([],))
    thread.start()
    thread.join()
    assert (training.session._clock.devices, other._clock.devices) == ([1], [])
