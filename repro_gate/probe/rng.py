"""The states of the random number generators that frameworks draw from, as digests."""

from __future__ import annotations

import ctypes
import hashlib
import random

from ..trace.format import DIGEST_BYTES
from ..trace.writer import Row
from .patch import held


def states() -> tuple[tuple[Row, ...], bytes]:
    """Return rows and digests (16 bytes each) of the states of all generators: python, numpy, torch
    and each CUDA device in use."""
    numpy = held("numpy")
    torch = held("torch")
    rows: list[Row] = [("python", "state", (625,))]
    own = repr(random.getstate())
    states = [own.encode()]
    if hasattr(numpy, "random"):
        name, keys, *rest = numpy.random.get_state(legacy=True)
        rows.append(("numpy", "state", (624,)))
        others = repr((name, rest)).encode()
        states.append(keys.tobytes() + others)
    if hasattr(torch, "get_rng_state"):
        devices = {"torch": torch.get_rng_state()}
        cuda = torch.cuda
        if cuda.is_initialized():
            for index in range(cuda.device_count()):
                devices[f"cuda:{index}"] = cuda.get_rng_state(index)
        for device, item in devices.items():
            shape = tuple(item.shape)
            rows.append((device, "uint8", shape))
            address = torch._C.TensorBase.data_ptr(item)
            states.append(ctypes.string_at(address, shape[0]))
    digests = b""
    for state in states:
        digest = hashlib.sha256(state).digest()
        digests += digest[:DIGEST_BYTES]
    return tuple(rows), digests
