"""PoCL on a processor that its LLVM does not know: the name it gets, and the place that is written to."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import pytest

from emmy.device.pocl_cpu import UNKNOWN, find, level, name_processor

ZEN5 = (
    "flags\t\t: fpu lm ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt f16c lahf_lm abm sse4a bmi1 avx2 bmi2 avx512f"
    " avx512bw\n"
)


@dataclass
class Described:
    """A device whose description holds the words, as PoCL's struct does."""

    words: ctypes.Array[ctypes.c_uint64]
    version: str = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-generic"

    @property
    def int_ptr(self) -> int:
        return ctypes.addressof(self.words)


def described(*values: int, version: str = "") -> Described:
    words = (ctypes.c_uint64 * 1024)(*values)
    return Described(words, version) if version else Described(words)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (ZEN5, "x86-64-v3"),
        (ZEN5.replace(" avx2", ""), "x86-64-v2"),
        ("flags : fpu lm sse2\n", "x86-64"),
        ("flags : fpu sse2\n", ""),
        ("Features : asimd sve\n", ""),
        ("", ""),
    ],
)
def test_the_widest_level_of_the_flags(flags: str, expected: str) -> None:
    assert level("processor : 0\n" + flags) == expected


def test_the_pointer_to_the_unknown_name_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(ZEN5)
    name, other = ctypes.create_string_buffer(UNKNOWN[:-1]), ctypes.create_string_buffer(b"generic-x")
    wild = 0x7FFF_FFFF_F000 - 0x1000
    values = (0, 7, ctypes.addressof(other), 1 << 63, wild, ctypes.addressof(name), 42, ctypes.addressof(name))
    device = described(*values)
    assert find(device.int_ptr) == device.int_ptr + 5 * 8
    assert name_processor(device, cpuinfo) == "x86-64-v3"
    assert ctypes.string_at(device.words[5]) == b"x86-64-v3"
    assert [v for i, v in enumerate(device.words[:8]) if i != 5] == [v for i, v in enumerate(values) if i != 5]
    assert name.value == b"generic"


def test_a_description_that_is_not_understood_is_left_as_it_is(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(ZEN5)
    name = ctypes.addressof(held := ctypes.create_string_buffer(UNKNOWN[:-1]))
    for device in (
        described(),
        described(*[0] * 128, name),
        described(name, version="OpenCL 3.0 pocl-linux-gnu-znver3"),
    ):
        before = list(device.words)
        assert name_processor(device, cpuinfo) == ""
        assert list(device.words) == before
    assert held.value == b"generic"
    cpuinfo.write_text("flags : fpu\n")
    assert name_processor(described(name), cpuinfo) == ""


def test_this_machine_compiles() -> None:
    from emmy.device.opencl import prepare_environment

    prepare_environment()
    cl = pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    from emmy.device.opencl import pick_device

    context = cl.Context([pick_device(cl)])
    program = cl.Program(context, "__kernel void f(__global float* x) { x[get_global_id(0)] *= 2.0f; }").build()
    assert program.all_kernels()[0].function_name == "f"
