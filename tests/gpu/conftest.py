"""What every test of this folder needs: a CUDA device. Without one each is skipped, with the
reason."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def cuda() -> str:
    """The device's name. Skips where torch, or a device for it, is missing."""
    torch = pytest.importorskip("torch", reason="tests/gpu needs torch")
    if not torch.cuda.is_available():
        built = f"torch {torch.__version__}, built for CUDA {torch.version.cuda}"
        pytest.skip(f"tests/gpu needs a CUDA device, and torch sees none ({built})")
    return str(torch.cuda.get_device_name())
