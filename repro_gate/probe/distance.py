"""How far tensors of two runs are apart, in float64 and in pieces of bounded size.

The first run of a pair keeps tensors as safetensors files beside its trace; the second finds them
by name and writes figures instead of tensors, so that a pair costs one copy on disk.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from ..trace import ulp
from .digest import describe, in_memory, local
from .session import Session

# elements at a time: 1 MiB as float64, so that the temporaries stay in the cache
PIECE = 128 * 1024
_HEADROOM = 256 * 1024 * 1024  # bytes of the disk that are left alone
_TYPES = {  # torch's name -> safetensors'
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
    "complex64": "C64",
}
Figures = Tuple[Optional[float], Optional[int], Optional[float], Optional[float]]
Item = Tuple[str, Any]


def measure(torch: Any, reference: Any, tensor: Any) -> Figures:
    """(max_abs, max_ulp, l2, l2 of the reference). Both are CPU tensors of one dtype and shape.

    ULP: the number of representable values of the dtype between two elements (0 for -0.0 and +0.0),
    for the four common float types. Infinities that both sides share are no distance. A figure that
    does not exist, because an element is NaN, or infinite on one side only, or because the dtype
    has no ULP, is None.
    """
    if reference.dtype.is_complex:
        reference, tensor = (
            torch.view_as_real(reference.resolve_conj()),
            torch.view_as_real(tensor.resolve_conj()),
        )
    a, b = reference.reshape(-1), tensor.reshape(-1)
    largest, ulps, squares, norms = 0.0, 0, 0.0, 0.0
    for start in range(0, a.numel(), PIECE):
        ((high, most, square, norm),) = _gaps(
            torch,
            a[start : start + PIECE],
            b[start : start + PIECE],
            [min(PIECE, a.numel() - start)],
        )
        norms += norm
        squares += square
        # in this order a NaN stays one
        largest = max(high, largest) if largest == largest else largest
        ulps = max(ulps, most)
    return _figures(a.dtype, largest, ulps, squares, norms)


def measure_all(torch: Any, references: Sequence[Any], tensors: Sequence[Any]) -> List[Figures]:
    """As `measure`, for many small tensors of one float type together: what one takes is mostly the
    calls."""
    sizes = [item.numel() for item in references]
    a, b = (torch.cat([item.reshape(-1) for item in side]) for side in (references, tensors))
    return [_figures(a.dtype, *found) for found in _gaps(torch, a, b, sizes)]


def _gaps(torch: Any, a: Any, b: Any, sizes: List[int]) -> List[Tuple[float, int, float, float]]:
    """(max|a - b|, ULP, ||a - b||^2, ||a||^2) of each run of so many elements; what is equal in all
    its bits is no distance, NaN or not."""
    wide = a.to(torch.float64)
    norms = [float(part.sum()) for part in (wide * wide).split(sizes)]
    sides = [side.contiguous().view(torch.uint8).view(a.numel(), -1) for side in (a, b)]
    same = [bool(part.all()) for part in (sides[0] == sides[1]).split(sizes)]
    if all(same):
        return [(0.0, 0, 0.0, norm) for norm in norms]
    other = b.to(torch.float64)
    gap = (other - wide).abs().masked_fill_(other == wide, 0.0)
    parts = zip(
        same, gap.split(sizes), (gap * gap).split(sizes), ulp.gaps(torch, a, b).split(sizes), norms
    )
    return [
        (0.0, 0, 0.0, norm)
        if equal
        else (float(part.max()), ulp.largest(gaps), float(square.sum()), norm)
        for equal, part, square, gaps, norm in parts
    ]


def _figures(dtype: Any, largest: float, ulps: int, squares: float, norms: float) -> Figures:
    exists = ulp.exists(dtype) and _finite(squares) is not None
    return _finite(largest), ulps if exists else None, _finite(squares**0.5), _finite(norms**0.5)


def _finite(value: float) -> Optional[float]:
    return value if value - value == 0 else None


def keep(torch: Any, session: Session, label: str, kind: str, items: Iterable[Item]) -> None:
    """Keep the tensors among `items` (name, value) under `label` (`final`, or a step's), or measure
    them against the reference run's."""
    step = session.step - 1 if label == "final" else session.step
    kept = [
        (name, item)
        for name, item in items
        if isinstance(item, torch.Tensor) and _keepable(torch, item)
    ]
    if not kept:
        return
    name = "%s.%s" % (label, kind)
    # two optimizers, two batches of one step
    number = session.kept[name] = session.kept.get(name, 0) + 1
    name += ".%d" % number if number > 1 else ""
    reference: Optional[Dict[str, str]] = session.config["keep"].get("reference")
    if reference is None:
        _write(torch, session, "%s.%s.safetensors" % (session.stem, name), kept)
    elif session.key() in reference:
        path = "%s.%s.safetensors" % (reference[session.key()], name)
        if os.path.exists(path):
            session.event("distance", step=step, rows=_measured(torch, path, kind, kept))


def _keepable(torch: Any, tensor: Any) -> bool:
    tensor = local(tensor)
    known = describe("", tensor)[1] in _TYPES
    return (
        known
        and in_memory(torch, tensor)
        and tensor.layout is torch.strided
        and not tensor.is_quantized
    )


def _write(torch: Any, session: Session, name: str, items: Sequence[Item]) -> None:
    """Write a safetensors file: 8 bytes of header length, the header as JSON, the bytes of each
    tensor."""
    header: Dict[str, Any] = {}
    start = 0
    for label, tensor in items:
        _, dtype, shape = describe(label, tensor)
        size = local(tensor).numel() * local(tensor).element_size()
        header[label] = {
            "dtype": _TYPES[dtype],
            "shape": list(shape),
            "data_offsets": [start, start + size],
        }
        start += size
    folder = session.config["traces"]
    room = os.statvfs(folder)
    if start + _HEADROOM > room.f_bavail * room.f_frsize:
        session.note(
            "state-not-kept",
            "%d bytes of tensors were not kept: too little room in %s" % (start, folder),
        )
        return
    text = json.dumps(header).encode("utf-8")
    text += b" " * (-len(text) % 8)
    try:
        with open(os.path.join(folder, name), "xb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for _, tensor in items:
                tensor = _on_cpu(torch, tensor)
                size = tensor.numel() * tensor.element_size()
                if size:
                    file.write(memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())))
    except OSError as error:
        session.note("state-not-kept", "tensors were not kept: %s" % (error.strerror or error))


