"""Fixed capabilities for tests: what is offered must not depend on the machine that runs them."""

from emmy.device.base import Capabilities

CPU = Capabilities(
    "test-cpu", "cpu", "opencl", "avx2", "driver", "compiler", units=2, max_threads=4096, smem_bytes=1 << 20,
    vector_bits=256, registers=16, warp=1, llc_bytes=32 << 20, memory_bytes=8 << 30,
)  # fmt: skip
"""A two-core CPU with 256-bit vectors."""
