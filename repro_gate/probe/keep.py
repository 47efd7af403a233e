"""Keeps tensors for measuring distances, and measures the second run of a pair against what the first one kept.

The first run writes parameters and optimizer state at its end (and, in a witness run, all tensors of one step) as safetensors files
beside its trace; the second run finds them by name and writes figures instead of tensors, so that a pair costs one copy on disk.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import distance
from .digest import describe, in_memory, local
from .session import Session

_TYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
_HEADROOM = 256 * 1024 * 1024  # bytes of the disk that are left alone
Item = Tuple[str, Any]


def keep(torch: Any, session: Session, label: str, kind: str, items: Sequence[Item]) -> None:
    """Keep `items` (name, tensor) under `label` (`final`, or a step's number), or measure them against the reference run's."""
    step = session.step - 1 if label == "final" else session.step
    reference: Optional[Dict[str, str]] = session.config["keep"].get("reference")
    items = [(name, tensor) for name, tensor in items if describe(name, tensor)[1] in _TYPES and _plain(torch, local(tensor))]
    if not items:
        return
    place = "%s.%s" % (label, kind)
    number = session.kept[place] = session.kept.get(place, 0) + 1  # two optimizers, two batches of one step
    place += ".%d" % number if number > 1 else ""
    if reference is None:
        name = "%s.%s.safetensors" % (session.stem, place)
        _write(torch, session, name, items)
    elif session.key in reference:
        path = "%s.%s.safetensors" % (reference[session.key], place)
        if os.path.exists(path):
            session.event("distance", step=step, rows=_measure(torch, path, kind, items))


def _plain(torch: Any, tensor: Any) -> bool:
    return in_memory(torch, tensor) and tensor.layout is torch.strided and not tensor.is_quantized


def _write(torch: Any, session: Session, name: str, items: Sequence[Item]) -> None:
    """Write a safetensors file: 8 bytes of header length, the header as JSON, the bytes of each tensor."""
    header: Dict[str, Any] = {}
    start = 0
    for label, tensor in items:
        _, dtype, shape = describe(label, tensor)
        size = local(tensor).numel() * local(tensor).element_size()
        header[label] = {"dtype": _TYPES[dtype], "shape": list(shape), "data_offsets": [start, start + size]}
        start += size
    folder = session.config["traces"]
    room = os.statvfs(folder)
    if start + _HEADROOM > room.f_bavail * room.f_frsize:
        session.note("state-not-kept", "%d bytes of tensors were not kept: too little room in %s" % (start, folder))
        return
    text = json.dumps(header).encode("utf-8")
    text += b" " * (-len(text) % 8)
    try:
        with open(os.path.join(folder, name), "xb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for _, tensor in items:
                _write_bytes(file, _on_cpu(torch, tensor))
    except OSError as error:
        session.note("state-not-kept", "tensors were not kept: %s" % (error.strerror or error))


def _write_bytes(file: Any, tensor: Any) -> None:
    size = tensor.numel() * tensor.element_size()
    if size:
        file.write(memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())))


def _measure(torch: Any, path: str, kind: str, items: Sequence[Item]) -> List[List[Any]]:
    """One row for each tensor that has a counterpart of its name, dtype and shape in the file at `path`."""
    rows: List[List[Any]] = []
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        for name, tensor in items:
            _, dtype, shape = describe(name, tensor)
            entry = header.get(name)
            if entry is None or entry["shape"] != list(shape) or entry["dtype"] != _TYPES[dtype]:
                continue
            begin, end = entry["data_offsets"]
            if begin == end:
                continue
            own = _on_cpu(torch, tensor)
            file.seek(8 + length + begin)
            content = bytearray(end - begin)  # one tensor at a time
            file.readinto(content)
            other = torch.frombuffer(content, dtype=own.dtype).view(own.shape)
            rows.append([kind, name, dtype, list(shape), *distance.measure(torch, other, own)])
    return rows


def _on_cpu(torch: Any, tensor: Any) -> Any:
    with torch.no_grad():
        return local(tensor).detach().resolve_conj().resolve_neg().cpu().contiguous()
