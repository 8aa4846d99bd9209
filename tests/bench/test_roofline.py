from __future__ import annotations

from dataclasses import replace

from emmy.bench.roofline import SLACK, plausible
from emmy.device.cuda_targets import cuda_target

H200 = cuda_target("sm_90a")


def test_the_golden_of_8_2_us_is_implausible() -> None:
    reason = plausible(H200, 2 * 2048**3, 3 * 4 * 2048**2, 8.2)
    assert reason is not None
    assert "2095106.0 GFLOP/s" in reason


def test_measured_fp32_rows_of_an_h200_are_plausible() -> None:
    assert plausible(H200, 2 * 2048**3, 3 * 4 * 2048**2, 340) is None
    assert plausible(H200, 2048 * 2048, 2 * 4 * 2048**2, 8.3) is None


def test_limits_on_both_sides() -> None:
    caps = replace(H200, peak_flops=1e12, tensor_flops=3e12, peak_bytes=1e11, cache_bytes_s=2e11)
    flops = int(1e12 * SLACK * 1e-4)
    assert plausible(caps, flops, 0, 101) is None
    assert plausible(caps, flops, 0, 99) is not None
    moved = int(2e11 * SLACK * 1e-4)
    assert plausible(caps, 0, moved, 101) is None
    assert plausible(caps, 0, moved, 99) is not None
    assert plausible(caps, flops, 0, 50, tensor=True) is None


def test_no_time_is_no_latency_and_unknown_peaks_judge_nothing() -> None:
    assert plausible(H200, 1, 1, 0.0) is not None
    unknown = replace(H200, peak_flops=0.0, tensor_flops=0.0, peak_bytes=0.0, cache_bytes_s=0.0)
    assert plausible(unknown, 10**18, 10**18, 1.0) is None
