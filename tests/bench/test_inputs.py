from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from emmy import threads
from emmy.bench.check import sentinel
from emmy.bench.inputs import (
    BLOCK,
    STORAGE,
    InputSpec,
    default_kind,
    generate,
    laid_out,
    logical,
    memory_image,
    span,
    store,
)
from emmy.ir.scalar import round_bf16


@pytest.mark.parametrize("dtype", list(STORAGE))
def test_same_spec_gives_the_same_bytes_in_another_process(dtype: str) -> None:
    spec = InputSpec("x", 1, (5, 7), dtype, default_kind(dtype))
    code = (
        "from emmy.bench.inputs import *; import hashlib;"
        f"print(hashlib.sha256(generate(3, {spec!r}).tobytes()).hexdigest())"
    )
    import hashlib

    here = hashlib.sha256(generate(3, spec).tobytes()).hexdigest()
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert here == there
    assert generate(3, spec).dtype == STORAGE[dtype]


def test_seed_index_and_shape_matter() -> None:
    base = generate(0, InputSpec("x", 0, (64,), "f32"))
    assert not np.array_equal(base, generate(1, InputSpec("x", 0, (64,), "f32")))
    assert not np.array_equal(base, generate(0, InputSpec("x", 1, (64,), "f32")))
    assert not np.array_equal(base, generate(0, InputSpec("x", 0, (65,), "f32"))[:64])
    assert np.array_equal(base, generate(0, InputSpec("other name", 0, (64,), "f32")))


def test_indices_stay_in_range() -> None:
    values = generate(0, InputSpec("ids", 0, (1000,), "i64", "range", 3, 10))
    assert values.min() == 3
    assert values.max() == 9


def test_unknown_kind_is_named() -> None:
    with pytest.raises(ValueError, match="gaussian"):
        generate(0, InputSpec("x", 0, (1,), "f32", "gaussian"))


@pytest.mark.parametrize("dtype", ["f16", "f64"])
def test_large_data_do_not_depend_on_how_many_threads_make_them(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = InputSpec("x", 2, (3, BLOCK // 2 + 7), dtype)
    monkeypatch.setattr(threads, "cores", lambda: 4)
    many = generate(1, spec)
    monkeypatch.setattr(threads, "cores", lambda: 1)
    assert np.array_equal(many, generate(1, spec))
    flat = many.reshape(-1).astype(np.float64)
    assert abs(flat.mean()) < 5e-3
    assert abs(flat.std() - 1) < 5e-3
    assert not np.array_equal(flat[:100], flat[BLOCK : BLOCK + 100])


def test_bfloat16_rounds_to_nearest_even() -> None:
    values = np.array([1.0, 1.00390625, 1.01171875, -2.5, np.inf, np.nan, 3.3895e38], np.float32)
    back = logical(store(values, "bf16"), "bf16")
    assert back[:4].tolist() == [1.0, 1.0, 1.015625, -2.5]
    assert np.isinf(back[4])
    assert np.isnan(back[5])
    assert np.isfinite(back[6])


def test_tensors_without_an_axis_keep_their_shape() -> None:
    spec = InputSpec("x", 0, (), "bf16")
    stored = generate(0, spec)
    assert np.shape(stored) == ()
    assert np.shape(logical(stored, "bf16")) == ()
    assert round_bf16(np.float32(1.01171875)).tolist() == 1.015625
    for dtype in ("f32", "bf16", "i32", "bool"):
        assert sentinel((), dtype).shape == ()


def test_memory_image_follows_strides() -> None:
    stored = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert memory_image(stored, ()).tolist() == [0, 1, 2, 3, 4, 5]
    assert memory_image(stored, (1, 2)).tolist() == [0, 3, 1, 4, 2, 5]
    assert memory_image(stored, (4, 1)).tolist() == [0, 1, 2, 0, 3, 4, 5]
    assert span((2, 3), (4, 1)) == 7
    for strides in ((), (1, 2), (4, 1)):
        assert laid_out(memory_image(stored, strides), (2, 3), strides).tolist() == stored.tolist()
    assert span((2, 0), ()) == 0


def test_broadcast_axis_repeats_one_slice() -> None:
    values = generate(0, InputSpec("x", 0, (4, 3), "f32", strides=(0, 1)))
    assert values.shape == (4, 3)
    assert np.array_equal(values[0], values[3])
    assert memory_image(values, (0, 1)).tolist() == values[0].tolist()
