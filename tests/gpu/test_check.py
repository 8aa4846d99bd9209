"""The comparison on the device decides as the one on the host does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emmy.bench.check import LARGEST, TOLERANCES, compare, sentinel
from emmy.bench.inputs import STORAGE, logical, store
from tests.gpu.test_timing import device

pytestmark = pytest.mark.gpu

__all__ = ["device"]

FAULTS = (
    "none", "noise", "one", "nan", "inf", "expected_nan", "expected_inf", "other_inf", "over", "over_the_other_way",
    "zero_scale", "all",
)  # fmt: skip


def faulty(values: np.ndarray, reference: np.ndarray, scale: np.ndarray, fault: str, dtype: str) -> None:
    """Spoils a result, or what is expected of it, in place."""
    match fault:
        case "noise":
            values *= 1 + 1e-7
        case "one":
            values[len(values) // 3] += 1.0
        case "nan":
            values[7] = np.nan
        case "inf":
            values[-1] = np.inf
        case "expected_nan":
            values[5] = reference[5] = np.nan
        case "expected_inf":
            values[5] = reference[5] = -np.inf
        case "other_inf":
            values[5], reference[5] = np.inf, -np.inf
        case "over" if dtype != "f64":
            reference[5] = -1.5 * LARGEST[dtype]
            values[5] = -np.inf
        case "over_the_other_way" if dtype != "f64":
            reference[5] = -1.5 * LARGEST[dtype]
            values[5] = np.inf
        case "zero_scale":
            scale[9], reference[9], values[9] = 0.0, 0.0, 1e-3
        case "all":
            values *= 1.05


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
@pytest.mark.parametrize("count", [1000, 300_007])
def test_same_verdicts_as_on_the_host(device: Any, dtype: str, count: int) -> None:
    checker = device.checker()
    rng = np.random.default_rng(5)
    for fault in FAULTS:
        for with_scale in (True, False):
            reference = logical(store(rng.standard_normal(count), dtype), dtype).astype(np.float64)
            values, scale = reference.copy(), np.maximum(np.abs(reference), 1).astype(np.float32)
            faulty(values, reference, scale, fault, dtype)
            stored = store(values, dtype)
            tolerance = TOLERANCES["std", dtype]
            want = compare(stored, reference, scale if with_scale else None, dtype, tolerance)
            buffers = [device.alloc(array.nbytes) for array in (stored, reference, scale)]
            for buffer, array in zip(buffers, (stored, reference, scale), strict=True):
                device.upload(buffer, array)
            out, expected, scales = buffers
            found = checker.right(out, expected, scales if with_scale else None, dtype, tolerance.norm,
                                  tolerance.element, count)  # fmt: skip
            assert (found is None) == bool(want.reason), (fault, with_scale, found, want)
            if found is not None:
                assert found == pytest.approx(want.rel_error, rel=1e-6, abs=1e-15)
            for buffer in buffers:
                device.free(buffer)


@pytest.mark.parametrize("nbytes", [1, 8, 13, 4096, 1_000_003])
def test_a_checksum_sees_every_byte(device: Any, nbytes: int) -> None:
    checker = device.checker()
    data = np.random.default_rng(3).integers(0, 256, nbytes, dtype=np.uint8)
    buffer = device.alloc(nbytes)
    device.upload(buffer, data)
    whole = checker.checksum(buffer)
    assert checker.checksum(buffer) == whole
    for place in {0, nbytes // 2, nbytes - 1}:
        changed = data.copy()
        changed[place] ^= 1
        device.upload(buffer, changed)
        assert checker.checksum(buffer) != whole
    device.free(buffer)


@pytest.mark.parametrize("dtype", sorted(STORAGE))
def test_poison_is_what_the_host_writes(device: Any, dtype: str) -> None:
    checker = device.checker()
    buffer = device.alloc(64 * STORAGE[dtype].itemsize)
    checker.poison(buffer, dtype in ("f16", "bf16", "f32", "f64"))
    found = np.empty(64, STORAGE[dtype])
    device.download(buffer, found)
    device.free(buffer)
    if dtype in ("f16", "bf16", "f32", "f64"):
        assert np.isnan(logical(found, dtype)).all()
    else:
        np.testing.assert_array_equal(found, sentinel((64,), dtype))
