"""Numbers as a person reads them, the same in every renderer."""

from __future__ import annotations

import math


def excluded(runs: int) -> float:
    """Return the share of runs, in percent, in which a fault must show for `runs` equal runs to
    exclude it at 95 %: n runs without a fault that shows in a share p of them have a chance of (1 -
    p)^n, which is 5 % at p = 1 - 0.05^(1/n)."""
    return 100 * (1 - math.pow(0.05, 1 / max(runs, 1)))


def percent(value: float, *, signed: bool = True) -> str:
    """Return `12.4` as `+12.4%`, never to be torn apart at a line's end. One decimal below 100,
    none from there on, and from 10,000 on 1e+04%."""
    if not math.isfinite(value):
        return f"{value}%"
    if abs(value) >= 9999.5:
        return f"{value:{'+' if signed else ''}.0e}%"
    digits = 1 if abs(value) < 99.95 else 0
    rounded = round(value, digits) + 0.0  # + 0.0 turns -0.0 into 0.0
    return f"{rounded:{'+' if signed and rounded else ''},.{digits}f}%"


def interval(bounds: tuple[float, float]) -> str:
    """Return `+10.1% to +14.6%` for `(10.1, 14.6)`."""
    return f"{percent(bounds[0])} to {percent(bounds[1])}"


def milliseconds(value: float) -> str:
    """Return a step time in ms with three significant digits: `0.412 ms`, `9.34 ms`, `831 ms`; from
    a second on `1.23 s`."""
    if not math.isfinite(value):
        return f"{value} ms"
    if value >= 999.5:
        return duration(value / 1000)
    digits = 3 if value < 1 else 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} ms"


def duration(seconds: float) -> str:
    """Return seconds as `0.42 s`, `12.3 s`, `4 min 05 s` or `1 h 02 min`."""
    if not math.isfinite(seconds):
        return f"{seconds} s"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def size(count: int) -> str:
    """Return bytes in binary units: `512 B`, `64.0 MiB`."""
    if abs(count) < 1024:
        return f"{count} B"
    amount = count / 1024
    for unit in ("KiB", "MiB", "GiB"):
        if abs(amount) < 1023.95:
            return f"{amount:,.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} TiB"


def small(value: float) -> str:
    """Return a distance with two significant digits: `1.2e-07`."""
    return f"{value:.2g}"


def ulps(value: int) -> str:
    """Return `3 ULP` for `3`, with thousands set apart; from 2^32 on, which only float64 can
    reach, `about 2^62 ULP`."""
    return (
        f"{value:,} ULP" if value < 1 << 32 else f"about 2^{value.bit_length() - 1} ULP"
    )


def of(part: int, whole: int) -> str:
    """Return `14 of 202`."""
    return f"{part:,} of {whole:,}"
