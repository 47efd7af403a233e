"""Claims about what differs though nothing recorded does: a metric that differs is told, and what
differs between any two runs is not."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from repro_gate.compare.printed import differing_numbers
from repro_gate.compare.unrecorded import notices
from repro_gate.compare.written import MAX_TEXT, Left, Written, differing_files, ignored, steady

NOW = int(time.time())
# (the clock and everything else that moves, a metric) -> lines
Log = Callable[[random.Random, float], list[str]]


def nanogpt(clock: random.Random, metric: float) -> list[str]:
    lines = [
        "number of parameters: 0.80M",
        "num decayed parameter tensors: 18, with 802,944 parameters",
        "step 0: train loss 4.1676, val loss 4.1649",
    ]
    lines += [
        f"iter {i}: loss {4 - i / 100:.4f}, time {clock.uniform(1, 900):.2f}ms, mfu "
        f"{clock.uniform(-100, 9):.2f}%"
        for i in range(20)
    ]
    return [
        *lines,
        f"step 20: train loss 3.5111, val loss {metric:.4f}",
        "saving checkpoint to out",
    ]


def hf_trainer(clock: random.Random, metric: float) -> list[str]:
    seconds = clock.uniform(3, 90)
    return [
        (
            f"{clock.randrange(100)}%|███▍      | {clock.randrange(30)}/30 "
            f"[00:0{clock.randrange(9)}<00:05, {clock.uniform(1, 9):.2f}it/s]"
        ),
        (
            "{'loss': 0.6931, 'grad_norm': 1.2345678806304932, 'learning_rate': 4.5e-05, 'epoch': "
            "0.33}"
        ),
        (
            f"{{'eval_loss': {metric}, 'eval_runtime': {seconds:.4f}, 'eval_samples_per_second': "
            f"{900 / seconds:.3f}, 'epoch': 1.0}}"
        ),
        (
            f"{{'train_runtime': {seconds:.4f}, 'train_samples_per_second': {9 / seconds:.3f}, "
            "'train_loss': 0.69, 'total_flos': 123456.0}"
        ),
        f"{{'train_steps_per_second': {1 / seconds:.3f}, 'train_loss': 0.69, 'epoch': 3.0}}",
        f"{{'train_runtime': '{seconds:.4g}', 'train_loss': '0.69'}}",
    ]


def lightning(clock: random.Random, metric: float) -> list[str]:
    speed = f"{clock.uniform(5, 90):.2f}it/s"
    bar = (
        f"Epoch 0: 100%|██████████| 10/10 [00:0{clock.randrange(9)}<00:00, {speed}, v_num=0, "
        f"loss={clock.random():.3f}]"
    )
    return [
        "GPU available: False, used: False",
        (
            "/venv/lib/python3.11/site-packages/lightning/trainer.py:433: The 'train_dataloader' "
            "does not have many workers"
        ),
        *[bar] * clock.randrange(1, 9),
        "┏━━━━━━━━━━━━━┳━━━━━━━━━━━━━┓",
        f"│    test_acc    │     {metric}    │",
        (
            "Restored all states from the checkpoint at "
            f"/tmp/tmp{clock.getrandbits(40):x}/epoch=1-step=20.ckpt"
        ),
    ]


def timm(clock: random.Random, metric: float) -> list[str]:
    t, d = clock.uniform(0.1, 4), clock.uniform(0, 1)
    time = f"Time: {t:.3f}s, {128 / t:>7.2f}/s  ({t:.3f}s, {128 / t:>7.2f}/s)"
    return [
        *(
            f"Train: 0 [{i:>4d}/16 ({i / 16:>4.0%})]  Loss: 6.94 (6.9{i})  {time}  LR: 1.000e-05  "
            f"Data: {d:.3f} ({d:.3f})"
            for i in range(9)
        ),
        (
            f"Test: [   3/3]  Time: {t:.3f} ({t:.3f})  Loss:   6.912 ( 6.901)  Acc@1: "
            f"{metric:>7.3f} ({metric:>7.3f})  Acc@5:   9.1 (  9.2)"
        ),
        f"*** Best metric: {metric} (epoch 0)",
    ]


def imagenet(clock: random.Random, metric: float) -> list[str]:
    t, d = clock.uniform(0.1, 4), clock.uniform(0, 1)
    lines = [
        f"Epoch: [0][{i:>3}/100]\tTime {t:6.3f} ({d:6.3f})\tData {d:6.3f} ({t:6.3f})\tLoss "
        f"6.9{i}e+00 (6.9e+00)"
        for i in range(5)
    ]
    return [*lines, f" *   Acc@1 {metric:.3f} Acc@5 92.876"]


def keras(clock: random.Random, metric: float) -> list[str]:
    t = clock.randrange(1, 60)
    return [
        f"  1/313 [..............................] - ETA: {t}s - loss: {clock.random():.4f}",
        (
            f"313/313 [==============================] - {t}s {t}ms/step - loss: 0.2935 - "
            "accuracy: 0.9133"
        ),
        f"313/313 - {t}s - {t}ms/step - loss: 0.2935 - accuracy: {metric:.4f}",
    ]


def torchtitan(clock: random.Random, metric: float) -> list[str]:
    now = (
        f"[titan] 2026-11-{clock.randrange(10, 30)} "
        f"22:{clock.randrange(10, 60)}:39,{clock.randrange(100, 999)} - root - INFO - "
    )
    gib = clock.uniform(0, 80)
    speed = (
        f"memory:  {gib:.2f}GiB({gib:.2f}%)  tps: {clock.randrange(1000, 9999):,}  tflops: "
        f"{gib:.2f}  mfu: {gib:.2f}%"
    )
    return [f"{now}step: 10  loss:  {metric:.4f}  grad_norm:  1.2345  {speed}"]


def ours(clock: random.Random, metric: float) -> list[str]:
    """Lines of cleanrl, word_language_model, minGPT, makemore, PyG, torchdiffeq, and what anybody
    prints."""
    t, minute, micro = clock.uniform(0.1, 90), clock.randrange(10, 60), clock.randrange(10**6)
    return [
        f"SPS: {int(1000 / t)}",
        (
            f"| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch {t:5.2f} | loss  7.63 | ppl  "
            "2049.12"
        ),
        f"| end of epoch   1 | time: {t:5.2f}s | valid loss  5.12 | valid ppl {metric:8.3f}",
        f"iter_dt {t:.2f}ms; iter 100: train loss 1.2345",
        f"step 0 | loss 3.2965 | step time {t:.2f}ms",
        (
            f"Epoch 0001 | Time {t:.3f} ({t:.3f}) | NFE-F 20.0 | NFE-B 0.0 | Train Acc 0.9031 | "
            "Test Acc 0.9012"
        ),
        f"Median time per epoch: {t:.4f}s",
        f"dt: {t:.2f}ms | tok/sec: {1e5 / t:.2f}",
        f"Epoch 3 finished in {t:.2f}",
        f"done after {t:.1f} seconds, peak memory {t:.1f} MB, pid {clock.randrange(99999)}",
        (
            f"[W1121 22:{minute}:39.{micro:06} {clock.randrange(9999)} ProcessGroupGloo.cpp:712] "
            "Warning: 3 ranks"
        ),
        (
            f"listening on 127.0.0.1:{clock.randrange(9999)} and "
            f"http://node-{clock.randrange(99)}:{clock.randrange(9999)}/"
        ),
        f"<Model object at 0x{clock.getrandbits(48):x}>, run id 7f3e{clock.getrandbits(48):012x}",
        f"{t}",
        (
            "wandb: Run data is saved locally in "
            f"/tmp/x/wandb/offline-run-20261121_22{clock.randrange(10, 60)}39-{clock.getrandbits(32):08x}"
        ),
        (
            f"throughput 12.0 img/s, {1000 / t:.1f} samples/sec, {t:.2f} it/s, {t:.1f} images per "
            "second"
        ),
        f"started at {NOW + t:.3f}, Sat Nov 21 22:{minute}:39 2026, elapsed 0:{minute}:12.{micro}",
    ]


def large(clock: random.Random, metric: float) -> list[str]:
    """Lines of fairseq, DeepSpeed, Megatron, detectron2, mmengine, stable-baselines3 and torch's
    profiler."""
    t = clock.uniform(0.1, 90)
    return [
        (
            f"| epoch 001:  50 / 100 loss=8.1, ppl=201, wps={t:.1f}, ups={t:.2f}, wpb=3500, "
            f"train_wall={t:.0f}, gb_free={t:.1f}, wall={t}"
        ),
        (
            f"[2026-11-21 22:23:39,123] [INFO] [Rank 0] time (ms) | fwd_microstep: {t:.2f} | "
            f"optimizer_gradients: {t:.2f}"
        ),
        (
            f" iteration  10/  100 | samples:  160 | elapsed time per iteration (ms): {t:.1f} | lm "
            f"loss: {metric:.6E} | grad norm: 3.2 |"
        ),
        (
            f"[11/21 22:23:39 d2.utils.events]:  eta: 0:00:12  total_loss: 2.1  time: {t:.4f}  "
            f"last_data_time: {t:.4f}  max_mem: {t:.0f}M"
        ),
        (
            f"Epoch(train) [1][ 50/391]  lr: 1.0e-02  eta: 0:01:23  time: {t:.4f}  data_time: "
            f"{t:.4f}  memory: {t:.0f}  loss: 0.3"
        ),
        f"|    fps             | {t:.0f}     |",
        f"|    time_elapsed    | {t:.0f}     |",
        f"            aten::addmm        {t:.2f}%       {t:.3f}us",
        f"job id: {clock.getrandbits(50)}, 3 epochs completed in {t:.3f} hours.",
    ]


LOGS = [large, nanogpt, hf_trainer, lightning, timm, imagenet, keras, torchtitan, ours]


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("seed", range(8))
def test_what_moves_with_the_clock_is_no_difference(log: Log, seed: int) -> None:
    assert (
        differing_numbers(log(random.Random(seed), 0.731), log(random.Random(seed + 100), 0.731))
        == []
    )


@pytest.mark.parametrize("log", LOGS)
def test_a_metric_that_differs_is_told_by_its_name(log: Log) -> None:
    found = differing_numbers(log(random.Random(1), 0.731), log(random.Random(2), 0.742))
    assert found and all(float(a) == 0.731 and float(b) == 0.742 for _, a, b in found), found


def test_names_and_values_are_the_lines_own() -> None:
    assert differing_numbers(
        ["epoch 3: val_acc 0.731 time 3.2s"], ["epoch 3: val_acc 0.742 time 4.1s"]
    ) == [("val_acc", "0.731", "0.742")]
    assert differing_numbers(
        ["Test: Accuracy: 9800/10000 (98%)"], ["Test: Accuracy: 9731/10000 (97%)"]
    )[0][1:] == ("9800", "9731")
    assert differing_numbers(["acc 1", "acc 2", "acc 3"], ["acc 1", "acc 5", "acc 6"]) == [
        ("acc", "2", "5")
    ]
    assert differing_numbers(["loss nan"], ["loss 0.5"]) == [("loss", "nan", "0.5")]
    assert differing_numbers(["loss 1.12345678"], ["loss 1.12345679"]) == [
        ("loss", "1.12345678", "1.12345679")
    ]


@pytest.mark.parametrize("number", [1734567890, 1712345678901234, 2**40, 9876543])
def test_a_large_number_is_told_unless_it_can_be_the_time(number: int) -> None:
    assert differing_numbers([f"total {number}"], [f"total {number + 9}"]) == [
        ("total", str(number), str(number + 9))
    ]
    assert not differing_numbers([f"total {NOW}"], [f"total {NOW + 9}"])
    assert not differing_numbers([f"total {NOW}123456"], [f"total {NOW + 90_000}654321"])


def test_the_order_of_lines_and_a_log_cut_at_its_beginning_are_no_difference() -> None:
    lines = [
        f"[rank{rank}]: step {step} loss {rank + step / 10:.2f}"
        for step in range(30)
        for rank in range(2)
    ]
    assert differing_numbers(lines, [*lines[17::2], *lines[18::2]]) == []
    every_ten_seconds = (
        [f"step {step} loss {step / 7:.3f}" for step in range(start, 99, 9)] for start in (1, 2)
    )
    assert differing_numbers(*every_ten_seconds) == []


def test_no_text_takes_long() -> None:
    begun = time.monotonic()
    for piece in (
        "1",
        "1 ",
        "a1/",
        "[",
        "1,",
        "1:",
        "e1",
        ".",
        "0x",
        "loss 1 ",
        "/a",
        "1-1-",
        "\b",
        "█",
        "_",
        "1_",
        "_f1",
        "a.",
        "-",
        " ",
        "=",
    ):
        differing_numbers([piece * 65_536] * 20, [piece * 65_535 + "x"] * 20)
        for name in ("a.json", "a.csv", "a.log"):
            steady(name, (piece * (MAX_TEXT // len(piece.encode()))).encode())
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize(
    "piece",
    [
        "_",
        "1_",
        "_1",
        "__f1",
        "a_",
        "1_a_",
        "deadbeef1-",
        "1:",
        "a.",
        "-",
        " ",
        "0",
        "0x",
        "/",
        "=",
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.log"])
def test_a_texts_time_grows_with_its_length_alone(piece: str, name: str) -> None:
    begun = time.process_time()
    steady(name, (piece * MAX_TEXT)[:MAX_TEXT].encode())
    assert time.process_time() - begun < 5  # 0.2 s; with a square of the length, 20 to 100 s


def test_names_of_hexadecimal_digits_are_ids_only_where_they_hold_letters_and_digits() -> None:
    for name in ("run_0a1b2c3d.txt", "deadbee1", "1234567f-00ab", "x-a1b2c3d_y"):
        other = name.replace("b", "a").replace("f", "e")
        expected = name.startswith("x-")  # after a `-`, and before a letter: a word of its own
        assert bool(listed(Left({name: Written("1")}), Left({other: Written("1")}))) is expected, (
            name
        )
    for name in ("model_1234567.bin", "deadbeef", "abcdef_1x"):
        assert listed(Left({name: Written("1")}), Left({name.translate(SHIFTED): Written("1")})), (
            name
        )


def test_all_notices_have_one_deadline_and_say_what_was_cut() -> None:
    a, b = (
        Left({"a": Written(value), "b.log": written(f"loss {value}")}, "", [f"acc {value}"])
        for value in ("0.1", "0.2")
    )
    assert set(notices(a, b)) == {"unrecorded/files", "unrecorded/log"}
    found = notices(a, b, seconds=0)
    assert found["unrecorded/files"][0].startswith(
        "not every file that the runs wrote was compared: what "
    )
    assert found["unrecorded/log"][0].startswith("not every printed number was compared: what ")
    many = [
        Left({f"{i:03}.txt": written(f"{run} 1_a " * 6_000) for i in range(100)})
        for run in range(2)
    ]
    begun = time.monotonic()
    assert "(looked at: what " in notices(*many, seconds=1)["unrecorded/files"][0]
    assert time.monotonic() - begun < 20


SHIFTED = str.maketrans("1234567bc", "2345671cb")


def listed(a: Left, b: Left) -> list[str]:
    return sorted(set(differing_files(a, b)))


def files(**named: str | bytes) -> Left:
    return Left(
        {
            name.replace("__", "/").replace("_dot_", "."): written(value)
            for name, value in named.items()
        }
    )


def written(value: str | bytes) -> Written:
    data = value.encode() if isinstance(value, str) else value
    return Written(str(hash(data)), data if isinstance(value, str) else None)


def test_times_in_texts_and_in_names_are_no_difference() -> None:
    for name, first, second in (
        (
            "results_dot_json",
            '{"loss": 0.5, "train_runtime": 3.2, "date": "2026-11-21"}',
            '{"loss": 0.5, "train_runtime": 4.1, "date": "2026-11-22"}',
        ),
        ("m_dot_csv", "epoch,loss,time\n1,0.5,3.2\n", "epoch,loss,time\n1,0.5,4.1\n"),
        (
            "train_dot_log",
            "2026-11-21 10:00:01 loss 0.5, 3.2s\n",
            "2026-11-21 10:03:07 loss 0.5, 4.1s\n",
        ),
        (
            "times_dot_json",
            '{"seconds": [\n 1.5,\n 2.5\n], "n": 2}',
            '{"seconds": [\n 1.7,\n 2.6\n], "n": 2}',
        ),
    ):
        assert listed(files(**{name: first}), files(**{name: second})) == [], name
        other = first.replace("0.5", "0.6").replace('"n": 2', '"n": 3')
        assert len(listed(files(**{name: first}), files(**{name: other}))) == 1, name
    a = Left(
        {
            "outputs/2026-11-21/10-00-01/w.bin": Written("x"),
            "runs/Nov21_10-00-01_host/a.bin": Written("y"),
        }
    )
    b = Left(
        {
            "outputs/2026-11-21/10-03-07/w.bin": Written("x"),
            "runs/Nov21_10-03-07_host/a.bin": Written("y"),
        }
    )
    assert listed(a, b) == []
    ids = ("11112222-aaaa-bbbb-cccc-123456789012", "33334444-dddd-bbbb-cccc-123456789012")
    names = (f"x/{{}}/model_{time}.bin" for time in (NOW, NOW + 180))
    assert (
        listed(
            *(Left({name.format(run): Written("x")}) for name, run in zip(names, ids, strict=True))
        )
        == []
    )
    by_the_clock = (f"step {step} loss {step / 7:.3f}\n" for step in (10, 11))
    assert listed(*(files(a_dot_log=f"start\nloss 0.5\n{line}") for line in by_the_clock)) == []
    binary = (Left({"a.txt": Written(str(value), bytes([value]))}) for value in (200, 201))
    assert listed(*binary) == ["a.txt"]
    changed = Left({**b.files, "outputs/2026-11-21/10-03-07/w.bin": Written("z")})
    assert listed(a, changed) == ["outputs/2026-11-21/10-00-01/w.bin"]


def test_what_trackers_and_caches_write_is_ignored() -> None:
    for name in (
        "runs/x/events.out.tfevents.1763763.host.1.0",
        "wandb/offline-run-1/files/a.json",
        "a/__pycache__/m.pyc",
        "m.pyc",
        ".cache/x",
    ):
        assert ignored(name), name
    assert not ignored("out/wandb.csv") and not ignored("lightning_logs/version_0/hparams.yaml")


def test_one_notice_names_a_few_and_folds_the_rest() -> None:
    few = notices(files(a="1", out__b="2"), files(a="3", out__b="4", only="5"))
    assert few == {
        "unrecorded/files": (
            "3 files that the runs wrote differ and are not declared: a, only, out/b",
            few["unrecorded/files"][1],
        )
    }
    many = [
        Left(
            {f"out/run/{i:02}.bin": Written(f"{run}{i}") for i in range(30)}
            | {"x.bin": Written(str(run))}
        )
        for run in range(2)
    ]
    assert notices(*many)["unrecorded/files"][0].endswith(
        "not declared: out/run/ (30 files), x.bin"
    )
    one = notices(files(a="1"), files(a="2"))["unrecorded/files"][0]
    assert one == "1 file that the runs wrote differs and is not declared: a"
    assert notices(files(a="1"), files(a="1")) == {}


def test_of_a_search_that_was_cut_only_what_both_runs_have_is_compared() -> None:
    a, b = (
        Left({"a": Written("1"), "b": Written("1")}, "the first 2 files"),
        Left({"a": Written("1"), "c": Written("1")}, "the first 2 files"),
    )
    assert "not every file" in notices(a, b)["unrecorded/files"][0]


def test_three_printed_numbers_are_shown() -> None:
    a, b = ([f"{name} {value}" for name in ("acc", "f1", "bleu", "rouge")] for value in (0.5, 0.25))
    message = notices(Left(printed=a), Left(printed=b))["unrecorded/log"][0]
    assert message.endswith(
        "`acc 0.5` against `0.25`, `f1 0.5` against `0.25`, `bleu 0.5` against `0.25` and 1 more"
    )
