"""Deterministic input data: the parent, every worker and the reference see the same numbers without sending them.

An array is a function of (seed, index, shape, type, kind): standard normal values for floats, integers of a range for
indices, fair coins for booleans. bfloat16 has no NumPy type: its storage is the upper half of a float32, as uint16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from emmy.threads import each

STORAGE: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.uint8),
    "u8": np.dtype(np.uint8),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
"""NumPy type of an element in memory, by DType value."""

BLOCK = 1 << 18
"""Elements that one random generator makes: another number makes other data (emmy.bench.reference.VERSION)."""

FLOATS = frozenset({"f16", "bf16", "f32", "f64"})


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input tensor at one set of sizes.

    index: its place among the region's inputs, part of what seeds its data. shape, strides in elements (strides empty:
    contiguous). kind: ``normal``, ``uniform`` (both floats; uniform over low … high), ``range`` (integers in
    low … high, high excluded) or ``coin`` (booleans).
    """

    name: str
    index: int
    shape: tuple[int, ...]
    dtype: str
    kind: str = "normal"
    low: float = 0
    high: float = 8
    strides: tuple[int, ...] = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> InputSpec:
        values = dict(data)
        return cls(**values | {"shape": tuple(values["shape"]), "strides": tuple(values.get("strides", ()))})


def default_kind(dtype: str) -> str:
    """What a tensor of ``dtype`` is filled with when nothing is known about it."""
    return "normal" if dtype in FLOATS else "coin" if dtype == "bool" else "range"


def generate(seed: int, spec: InputSpec) -> np.ndarray:
    """The data of one input in its storage type, of shape ``spec.shape``. An axis of stride 0 repeats one slice."""
    shape = spec.shape
    if spec.strides:
        shape = tuple(1 if stride == 0 else n for n, stride in zip(spec.shape, spec.strides, strict=True))
    key = [seed, spec.index, *shape]
    rng = np.random.Generator(np.random.SFC64(key))
    if spec.kind == "normal":
        values = _normal(key, shape, spec.dtype)
    elif spec.kind == "uniform":
        values = store(rng.uniform(spec.low, spec.high, shape), spec.dtype)
    elif spec.kind == "range":
        values = rng.integers(int(spec.low), int(spec.high), shape).astype(STORAGE[spec.dtype])
    elif spec.kind == "coin":
        values = rng.integers(0, 2, shape).astype(np.uint8)
    else:
        raise ValueError(f"unknown kind of input {spec.kind!r}: expected normal, uniform, range or coin")
    return np.broadcast_to(values, spec.shape) if shape != spec.shape else values


def _normal(key: list[int], shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Standard normal values; each BLOCK of them has a generator of its own, so that blocks are made side by side."""
    out = np.empty(shape, STORAGE[dtype])
    flat = out.reshape(-1)

    def put(number: int) -> None:
        block = flat[number * BLOCK : (number + 1) * BLOCK]
        rng = np.random.Generator(np.random.SFC64([*key, number]))
        block[...] = store(rng.standard_normal(block.size, np.float64 if dtype == "f64" else np.float32), dtype)

    each(put, range(-(-flat.size // BLOCK)))
    return out


def store(values: np.ndarray, dtype: str) -> np.ndarray:
    """``values`` rounded (to nearest even) to the storage type of ``dtype``."""
    if dtype != "bf16":
        return values.astype(STORAGE[dtype], copy=False)
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16
    # contiguous arrays have an axis: a tensor without one gets its shape back
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded.astype(np.uint16).reshape(np.shape(values)))


def logical(stored: np.ndarray, dtype: str) -> np.ndarray:
    """Stored elements as numbers NumPy computes with: bfloat16 becomes float32, bool becomes bool."""
    if dtype == "bf16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.bool_) if dtype == "bool" else stored


def span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements of memory a tensor covers, first to last."""
    if 0 in shape:
        return 0
    if not strides:
        return int(np.prod(shape, dtype=np.int64))
    return 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))


def memory_image(stored: np.ndarray, strides: tuple[int, ...]) -> np.ndarray:
    """The flat memory of a tensor: its elements laid out by ``strides`` (elements; empty: row-major), gaps zero."""
    if not strides:
        return np.ascontiguousarray(stored).reshape(-1)
    flat = np.zeros(span(stored.shape, strides), stored.dtype)
    if flat.size:
        np.lib.stride_tricks.as_strided(flat, stored.shape, [s * stored.itemsize for s in strides])[...] = stored
    return flat


def laid_out(memory: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """The tensor that flat ``memory`` holds, row-major; the inverse of ``memory_image``."""
    if not strides or memory.size == 0:
        return memory.reshape(shape)
    view = np.lib.stride_tricks.as_strided(memory, shape, [s * memory.itemsize for s in strides])
    return np.ascontiguousarray(view)
