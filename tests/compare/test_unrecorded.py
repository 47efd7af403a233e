"""Of what nothing records, what differs is told; what differs between any two runs is not."""

from __future__ import annotations

import time

import pytest

from repro_gate.compare.unrecorded import (
    MAX_TEXT,
    Left,
    Written,
    differing_files,
    differing_numbers,
    ignored,
    named_numbers,
    notices,
)

DIFFERS = {
    "  val_acc={}  ": "val_acc",
    "step 20: train loss 3.5, val loss: {}": "loss",
    "[rank0]: 2026-11-21 22:10:39,123 - root - INFO - top-1: {}%": "top-1",
    "Sat Nov 21 22:10:39 2026 epoch 3 took 3.2 s, acc@1: {}": "acc@1",
    "accuracy {}": "accuracy",
    "{{'loss': {}, 'epoch': 1.0}}": "loss",
    '{{"step": 9, "loss": {}, "seconds": 3.2}}': "loss",
    "iter 9: loss {}, time 3.2ms, mfu 0.25%": "loss",
}
GRAMMAR = [
    # as `print` writes it
    ("accuracy 0.93", [("accuracy", "0.93")]),
    ("test accuracy 93%", [("accuracy", "93")]),
    ("loss tensor(0.5, grad_fn=<MseLossBackward0>)", [("loss", "0.5")]),
    ("epoch 3 loss 0.41 acc 0.9", [("loss", "0.41"), ("acc", "0.9")]),
    ("INFO 12345 loss 0.41", [("loss", "0.41")]),
    ("finished in 3.2", []),
    ("epoch 3 of 10", []),
    # with a sign between
    ("loss: 0.41, acc=0.9", [("loss", "0.41"), ("acc", "0.9")]),
    ("Train Epoch: 1 [0/60 (0%)]\tLoss: 2.3", [("Loss", "2.3")]),
    ("iter 9: loss 4.2, time 12.4ms, mfu -1.00%", [("loss", "4.2"), ("mfu", "-1.00")]),
    ("10/10 [00:01<00:00, 3.2it/s, loss=0.1]", []),
    ("took: 3 ms", []),
    # dictionaries and JSON lines
    ("{'loss': 0.41, 'epoch': 1.0}", [("loss", "0.41"), ("epoch", "1.0")]),
    ('{"step": 3, "loss": 4.1e-05, "done": true}', [("step", "3"), ("loss", "4.1e-05")]),
    ("step 3 {'loss': nan, 'name': 'x'}", [("loss", "nan")]),
    ("{'acc': np.float64(0.5), 'n': [1]}", [("acc", "0.5")]),
    ('{"val": {"top 1": 0.5}}', [("top 1", "0.5")]),
    ("'loss': 0.41, 'epoch'", [("loss", "0.41")]),  # cut off
    ("{'loss': '0.41', 'lr': '1e-05'}", [("loss", "0.41"), ("lr", "1e-05")]),
    ("'loss' 0.41, 'acc'", []),
    ("version: 1.2.3", []),
]


@pytest.mark.parametrize(("line", "found"), GRAMMAR)
def test_the_numbers_that_a_line_names_are_these(line: str, found: list[tuple[str, str]]) -> None:
    assert named_numbers(line) == found


def test_a_dictionary_of_another_step_is_another_place() -> None:
    """As from two runs that print by the clock; and times in it are no place."""
    first = [f"{{'step': {step}, 'loss': {step / 7}, 'time': 3}}" for step in (1, 10, 19)]
    other = [f"{{'step': {step}, 'loss': {step / 7}, 'time': 4}}" for step in (2, 10, 20)]
    assert differing_numbers(first, other) == []
    other[1] = "{'step': 10, 'loss': 0.5, 'time': 4}"
    assert differing_numbers(first, other) == [("loss", str(10 / 7), "0.5")]


MOVES = ("epoch 3 train_runtime={}", "samples/s: {}", "peak memory: {}", "pid={}", "took: {} ms")
NO_NUMBER = ("done in {}", "{}", "step {}: val_acc: 0.7", "10/10 [00:01<00:00, {}it/s, loss=0.1]")


def test_a_named_number_at_a_lines_end_that_differs_is_told_and_a_time_is_not() -> None:
    for line, name in DIFFERS.items():
        other = line.replace("22:10:39", "09:01:02").replace("3.2", "41.07")
        other = other.replace("Sat Nov 21", "Mon Nov 23")  # in the varied run it is another day
        for a, b in (("nan", "0.5"), ("1.12345678", "1.12345679"), ("-3", "1e-3")):
            assert differing_numbers([line.format(a)], [other.format(b)]) == [(name, a, b)]
            assert differing_numbers([line.format(a)], [other.format(a)]) == []
    for line in (*MOVES, *NO_NUMBER):
        assert differing_numbers([line.format("1.25")], [line.format("3.5")]) == []
    lines = [f"[rank{rank}]: step {n} loss: {rank + n / 10}" for n in range(30) for rank in (0, 1)]
    assert differing_numbers(lines, [*lines[17::2], *lines[18::2]]) == []
    by_the_clock = ([f"step {n} loss: {n / 7}" for n in range(first, 99, 9)] for first in (1, 2))
    assert differing_numbers(*by_the_clock) == []
    other = [*lines[:-1], "[rank1]: step 29 loss: 9"]
    assert differing_numbers(lines, other) == [("loss", "3.9", "9")]
    counts = (["acc: 1", "acc: 2", "acc: 3"], ["acc: 1", "acc: 5", "acc: 6"])
    assert differing_numbers(*counts) == [("acc", "2", "5")]


