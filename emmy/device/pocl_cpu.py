"""PoCL on a processor that is newer than its LLVM.

PoCL compiles for the processor that LLVM says this is. What is newer than LLVM it calls ``generic``, which no x86-64
target accepts, so that every build fails: ``unknown target CPU 'generic'`` (PoCL 3.0, LLVM 14, on a Zen 5). PoCL has no
setting for it. The name stands in its description of the device, and is replaced there by one that this processor is
known to run.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import Any

UNKNOWN = b"generic\0"
_DESCRIPTION_BYTES = 1024
"""Of the description that are looked at: PoCL 3.0 has the name at 640, and what lies behind the struct, from about 1100
on, may point to such a name as well."""

LEVELS = (
    ("x86-64-v3", ("avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")),
    ("x86-64-v2", ("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3")),
    ("x86-64", ()),
)
"""LLVM's names of x86-64's levels with the flags of /proc/cpuinfo each asks for, the widest first. The level of AVX-512
is left out: PoCL 3.0 compiles a Zen 4, which has it, without it as well."""


def name_processor(device: Any, cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Gives PoCL a name for a processor that it has none for; returns that name, or "" where nothing was to be done.

    device: a ``pyopencl.Device``. Only the one pointer to the unknown name is written to.
    """
    if not device.version.endswith(f"linux-gnu-{UNKNOWN[:-1].decode()}"):
        return ""
    name = level(cpuinfo.read_text())
    place = find(device.int_ptr)
    if place is None or not name:
        return ""
    ctypes.c_void_p.from_address(place).value = _text(name)
    return name


def level(cpuinfo: str) -> str:
    """The widest of LEVELS that the text of /proc/cpuinfo allows; "" for a processor that is no x86-64."""
    line = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "")
    flags = set(line.partition(":")[2].split())
    return next((name for name, wanted in LEVELS if "lm" in flags and flags.issuperset(wanted)), "")


def find(start: int) -> int | None:
    """Address of the first pointer to UNKNOWN in the description that begins at ``start``.

    What does not point to memory is left alone: the kernel reads, so that a wild pointer is an error and no crash.
    """
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        words = os.pread(memory, _DESCRIPTION_BYTES, start)
        for offset in range(0, len(words) - 7, 8):
            (pointer,) = struct.unpack_from("<Q", words, offset)
            try:
                text = os.pread(memory, len(UNKNOWN), pointer) if 0 < pointer < 1 << 47 else b""
            except OSError:
                continue
            if text == UNKNOWN:
                return start + offset
        return None
    finally:
        os.close(memory)


def _text(name: str) -> int:
    """The address of a C string from the C library's own heap: whoever frees it may."""
    duplicate = ctypes.CDLL(None).strdup
    duplicate.restype, duplicate.argtypes = ctypes.c_void_p, (ctypes.c_char_p,)
    return int(duplicate(name.encode()))
