"""From kernel IR to source text: expand, legalise, prune, print."""

from __future__ import annotations

from emmy.codegen import cuda_tensor, opencl
from emmy.ir.kernel import Kernel
from emmy.ir.kernel_verify import verify
from emmy.ir.plan import Plan
from emmy.passes.expand import expand
from emmy.passes.legalize import legalize
from emmy.passes.prune import prune

PRINTERS = {"opencl": opencl.emit, "cuda": cuda_tensor.emit}


def render(kernel: Kernel, language: str, vector_width: int | None = None) -> str:
    """Source text of ``kernel`` in ``language`` (``opencl`` or ``cuda``), verified first.

    ``vector_width``: most lanes of a vector in OpenCL. Raises KeyError for another language, MalformedKernel for a
    kernel that breaks a rule of kernel IR, CannotPrint for one that uses what the language has not.
    """
    return printed(prepare(kernel, language, vector_width), language)


def prepare(kernel: Kernel, language: str, vector_width: int | None = None) -> Kernel:
    """``kernel`` verified, expanded, legalised and pruned: what ``printed`` takes. Raises as ``render`` does."""
    verify(kernel)
    return prune(legalize(expand(kernel, language), language, vector_width))


def printed(kernel: Kernel, language: str) -> str:
    """Source text of a prepared kernel."""
    return PRINTERS[language](kernel)


def render_plan(plan: Plan, language: str, vector_width: int | None = None) -> dict[str, str]:
    """Source text of every kernel of ``plan`` by the kernel's name."""
    return {launch.kernel.name: render(launch.kernel, language, vector_width) for launch in plan.launches}
