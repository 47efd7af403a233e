"""How far tensors of two runs are apart, in float64 and in pieces of bounded size.

The first run of a pair keeps tensors in files beside its trace; the second finds them
by name and writes figures instead of tensors, so that a pair costs one copy on disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, Optional

import torch

from ..trace import ulp
from ..trace.format import unwrapped
from ..trace.writer import Row
from .digest import describe, in_memory, local
from .session import Session

# elements at a time: 1 MiB as float64, so that the temporaries stay in the cache
PIECE = 128 * 1024
_HEADROOM = 256 * 1024 * 1024  # bytes of the disk that are left alone
Figures = tuple[
    Optional[float], Optional[int], Optional[float], Optional[float], Optional[float]
]
Item = tuple[str, Any]


def measure(reference: Any, tensor: Any) -> Figures:
    """Return (max_abs, max_ulp, l2, l2 of the reference, its largest absolute value). Both are CPU
    tensors of one dtype and shape.

    ULP: the number of representable values of the dtype between two elements (0 for -0.0 and +0.0),
    for the four common float types. Infinities that both sides share are no distance. A figure that
    does not exist, because an element is NaN, or infinite on one side only, or because the dtype
    has no ULP, is None."""
    sides = [reference, tensor]
    if reference.dtype.is_complex:
        sides = [torch.view_as_real(side.resolve_conj()) for side in sides]
    a, b = [side.reshape(-1) for side in sides]
    has_ulp = ulp.exists(a.dtype)
    largest = 0.0
    ulps = 0
    squares = 0.0
    norms = 0.0
    top = 0.0
    for start in range(0, a.numel(), PIECE):
        x = a[start : start + PIECE]
        y = b[start : start + PIECE]
        wide = x.to(torch.float64)
        norms += float((wide * wide).sum())
        top = max(float(wide.abs().max()), top) if top == top else top
        bits = [side.contiguous().view(torch.uint8) for side in (x, y)]
        if torch.equal(*bits):  # no distance, NaN or not
            continue
        other = y.to(torch.float64)
        gap = (other - wide).abs().masked_fill_(other == wide, 0.0)
        squares += float((gap * gap).sum())
        # in this order a NaN stays one
        largest = max(float(gap.max()), largest) if largest == largest else largest
        if has_ulp:
            ulps = max(ulps, ulp.largest(ulp.gaps(torch, x, y)))
    most = ulps if has_ulp and _finite(squares) is not None else None
    figures = [_finite(number) for number in (largest, squares**0.5, norms**0.5, top)]
    return figures[0], most, figures[1], figures[2], figures[3]


def _finite(value: float) -> float | None:
    return value if value - value == 0 else None


def keep(session: Session, label: str, kind: str, items: Iterable[Item]) -> None:
    """Keep the tensors among `items` (name, value) under `label` (`final`, or a step's), or measure
    them against the reference run's."""
    tensors = [item for item in items if _keepable(item[1])]
    if not tensors:
        return
    name = f"{label}.{kind}"
    # two optimizers, two batches of one step
    number = session.kept_files[name] = session.kept_files.get(name, 0) + 1
    name += f".{number}.kept" if number > 1 else ".kept"
    reference: dict[str, str] | None = session.config["keep"].get("reference")
    if reference is None:
        _write(session, f"{session.stem}.{name}", tensors)
    elif stem := reference.get(session.key(), reference.get("")):
        path = f"{stem}.{name}"
        step = session.step - 1 if label == "final" else session.step
        if os.path.exists(path):
            rows = [[*row, step] for row in _measured(path, kind, tensors)]
            session.event("distances", rows=rows)


def perturb(items: Iterable[Item], lost: int) -> None:
    """Change the last bit of about half of the elements of each floating-point tensor, by a fixed
    pattern: what rounding alone may do. `lost`: the last bits of float32 that do not count, where
    operators compute with fewer."""
    for _, whole in items:
        tensor = local(whole).data
        bits = ulp.integer(torch, tensor.dtype)
        if bits is None or not in_memory(tensor):
            continue
        flipped = 1 << (lost if tensor.dtype is torch.float32 else 0)
        flat = tensor.contiguous().reshape(-1)
        for start in range(0, flat.numel(), PIECE):
            piece = flat[start : start + PIECE].view(bits)
            places = torch.arange(start, start + piece.numel(), device=flat.device)
            chosen = (places * 2654435761 >> 16) & 1
            piece ^= (chosen * flipped).to(bits)
        tensor.copy_(flat.view(tensor.shape))


def _keepable(tensor: Any) -> bool:
    if not isinstance(tensor, torch.Tensor) or not in_memory(tensor):
        return False
    tensor = local(tensor)
    return (
        tensor.layout is torch.strided
        and not tensor.is_quantized
        and tensor.numel() > 0
    )


def _write(session: Session, name: str, items: Sequence[Item]) -> None:
    """Write a file: of each tensor a line of JSON, [name, dtype, shape, bytes], and its bytes."""
    parts = [local(tensor) for _, tensor in items]
    total = sum(part.numel() * part.element_size() for part in parts)
    folder = session.config["traces"]
    room = os.statvfs(folder)
    try:
        if total + _HEADROOM > room.f_bavail * room.f_frsize:
            raise OSError(f"too little room for {total} bytes in {folder}")
        with open(os.path.join(folder, name), "xb") as file:
            for item in items:
                own = _on_cpu(item[1])
                size = own.numel() * own.element_size()
                file.write(json.dumps([*describe(*item), size]).encode() + b"\n")
                file.write((ctypes.c_char * size).from_address(own.data_ptr()))
    except OSError as error:
        why = error.strerror or error
        session.note("state-not-kept", f"tensors were not kept: {why}")


def _measured(path: str, kind: str, items: Sequence[Item]) -> list[list[Any]]:
    """Return one row for each tensor that has a counterpart of its name, dtype and shape in the
    file at `path`."""
    rows = []
    tensors: dict[Row, Any] = {}
    for name, tensor in items:  # the exact name comes before one without wrappers
        tensors.setdefault(describe(unwrapped(name), tensor), tensor)
    tensors.update((describe(*item), item[1]) for item in items)
    # a file that was cut off says less
    with contextlib.suppress(Exception), open(path, "rb") as file:
        for line in iter(file.readline, b""):
            name, dtype, shape, size = json.loads(line)
            content = bytearray(file.read(size))  # one tensor at a time
            rest = (dtype, tuple(shape))
            tensor = tensors.get((name, *rest), tensors.get((unwrapped(name), *rest)))
            if tensor is not None:
                own = _on_cpu(tensor)
                other = torch.frombuffer(content, dtype=own.dtype).view(own.shape)
                rows.append([kind, name, dtype, shape, *measure(other, own)])
    return rows


def _on_cpu(tensor: Any) -> Any:
    with torch.no_grad():
        return local(tensor).detach().resolve_conj().resolve_neg().cpu().contiguous()