PIECES = (
    "{'a': 1, ",
    "a(",
    "'a': x(1",
    "a 1 ",
    "1",
    "1 ",
    "a=",
    "a=1",
    "a.",
    "a-",
    ":",
    "=",
    "1:1",
    "_",
    "_1",
    "0x",
    "/a",
    "ab1-",
    "tmp",
)


@pytest.mark.parametrize("piece", PIECES)
def test_the_time_of_a_text_grows_with_its_length_alone(piece: str) -> None:
    begun = time.process_time()
    text = (piece * MAX_TEXT)[:MAX_TEXT]
    for name in ("a.txt", "a.csv", piece * 2_000):
        one, other = (files(**{name: f"{text} {end}"}) for end in "xy")
        assert differing_files(one, other) == [name]
    differing_numbers([text[:2_000] + "x"] * 32, [text[:2_000]] * 32)
    assert time.process_time() - begun < 5


def written(value: str | bytes) -> Written:
    data = value.encode() if isinstance(value, str) else value
    return Written(str(hash(data)), data if isinstance(value, str) else None)


def files(**named: str | bytes) -> Left:
    return Left({name: written(value) for name, value in named.items()})


JSON = '{{"loss": {}, "train_runtime": {}, "date": "2026-11-{}", "out": "/tmp/{}/out"}}'
# name, one text, one that differs by nature alone, one that differs
TEXTS = (
    ("r.json", JSON.format(0.5, 3.2, 21, "a"), JSON.format(0.5, 4, 22, "b"), JSON.format(6, 4, 22, "b")),
    ("m.csv", "epoch,loss,time\n1,0.5,3.2", "epoch,loss,time\n1,0.5,4", "epoch,loss,time\n1,0.6,4"),
    ("t.txt", "10:00:01 loss = 0.5", "10:03:07 loss = 0.5", "10:00:01 loss = 0.6"),
    ("l.txt", "loss 0.5 time 3.2\n-", "loss 0.5 time 4\n-", "loss 0.6 time 4\n-"),
    ("other.txt", "model a", "model a", "model b"),
)  # fmt: skip
NAMES = (
    ("outputs/2026-11-21/10-00-01/w.bin", "outputs/2026-11-22/11-03-07/w.bin"),
    ("runs/Nov21_10-00-01_host/w.bin", "runs/Nov21_10-03-07_host/w.bin"),
    ("11112222-aaaa-bbbb-cccc-123456789012/w", "33334444-dddd-bbbb-cccc-123456789012/w"),
    ("w_1763763123.bin", "w_1763764125.bin"),
    ("tmpab12cd_9/w.bin", "tmpzz00__xy/w.bin"),
)


def test_only_times_in_a_text_or_a_name_may_differ_and_bytes_may_not() -> None:
    for name, first, same, different in TEXTS:
        assert differing_files(files(**{name: first}), files(**{name: same})) == []
        assert differing_files(files(**{name: first}), files(**{name: different})) == [name]
    for ours, theirs in NAMES:
        assert differing_files(files(**{ours: b"x"}), files(**{theirs: b"x"})) == []
        assert differing_files(files(**{ours: b"x"}), files(**{theirs: b"z"})) == [ours]
    theirs = ["runs/x/events.out.tfevents.1763763.host.1.0", "wandb/offline-run-1/files/a.json"]
    theirs += ["a/__pycache__/m.py", "a/torchinductor_x/m.so", "m.pyc", "train.log", ".cache/x"]
    own = ["out/wandb.csv", "lightning_logs/version_0/hparams.yaml", "a.trace.json.txt"]
    assert [name for name in (*theirs, *own) if ignored(name)] == theirs


def test_one_notice_names_a_few_and_says_why_not_all_was_compared() -> None:
    names = [f"{n}.bin" for n in range(30)]
    a, b = (files(**dict.fromkeys(names, run)) for run in (b"0", b"1"))
    assert notices(a, b)["unrecorded/files"][0].endswith(
        "30 undeclared files differ between the runs: 0.bin, 1.bin, 10.bin, 11.bin and 26 more"
    )
    one = notices(files(x=b"0"), files(x=b"1"))["unrecorded/files"][0]
    assert one.startswith("1 undeclared file differs between the runs: x")
    assert notices(a, a) == {}
    names = ["acc", "f1", "bleu", "rouge"]
    a, b = (Left(printed=[f"{name}: {value}" for name in names]) for value in (0.5, 0.25))
    message, _ = notices(a, b)["unrecorded/log"]
    assert "`bleu 0.5` against `0.25` and 1 more" in message and "rouge" not in message
    one, cut = Written("1"), "the first 2 files"
    a, b = (Left({"a": one, name: one}, cut) for name in ("b", "c"))
    assert differing_files(a, b) == [] and cut in notices(a, b)["unrecorded/files"][0]
    other = notices(a, Left({"a": Written("2")}))
    assert f"(looked at: {cut})" in other["unrecorded/files"][0]