def _measured(torch: Any, path: str, kind: str, items: Sequence[Item]) -> List[List[Any]]:
    """One row for each tensor that has a counterpart of its name, dtype and shape in the file at
    `path`."""
    rows: List[List[Any]] = []
    together = 0  # elements of `small`
    small: List[
        Tuple[List[Any], Any, Any]
        # rows without their figures, reference and tensor: of one dtype, PIECE elements together
    ] = []

    def put_small() -> None:
        found = (
            measure_all(torch, [item[1] for item in small], [item[2] for item in small])
            if small
            else []
        )
        for (row, _, _), figures in zip(small, found):
            row += figures
        small.clear()

    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        for name, tensor in items:
            _, dtype, shape = describe(name, tensor)
            entry = header.get(name, {})
            begin, end = entry.get("data_offsets", (0, 0))
            if begin < end and (entry["shape"], entry["dtype"]) == (list(shape), _TYPES[dtype]):
                own = _on_cpu(torch, tensor)
                file.seek(8 + length + begin)
                content = bytearray(end - begin)  # one tensor at a time, of the large ones
                file.readinto(content)
                other = torch.frombuffer(content, dtype=own.dtype).view(own.shape)
                rows.append([kind, name, dtype, list(shape)])
                if own.numel() >= PIECE or not ulp.exists(own.dtype):
                    rows[-1] += measure(torch, other, own)
                    continue
                if small and (small[0][2].dtype != own.dtype or together + own.numel() > PIECE):
                    put_small()
                together = own.numel() + (together if small else 0)
                small.append((rows[-1], other, own))
        put_small()
    return rows


def _on_cpu(torch: Any, tensor: Any) -> Any:
    with torch.no_grad():
        return local(tensor).detach().resolve_conj().resolve_neg().cpu().contiguous()
