"""The states of the random number generators that frameworks draw from, as digests."""

from __future__ import annotations

import ctypes
import hashlib
import random
import sys
from typing import List, Tuple

from ..trace.format import DIGEST_BYTES
from ..trace.writer import Row, frozen

_RANDOM, _SHA256 = frozen(random), hashlib.sha256


def states() -> Tuple[Tuple[Row, ...], bytes]:
    """Rows and digests (16 bytes each) of the states of all generators: python, numpy, torch and
    each CUDA device in use."""
    found: List[Tuple[Row, bytes]] = [
        (("python", "state", (625,)), repr(_RANDOM.getstate()).encode())
    ]
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and hasattr(numpy, "random"):
        name, keys, *rest = numpy.random.get_state(legacy=True)
        found.append(
            (("numpy", "state", (624,)), keys.tobytes() + repr((name, rest)).encode())
        )
    if torch is not None and hasattr(torch, "get_rng_state"):
        devices = [("torch", torch.get_rng_state())]
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            devices += [
                ("cuda:%d" % index, torch.cuda.get_rng_state(index))
                for index in range(torch.cuda.device_count())
            ]
        found += [
            (
                (device, "uint8", tuple(item.shape)),
                ctypes.string_at(item.data_ptr(), item.numel()),
            )
            for device, item in devices
        ]
    return tuple(row for row, _ in found), b"".join(
        _SHA256(state).digest()[:DIGEST_BYTES] for _, state in found
    )
