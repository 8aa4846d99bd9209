"""Compiles CUDA C++ with NVRTC. Needs no GPU and creates no CUDA context."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emmy.errors import CompileFailed, MissingPrerequisite


@dataclass(frozen=True, slots=True)
class NvrtcResult:
    """``cubin``: machine code for the architecture. ``log``: the compiler's warnings. ``seconds``: of compiling."""

    cubin: bytes
    ptx: str
    log: str
    seconds: float


def compile_cuda(source: str, arch: str, options: tuple[str, ...] = ()) -> NvrtcResult:
    """Compiles ``source`` for ``arch`` (``sm_80``, ``sm_90a``, …).

    options: further NVRTC flags (``--Ofast-compile=min``, ``-lineinfo``). Raises CompileFailed with the compiler's log,
    MissingPrerequisite when CuPy, NVRTC or the CUDA headers are not installed.
    """
    nvrtc = _nvrtc()
    flags = (f"--gpu-architecture={arch}", "--std=c++17", "-default-device", f"-I{include_dir()}", *options)
    program = nvrtc.createProgram(source, "kernel.cu", (), ())
    started = time.perf_counter()
    try:
        try:
            nvrtc.compileProgram(program, flags)
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program)
            raise CompileFailed(f"NVRTC: {error} for {arch}", log=log) from None
        seconds = time.perf_counter() - started
        # CuPy 14.2 hands out the CUBIN one byte short; nvdisasm and cuobjdump refuse it then
        cubin = bytes(nvrtc.getCUBIN(program)) + b"\0"
        return NvrtcResult(cubin, _text(nvrtc.getPTX(program)), nvrtc.getProgramLog(program), seconds)
    finally:
        nvrtc.destroyProgram(program)


def nvrtc_version() -> tuple[int, int]:
    """(major, minor) of the NVRTC in use. Raises MissingPrerequisite."""
    major, minor = _nvrtc().getVersion()
    return (major, minor)


def need_architecture(arch: str) -> None:
    """Raises MissingPrerequisite where the NVRTC in use cannot compile for ``arch`` (``sm_120``)."""
    nvrtc = _nvrtc()
    known = nvrtc.getSupportedArchs()
    number = arch.removeprefix("sm_").rstrip("af")
    if not number.isdigit() or int(number) not in known:
        raise MissingPrerequisite(
            f"NVRTC {'.'.join(map(str, nvrtc_version()))} does not compile for {arch}",
            found=arch,
            expected=", ".join(f"sm_{one}" for one in known),
            hint="install another nvidia-cuda-nvrtc: an older one for an old GPU, a newer one for a new GPU",
        )


def include_dir() -> Path:
    """Folder of ``cuda_fp16.h``. Raises MissingPrerequisite when no CUDA headers are installed."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        for header in sorted(Path(root).glob("*/include/cuda_fp16.h")):
            return header.parent
    toolkit = Path("/usr/local/cuda/include")
    if (toolkit / "cuda_fp16.h").is_file():
        return toolkit
    raise MissingPrerequisite("no CUDA headers found", expected="cuda_fp16.h",
                              hint="pip install nvidia-cuda-runtime")  # fmt: skip


def _nvrtc() -> Any:
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except Exception as error:  # CuPy raises whatever the loader said
        hint = "pip install cupy-cuda13x nvidia-cuda-nvrtc nvidia-cuda-runtime"
        raise MissingPrerequisite(f"NVRTC cannot be used ({error})", hint=hint) from error
    return nvrtc


def _text(ptx: Any) -> str:
    return ptx.decode(errors="replace").rstrip("\0") if isinstance(ptx, bytes) else str(ptx)
