"""`env.install` in the real image: a lock on top of the image's torch, out of the training's reach,
with a cache in the workspace."""

from __future__ import annotations

from pathlib import Path

from tests.container.engine import Engine
from tests.container.image import Image
from tests.container.runner import RUNNER, lay_out, start
from tests.support.wheels import wheel

TRAINING = """\
import importlib.util, os, random, tiny
from repro_gate import record, step
assert importlib.util.find_spec("torch")
assert tiny.VERSION == "1.0" and os.environ["VIRTUAL_ENV"] in tiny.__file__
try:
    open(tiny.__file__, "a")
except OSError:
    pass
else:
    raise SystemExit("a training can write to what later trainings import")
for number in range(3):
    record("loss", random.random())
    step()
"""
SPEC = (
    "version: 1\ntrain: {run: python train.py, timeout: 2m}\nenv: {lockfile: requirements.lock, "
    "install: true}\ncost: {measure: false}\n"
)


def test_a_lock_is_installed_on_top_of_torch(engine: Engine, image: Image, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    index = tmp_path / "index"
    lock = wheel(index, "tiny", "1.0")
    layout = lay_out(
        tmp_path / "job", {"train.py": TRAINING, "repro.yml": SPEC, "requirements.lock": lock}
    )
    inputs = {"comment": "never", "cache": ".cache/gate"}
    more = ("-v", f"{index}:/wheels:ro", "-e", "UV_OFFLINE=1", "-e", "UV_FIND_LINKS=/wheels")
    first = start(engine, image.name, layout, inputs, more=more)
    assert first.exit_code == 0, first.log
    assert "installing what requirements.lock pins" in first.log
    assert first.report["determinism"]["identical"] is True
    assert {path.lstat().st_uid for path in layout.workspace.rglob("*")} == {
        RUNNER if layout.workspace.stat().st_uid == RUNNER else 0
    }

    assert list((layout.workspace / ".cache/gate/environments/uv-2").rglob("tiny.py"))
    second = start(engine, image.name, layout, inputs, more=more)
    assert second.exit_code == 0, second.log
    checklist = {item["id"]: item["status"] for item in second.report["checklist"]}
    # the cache and the report in the workspace are not the checkout's
    assert checklist["code/clean"] == "pass"
