"""Measures how far apart tensors of two runs are, in float64 and in pieces of bounded size. The
first run of a pair saves tensors in files next to its trace; the second finds them by name and
writes distances instead of tensors, so that a pair needs one copy on disk.
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
SUMS = 32  # of a sketch: its distance is within a quarter in 19 of 20 cases
MOST_SKETCHED = 100  # tensors of a kind, the largest
# elements at a time: 33 MiB of temporaries
_SKETCH_PIECE = 64 * 1024
_SKETCHED = (("step0", "gradient"), ("final", "parameter"))
_HEADROOM = 256 * 1024 * 1024  # bytes of the disk that must stay free
Figures = tuple[Optional[float], ...]
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
    has_ulp = ulp.integer(torch, a.dtype) is not None
    largest = 0.0
    ulps = 0
    squares = 0.0
    norms = 0.0
    top = 0.0
    for x, y in zip(a.split(PIECE), b.split(PIECE)):
        wide = x.to(torch.float64)
        norms += float((wide * wide).sum())
        if top == top and wide.numel():  # a NaN stays one
            top = max(float(wide.abs().max()), top)
        if torch.equal(_bits(x), _bits(y)):  # equal bits are no distance, even of NaN
            continue
        other = y.to(torch.float64)
        gap = (other - wide).abs()
        gap.masked_fill_(other == wide, 0.0)
        squares += float((gap * gap).sum())
        if largest == largest:
            largest = max(float(gap.max()), largest)
        if has_ulp:
            gaps = ulp.gaps(torch, x, y)
            ulps = max(ulps, ulp.largest(gaps))
    distance = _finite(squares**0.5)
    most = ulps if has_ulp and distance is not None else None
    norm = _finite(norms**0.5)
    return _finite(largest), most, distance, norm, _finite(top)


def _bits(tensor: Any) -> Any:
    return tensor.contiguous().view(torch.uint8)


def _finite(value: float) -> float | None:
    return value if value - value == 0 else None


def keep(session: Session, label: str, kind: str, items: Iterable[Item]) -> None:
    """Keep the tensors among `items` (name, value) under `label` (`final`, or a step's), or measure
    them against the reference run's."""
    tensors = []
    for name, value in items:
        if isinstance(value, torch.Tensor) and _keepable(value):
            tensors.append((describe(name, value), local(value)))
    if not tensors:
        return
    if session.config["keep"].get("sketch") and (label, kind) in _SKETCHED:
        largest = sorted(tensors, key=lambda item: -item[1].numel())[:MOST_SKETCHED]
        for row, tensor in largest:
            session.event("sketches", rows=[[kind, *row, sketch(tensor)]])
    file = f"{label}.{kind}"
    # Two optimizers, two batches of one step.
    number = session.kept_files.get(file, 0)
    session.kept_files[file] = number + 1
    file += f".{number}.kept"
    reference = session.config["keep"].get("reference")
    if reference is None:
        _write(session, f"{session.stem}.{file}", tensors)
    elif stem := reference.get(session.key(), reference.get("")):
        path = f"{stem}.{file}"
        step = session.step
        if label == "final":
            step -= 1
        if os.path.exists(path):
            rows = [[*row, step] for row in _measured(path, kind, tensors)]
            session.event("distances", rows=rows)


def sketch(tensor: Any) -> list[float] | None:
    """Return SUMS sums of all elements, each with signs of its own; None if one is not finite.

    The signs are the bits of a hash of the element's index, the same in every run. So the sums of
    two tensors subtract, and the mean square of these differences is, in expectation, the square
    of the tensors' L2 distance (Johnson and Lindenstrauss 1984; Alon, Matias and Szegedy 1996).
    """
    # a dtype that torch cannot convert, a device without float64
    with contextlib.suppress(Exception), torch.no_grad():
        whole = tensor.detach()
        if whole.is_complex():
            whole = torch.view_as_real(whole.resolve_conj())
        if whole.is_contiguous():
            whole = whole.view(-1)
        places = torch.arange(SUMS, device=whole.device).unsqueeze(1)
        total = torch.zeros(SUMS, dtype=torch.float64, device=whole.device)
        for start in range(0, whole.numel(), _SKETCH_PIECE):
            end = min(start + _SKETCH_PIECE, whole.numel())
            bits = torch.arange(start, end, device=whole.device)
            # another layout is never copied whole
            piece = whole[torch.unravel_index(bits, whole.shape)].to(torch.float64)
            for factor in (0x7FB5D329728EA185, 0x1B8735939E3779B9):
                bits = (bits ^ (bits >> 31)) * factor
            signed = bits << places  # the highest bit is the sign
            signed &= torch.iinfo(torch.int64).min
            signed ^= piece.view(torch.int64)
            # no product of matrices: cuBLAS would keep memory of its own
            total += signed.view(torch.float64).sum(1)
        found: list[float] = total.tolist()
        if all(value - value == 0 for value in found):
            return found
    return None


def perturb(items: Iterable[Item], lost: int) -> None:
    """Change the last bit of about half of the elements of each floating-point tensor by a fixed
    pattern, as rounding may. `lost` is the number of float32's last bits that operators drop if
    they compute in a shorter type."""
    for _, whole in items:
        tensor = local(whole).data
        bits = ulp.integer(torch, tensor.dtype)
        if bits is None or not in_memory(tensor):
            continue
        flipped = 1 << lost if tensor.dtype is torch.float32 else 1
        flat = tensor.contiguous().reshape(-1)
        for start in range(0, flat.numel(), PIECE):
            piece = flat[start : start + PIECE].view(bits)
            end = start + piece.numel()
            places = torch.arange(start, end, device=flat.device)
            chosen = (places * 2654435761 >> 16) & 1
            piece ^= (chosen * flipped).to(bits)
        tensor.copy_(flat.view(tensor.shape))


def _keepable(tensor: Any) -> bool:
    if not in_memory(tensor):
        return False
    own = local(tensor)
    strided = own.layout is torch.strided and not own.is_quantized
    return strided and own.numel() > 0


def _write(session: Session, name: str, items: Sequence[tuple[Row, Any]]) -> None:
    """Write a file: of each tensor a line of JSON, [name, dtype, shape, bytes], and its bytes."""
    sizes = [part.numel() * part.element_size() for _, part in items]
    folder = session.config["traces"]
    room = os.statvfs(folder)
    try:
        if sum(sizes) + _HEADROOM > room.f_bavail * room.f_frsize:
            raise OSError(f"too little room for {sum(sizes)} bytes in {folder}")
        with open(os.path.join(folder, name), "xb") as file:
            for (row, part), size in zip(items, sizes):
                own = _on_cpu(part)
                line = json.dumps([*row, size]).encode()
                file.write(line + b"\n")
                array = ctypes.c_char * size
                file.write(array.from_address(own.data_ptr()))
    except OSError as error:
        why = error.strerror or error
        session.note("state-not-kept", f"tensors were not kept: {why}")


def _measured(
    path: str,
    kind: str,
    items: Sequence[tuple[Row, Any]],
) -> list[list[Any]]:
    """Return one row for each tensor that has a counterpart of its name, dtype and shape in the
    file at `path`."""
    rows = []
    tensors: dict[Row, Any] = {}
    # The exact name comes before one without wrappers.
    for (name, dtype, shape), tensor in items:
        tensors.setdefault((unwrapped(name), dtype, shape), tensor)
    tensors.update(items)
    # A truncated file has fewer tensors.
    with contextlib.suppress(Exception), open(path, "rb") as file:
        for line in file:
            name, dtype, shape, size = json.loads(line)
            content = bytearray(file.read(size))  # one tensor at a time
            exact = (name, dtype, tuple(shape))
            bare = (unwrapped(name), dtype, tuple(shape))
            tensor = tensors.get(exact, tensors.get(bare))
            if tensor is not None:
                own = _on_cpu(tensor)
                other = torch.frombuffer(content, dtype=own.dtype)
                figures = measure(other.view(own.shape), own)
                rows.append([kind, name, dtype, shape, *figures])
    return rows


def _on_cpu(tensor: Any) -> Any:
    with torch.no_grad():
        values = tensor.detach().resolve_conj().resolve_neg()
        return values.cpu().contiguous()
