"""Is a result right? Outputs are compared with float64 references, by norm and element by element.

The norm ‖out − ref‖ / ‖ref‖ finds a kernel that is inaccurate everywhere, the element-wise bound one that is wrong in
a corner: |out − ref| ≤ bound · scale, where scale is |A||B| for a contraction (the size of what was added up) and else
max(|ref|, rms). Integers and booleans have to be equal. Where the reference is beyond the range of the output's type,
infinity of its sign is right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from emmy.bench.inputs import FLOATS, STORAGE, logical

_CHUNK = 1 << 14
"""Elements compared at once: their float64 copies stay in a core's cache."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Largest relative error by norm, and by element in units of scale."""

    norm: float
    element: float


TOLERANCES: dict[tuple[str, str], Tolerance] = {
    ("std", "f64"): Tolerance(1e-12, 1e-10),
    ("std", "f32"): Tolerance(2e-5, 1e-4),
    ("std", "f16"): Tolerance(2e-3, 4e-3),
    ("std", "bf16"): Tolerance(1e-2, 2e-2),
    ("fm", "f64"): Tolerance(1e-12, 1e-10),
    ("fm", "f32"): Tolerance(2e-3, 5e-3),
    ("fm", "f16"): Tolerance(1e-2, 2e-2),
    ("fm", "bf16"): Tolerance(2e-2, 4e-2),
}
"""By (lane, output type). The fast-math lane accumulates in f16 or multiplies in tf32 (10 bits of mantissa)."""


LARGEST = {"f16": 65504.0, "bf16": (2 - 2**-7) * 2.0**127, "f32": (2 - 2**-23) * 2.0**127, "f64": math.inf}
"""Largest finite number of each output type: what is larger, within the tolerance of an element, may be infinite."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``rel_error``: the norm's, for integers the share of wrong elements. ``reason``: empty for a right result."""

    rel_error: float
    reason: str = ""


def sentinel(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """What an output holds before a launch: NaN, or for integers and booleans bytes 0xA5."""
    if dtype == "bf16":
        return np.full(shape, 0x7FC0, np.uint16)
    if dtype in FLOATS:
        return np.full(shape, np.nan, STORAGE[dtype])
    out = np.empty(shape, STORAGE[dtype])
    out.reshape(-1).view(np.uint8).fill(0xA5)
    return out


def compare(
    out: np.ndarray, reference: np.ndarray, scale: np.ndarray | None, dtype: str, tolerance: Tolerance
) -> Verdict:
    """Compares one output (storage type) with its reference (float64, or integers), both of the same shape."""
    if out.size == 0:
        return Verdict(0.0)
    if dtype not in FLOATS:
        wrong = int(np.count_nonzero(logical(out, dtype) != reference))
        reason = (
            f"{wrong} of {out.size} elements differ, first at {_first(logical(out, dtype) != reference)}"
            if wrong
            else ""
        )
        return Verdict(wrong / out.size, reason)
    flat, expected = out.reshape(-1), reference.reshape(-1)
    limits = None if scale is None else scale.reshape(-1)
    error2 = norm2 = 0.0
    worst, worst_at, not_finite = 0.0, 0, -1
    diffs, bounds = np.empty(_CHUNK), np.empty(_CHUNK)
    for start in range(0, flat.size, _CHUNK):
        ref = expected[start : start + _CHUNK]
        got = logical(flat[start : start + _CHUNK], dtype)
        diff = diffs[: ref.size]
        with np.errstate(invalid="ignore"):  # inf - inf where infinity is expected
            np.subtract(got, ref, out=diff)
            total = float(diff @ diff)
        if not np.isfinite(total):
            finite = np.isfinite(ref)
            beyond = np.abs(ref) * (1 + tolerance.element) >= LARGEST[dtype]
            over = np.isinf(got) & finite & beyond & (np.signbit(got) == np.signbit(ref))
            same = (got == ref) | (np.isnan(got) & np.isnan(ref)) | over
            bad = ~same & ~(np.isfinite(got) & finite)
            if bad.any():
                not_finite = start + int(np.argmax(bad)) if not_finite < 0 else not_finite
                continue
            diff[same | ~finite] = 0.0
            ref = np.where(finite & ~over, ref, 0.0)
            total = float(diff @ diff)
        error2 += total
        norm2 += float(ref @ ref)
        if limits is not None:
            np.abs(diff, out=diff)
            scales = limits[start : start + _CHUNK]
            bound = np.multiply(scales, tolerance.element, out=bounds[: ref.size])
            if (diff > bound).any():
                ratio = np.divide(diff, scales, out=np.where(diff > 0, np.inf, 0.0), where=scales > 0)
                at = int(np.argmax(ratio))
                if ratio[at] > worst:
                    worst, worst_at = float(ratio[at]), start + at
    if not_finite >= 0:
        place = _place(np.unravel_index(not_finite, out.shape))
        found = logical(flat[not_finite : not_finite + 1], dtype)[0]
        what = "not written" if np.isnan(found) else "not finite"
        return Verdict(float("inf"), f"{what}: {found} at {place}, expected {expected[not_finite]:g}")
    rel = float(np.sqrt(error2 / norm2)) if norm2 > 0 else float(np.sqrt(error2))
    if rel <= tolerance.norm and worst <= tolerance.element:
        return Verdict(rel)
    reason = f"relative error {rel:.2e} (at most {tolerance.norm:g} allowed)"
    if worst > 0:
        found = float(logical(flat[worst_at : worst_at + 1], dtype)[0])
        place = _place(np.unravel_index(worst_at, out.shape))
        reason += (
            f", worst at {place}: {found:g}, expected {expected[worst_at]:g}, "
            f"{worst:.2e} of its scale (at most {tolerance.element:g} allowed)"
        )
    return Verdict(rel, reason)


def _first(mask: np.ndarray) -> str:
    return _place(np.unravel_index(int(np.argmax(mask)), mask.shape))


def _place(index: tuple[np.intp, ...]) -> str:
    return "[" + ", ".join(str(int(i)) for i in index) + "]"
