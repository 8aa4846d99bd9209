"""CUDA compile targets as data, so that schedules are enumerated, printed and compiled on a machine with no GPU.

Sources: the CUDA C++ programming guide's table of compute capabilities (threads, registers, shared memory a block may
opt in to) and the makers' data sheets (multiprocessors, caches, memory, peaks without sparsity). A target stands for
its best-known board; a real GPU's own numbers come from its driver.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from emmy.device.base import Capabilities
from emmy.errors import InputError

_MMA = ("mma_m16n8k16_f16_f32", "mma_m16n8k16_f16_f16", "mma_m16n8k16_bf16_f32")
_WGMMA = tuple(f"wgmma_m64n{n}k16_f16_f32" for n in (64, 128, 192, 256))
_WGMMA_F16 = tuple(f"wgmma_m64n{n}k16_f16_f16" for n in (64, 128, 192, 256))


@dataclass(frozen=True, slots=True)
class Target:
    """What differs between targets.

    smem: bytes a block may opt in to. llc, memory: bytes. flops: float32 peak; tensor: dense float16 peak with float16
    accumulate. cluster: most blocks of a cluster on every GPU of the kind.
    """

    board: str
    units: int
    smem: int
    llc: int
    memory: int
    flops: float
    tensor: float
    bytes_s: float
    cache_bytes_s: float
    atoms: tuple[str, ...]
    transports: tuple[str, ...]
    cluster: int = 1


TARGETS: dict[str, Target] = {
    "sm_80": Target(
        "A100", 108, 163 << 10, 40 << 20, 80 << 30, 19.5e12, 312e12, 2.039e12, 7.0e12, _MMA, ("sync", "async")
    ),
    # cache: not measured; the RTX 4090's, which has as many memory channels, by their clocks (1.70 and 2.52 GHz)
    "sm_86": Target(
        "RTX 3090", 82, 99 << 10, 6 << 20, 24 << 30, 35.6e12, 142e12, 0.936e12, 3.7e12, _MMA, ("sync", "async")
    ),
    "sm_89": Target(
        "RTX 4090", 128, 99 << 10, 72 << 20, 24 << 30, 82.6e12, 330e12, 1.008e12, 5.5e12, _MMA, ("sync", "async")
    ),
    "sm_90a": Target(
        "H200", 132, 227 << 10, 60 << 20, 141 << 30, 67e12, 990e12, 4.8e12, 12e12, _MMA + _WGMMA + _WGMMA_F16,
        ("sync", "async", "tma"), cluster=8,
    ),
    "sm_120": Target(
        "RTX 5090", 170, 99 << 10, 96 << 20, 32 << 30, 104.8e12, 419e12, 1.792e12, 9e12, _MMA, ("sync", "async", "tma")
    ),
}  # fmt: skip

OLDEST = (8, 0)
"""Compute capability from which there are ``cp.async`` and ``mma.sync`` m16n8k16, which every target has."""

GPUS: dict[str, str] = {
    r"\b(A100|A30|A800)\b": "sm_80",
    r"\b(RTX 30\d\d|RTX A\d{3,4}|A10G?|A16|A40|A2)\b": "sm_86",
    r"\b(RTX 40\d\d|RTX \d+ Ada|L4|L40S?)\b": "sm_89",
    r"\b(H100|H200|H800|H20|GH200)\b": "sm_90a",
    r"\b(RTX 50\d\d|RTX PRO \d+ Blackwell)\b": "sm_120",
}
"""Names of GPUs, as their driver tells them, → compile target."""


def target_of_gpu(name: str) -> str | None:
    """The compile target of a GPU by its name (``NVIDIA GeForce RTX 5090``); None for one that is not known."""
    return next((arch for pattern, arch in GPUS.items() if re.search(pattern, name)), None)


def cuda_target(arch: str) -> Capabilities:
    """Capabilities of a compile target. Raises InputError for one that is not in the table."""
    target = TARGETS.get(arch)
    if target is None:
        raise InputError("--target", found=repr(arch), expected=", ".join(TARGETS))
    return Capabilities(
        name=f"target-{arch}",
        kind="gpu",
        language="cuda",
        arch=arch,
        driver="",
        compiler="nvrtc",
        units=target.units,
        max_threads=1024,
        smem_bytes=target.smem,
        vector_bits=128,
        registers=255,
        warp=32,
        llc_bytes=target.llc,
        memory_bytes=target.memory,
        peak_flops=target.flops,
        peak_bytes=target.bytes_s,
        tensor_flops=target.tensor,
        cache_bytes_s=target.cache_bytes_s,
        atoms=target.atoms,
        transports=target.transports,
        fp64=True,
        atomics_f32=True,
        regimes=("O1", "O3"),
        cluster=target.cluster,
    )
