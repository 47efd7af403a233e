"""A trace is written by untrusted code: what does not follow the format is refused, in words,
whatever it is."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import re
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro_gate.runs import artifacts
from repro_gate.trace import accept
from repro_gate.trace import format as fmt
from repro_gate.trace.model import Budget, Drawn, Spawned, TraceError
from repro_gate.trace.reader import TraceFollower, read_folder, trace_files
from tests.trace.test_writer import NONCE, write_everything

HELLO = {
    "e": "hello",
    "format": fmt.FORMAT,
    "nonce": NONCE,
    "pid": 1,
    "key": "main",
    "argv": [],
    "forked": False,
}
TABLE = {"e": "table", "id": 0, "kind": "loss", "rows": [["loss", "float32", []]]}
BLOCK = {
    "e": "block",
    "step": 0,
    "kind": "loss",
    "table": 0,
    "at": 0,
    "digests": "AAAAAAAAAAAAAAAAAAAAAA==",
    "values": ["0x1p0"],
}
FLAGS = {"e": "flags", "id": 0, "settings": {"a": True}}
STEP = {"e": "step", "step": 0, "ms": 1.0, "probe_ms": 0, "peak_bytes": 0, "flags": 0}
OPENED = {"e": "opened", "files": [["train.py", True, None, False]]}
VERSIONS = {"e": "distributions", "versions": {"torch": "2.13"}}
DRAWN = {"e": "drawn", "source": "os.urandom", "file": "train.py", "line": 3}
LOADER = {"e": "loader", "number": 0, "workers": 0, "base_seed": 1}
VARIABLES = {"e": "variables", "values": {"OMP_NUM_THREADS": "2"}}
DISTANCE = {"e": "distance", "step": 0, "rows": []}
END = {"e": "end", "reason": "exit", "steps": 1}
WHOLE = (HELLO, TABLE, BLOCK, FLAGS, STEP, END)


def sample() -> bytes:
    """A valid trace that holds every event."""
    with TemporaryDirectory() as folder:
        return Path(write_everything(Path(folder)).path).read_bytes()


SAMPLE = sample()


def put(folder: Path, content: bytes, name: str = "1-1") -> Path:
    path = folder / (name + fmt.SUFFIX)
    path.write_bytes(content)
    return path


def lines(*events: Mapping[str, Any]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def refusal(folder: Path, content: bytes) -> str:
    """What the reader says of a file with this content."""
    put(folder, content)
    with pytest.raises(TraceError) as raised:
        read_folder(folder, NONCE)
    return str(raised.value)


def test_a_trace_cut_anywhere_is_never_taken_for_whole(tmp_path: Path) -> None:
    for size in range(len(SAMPLE)):
        path = put(tmp_path, SAMPLE[:size])
        follower = TraceFollower(path, NONCE)
        trace = follower.poll()
        assert follower._line == SAMPLE[:size].count(b"\n")
        assert trace.end is None
        if (SAMPLE[:size].endswith(b"\n") and not trace.trained) or not size:
            # cut before anything was recorded: a process that did not train
            assert not read_folder(tmp_path, NONCE)[0].trained
        else:
            assert re.search("cut off|truncated", refusal(tmp_path, SAMPLE[:size]))


def test_bytes_that_trickle_in_are_read_as_the_whole_is(tmp_path: Path) -> None:
    whole = TraceFollower(put(tmp_path, SAMPLE, "2-2"), NONCE).finish()
    path = put(tmp_path, b"")
    follower, generator, sent = TraceFollower(path, NONCE), random.Random(1), 0
    seen = 0
    while sent < len(SAMPLE):
        size = generator.randrange(1, 300)
        with path.open("ab") as file:
            file.write(SAMPLE[sent : sent + size])
        sent += size
        assert len(follower.poll().blocks) >= seen
        seen = len(follower.trace.blocks)
    trace = follower.finish()
    trace.path = whole.path
    assert trace == whole


def opened(path: str, inside: bool) -> Mapping[str, Any]:
    return {"e": "opened", "files": [[path, inside, None, False]]}


def distance(*figures: float) -> Mapping[str, Any]:
    return {**DISTANCE, "rows": [["parameter", "n", "f", [], *figures]]}


HEAD, NO_EVENT = lines(HELLO), "is no event of the format"
WRONG = {
    "no JSON": (b"{\n", "1: " + NO_EVENT),
    "deep": (b"[" * 100_000 + b"\n", NO_EVENT),
    "deep in a field": (
        HEAD + b'{"e": "note", "x": ' + b"[" * 1_000_000 + b"\n",
        "2: " + NO_EVENT,
    ),
    "no object": (b"[]\n", NO_EVENT),
    "blank line": (HEAD + b"\n", "2: " + NO_EVENT),
    "not UTF-8": (b'{"e": "\xff"}\n', NO_EVENT),
    "no hello": (lines(TABLE), "`hello` must be the first line"),
    "hello twice": (lines(HELLO, HELLO), "`hello` must be the first line"),
    "another format": (lines({**HELLO, "format": "v2"}), NO_EVENT),
    "another run's": (lines({**HELLO, "nonce": "0"}), "another run"),
    "no nonce": (lines({key: HELLO[key] for key in HELLO if key != "nonce"}), NO_EVENT),
    "a line after the end": (lines(*WHOLE, STEP), "7: `step` is out of place"),
    "unknown event": (lines(HELLO, {"e": "poll"}), NO_EVENT),
    "private method": (lines(HELLO, {"e": "take"}), NO_EVENT),
    "a flag is NaN": (lines(HELLO, {**FLAGS, "settings": {"a": float("nan")}}), "2: " + NO_EVENT),
    "time is NaN": (lines(HELLO, FLAGS, {**STEP, "ms": float("nan")}), "3: " + NO_EVENT),
    "distance is infinite": (lines(HELLO, distance(float("inf"), 0, 0, 0)), "2: " + NO_EVENT),
    "event of another type": (lines(HELLO, {"e": ["end"]}), NO_EVENT),
}
AFTER_HELLO: Mapping[str, Mapping[str, Any]] = {
    "too many facts": {"e": "facts", "facts": {str(i): "" for i in range(201)}},
    "table out of order": {**TABLE, "id": 1},
    "table of unknown kind": {**TABLE, "kind": "artifact"},
    "name too long": {**TABLE, "rows": [["n" * (fmt.MAX_NAME + 1), "float32", []]]},
    "negative size": {**TABLE, "rows": [["n", "float32", [-1]]]},
    "too many dimensions": {**TABLE, "rows": [["n", "float32", [1] * 65]]},
    "a shape beyond what JSON can hold": {**TABLE, "rows": [["loss", "float32", [1 << 53]]]},
    "flags out of order": {**FLAGS, "id": 1},
    "a flag is endless": {**FLAGS, "settings": {"a": 1 << 70}},
    "step without flags": STEP,
    "stopped at another step": {"e": "stopped", "steps": 1},
    "unmoved with a long name": {"e": "unmoved", "rows": [["module", "E" * 301, "00"]]},
    "distance below zero": distance(-1, 0, 0, 0),
    "distance beyond any float": distance(10**400, 0, 0, 0),
    "too many ulps": distance(0, 1 << 66, 0, 0),
    "opened inside and absolute": opened("/train.py", True),
    "opened inside and leaving": opened("../train.py", True),
    "opened inside and winding": opened("a/../../train.py", True),
    "opened the workspace itself": opened(".", True),
    "opened nothing": opened("", True),
    "opened outside and relative": opened("train.py", False),
    "opened outside and winding": opened("/mnt/../etc", False),
    "opened a long path": opened("p" * (fmt.MAX_NAME + 1), True),
    "imports relative": {"e": "imports", "modules": [["pkg", "pkg.py", ""]]},
    "imports of a long name": {"e": "imports", "modules": [["p" * (fmt.MAX_NAME + 1), "/x", ""]]},
    "NaN in too many": {"e": "nonfinite", "rows": [["parameter", "w", -1, True]] * 1001},
    "drawn on no line": {**DRAWN, "line": -1},
    "drawn from much": {**DRAWN, "source": "s" * 201},
    "loader out of order": {**LOADER, "number": 1},
    "loader with too large a seed": {**LOADER, "base_seed": 1 << 64},
    "a seed of ten digits too many": {**LOADER, "base_seed": 10**60},
    "a long variable": {**VARIABLES, "values": {"A": "v" * (fmt.MAX_NAME + 1)}},
    "an unknown field": {"e": "end", "reason": "exit", "steps": 0, "loss": 0},
}
MALFORMED: Mapping[str, tuple[tuple[Mapping[str, Any], ...], Mapping[str, Any]]] = {
    "pid is not a number": ((), {**HELLO, "pid": True}),
    "argv too long": ((), {**HELLO, "argv": [""] * 1001}),
    "key too long": ((), {**HELLO, "key": "k" * 201}),
    "a change of no row": ((HELLO, TABLE, BLOCK), {**BLOCK, "at": 1, "changed": "AA=="}),
    "a change of another row": ((HELLO, TABLE, BLOCK), {**BLOCK, "at": 1, "changed": "Ag=="}),
    "a change that is too long": ((HELLO, TABLE, BLOCK), {**BLOCK, "at": 1, "changed": "AQA="}),
    "a change without a block before it": ((HELLO, TABLE), {**BLOCK, "changed": "AQ=="}),
    "no such table": ((HELLO, TABLE), {**BLOCK, "table": 1}),
    "table -1": ((HELLO, TABLE), {**BLOCK, "table": -1}),
    "block of another kind": ((HELLO, TABLE), {**BLOCK, "kind": "rng"}),
    "digests no base64": ((HELLO, TABLE), {**BLOCK, "digests": "!!!!"}),
    "digests too short": ((HELLO, TABLE), {**BLOCK, "digests": "AAAA"}),
    "loss no hex float": ((HELLO, TABLE), {**BLOCK, "values": ["zero"]}),
    "loss beyond any float": ((HELLO, TABLE), {**BLOCK, "values": ["0x1p99999"]}),
    "step below -1": ((HELLO, TABLE), {**BLOCK, "step": -2}),
    "step too large": ((HELLO, TABLE), {**BLOCK, "step": fmt.MAX_STEP + 1}),
    "an earlier step": ((HELLO, TABLE, {**BLOCK, "step": 3}), {**BLOCK, "at": 1}),
    "the same block twice": ((HELLO, TABLE, BLOCK), BLOCK),
    "a block left out": ((HELLO, TABLE, BLOCK), {**BLOCK, "at": 2}),
    "step skipped": ((HELLO, FLAGS), {**STEP, "step": 1}),
    "negative time": ((HELLO, FLAGS), {**STEP, "ms": -1}),
    "a time beyond any float": ((HELLO, FLAGS), {**STEP, "ms": 10**400}),
    "much memory": ((HELLO, FLAGS), {**STEP, "peak_bytes": (1 << 60) + 1}),
    "end counts other steps": ((HELLO, FLAGS, STEP), {**END, "steps": 2}),
    "distributions twice": ((HELLO, VERSIONS), VERSIONS),
    **{name: ((HELLO,), event) for name, event in AFTER_HELLO.items()},
}


@pytest.mark.parametrize("case", [*WRONG, *MALFORMED])
def test_what_is_no_event_is_refused_with_its_line(case: str, tmp_path: Path) -> None:
    if case in WRONG:
        assert WRONG[case][1] in refusal(tmp_path, WRONG[case][0])
        return
    before, event = MALFORMED[case]
    place = f"1-1{fmt.SUFFIX}:{len(before) + 1}: "
    assert refusal(tmp_path, lines(*before, event)).startswith(place)


def test_without_a_nonce_any_run_is_read(tmp_path: Path) -> None:
    put(tmp_path, lines({**HELLO, "nonce": "other"}, *WHOLE[1:]))
    assert read_folder(tmp_path, None)[0].end == "exit"


def test_a_name_that_cannot_be_encoded_is_escaped(tmp_path: Path) -> None:
    put(tmp_path, lines(HELLO, {**TABLE, "rows": [["w\ud800", "float32", []]]}, *WHOLE[2:]))
    [trace] = read_folder(tmp_path, NONCE)
    assert trace.blocks[0].rows[0][0] == "w\\ud800"
    rows = [["\U0001f600\udc00\\ud800", "float32", []]]
    put(tmp_path, lines(HELLO, {**TABLE, "rows": rows}, *WHOLE[2:]))
    [trace] = read_folder(tmp_path, NONCE)
    assert trace.blocks[0].rows[0][0] == "\U0001f600\\udc00\\ud800"
    for rest in (b"[" * 100_000, b"NaN}"):
        assert NO_EVENT in refusal(tmp_path, HEAD + b'{"e": "\\ud800", "x": ' + rest + b"\n")


def test_of_a_key_that_stands_twice_the_last_counts(tmp_path: Path) -> None:
    put(tmp_path, HEAD + b'{"e": "network", "address": "a", "address": "b"}\n')
    assert read_folder(tmp_path, NONCE)[0].network == ["b"]
    assert "is no event of the format" in refusal(
        tmp_path, lines(HELLO) + b'{"e": "network", "address": "a", "address": 1}\n'
    )


def test_a_trace_goes_on_after_its_end_only_where_it_says_so(tmp_path: Path) -> None:
    resumed = {"e": "resumed", "steps": 1}
    put(tmp_path, lines(*WHOLE, resumed, {**STEP, "step": 1}, {**END, "steps": 2}))
    assert len(read_folder(tmp_path, NONCE)[0].steps) == 2
    assert "comes `resumed`" in refusal(tmp_path, lines(*WHOLE, {**STEP, "step": 1}))
    assert "comes `resumed`" in refusal(tmp_path, lines(HELLO, {"e": "resumed", "steps": 0}))


def test_files_of_several_events_are_counted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, lines(HELLO, OPENED, OPENED))
    assert len(read_folder(tmp_path, NONCE)[0].opened) == 2
    monkeypatch.setattr(fmt, "MAX_OPENED", 1)
    assert "more than 1 of" in refusal(tmp_path, lines(HELLO, OPENED, OPENED))
    imports = {"e": "imports", "modules": [["pkg", "/x/pkg.py", ""]]}
    monkeypatch.setattr(fmt, "MAX_IMPORTS", 1)
    assert "more than 2 of" in refusal(tmp_path, lines(HELLO, imports, imports, imports))


def many(count: int) -> dict[str, str]:
    return {str(number): "1" for number in range(count + 1)}


# one more than each limit allows
MANY: Mapping[str, Mapping[str, Any]] = {
    "rows of a table": {**TABLE, "rows": [["n", "f", []]] * (fmt.MAX_ROWS + 1)},
    "values of a block": {**BLOCK, "values": ["0x1p0"] * (fmt.MAX_ROWS + 1)},
    "distances": {**DISTANCE, "rows": [["loss", "n", "f", [], 0, 0, 0, 0]] * (fmt.MAX_ROWS + 1)},
    "files": {"e": "opened", "files": [["a", True, None, False]] * (fmt.MAX_OPENED + 1)},
    "modules": {"e": "imports", "modules": [["a", "/a", ""]] * (fmt.MAX_IMPORTS + 1)},
    "distributions": {**VERSIONS, "versions": many(fmt.MAX_DISTRIBUTIONS)},
    "variables": {**VARIABLES, "values": many(fmt.MAX_VARIABLES)},
    "unmoved modules": {"e": "unmoved", "rows": [["module", "EMA", "00"]] * (fmt.MAX_UNMOVED + 1)},
    "flags": {**FLAGS, "settings": {str(number): True for number in range(201)}},
}


@pytest.mark.parametrize("what", MANY)
def test_an_event_holds_no_more_than_its_limit(what: str, tmp_path: Path) -> None:
    event = dict(MANY[what])
    before = (HELLO, TABLE) if event["e"] == "block" else (HELLO,)
    assert "of length <= " in refusal(tmp_path, lines(*before, event))
    holding = (name for name, item in event.items() if isinstance(item, list | dict))
    field = max(holding, key=lambda name: len(event[name]))
    full = event[field]
    event[field] = dict([*full.items()][:-1]) if isinstance(full, dict) else full[:-1]
    TraceFollower(put(tmp_path, lines(*before, event)), NONCE).finish()


@pytest.mark.parametrize(
    ("limit", "small", "says"),
    [
        ("MAX_LINE_BYTES", 100, "longer than 100 bytes"),
        ("MAX_TABLES", 0, "numbered from 0"),
        ("MAX_LOADERS", 1, "numbered from 0"),
        ("MAX_FILES", 0, "1 trace files, 0 at most"),
        (Drawn, 0, "more than 0 of"),
        (Spawned, 0, "more than 0 of"),
    ],
)
def test_a_process_writes_no_more_than_its_limit(
    limit: Any, small: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = HEAD[:-1] + b" " * 200 if limit == "MAX_LINE_BYTES" else SAMPLE
    put(tmp_path, SAMPLE)
    assert read_folder(tmp_path, NONCE)
    if isinstance(limit, str):
        monkeypatch.setattr(fmt, limit, small)
    else:
        monkeypatch.setitem(accept.LISTS, limit, (accept.LISTS[limit][0], small))
    assert says in refusal(tmp_path, content)


@pytest.mark.parametrize("limit", [fmt.BYTES, fmt.MEMORY, fmt.ALL_DIGESTS, fmt.UNFOLDED])
def test_all_processes_of_a_run_share_one_budget(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = base64.b64encode(b"\1" + bytes(12)).decode()  # of 100 rows the first changes
    full, one = (base64.b64encode(content).decode() for content in (bytes(1600), b"1" * 16))
    content = lines(
        {**HELLO, "argv": ["train.py"]},
        {**TABLE, "rows": [["", "", []]] * 100},
        {**BLOCK, "digests": full, "values": []},
        {**BLOCK, "digests": one, "values": [], "at": 1, "changed": first},
        {**END, "steps": 0},
    )
    for number in range(3):
        put(tmp_path, content, f"{number}-{number}")
    spent = read_folder(tmp_path, NONCE)[0].budget.spent
    found = [spent[what] for what in (fmt.BYTES, fmt.ALL_DIGESTS, fmt.UNFOLDED)]
    assert found == [3 * len(content), 3 * 3200, 3 * 1584]
    monkeypatch.setitem(fmt.MAX_OF_RUN, limit, spent[limit])
    assert len(read_folder(tmp_path, NONCE)) == 3
    put(tmp_path, content, "9-9")
    said = (
        rf"^9-9{fmt.SUFFIX}:\d+: too large: with what `(train.py)?` wrote, the traces "
        rf"of this run take more than [\d,]+ {limit}$"
    )
    with pytest.raises(TraceError, match=said):
        read_folder(tmp_path, NONCE)


def test_the_documents_state_the_limits_of_a_run() -> None:
    trust, spec = (
        " ".join((Path(__file__).parents[2] / "docs" / name).read_text().split())
        for name in ("trust-model.md", "repro-yml.md")
    )
    size, digests, unfolded, memory = (
        fmt.MAX_OF_RUN[what] >> 30
        for what in (fmt.BYTES, fmt.ALL_DIGESTS, fmt.UNFOLDED, fmt.MEMORY)
    )
    assert f"may have {size} GiB and {digests} GiB of digests ({unfolded} GiB of them" in trust
    assert f"may have {size} GiB, and {digests} GiB of digests." in spec
    assert (
        f"{memory} GiB of memory, and {fmt.MAX_OF_RUN[fmt.SECONDS]} seconds or `train.timeout`"
        in trust
    )
    files = f"{artifacts.MAX_FILES:,} files and {artifacts.MAX_BYTES >> 30} GiB"
    assert (
        f"at most {files} are copied" in trust and f"more than {files.replace('and', 'or')}" in spec
    )


def test_a_trace_larger_than_a_run_may_write_is_not_read(tmp_path: Path) -> None:
    path = put(tmp_path, SAMPLE)
    os.truncate(path, 1 << 40)  # takes no disk
    said = r"too large: with what `.*` wrote, the traces of this run take more than 17,179,869,184 bytes"
    with pytest.raises(TraceError, match=said):
        read_folder(tmp_path, NONCE)


def test_reading_takes_no_longer_than_a_run_may(tmp_path: Path) -> None:
    path = put(tmp_path, SAMPLE)
    enough, none = (Budget({**fmt.MAX_OF_RUN, fmt.SECONDS: seconds}) for seconds in (90.0, 0.0))
    assert TraceFollower(path, NONCE, budget=enough).finish().trained
    with pytest.raises(TraceError, match=r"too large: .* more than 0 seconds of reading$"):
        TraceFollower(path, NONCE, budget=none).poll()


TABLES = lines(HELLO, TABLE, {**TABLE, "id": 1, "rows": []}, FLAGS)
GREEDY = {  # lines that take the most memory for their length
    "rows": lambda n: lines({**TABLE, "id": n + 2, "rows": [["", "", []]] * 3_000}),
    "named rows": lambda n: lines(
        {**TABLE, "id": n + 2, "rows": [[f"{n}.{i}", "f", [i]] for i in range(1_000)]}
    ),
    "wide names": lambda n: lines(
        {**TABLE, "id": n + 2, "rows": [["\U0001f600" + "n" * 4_000, "", []]] * 10}
    ),
    "blocks": lambda n: lines(
        *(
            {**BLOCK, "table": 1, "step": n, "at": i, "digests": "", "values": []}
            for i in range(100)
        )
    ),
    "values": lambda n: lines({**BLOCK, "step": n, "values": ["0"] * 3_000}),
    "steps": lambda n: lines(*({**STEP, "step": 100 * n + i} for i in range(100))),
    "facts": lambda n: lines({"e": "facts", "facts": {f"{n}.{i}": "" for i in range(200)}}),
    "distances": lambda n: lines(
        {**DISTANCE, "rows": [["loss", "", "", [], None, None, None, None]] * 1_000}
    ),
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
                file.write(GREEDY[what](number))
            follower.poll()

    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match=r"more than 4,194,304 bytes of memory"):
            go_on()
        assert tracemalloc.get_traced_memory()[0] < 6 << 20
    finally:
        tracemalloc.stop()


def test_of_what_repeats_the_first_thousand_are_kept(tmp_path: Path) -> None:
    undone = {"e": "undone", "flag": "f", "value": "v", "file": "t.py", "line": 3, "step": 0}
    events: list[Mapping[str, Any]] = [
        {"e": "network", "address": "a"},
        {"e": "note", "id": "i", "message": "m"},
        undone,
    ]
    put(tmp_path, lines(HELLO, *events * 1001))
    [trace] = read_folder(tmp_path, NONCE)
    assert (len(trace.network), len(trace.notes), len(trace.undone)) == (1000, 1000, 1000)


def test_a_refusal_says_little_of_what_it_refuses(tmp_path: Path) -> None:
    said = refusal(tmp_path, lines(HELLO, {**TABLE, "kind": "\x1b[31m\n" + "k" * 10_000}))
    assert len(said) < 300 and said.isprintable()


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(SAMPLE)
    path = tmp_path / f"1-1{fmt.SUFFIX}"
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    makers: Mapping[str, Callable[[], None]] = {
        "symlink": lambda: path.symlink_to(outside),
        "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }
    for kind, make in makers.items():
        make()
        says = "cannot be opened" if kind == "symlink" else "not a regular file"
        with pytest.raises(TraceError, match=says):
            read_folder(tmp_path, NONCE)
        path.rmdir() if kind == "folder" else path.unlink()
    assert not before or len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_is_cut_back_or_removed_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, SAMPLE)
    follower = TraceFollower(path, NONCE)
    follower.poll()
    os.truncate(path, 10)
    with pytest.raises(TraceError, match="was cut back while it was read"):
        follower.poll()
    path.unlink()
    with pytest.raises(TraceError, match="cannot be opened"):
        follower.poll()
    with pytest.raises(TraceError, match="cannot be listed"):
        read_folder(tmp_path / "gone", NONCE)


def test_traces_come_in_order_of_their_start(tmp_path: Path) -> None:
    for name in ("9-100", "1-20", "x-3", "5-none"):
        put(tmp_path, b"", name)
    (tmp_path / "failure.json").write_text("{}")
    assert [path.name.partition(".")[0] for path in trace_files(tmp_path)] == [
        "5-none",
        "x-3",
        "1-20",
        "9-100",
    ]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["loss", "0x1p0"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(st.data())
@settings(max_examples=200, deadline=2000)
def test_a_mutated_trace_is_a_trace_or_a_refusal(data: st.DataObject) -> None:
    events = [json.loads(line) for line in SAMPLE.splitlines()]
    for _ in range(data.draw(st.integers(1, 3))):
        event = data.draw(st.sampled_from(events))
        event[data.draw(st.sampled_from(sorted(event)))] = data.draw(JSON)
    with TemporaryDirectory() as folder, contextlib.suppress(TraceError):
        put(Path(folder), lines(*events))
        assert read_folder(Path(folder), NONCE)
