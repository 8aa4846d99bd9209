from __future__ import annotations

import numpy as np
import pytest

from emmy.bench.check import LARGEST, TOLERANCES, Tolerance, compare, sentinel
from emmy.bench.inputs import STORAGE, store

T = Tolerance(1e-5, 1e-4)


def data(n: int = 200_000) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(n)


def test_rounded_result_is_right() -> None:
    reference = data()
    verdict = compare(reference.astype(np.float32), reference, np.abs(reference), "f32", T)
    assert verdict.reason == ""
    assert 0 < verdict.rel_error < 1e-7


def test_one_wrong_element_in_a_large_output_is_found_by_its_place() -> None:
    reference = data().reshape(400, 500)
    out = reference.astype(np.float32)
    out[123, 45] += 0.001
    verdict = compare(out, reference, np.ones_like(reference), "f32", T)
    assert verdict.rel_error < T.norm  # the norm alone would let it pass
    assert "worst at [123, 45]" in verdict.reason


def test_error_everywhere_is_found_by_the_norm_without_a_scale() -> None:
    reference = data()
    assert "relative error" in compare((reference * 1.001).astype(np.float32), reference, None, "f32", T).reason


@pytest.mark.parametrize("at", [0, 70_000, 199_999])
def test_unwritten_element(at: int) -> None:
    reference = data()
    out = reference.astype(np.float32)
    out[at] = np.nan
    verdict = compare(out, reference, None, "f32", T)
    assert verdict.reason.startswith(f"not written: nan at [{at}]")


def test_infinite_where_finite_is_expected_and_the_reverse() -> None:
    reference = np.array([1.0, np.inf, 2.0])
    assert "not finite" in compare(np.array([1, np.inf, -np.inf], np.float32), reference, None, "f32", T).reason
    assert compare(np.array([1, 3, 2], np.float32), reference, None, "f32", T).reason
    assert compare(np.array([1, np.inf, 2], np.float32), reference, np.abs(reference), "f32", T).reason == ""


@pytest.mark.parametrize(("dtype", "largest"), [("f16", 65504.0), ("f32", 3.4028234663852886e38)])
def test_beyond_the_range_of_the_type_infinity_is_right(dtype: str, largest: float) -> None:
    assert LARGEST[dtype] == largest
    reference = np.array([1.0, 1.5 * largest, -2 * largest, 0.5 * largest])
    got = np.array([1, np.inf, -np.inf, 0.5 * largest], STORAGE[dtype])
    assert compare(got, reference, np.abs(reference), dtype, T).reason == ""
    wrong = got.copy()
    wrong[2] = np.inf
    assert compare(wrong, reference, None, dtype, T).reason.startswith("not finite: inf at [2]")
    early = got.copy()
    early[3] = np.inf
    assert compare(early, reference, None, dtype, T).reason.startswith("not finite: inf at [3]")


def test_expected_nan_is_right_and_hides_nothing_else() -> None:
    reference = np.array([1.0, np.nan, 2.0])
    assert compare(np.array([1, np.nan, 2], np.float32), reference, None, "f32", T).reason == ""
    assert compare(np.array([1, np.nan, 2.1], np.float32), reference, None, "f32", T).reason
    assert compare(np.array([1, 5, 2], np.float32), reference, None, "f32", T).reason


def test_integers_have_to_be_equal() -> None:
    reference = np.arange(10)
    out = reference.astype(np.int32)
    assert compare(out, reference, None, "i32", T).reason == ""
    out[7] = 0
    assert "1 of 10 elements differ, first at [7]" in compare(out, reference, None, "i32", T).reason


def test_zero_reference_needs_a_zero_result() -> None:
    zeros = np.zeros(4)
    assert compare(zeros.astype(np.float32), zeros, zeros, "f32", T).reason == ""
    assert compare(np.full(4, 1e-3, np.float32), zeros, zeros, "f32", T).reason


def test_empty_output_is_right() -> None:
    assert compare(np.empty((0, 3), np.float32), np.empty((0, 3)), None, "f32", T).reason == ""


@pytest.mark.parametrize("dtype", list(STORAGE))
def test_sentinel_is_never_a_result(dtype: str) -> None:
    reference = np.ones(8)
    filled = sentinel((8,), dtype)
    assert filled.dtype == STORAGE[dtype]
    if dtype == "bool":
        assert np.all(filled != 1)
        assert np.all(filled != 0)
    else:
        assert compare(filled, reference, None, dtype, TOLERANCES.get(("std", dtype), T)).reason


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_tolerances_admit_storage_rounding(dtype: str) -> None:
    reference = data()
    scale = np.maximum(np.abs(reference), 1)
    assert compare(store(reference, dtype), reference, scale, dtype, TOLERANCES["std", dtype]).reason == ""
