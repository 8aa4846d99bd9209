"""The bookkeeping of checks on a device, on one that is NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from emmy.bench.artefact import BufferSpec
from emmy.bench.check import TOLERANCES
from emmy.bench.on_device import OnDevice
from emmy.errors import OutOfMemory

OUT = BufferSpec("z", "f32", (4, 5), "out")
TOLERANCE = TOLERANCES["std", "f32"]


class NumpyDevice:
    """Buffers are byte arrays; ``held`` counts those that were not freed."""

    def __init__(self, room: int = 1 << 20) -> None:
        self.room, self.held = room, 0

    def alloc(self, nbytes: int) -> np.ndarray:
        if nbytes > self.room:
            raise OutOfMemory("no room")
        self.held += 1
        return np.zeros(nbytes, np.uint8)

    def free(self, buffer: np.ndarray) -> None:
        self.held -= 1

    def upload(self, buffer: np.ndarray, data: np.ndarray) -> None:
        buffer[:] = data.reshape(-1).view(np.uint8)

    def checker(self) -> Any:
        return self

    def checksum(self, buffer: np.ndarray) -> int:
        return hash(buffer.tobytes())

    def poison(self, buffer: np.ndarray, is_float: bool) -> None:
        buffer[:] = 0xFF if is_float else 0xA5

    def right(self, out: np.ndarray, reference: np.ndarray, scale: np.ndarray | None, dtype: str, norm: float,
              element: float, count: int) -> float | None:  # fmt: skip
        error = float(np.abs(out.view(np.float32) - reference.view(np.float64)).max())
        return error if error <= element else None


def files(folder: Path) -> tuple[str, str]:
    np.save(folder / "out.npy", np.arange(20.0).reshape(4, 5))
    np.save(folder / "scale.npy", np.ones((4, 5), np.float32))
    return str(folder / "out.npy"), str(folder / "scale.npy")


def test_a_right_output_is_not_downloaded_and_its_reference_stays(tmp_path: Path) -> None:
    device = NumpyDevice()
    checks = OnDevice(device)
    out = device.alloc(80)
    checks.poison(out, "f32")
    paths = files(tmp_path)
    assert np.isnan(out.view(np.float32)).all()
    assert checks.right(out, OUT, *paths, TOLERANCE) is None
    device.upload(out, np.arange(20, dtype=np.float32))
    assert checks.right(out, OUT, *paths, TOLERANCE) == 0.0
    assert device.held == 3
    checks.forget()
    assert device.held == 1


def test_what_the_device_cannot_tell_is_left_to_the_host(tmp_path: Path) -> None:
    device = NumpyDevice()
    checks = OnDevice(device)
    out = device.alloc(80)
    device.upload(out, np.arange(20, dtype=np.float32))
    reference, scale = files(tmp_path)
    other_size = BufferSpec("z", "f32", (3, 5), "out")
    strided = BufferSpec("z", "f32", (4, 5), "out", (8, 1))
    integers = BufferSpec("z", "i32", (4, 5), "out")
    for spec in (other_size, strided, integers):
        assert checks.right(out, spec, reference, scale, TOLERANCE) is None
    assert OnDevice(NumpyDevice(room=90)).right(out, OUT, reference, scale, TOLERANCE) is None


def test_an_input_is_compared_with_how_it_was_uploaded() -> None:
    device = NumpyDevice()
    checks = OnDevice(device)
    first, second = device.alloc(16), device.alloc(16)
    checks.note(first, "x")
    assert checks.unchanged(second, "x")
    second[3] = 1
    assert not checks.unchanged(second, "x")
    checks.note(second, "x")
    assert checks.unchanged(first, "x"), "the first upload stands"
    assert not checks.unchanged(first, "unknown")
    checks.forget()
    assert not checks.unchanged(first, "x")
