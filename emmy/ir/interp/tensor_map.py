"""Tensor maps of the interpreter: what a CUtensorMap says about a tensor and its boxes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emmy.ir.fragment import Swizzle


@dataclass(frozen=True, slots=True)
class TensorMap:
    """``array`` (strided), read in boxes of shape ``box``; rows of ``span_bytes`` are swizzled (0: not)."""

    array: NDArray[Any]
    box: tuple[int, ...]
    span_bytes: int = 0

    def read(self, coords: tuple[int, ...]) -> NDArray[Any]:
        """The box at ``coords`` (outermost first); zeros outside the tensor."""
        out = np.zeros(self.box, dtype=self.array.dtype)
        inside, target = [], []
        for start, extent, size in zip(coords, self.box, self.array.shape, strict=True):
            low, high = max(0, start), min(size, start + extent)
            inside.append(slice(low, max(low, high)))
            target.append(slice(low - start, max(low, high) - start))
        out[tuple(target)] = self.array[tuple(inside)]
        return out

    def elements(self, offset: int, nbytes: int) -> NDArray[np.int64]:
        """Shared-memory elements, in box order, that a copy to element ``offset`` writes."""
        linear = (np.arange(int(np.prod(self.box)), dtype=np.int64) + offset) * nbytes
        index: NDArray[np.int64] = Swizzle.of_span(self.span_bytes).bytes_at(linear) // nbytes
        return index
