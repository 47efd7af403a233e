"""The states of the random number generators that frameworks draw from, as digests."""

from __future__ import annotations

import ctypes
import hashlib
import random
import sys

from ..trace.format import DIGEST_BYTES
from ..trace.writer import Row, frozen

_RANDOM = frozen(random)
_SHA256 = hashlib.sha256


def states() -> tuple[tuple[Row, ...], bytes]:
    """Return rows and digests (16 bytes each) of the states of all generators: python, numpy, torch
    and each CUDA device in use."""
    numpy = sys.modules.get("numpy")
    torch = sys.modules.get("torch")
    rows: list[Row] = [("python", "state", (625,))]
    states = [repr(_RANDOM.getstate()).encode()]
    if numpy is not None and hasattr(numpy, "random"):
        name, keys, *rest = numpy.random.get_state(legacy=True)
        rows.append(("numpy", "state", (624,)))
        states.append(keys.tobytes() + repr((name, rest)).encode())
    if torch is not None and hasattr(torch, "get_rng_state"):
        devices = {"torch": torch.get_rng_state()}
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            for index in range(torch.cuda.device_count()):
                devices[f"cuda:{index}"] = torch.cuda.get_rng_state(index)
        for device, item in devices.items():
            rows.append((device, "uint8", tuple(item.shape)))
            states.append(ctypes.string_at(item.data_ptr(), item.numel()))
    digests = [_SHA256(state).digest()[:DIGEST_BYTES] for state in states]
    return tuple(rows), b"".join(digests)
