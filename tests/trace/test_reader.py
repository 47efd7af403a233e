"""A trace is written by untrusted code: what does not follow the format is refused at its line."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro_gate.trace import format as fmt
from repro_gate.trace.model import Budget, TraceError
from repro_gate.trace.reader import TraceFollower, read_folder, trace_files
from tests.trace.test_writer import HELLO as WRITTEN
from tests.trace.test_writer import NONCE, write_everything

Line = Mapping[str, Any] | bytes
HELLO = {"e": "hello", "format": fmt.FORMAT, **WRITTEN}
TABLE = {"e": "table", "kind": "loss", "rows": [["loss", "float32", []]]}
DIGEST = base64.b64encode(bytes(16)).decode()
BLOCK = {"e": "block", "step": 0, "table": 0, "digests": DIGEST}
FLAGS = {"e": "flags", "settings": {"a": True}}
STEP = {"e": "step", "step": 0, "ms": 1.0, "probe_ms": 0, "peak_bytes": 0, "flags": 0}
OPENED = {"e": "opened", "rows": [["train.py", True, None, False]]}
DRAWN = {"e": "drawn", "source": "os.urandom", "file": "train.py", "line": 3}
LOADER = {"e": "loaders", "workers": 0, "base_seed": 1}
DISTANCES = {"e": "distances", "rows": []}
SKETCHES = {"e": "sketches", "rows": []}
END = {"e": "end", "reason": "exit", "steps": 1}
WHOLE = (HELLO, TABLE, BLOCK, FLAGS, STEP, END)
with TemporaryDirectory() as _folder:
    SAMPLE = Path(write_everything(Path(_folder)).path).read_bytes()


def put(folder: Path, content: bytes, name: str = "1-1") -> Path:
    path = folder / (name + fmt.SUFFIX)
    path.write_bytes(content)
    return path


def lines(*events: Line) -> bytes:
    texts = (item if isinstance(item, bytes) else json.dumps(item).encode() for item in events)
    return b"".join(text + b"\n" for text in texts)


def refusal(folder: Path, content: bytes) -> str:
    """What the reader says of a file with this content."""
    put(folder, content)
    with pytest.raises(TraceError) as raised:
        read_folder(folder, NONCE)
    return str(raised.value)


def test_a_trace_cut_anywhere_is_never_taken_for_whole(tmp_path: Path) -> None:
    ends = [at for at, byte in enumerate(SAMPLE, 1) if byte == 10][:-1]
    for size in {0, 1, *range(2, len(SAMPLE), 23), *ends, *(end - 1 for end in ends)}:
        trace = TraceFollower(put(tmp_path, SAMPLE[:size]), NONCE).poll()
        assert trace.end is None
        if not size or (size in ends and not trace.trained):
            # cut before anything was recorded: a process that did not train
            assert not read_folder(tmp_path, NONCE)[0].trained
        else:
            assert refusal(tmp_path, SAMPLE[:size])


def test_bytes_that_trickle_in_are_read_as_the_whole_is(tmp_path: Path) -> None:
    whole = TraceFollower(put(tmp_path, SAMPLE, "2-2"), NONCE).finish()
    path = put(tmp_path, b"")
    follower, generator, sent = TraceFollower(path, NONCE), random.Random(1), 0
    while sent < len(SAMPLE):
        size, seen = generator.randrange(1, 300), len(follower.trace.blocks)
        with path.open("ab") as file:
            file.write(SAMPLE[sent : sent + size])
        sent += size
        assert len(follower.poll().blocks) >= seen
    trace = follower.finish()
    assert [block.digests for block in trace.blocks] == [block.digests for block in whole.blocks]
    trace.path, trace.blocks = whole.path, whole.blocks
    assert trace == whole


def block(**changes: Any) -> tuple[Line, ...]:
    return HELLO, TABLE, {**BLOCK, **changes}


def distance(*figures: float) -> Mapping[str, Any]:
    return {**DISTANCES, "rows": [["parameter", "n", "f", [], *figures, 0, 0]]}


def sketch(*sums: Any) -> Mapping[str, Any]:
    return {**SKETCHES, "rows": [["parameter", "n", "f", [], sums]]}


def opened(path: str, inside: bool) -> Mapping[str, Any]:
    return {**OPENED, "rows": [[path, inside, None, False]]}


def module(name: str, path: str) -> Mapping[str, Any]:
    return {"e": "imports", "rows": [[name, path, ""]]}


def row(*fields: Any) -> Mapping[str, Any]:
    return {**TABLE, "rows": [fields]}


LONG = "n" * (fmt.MAX_NAME + 1)
# of each, all lines but the last are good
WRONG: dict[str, tuple[Line, ...]] = {
    "no JSON": (b"{",),
    "deep": (b"[" * 100_000,),
    "not UTF-8": (b'{"e": "\xff"}',),
    "half a character": (HELLO, b'{"e": "loop", "place": "\\ud800"}'),
    "no hello": (TABLE,),
    "hello twice": (HELLO, HELLO),
    "another format": ({**HELLO, "format": "v2"},),
    "another run's": ({**HELLO, "nonce": "0"},),
    "a line after the end": (*WHOLE, STEP),
    "resumed before the end": (HELLO, {"e": "resumed", "steps": 0}),
    "unknown event": (HELLO, {"e": "poll"}),
    "unknown field": (HELLO, {**END, "steps": 0, "loss": 0}),
    "table of unknown kind": (HELLO, {**TABLE, "kind": "artifact"}),
    "long name": (HELLO, row(LONG, "float32", [])),
    "a size beyond what JSON can hold": (HELLO, row("n", "float32", [1 << 53])),
    "table -1": block(table=-1),
    "digests no base64": block(digests="!!!!"),
    "digests too short": block(digests="AAAA"),
    "loss no hex float": block(values=["zero"]),
    "loss beyond any float": block(values=["0x1p99999"]),
    "step too large": block(step=fmt.MAX_STEP + 1),
    "an earlier step": (*block(step=3), BLOCK),
    "a flag is endless": (HELLO, {**FLAGS, "settings": {"a": 1 << 70}}),
    "step without flags": (HELLO, STEP),
    "step skipped": (HELLO, FLAGS, {**STEP, "step": 1}),
    "a time beyond any float": (HELLO, FLAGS, {**STEP, "ms": 10**400}),
    "end counts other steps": (HELLO, FLAGS, STEP, {**END, "steps": 2}),
    "stopped at another step": (HELLO, {"e": "stopped", "steps": 1}),
    "too many ulps": (HELLO, distance(0, 1 << 66, 0, 0)),
    "too many sums": (HELLO, sketch(*[0.0] * 64), sketch(*[0.0] * 65)),
    "a sum beyond any float": (HELLO, sketch(10**400)),
    "a sum of nothing": (HELLO, sketch(0.5, None)),
    "a sum that is not finite": (HELLO, b'{"e":"sketches","rows":[["loss","","",[],[-1e999]]]}'),
    "opened inside and absolute": (HELLO, opened("/train.py", True)),
    "opened inside and leaving": (HELLO, opened("../train.py", True)),
    "opened nothing": (HELLO, opened("", True)),
    "opened outside and relative": (HELLO, opened("train.py", False)),
    "opened outside and winding": (HELLO, opened("/mnt/../etc", False)),
    "imports relative": (HELLO, module("pkg", "pkg.py")),
    "drawn from much": (HELLO, {**DRAWN, "source": "s" * 201}),
    "loader with too large a seed": (HELLO, {**LOADER, "base_seed": 1 << 64}),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_follow_the_format_is_refused_at_its_line(case: str, tmp_path: Path) -> None:
    said = refusal(tmp_path, lines(*WRONG[case]))
    assert said.startswith(f"1-1{fmt.SUFFIX}:{len(WRONG[case])}: ")
    assert len(said) < 400 and said.isprintable()
    put(tmp_path, lines(*WRONG[case][:-1]))
    TraceFollower(tmp_path / f"1-1{fmt.SUFFIX}", NONCE).finish()


def test_a_trace_that_is_odd_and_follows_the_format_is_read(tmp_path: Path) -> None:
    def trace(*events: Line, nonce: str | None = NONCE) -> Any:
        put(tmp_path, lines(*events))
        return read_folder(tmp_path, nonce)[0]

    assert trace({**HELLO, "nonce": "other"}, *WHOLE[1:], nonce=None).end == "exit"
    resumed = {"e": "resumed", "steps": 1}
    later = trace(*WHOLE, resumed, {**STEP, "step": 1}, {**END, "steps": 2})
    assert len(later.steps) == 2


TWICE: Mapping[str, tuple[Line, ...]] = {  # two events, or one with two rows
    "loaders": (LOADER,) * 2,
    "opened": ({**OPENED, "rows": [["a", True, None, False], ["b", True, None, False]]},),
    "notes": ({"e": "notes", "rows": [["i", "m"]]},) * 2,
    "drawn": (DRAWN,) * 2,
}


@pytest.mark.parametrize("name", TWICE)
def test_a_process_writes_no_more_than_its_limit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, lines(HELLO, *TWICE[name]))
    assert read_folder(tmp_path, NONCE)
    monkeypatch.setattr(fmt, "LIMITS", dict.fromkeys(fmt.LIMITS, 1))
    assert f":{len(TWICE[name]) + 1}: " in refusal(tmp_path, lines(HELLO, *TWICE[name]))


@pytest.mark.parametrize("limit", [fmt.BYTES, fmt.MEMORY, fmt.ALL_DIGESTS])
def test_all_processes_of_a_run_share_one_budget(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = base64.b64encode(bytes(1600)).decode()
    content = lines(
        {**HELLO, "argv": ["train.py"]},
        {**TABLE, "rows": [["", "", []]] * 100},
        {**BLOCK, "digests": digests},
        {**END, "steps": 0},
    )
    for number in range(3):
        put(tmp_path, content, f"{number}-{number}")
    spent = read_folder(tmp_path, NONCE)[0].budget.spent
    assert (spent[fmt.BYTES], spent[fmt.ALL_DIGESTS]) == (3 * len(content), 3 * 1600)
    monkeypatch.setitem(fmt.MAX_OF_RUN, limit, spent[limit])
    assert len(read_folder(tmp_path, NONCE)) == 3
    put(tmp_path, content, "9-9")
    with pytest.raises(TraceError, match=rf"^9-9{fmt.SUFFIX}:\d+: .* more than [\d,]+ {limit}$"):
        read_folder(tmp_path, NONCE)


def test_a_trace_too_large_or_slow_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path, SAMPLE)
    enough, none = (Budget({**fmt.MAX_OF_RUN, fmt.SECONDS: seconds}) for seconds in (90.0, 0.0))
    assert TraceFollower(path, NONCE, budget=enough).finish().trained
    with pytest.raises(TraceError, match=r"more than 0 seconds of reading$"):
        TraceFollower(path, NONCE, budget=none).poll()
    os.truncate(path, 1 << 40)  # takes no disk
    with pytest.raises(TraceError, match="more than 17,179,869,184 bytes"):
        read_folder(tmp_path, NONCE)
    monkeypatch.setattr(fmt, "MAX_LINE_BYTES", 100)
    assert "longer than 100 bytes" in refusal(tmp_path, lines(HELLO) + b" " * 101)
    assert "cut off" in refusal(tmp_path, lines(HELLO) + b" " * 100)
    monkeypatch.setattr(fmt, "MAX_FILES", 0)
    with pytest.raises(TraceError, match="1 trace files, 0 at most"):
        read_folder(tmp_path, NONCE)


TABLES = lines(HELLO, TABLE, {**TABLE, "rows": []}, FLAGS)
EMPTY = {**BLOCK, "table": 1, "digests": ""}
WIDE = "\U0001f600" + "n" * 4_000
GREEDY = {  # lines that take the most memory for their length
    "rows": lambda n: [{**TABLE, "rows": [["", "", []]] * 3_000}],
    "wide names": lambda n: [{**TABLE, "rows": [[WIDE, "", []]] * 10}],
    "blocks": lambda n: [{**EMPTY, "step": n}] * 100,
    "values": lambda n: [{**BLOCK, "step": n, "values": ["0"] * 3_000}],
    "steps": lambda n: [{**STEP, "step": 100 * n + at} for at in range(100)],
    "facts": lambda n: [{"e": "facts", "facts": {f"{n}.{at}": "" for at in range(200)}}],
    "distances": lambda n: [{**DISTANCES, "rows": [["loss", "", "", [], *[None] * 5, 0]] * 1_000}],
    "sketches": lambda n: [{**SKETCHES, "rows": [["loss", "", "", [], [n] * 64]] * 10}] * 10,
}


@pytest.mark.parametrize("what", GREEDY)
def test_what_is_kept_of_a_run_takes_no_more_memory_than_was_counted(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fmt.MAX_OF_RUN, fmt.MEMORY, 4 << 20)
    path = put(tmp_path, TABLES)
    follower = TraceFollower(path, NONCE)
    follower.poll()

    def go_on() -> None:
        for number in range(10_000):
            with path.open("ab") as file:
                file.write(lines(*GREEDY[what](number)))
            follower.poll()

    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match=r"more than 4,194,304 bytes of memory"):
            go_on()
        assert tracemalloc.get_traced_memory()[0] < 6 << 20
    finally:
        tracemalloc.stop()


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(SAMPLE)
    path = tmp_path / f"1-1{fmt.SUFFIX}"
    open_files = Path("/proc/self/fd")
    before = len(os.listdir(open_files)) if open_files.is_dir() else 0
    for make in (
        lambda: path.symlink_to(tmp_path / "outside"),
        lambda: os.mkfifo(path),
        path.mkdir,
    ):
        make()
        with pytest.raises(TraceError, match=r"cannot be opened|not a regular file"):
            read_folder(tmp_path, NONCE)
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    assert not before or len(os.listdir(open_files)) == before


def test_a_file_that_is_cut_back_or_removed_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, SAMPLE)
    follower = TraceFollower(path, NONCE)
    follower.poll()
    os.truncate(path, 10)
    with pytest.raises(TraceError, match="was cut back"):
        follower.poll()
    path.unlink()
    with pytest.raises(TraceError, match="cannot be opened"):
        follower.poll()
    with pytest.raises(TraceError, match="cannot be listed"):
        read_folder(tmp_path / "gone", NONCE)


def test_traces_come_in_order_of_their_start(tmp_path: Path) -> None:
    for name in ("20-9", "30-1", "10-x"):
        put(tmp_path, b"", name)
    (tmp_path / "failure.json").write_text("{}")
    found = [path.name.partition(".")[0] for path in trace_files(tmp_path)]
    assert found == ["10-x", "20-9", "30-1"]


SIMPLE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    SIMPLE | st.sampled_from(["loss", "0x1p0"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_mutated_trace_is_a_trace_or_a_refusal(data: st.DataObject) -> None:
    events = [json.loads(line) for line in SAMPLE.splitlines()]
    for _ in range(data.draw(st.integers(1, 3))):
        event = data.draw(st.sampled_from(events))
        event[data.draw(st.sampled_from(sorted(event)))] = data.draw(JSON)
    with TemporaryDirectory() as folder, contextlib.suppress(TraceError):
        put(Path(folder), lines(*events))
        assert read_folder(Path(folder), NONCE)
