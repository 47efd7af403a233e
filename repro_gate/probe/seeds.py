"""Seeds every generator that frameworks draw from, and digests their states.

Seeding happens once, right after the module came in and before the training's own lines, which may seed again as they like.
"""

from __future__ import annotations

import array
import ctypes
import hashlib
import random
import sys
from typing import Any, List, Tuple

from ..trace.format import DIGEST_BYTES
from ..trace.writer import Row


def seed_python(seed: int) -> None:
    """Seed the `random` module's generator."""
    random.seed(seed)


def seed_numpy(numpy: Any, seed: int) -> None:
    """Seed NumPy's global generator (`default_rng()` of the training's own is not reached by any seed)."""
    numpy.random.seed(seed % 2**32)


def seed_torch(torch: Any, seed: int) -> None:
    """Seed torch's CPU generator and every CUDA device's (lazily, where CUDA has not started)."""
    torch.manual_seed(seed)


def rng_digests() -> Tuple[Tuple[Row, ...], bytes]:
    """Rows and digests of the states of all generators: python, numpy, torch and each CUDA device in use."""
    rows: List[Row] = [("python", "state", (625,))]
    version, words, gauss = random.getstate()
    digests = [_digest(array.array("Q", words).tobytes() + repr((version, gauss)).encode())]
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        name, keys, position, has_gauss, cached = numpy.random.get_state(legacy=True)
        rows.append(("numpy", "state", (624,)))
        digests.append(_digest(keys.tobytes() + repr((str(name), int(position), int(has_gauss), float(cached).hex())).encode()))
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        for device, state in _torch_states(torch):
            rows.append((device, "uint8", tuple(state.shape)))
            digests.append(_digest(ctypes.string_at(state.data_ptr(), state.numel())))
    return tuple(rows), b"".join(digests)


def _torch_states(torch: Any) -> List[Tuple[str, Any]]:
    states = [("torch", torch.get_rng_state())]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states += [("cuda:%d" % index, torch.cuda.get_rng_state(index)) for index in range(torch.cuda.device_count())]
    return states


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:DIGEST_BYTES]
