"""A row faster than its device can be is not a result: it skipped work, or the clock lied."""

from __future__ import annotations

from emmy.device.base import Capabilities

SLACK = 1.3
"""Peaks are measured: on a busy machine they come out low (2 cores of an AMD EPYC: 191 of 230 GFLOP/s)."""


def plausible(caps: Capabilities, flops: int, bytes_min: int, median_us: float, tensor: bool = False) -> str | None:
    """None for a latency the device can reach, else the reason why it cannot.

    flops and bytes_min as in the plan; ``tensor``: the arithmetic is done by matrix atoms. Memory traffic is judged by
    the fastest cache a problem can live in, since a warm one need not leave it.
    """
    seconds = median_us * 1e-6
    if seconds <= 0:
        return f"{median_us:g} us is no latency"
    limit = (caps.tensor_flops if tensor else caps.peak_flops) * SLACK
    if limit > 0 and flops / seconds > limit:
        return (f"{flops / seconds / 1e9:.1f} GFLOP/s in {median_us:.2f} us, "
                f"but {caps.name} does at most {limit / SLACK / 1e9:.1f}")  # fmt: skip
    limit = max(caps.cache_bytes_s, caps.peak_bytes) * SLACK
    if limit > 0 and bytes_min / seconds > limit:
        return (f"{bytes_min / seconds / 1e9:.1f} GB/s in {median_us:.2f} us, "
                f"but {caps.name} moves at most {limit / SLACK / 1e9:.1f}")  # fmt: skip
    return None
