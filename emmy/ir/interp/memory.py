"""Buffers of the interpreter: values, poison, and who touched what."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emmy.ir.dtype import DType
from emmy.ir.interp.errors import Misuse
from emmy.ir.interp.races import Accesses, PeerAccesses
from emmy.ir.scalar import numpy_dtype, round_bf16

Array = NDArray[Any]

INTERNAL = {
    DType.BOOL: np.bool_, DType.U8: np.int64, DType.I8: np.int64, DType.I16: np.int64, DType.I32: np.int64,
    DType.I64: np.int64, DType.F16: np.float32, DType.BF16: np.float32, DType.F32: np.float32, DType.F64: np.float64,
}  # fmt: skip
"""The NumPy type that values are held in while a kernel runs; memory holds the storage type."""


class Memory:
    """A global or shared array. ``poison`` marks elements that hold nothing (shared memory only)."""

    def __init__(self, name: str, dtype: DType, values: Array, *, space: str, writable: bool, races: bool) -> None:
        self.name = name
        self.dtype = dtype
        self.values = values
        self.space = space
        self.writable = writable
        shared = space == "shared"
        self.poison: NDArray[np.bool_] | None = np.ones(values.size, dtype=bool) if shared else None
        self.unfenced: NDArray[np.bool_] | None = np.zeros(values.size, dtype=bool) if shared else None
        """Written by threads, and not yet made visible to the copy engine and to warpgroup atoms."""
        self.accesses = Accesses(values.size) if shared and races else None
        self.peers: PeerAccesses | None = None
        """Kept for the shared arrays of a cluster."""

    def stored(self, values: Array) -> Array:
        """``values`` rounded to the storage type."""
        return rounded(values, self.dtype)


def rounded(values: Array, dtype: DType) -> Array:
    """``values`` as the storage type holds them."""
    with np.errstate(all="ignore"):
        if dtype == DType.BF16:
            return np.asarray(round_bf16(np.asarray(values, dtype=np.float32)))
        if dtype == DType.BOOL:
            return np.asarray(values) != 0
        if dtype.is_int and np.asarray(values).dtype.kind == "f":
            values = np.trunc(values)
        return np.asarray(values).astype(numpy_dtype(dtype))


def global_memory(name: str, dtype: DType, array: Array, writable: bool) -> Memory:
    """A parameter's array, by reference. Raises Misuse for a type or a layout that the kernel does not expect."""
    expected = np.dtype(numpy_dtype(dtype))
    if array.dtype != expected and not (dtype == DType.BOOL and array.dtype == np.uint8):
        raise Misuse(f"argument {name}", found=array.dtype, expected=expected)
    if not array.flags.c_contiguous:
        raise Misuse(f"argument {name} is not contiguous", hint="pass the underlying buffer")
    return Memory(name, dtype, array.reshape(-1), space="global", writable=writable, races=False)


def shared_memory(name: str, dtype: DType, elements: int, races: bool) -> Memory:
    values = np.zeros(elements, dtype=numpy_dtype(dtype))
    if dtype.is_float:
        values.fill(np.nan)
    return Memory(name, dtype, values, space="shared", writable=True, races=races)
