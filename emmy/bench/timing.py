"""How samples are taken: lengths, numbers, early stopping. No device and no clock here, so that a test can drive it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from emmy.bench.records import ProtocolSpec

MAX_REPEATS = 20_000
MAX_SAMPLES = 9
ABANDON_RATIO = 1.5
"""A row this much slower than the best in its *fastest* sample is not timed further."""

ROUGH_BELIEVED_S = 2e-3
"""A single launch shorter than this is mostly the latency of starting it and hearing of its end."""

STEADY = 0.03
"""Quartiles closer than this share of the median: enough samples."""

COLD_FACTOR = 2
"""Buffer sets rotate over this many times the last-level cache."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Microseconds an execution, one value a sample. waited: share of time lost to other work."""

    values_us: list[float]
    abandoned: bool
    waited: float = 0.0

    def quartiles(self) -> tuple[float, float, float]:
        """Lower quartile, median, upper quartile."""
        return quartiles(self.values_us)


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile, linearly interpolated."""
    ordered = sorted(values)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        low = math.floor(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    return at(0.25), at(0.5), at(0.75)


def rotation_sets(each_bytes: int, llc_bytes: int, memory_bytes: int, cache: str) -> int:
    """Buffer sets to rotate over: beyond the last-level cache when cold, one when warm; at most half the memory."""
    if cache == "warm" or each_bytes == 0:
        return 1
    wanted = math.ceil(COLD_FACTOR * llc_bytes / each_bytes)
    return max(1, min(wanted, memory_bytes // 2 // each_bytes, 512))


def repeats_for(seconds: float, target_s: float) -> int:
    """Executions that make a sample of about ``target_s``."""
    return max(1, min(MAX_REPEATS, math.ceil(target_s / max(seconds, 1e-7))))


confirm_repeats = repeats_for


def screen_samples(
    sample: Callable[[int, int], float],
    rough_s: float,
    protocol: ProtocolSpec,
    best_us: float | None,
    clock: Callable[[], float] = time.perf_counter,
) -> Samples:
    """Samples one row adaptively. ``sample(repeats, first)`` gives seconds for that many executions.

    ``rough_s`` decides alone where it is long enough to be believed and far above ``best_us``. A first sample of a
    tenth of the length tells how many executions a sample takes; it counts only when it already shows the row to be
    clearly slower. Then samples until they are steady, MAX_SAMPLES, or the budget.
    """
    started, turn = clock(), 0
    slow = None if best_us is None else best_us * ABANDON_RATIO
    if slow is not None and rough_s > ROUGH_BELIEVED_S and rough_s * 1e6 > 2 * slow:
        return Samples([rough_s * 1e6], True)

    def take(repeats: int) -> float:
        nonlocal turn
        seconds = sample(repeats, turn) / repeats
        turn += repeats
        return seconds

    pilot_s = take(repeats_for(rough_s, protocol.target_s / 10))
    if slow is not None and min(pilot_s, rough_s or pilot_s) * 1e6 > 2 * slow:
        return Samples([pilot_s * 1e6], True)
    repeats = repeats_for(pilot_s, protocol.target_s)
    values: list[float] = []
    while True:
        values.append(take(repeats) * 1e6)
        if slow is not None and min(values) > slow:
            return Samples(values, True)
        if len(values) < protocol.samples and clock() - started < 4 * protocol.budget_s:
            continue
        low, median, high = quartiles(values)
        if high - low <= STEADY * median or len(values) >= MAX_SAMPLES or clock() - started >= protocol.budget_s:
            return Samples(values, False)
