"""Checks that a device does itself, where it can: nothing of a right row is downloaded.

What these do not find right is compared on the host, so that there is one place that says what is wrong.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from emmy.bench.artefact import BufferSpec
from emmy.bench.check import Tolerance
from emmy.bench.inputs import FLOATS
from emmy.bench.memory import elements
from emmy.errors import OutOfMemory


class OnDevice:
    """State of a session's checks on its device: checksums of inputs as uploaded, references as device buffers."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.checker = device.checker()
        self.sums: dict[Hashable, int] = {}
        self.references: dict[str, Any] = {}

    def poison(self, buffer: Any, dtype: str) -> None:
        """Fills an output with what no kernel computes."""
        self.checker.poison(buffer, dtype in FLOATS)

    def note(self, buffer: Any, key: Hashable) -> None:
        """Remembers a freshly uploaded input."""
        if key not in self.sums:
            self.sums[key] = self.checker.checksum(buffer)

    def unchanged(self, buffer: Any, key: Hashable) -> bool:
        """Whether an input is as it was uploaded."""
        return key in self.sums and self.checker.checksum(buffer) == self.sums[key]

    def right(
        self, buffer: Any, spec: BufferSpec, reference: str, scale: str | None, tolerance: Tolerance
    ) -> float | None:
        """The relative error of an output that is right; None where it is not, or where this cannot tell."""
        count = elements(spec)
        if spec.dtype not in FLOATS or spec.strides or count == 0:
            return None
        try:
            expected = self._uploaded(reference, np.float64, count)
            scales = None if scale is None else self._uploaded(scale, np.float32, count)
        except OutOfMemory:
            return None
        if expected is None or (scale is not None and scales is None):
            return None
        error: float | None = self.checker.right(
            buffer, expected, scales, spec.dtype, tolerance.norm, tolerance.element, count
        )
        return error

    def _uploaded(self, path: str, kind: type[np.generic], count: int) -> Any | None:
        """The array of a file on the device; None where it has another size."""
        if path not in self.references:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            if array.size != count:
                return None
            buffer = self.device.alloc(count * np.dtype(kind).itemsize)
            self.device.upload(buffer, np.ascontiguousarray(array, dtype=kind))
            self.references[path] = buffer
        return self.references[path]

    def forget(self) -> None:
        """Gives the references' memory back."""
        for buffer in self.references.values():
            self.device.free(buffer)
        self.references.clear()
        self.sums.clear()
