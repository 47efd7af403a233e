"""`factors.autotune`: the configuration of a kernel that was chosen by timing it is a use; pinned,
the first one that runs is taken. The stand-in has the attributes of Triton's autotuner, 3.0 to
3.6, and times by bytes of the system that nothing pins."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.probe.factors.runs import once, uses_of

AUTOTUNER = """
from .errors import OutOfResources

class Config:
    def __init__(self, kwargs):
        self.kwargs = kwargs
    def all_kwargs(self):
        return dict(self.kwargs)
    def __str__(self):
        return ", ".join(f"{name}: {value}" for name, value in self.kwargs.items())

class Autotuner:
    def __init__(self, fn, arg_names, configs, key, reset_to_zero, restore_value, *, do_bench):
        assert reset_to_zero is restore_value is None
        self.do_bench = do_bench
        self.fn, self.arg_names, self.configs, self.keys = fn, arg_names, configs, key
        self.base_fn, self.cache = fn.fn, {}
    def _bench(self, *args, config, **meta):
        def call():
            self.fn.run(*args, **meta, **config.all_kwargs())
        try:
            return self.do_bench(call, quantiles=(0.5, 0.2, 0.8))
        except OutOfResources:
            return [float("inf")] * 3
    def run(self, *args, **kwargs):
        named = {**dict(zip(self.arg_names, args)), **kwargs}
        key = tuple(named[name] for name in self.keys)
        if key not in self.cache:
            times = {c: self._bench(*args, config=c, **kwargs) for c in self.configs}
            self.cache[key] = min(times, key=times.get)
        self.best_config = self.cache[key]
        return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())
"""
ERRORS = """
class OutOfResources(Exception):
    def __init__(self, required, limit, name):
        super().__init__(f"{name}: {required} of {limit}")
"""
TRAIN = """
import ctypes
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.errors import OutOfResources
def scale(x, size, BLOCK, **options):
    if BLOCK == 0:
        raise OutOfResources(2, 1, "shared memory")
    return BLOCK
class Compiled:
    fn = staticmethod(scale)
    run = staticmethod(scale)
def bench(call, quantiles):
    call()
    drawn = ctypes.create_string_buffer(4)
    assert ctypes.CDLL(None).getrandom(drawn, 4, 0) == 4
    return [1.0 + int.from_bytes(drawn.raw, "little")] * 3
configs = [Config({"BLOCK": size}) for size in (0, *range(16, 4096))]
kernel = Autotuner(Compiled(), ["x", "size"], configs, ["size"], None, None, do_bench=bench)
for size in (8, 8, 9):
    print(kernel.run(None, size))
"""
SITE = {
    "site/triton/__init__.py": "",
    "site/triton/runtime/__init__.py": "",
    "site/triton/runtime/autotuner.py": AUTOTUNER,
    "site/triton/runtime/errors.py": ERRORS,
}
LINE = TRAIN.splitlines().index("    print(kernel.run(None, size))") + 1
IS_THERE = importlib.util.find_spec("triton") is not None


@pytest.fixture(params=["stand-in", "triton"])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Where the training finds Triton: the stand-in, or Triton itself, where it is installed."""
    if request.param == "triton":
        return {} if IS_THERE else pytest.skip("triton is not installed")
    for name, text in SITE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return {"PYTHONPATH": str(tmp_path / "site")}


@pytest.mark.slow
def test_a_choice_by_timing_is_a_use_with_the_kernel_and_the_configuration(
    tmp_path: Path, env: dict[str, str]
) -> None:
    runs = [once(tmp_path, TRAIN, {"watch": True}, env=env) for _ in range(2)]
    assert runs[0].ended.tail != runs[1].ended.tail
    for run in runs:
        uses = uses_of(run, "autotune")
        said = [(use.file, use.line, use.source, use.direct) for use in uses]
        sources = [f"scale for [{size}]" for size in (8, 9)]
        assert said == [("train.py", LINE, source, True) for source in sources]
        blocks = [run.ended.tail[0], run.ended.tail[2]]
        assert [re.split("[,)]", use.call)[0] for use in uses] == [
            f"scale(BLOCK: {block}" for block in blocks
        ]
    first, second = (uses_of(run, "autotune")[0] for run in runs)
    assert first.digest != second.digest


@pytest.mark.slow
def test_pinned_the_first_configuration_that_runs_is_taken(
    tmp_path: Path, env: dict[str, str]
) -> None:
    for sites in (None, [["train.py", LINE]]):
        run = once(tmp_path, TRAIN, {"pin": {"autotune": sites}}, env=env)
        assert run.ended.tail == ("16", "16", "16")
    elsewhere = once(tmp_path, TRAIN, {"pin": {"autotune": [["train.py", 1]]}}, env=env)
    assert elsewhere.ended.tail != ("16", "16", "16")
