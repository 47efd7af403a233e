"""A trace is written by untrusted code: what does not follow the format is refused, in words,
whatever it is."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro_gate.runs import artifacts
from repro_gate.trace import accept
from repro_gate.trace import format as fmt
from repro_gate.trace.fields import Kind
from repro_gate.trace.model import Budget, Drawn, Event, Spawned, Trace, TraceError
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
OPENED = {"e": "opened", "files": [["train.py", True, "", False]]}
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


def test_the_small_whole_trace_is_accepted(tmp_path: Path) -> None:
    put(tmp_path, lines(*WHOLE))
    (trace,) = read_folder(tmp_path, NONCE)
    assert trace.trained
    assert trace.end == "exit"


def test_a_trace_cut_anywhere_is_never_taken_for_whole(tmp_path: Path) -> None:
    for size in range(len(SAMPLE)):
        path = put(tmp_path, SAMPLE[:size])
        follower = TraceFollower(path, NONCE)
        trace = follower.poll()
        assert follower._line == SAMPLE[:size].count(b"\n")
        assert trace.end is None
        if (SAMPLE[:size].endswith(b"\n") and not trace.trained) or not size:
            assert not read_folder(tmp_path, NONCE)[
                0
            ].trained  # cut before anything was recorded: a process that did not train
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


WRONG = {
    "no JSON": (b"{\n", "1: is no event of the format"),
    "deep": (b"[" * 100_000 + b"\n", "is no event of the format"),
    "deep in a field": (
        lines(HELLO) + b'{"e": "note", "x": ' + b"[" * 1_000_000 + b"\n",
        "2: is no event of the format",
    ),
    "no object": (b"[]\n", "is no event of the format"),
    "blank line": (lines(HELLO) + b"\n", "2: is no event of the format"),
    "not UTF-8": (b'{"e": "\xff"}\n', "is no event of the format"),
    "no hello": (lines(TABLE), "`hello` must be the first line"),
    "hello twice": (lines(HELLO, HELLO), "`hello` must be the first line"),
    "another format": (lines({**HELLO, "format": "v2"}), "is no event of the format"),
    "another run's": (lines({**HELLO, "nonce": "0"}), "another run"),
    "no nonce": (
        lines({key: value for key, value in HELLO.items() if key != "nonce"}),
        "is no event of the format",
    ),
    "a line after the end": (lines(*WHOLE, STEP), "7: `step` is out of place"),
    "unknown event": (lines(HELLO, {"e": "poll"}), "is no event of the format"),
    "private method": (lines(HELLO, {"e": "take"}), "is no event of the format"),
    "a flag is NaN": (
        lines(HELLO, {**FLAGS, "settings": {"a": float("nan")}}),
        "2: is no event of the format",
    ),
    "time is NaN": (
        lines(HELLO, FLAGS, {**STEP, "ms": float("nan")}),
        "3: is no event of the format",
    ),
    "distance is infinite": (
        lines(HELLO, {**DISTANCE, "rows": [["loss", "n", "f", [], float("inf"), 0, 0, 0]]}),
        "2: is no event of the format",
    ),
    "event of another type": (lines(HELLO, {"e": ["end"]}), "is no event of the format"),
}
MALFORMED: Mapping[str, tuple[tuple[Mapping[str, Any], ...], Mapping[str, Any]]] = {
    "pid is not a number": ((), {**HELLO, "pid": True}),
    "argv too long": ((), {**HELLO, "argv": [""] * 1001}),
    "key too long": ((), {**HELLO, "key": "k" * 201}),
    "a change without a block before it": ((HELLO, TABLE), {**BLOCK, "changed": "AQ=="}),
    "a change of no row": ((HELLO, TABLE, BLOCK), {**BLOCK, "at": 1, "changed": "AA=="}),
    "a change of a row that is not there": (
        (HELLO, TABLE, BLOCK),
        {**BLOCK, "at": 1, "changed": "Ag=="},
    ),
    "a change that is too long": ((HELLO, TABLE, BLOCK), {**BLOCK, "at": 1, "changed": "AQA="}),
    "too many facts": ((HELLO,), {"e": "facts", "facts": {str(i): "" for i in range(201)}}),
    "table out of order": ((HELLO,), {**TABLE, "id": 1}),
    "table of unknown kind": ((HELLO,), {**TABLE, "kind": "artifact"}),
    "name too long": ((HELLO,), {**TABLE, "rows": [["n" * (fmt.MAX_NAME + 1), "float32", []]]}),
    "negative size": ((HELLO,), {**TABLE, "rows": [["n", "float32", [-1]]]}),
    "too many dimensions": ((HELLO,), {**TABLE, "rows": [["n", "float32", [1] * 65]]}),
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
    "flags out of order": ((HELLO,), {**FLAGS, "id": 1}),
    "a flag is endless": ((HELLO,), {**FLAGS, "settings": {"a": 1 << 70}}),
    "step without flags": ((HELLO,), STEP),
    "step skipped": ((HELLO, FLAGS), {**STEP, "step": 1}),
    "negative time": ((HELLO, FLAGS), {**STEP, "ms": -1}),
    "a shape beyond what JSON can hold": (
        (HELLO,),
        {**TABLE, "rows": [["loss", "float32", [1 << 53]]]},
    ),
    "stopped at another step": ((HELLO,), {"e": "stopped", "steps": 1}),
    "unmoved with a long name": ((HELLO,), {"e": "unmoved", "rows": [["module", "E" * 301, "00"]]}),
    "distance below zero": (
        (HELLO,),
        {"e": "distance", "step": 0, "rows": [["parameter", "n", "f", [], -1, 0, 0, 0]]},
    ),
    "distance beyond any float": (
        (HELLO,),
        {"e": "distance", "step": 0, "rows": [["parameter", "n", "f", [], 10**400, 0, 0, 0]]},
    ),
    "opened inside and absolute": (
        (HELLO,),
        {"e": "opened", "files": [["/train.py", True, "", False]]},
    ),
    "opened inside and leaving": (
        (HELLO,),
        {"e": "opened", "files": [["../train.py", True, "", False]]},
    ),
    "opened inside and winding": (
        (HELLO,),
        {"e": "opened", "files": [["a/../../train.py", True, "", False]]},
    ),
    "opened the workspace itself": ((HELLO,), {"e": "opened", "files": [[".", True, "", False]]}),
    "opened nothing": ((HELLO,), {"e": "opened", "files": [["", True, "", False]]}),
    "opened outside and relative": (
        (HELLO,),
        {"e": "opened", "files": [["train.py", False, "", False]]},
    ),
    "opened outside and winding": (
        (HELLO,),
        {"e": "opened", "files": [["/mnt/../etc", False, "", False]]},
    ),
    "opened a long path": (
        (HELLO,),
        {"e": "opened", "files": [["p" * (fmt.MAX_NAME + 1), True, "", False]]},
    ),
    "imports relative": ((HELLO,), {"e": "imports", "modules": [["pkg", "pkg.py", ""]]}),
    "imports of a long name": (
        (HELLO,),
        {"e": "imports", "modules": [["p" * (fmt.MAX_NAME + 1), "/x", ""]]},
    ),
    "distributions twice": ((HELLO, VERSIONS), VERSIONS),
    "NaN in too many tensors": (
        (HELLO,),
        {"e": "nonfinite", "rows": [["parameter", "w", -1, True]] * 1001},
    ),
    "drawn on no line": ((HELLO,), {**DRAWN, "line": -1}),
    "drawn from much": ((HELLO,), {**DRAWN, "source": "s" * 201}),
    "loader out of order": ((HELLO,), {**LOADER, "number": 1}),
    "loader with too large a seed": ((HELLO,), {**LOADER, "base_seed": 1 << 64}),
    "a long variable": ((HELLO,), {**VARIABLES, "values": {"A": "v" * (fmt.MAX_NAME + 1)}}),
    "an unknown field": ((HELLO,), {"e": "end", "reason": "exit", "steps": 0, "loss": 0}),
    "too many ulps": (
        (HELLO,),
        {"e": "distance", "step": 0, "rows": [["parameter", "n", "f", [], 0, 1 << 66, 0, 0]]},
    ),
    "a seed of ten digits too many": ((HELLO,), {**LOADER, "base_seed": 10**60}),
    "a time beyond any float": ((HELLO, FLAGS), {**STEP, "ms": 10**400}),
    "much memory": ((HELLO, FLAGS), {**STEP, "peak_bytes": (1 << 60) + 1}),
    "end counts other steps": ((HELLO, FLAGS, STEP), {**END, "steps": 2}),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_line_that_is_no_event_is_refused(case: str, tmp_path: Path) -> None:
    content, says = WRONG[case]
    assert says in refusal(tmp_path, content)


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_event_is_refused_with_its_line(case: str, tmp_path: Path) -> None:
    before, event = MALFORMED[case]
    assert refusal(tmp_path, lines(*before, event)).startswith(
        f"1-1{fmt.SUFFIX}:{len(before) + 1}: "
    )


def test_without_a_nonce_any_run_is_read(tmp_path: Path) -> None:
    put(tmp_path, lines({**HELLO, "nonce": "other"}, *WHOLE[1:]))
    assert read_folder(tmp_path, None)[0].end == "exit"


def test_a_name_that_cannot_be_encoded_is_escaped(tmp_path: Path) -> None:
    put(tmp_path, lines(HELLO, {**TABLE, "rows": [["w\ud800", "float32", []]]}, *WHOLE[2:]))
    [trace] = read_folder(tmp_path, NONCE)
    assert trace.blocks[0].rows[0][0] == "w\\ud800"
    put(
        tmp_path,
        lines(HELLO, {**TABLE, "rows": [["\U0001f600\udc00\\ud800", "float32", []]]}, *WHOLE[2:]),
    )
    [trace] = read_folder(tmp_path, NONCE)
    assert trace.blocks[0].rows[0][0] == "\U0001f600\\udc00\\ud800"
    assert "is no event of the format" in refusal(
        tmp_path, lines(HELLO) + b'{"e": "\\ud800", "x": ' + b"[" * 100_000 + b"\n"
    )
    assert "is no event of the format" in refusal(
        tmp_path, lines(HELLO) + b'{"e": "\\ud800", "x": NaN}\n'
    )


def test_of_a_key_that_stands_twice_the_last_counts(tmp_path: Path) -> None:
    put(tmp_path, lines(HELLO) + b'{"e": "network", "address": "a", "address": "b"}\n')
    assert read_folder(tmp_path, NONCE)[0].network == ["b"]
    assert "is no event of the format" in refusal(
        tmp_path, lines(HELLO) + b'{"e": "network", "address": "a", "address": 1}\n'
    )


def test_a_trace_goes_on_after_its_end_only_where_it_says_so(tmp_path: Path) -> None:
    put(
        tmp_path,
        lines(*WHOLE, {"e": "resumed", "steps": 1}, {**STEP, "step": 1}, {**END, "steps": 2}),
    )
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


MANY: Mapping[str, Mapping[str, Any]] = {
    "rows of a table": {**TABLE, "rows": [["n", "f", []]] * (fmt.MAX_ROWS + 1)},
    "values of a block": {**BLOCK, "values": ["0x1p0"] * (fmt.MAX_ROWS + 1)},
    "distances": {
        "e": "distance",
        "step": 0,
        "rows": [["loss", "n", "f", [], 0, 0, 0, 0]] * (fmt.MAX_ROWS + 1),
    },
    "files": {"e": "opened", "files": [["a", True, "", False]] * (fmt.MAX_OPENED + 1)},
    "modules": {"e": "imports", "modules": [["a", "/a", ""]] * (fmt.MAX_IMPORTS + 1)},
    "distributions": {
        **VERSIONS,
        "versions": {str(number): "1" for number in range(fmt.MAX_DISTRIBUTIONS + 1)},
    },
    "variables": {
        **VARIABLES,
        "values": {str(number): "1" for number in range(fmt.MAX_VARIABLES + 1)},
    },
    "unmoved modules": {"e": "unmoved", "rows": [["module", "EMA", "00"]] * (fmt.MAX_UNMOVED + 1)},
    "flags": {**FLAGS, "settings": {str(number): True for number in range(201)}},
}


@pytest.mark.parametrize("what", MANY)
def test_an_event_holds_no_more_than_its_limit(what: str, tmp_path: Path) -> None:
    event = dict(MANY[what])
    said = refusal(
        tmp_path, lines(HELLO, TABLE, event) if event["e"] == "block" else lines(HELLO, event)
    )
    assert "of length <= " in said
    field = next(
        name for name, value in event.items() if isinstance(value, list | dict) and len(value) > 100
    )
    event[field] = (
        dict([*event[field].items()][:-1]) if isinstance(event[field], dict) else event[field][:-1]
    )
    put(tmp_path, lines(HELLO, event) if event["e"] != "block" else lines(HELLO, TABLE, event))
    TraceFollower(tmp_path / f"1-1{fmt.SUFFIX}", NONCE).finish()


@pytest.mark.parametrize(
    ("limit", "small", "says"),
    [
        ("MAX_LINE_BYTES", 100, "longer than 100 bytes"),
        ("MAX_TABLES", 0, "numbered from 0"),
        ("MAX_OPENED", 1, "more than 1 of"),
        ("MAX_IMPORTS", 0, "more than 0 of"),
        ("MAX_LOADERS", 1, "numbered from 0"),
        ("MAX_FILES", 0, "1 trace files, 0 at most"),
    ],
)
def test_a_process_writes_no_more_than_its_limit(
    limit: str, small: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = lines(HELLO)[:-1] + b" " * 200 if limit == "MAX_LINE_BYTES" else SAMPLE
    put(tmp_path, SAMPLE)
    assert read_folder(tmp_path, NONCE)
    monkeypatch.setattr(fmt, limit, small)
    assert says in refusal(tmp_path, content)


@pytest.mark.parametrize("kind", [Drawn, Spawned])
def test_a_process_notes_no_more_of_a_kind_than_its_limit(
    kind: type[Event], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(accept.LISTS, kind, (accept.LISTS[kind][0], 0))
    assert "more than 0 of" in refusal(tmp_path, SAMPLE)


@pytest.mark.parametrize("limit", [fmt.BYTES, fmt.MEMORY, fmt.ALL_DIGESTS, fmt.UNFOLDED])
def test_all_processes_of_a_run_share_one_budget(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the first of 100 rows changes
    rows, one = (
        [["", "", []]] * 100,
        base64.b64encode(b"\1" + bytes(12)).decode(),
    )
    block = {
        "e": "block",
        "step": 0,
        "kind": "loss",
        "table": 0,
        "at": 0,
        "digests": base64.b64encode(bytes(1600)).decode(),
    }
    changed = {**block, "at": 1, "digests": base64.b64encode(b"1" * 16).decode(), "changed": one}
    content = lines(
        {**HELLO, "argv": ["train.py"]},
        {**TABLE, "rows": rows},
        block,
        changed,
        {"e": "end", "reason": "exit", "steps": 0},
    )
    for number in range(3):
        put(tmp_path, content, f"{number}-{number}")
    spent = read_folder(tmp_path, NONCE)[0].budget.spent
    assert (spent[fmt.BYTES], spent[fmt.ALL_DIGESTS], spent[fmt.UNFOLDED]) == (
        3 * len(content),
        3 * 3200,
        3 * 1584,
    )
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
    with pytest.raises(
        TraceError,
        match=r"too large: with what `.*` wrote, the traces of this run take more than "
        r"17,179,869,184 bytes",
    ):
        read_folder(tmp_path, NONCE)


def test_reading_takes_no_longer_than_a_run_may(tmp_path: Path) -> None:
    path = put(tmp_path, SAMPLE)
    assert (
        TraceFollower(path, NONCE, budget=Budget({**fmt.MAX_OF_RUN, fmt.SECONDS: 90.0}))
        .finish()
        .trained
    )
    with pytest.raises(TraceError, match=r"too large: .* more than 0 seconds of reading$"):
        TraceFollower(path, NONCE, budget=Budget({**fmt.MAX_OF_RUN, fmt.SECONDS: 0.0})).poll()


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


def test_every_kind_is_one_of_the_formats() -> None:
    assert get_args(Kind) == fmt.KINDS


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


def test_a_folder_that_is_gone_is_refused(tmp_path: Path) -> None:
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


def read_bytes(content: bytes) -> Trace | TraceError:
    """Whatever the reader makes of these bytes; any other exception goes through."""
    with TemporaryDirectory() as folder:
        put(Path(folder), content)
        try:
            return read_folder(Path(folder), NONCE)[0]
        except TraceError as error:
            return error


@given(st.binary(max_size=400), st.booleans())
@settings(max_examples=150, deadline=2000)
def test_random_bytes_are_a_trace_or_a_refusal(content: bytes, after_hello: bool) -> None:
    assert isinstance(
        read_bytes(lines(HELLO) + content if after_hello else content), (Trace, TraceError)
    )


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
    assert isinstance(read_bytes(lines(*events)), (Trace, TraceError))


@given(st.integers(0, len(SAMPLE) - 1), st.binary(min_size=1, max_size=3))
@settings(max_examples=150, deadline=2000)
def test_a_trace_with_bytes_overwritten_is_a_trace_or_a_refusal(at: int, new: bytes) -> None:
    assert isinstance(read_bytes(SAMPLE[:at] + new + SAMPLE[at + len(new) :]), (Trace, TraceError))
