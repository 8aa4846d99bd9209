"""Do the buffers fit? Asked before anything is allocated, by the parent and by the worker."""

from __future__ import annotations

from emmy.bench.artefact import Artefact, BufferSpec
from emmy.bench.inputs import STORAGE, span
from emmy.errors import OutOfMemory


def elements(buffer: BufferSpec) -> int:
    """Elements of memory a buffer covers."""
    return span(buffer.shape, buffer.strides)


def nbytes(buffer: BufferSpec) -> int:
    """Bytes of memory a buffer takes."""
    return elements(buffer) * STORAGE[buffer.dtype].itemsize


def need_memory(artefact: Artefact, available: int) -> None:
    """Raises OutOfMemory, naming the largest buffers, when a case of the artefact cannot fit in ``available`` bytes."""
    for case in artefact.cases:
        sizes = {buffer.name: nbytes(buffer) for buffer in case.buffers}
        if sum(sizes.values()) > available:
            largest = sorted(sizes, key=lambda name: -sizes[name])[:4]
            names = ", ".join(f"{name} {sizes[name] / 2**30:.2f} GiB" for name in largest)
            raise OutOfMemory(
                f"{artefact.name} does not fit in memory: {names}",
                found=f"{sum(sizes.values()) / 2**30:.2f} GiB needed",
                expected=f"at most {available / 2**30:.2f} GiB",
            )
