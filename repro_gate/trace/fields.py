"""What the fields of events may hold: types with their bounds, and records that several of them
have."""

# msgspec hands `frozen` down to the subclasses of a type; mypy does not know it.
# mypy: disable-error-code="misc"
from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Literal, Union

import msgspec
from msgspec import Meta

from . import format as fmt
from . import notebook

Name = Annotated[str, Meta(max_length=fmt.MAX_NAME)]
Short = Annotated[str, Meta(max_length=200)]
Step = Annotated[int, Meta(ge=-1, le=fmt.MAX_STEP)]
Count = Annotated[int, Meta(ge=0, le=fmt.MAX_STEP)]
Line = Annotated[int, Meta(ge=0, le=1 << 31)]
Signed = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]  # of 64 bits
_PART = r"(?!\.{1,2}(?:/|\Z))[^/]+"  # of a path in its shortest form
Absolute = Annotated[str, Meta(max_length=fmt.MAX_NAME, pattern=rf"\A(?:/{_PART})+\Z")]
Place = Annotated[
    str, Meta(max_length=fmt.MAX_NAME, pattern=rf"\A/?{_PART}(?:/{_PART})*\Z")
]
Milliseconds = Annotated[float, Meta(ge=0, le=1e10)]
# of a distance; None: it does not exist
Figure = Union[Annotated[float, Meta(ge=0, le=sys.float_info.max)], None]
_Sum = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Sums = Annotated[tuple[_Sum, ...], Meta(max_length=64)]
# of a dimension: what any reader of JSON can hold
Size = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]
Shape = Annotated[tuple[Size, ...], Meta(max_length=64)]
Dtype = Annotated[str, Meta(max_length=100)]
Kind = Literal["rng", "batch", "buffer", "loss", "gradient", "parameter", "optimizer"]
Row = tuple[Name, Dtype, Shape]
UnmovedRow = tuple[Literal["module", "attribute"], Name, Short]
Digests = Annotated[tuple[Short, ...], Meta(max_length=100)]
Setting = Union[Name, bool, Signed, float, None]  # the value of a flag


@dataclass(frozen=True, order=True)
class Location:
    """A line of the checkout, or a file of it as a whole."""

    file: Annotated[
        str,
        Meta(
            max_length=fmt.MAX_NAME,
            description="Relative to the root, `/` between its parts; a notebook with its cell "
            "(`train.ipynb#cell 2`).",
        ),
    ]
    line: Annotated[
        int, Meta(ge=0, le=1 << 31, description="Counted from 1; 0 is the whole file.")
    ] = 0

    def __str__(self) -> str:
        return notebook.place(self.file, self.line) if self.line else self.file


class _InArray(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True
):
    """What is written as an array of its fields."""


class Call(_InArray):
    """One distinct call of an operator in a step. `options`: what chooses among its algorithms
    (`accumulate=True`). `dtype`: of its first floating-point tensor, else of its first tensor.
    `form`: its arguments as JSON, tensors by shape, strides, dtype and device (probe/forms.py);
    its digest if they take more than MAX_FORM. `sites`: the lines that made it, the most frequent
    first."""

    op: Short
    options: Short
    dtype: Dtype
    phase: Literal["forward", "backward", "optimizer"]
    form: Annotated[str, Meta(max_length=fmt.MAX_FORM)]
    count: Count
    sites: Annotated[tuple[tuple[Name, Line], ...], Meta(max_length=10)]


class Measured(_InArray, kw_only=True):
    """The distance of one tensor to its counterpart in the reference run; figures that do not exist
    are None."""

    kind: Kind
    name: Name
    dtype: Dtype
    shape: Shape
    max_abs: Figure
    max_ulp: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None
    l2: Figure
    reference_l2: Figure
    largest: Figure = None  # of the reference's absolute values
    step: Step = -1


class Sketched(_InArray):
    """The sketch of one tensor (`probe/distance.py`): signed sums of its elements, None if one is
    not finite."""

    kind: Kind
    name: Name
    dtype: Dtype
    shape: Shape
    sums: Sums | None


class Opened(_InArray):
    """A file that existed before the run and was opened for reading. `inside`: in the workspace,
    `path` relative to its root; else absolute, neither declared data nor part of the interpreter or
    the system. `by` is the nearest line of the workspace on the stack.
    `left`: it lies outside, holds something, and was made or changed after the gate run had
    begun. `sought`: not opened, but looked for in the workspace: a file that was not there, or a
    folder that was listed."""

    path: Place
    inside: bool
    by: Location | None = None
    left: bool = False
    sought: bool = False

    def __post_init__(self) -> None:
        if self.inside == self.path.startswith("/"):
            raise ValueError("absolute inside the workspace, or relative outside")


class Imported(_InArray):
    """A module of the checkout, not of the run's workspace: its `path` lies in the original, or in
    the installed copy `distribution`."""

    module: Name
    path: Absolute
    distribution: Short = ""
