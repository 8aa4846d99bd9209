"""The order of the expansion passes."""

from __future__ import annotations

from emmy.ir.kernel import Kernel
from emmy.passes.expand.combine import expand_combine
from emmy.passes.expand.rings import expand_rings
from emmy.passes.expand.unroll import unroll


def expand(kernel: Kernel, language: str) -> Kernel:
    """``kernel`` with loops unrolled, rings and roles turned into barriers and copies, and reductions spelled out.

    ``language``: ``opencl`` or ``cuda``; only CUDA has warp shuffles.
    """
    kernel = expand_rings(unroll(kernel))
    return expand_combine(kernel, shuffles=language == "cuda")
