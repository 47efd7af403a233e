"""Claims about the whole gate on a GPU, through its command line: the verdict, the noise of the
quickstart, and a GPU that is hidden."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.gates import ROOT, gate, training

pytestmark = pytest.mark.gpu


def test_the_quickstart_passes_on_the_device_with_a_noise_floor_above_zero(
    tmp_path: Path, cuda: str
) -> None:
    folder = tmp_path / "quickstart"
    folder.mkdir()
    shutil.copy(ROOT / "examples" / "quickstart" / "train.py", folder)
    (folder / "repro.yml").write_text(
        f"version: 1\ntrain: {{run: 'python3 train.py --seed {{seed}}', steps: 30, timeout: 3m}}\n"
        f"hardware: {{device: cuda, gpu-model: {cuda}}}\n"
    )
    gated = gate(folder, out=tmp_path)
    assert gated.exit_code == 0, gated.stdout + gated.stderr
    assert gated.report["determinism"]["identical"]
    assert gated.report["noise_floor"]["weight_l2"] > 0
    assert gated.report["cost"]["determinism_cost_pct"] is not None
    assert gated.check("hardware/device")["status"] == "pass"
    assert cuda in str(gated.check("hardware/device"))


def test_an_unseeded_draw_on_the_device_fails(tmp_path: Path) -> None:
    folder = training(
        tmp_path / "twin",
        """
        import torch
        w = torch.nn.Parameter(torch.zeros(1000, device="cuda"))
        optimizer = torch.optim.SGD([w], lr=0.1)
        generator = torch.Generator(device="cuda")
        generator.seed()
        for _ in range(4):
            optimizer.zero_grad()
            (w - torch.randn(1000, device="cuda", generator=generator)).square().sum().backward()
            optimizer.step()
    """,
        run="python3 train.py",
    )
    gated = gate(folder, out=tmp_path)
    assert gated.exit_code == 1, gated.stdout + gated.stderr
    assert gated.first["step"] == 0
    assert gated.first["kind"] in ("loss", "gradient")


def test_device_cpu_hides_the_gpu_from_the_training(tmp_path: Path) -> None:
    folder = training(
        tmp_path / "hidden",
        """
        import torch
        assert not torch.cuda.is_available(), "the GPU can be seen"
        w = torch.nn.Parameter(torch.randn(1000))
        optimizer = torch.optim.SGD([w], lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            (w - torch.randn(1000)).square().sum().backward()
            optimizer.step()
    """,
        spec="""
        version: 1
        train: {run: python3 train.py, steps: 4, timeout: 2m}
        hardware: {device: cpu}
        cost: {measure: false}
    """,
    )
    gated = gate(folder, out=tmp_path)
    assert gated.exit_code == 0, gated.stdout + gated.stderr
    assert gated.check("hardware/device")["status"] == "pass"
