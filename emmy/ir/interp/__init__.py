"""A NumPy interpreter of kernel IR that finds layout, phase and ordering bugs without a GPU."""

from emmy.ir.interp.errors import DataRace, Deadlock, Divergence, KernelFault, Misuse, OutOfBounds, PoisonRead
from emmy.ir.interp.run import run_kernel
from emmy.ir.interp.tensor_map import TensorMap

__all__ = [
    "DataRace",
    "Deadlock",
    "Divergence",
    "KernelFault",
    "Misuse",
    "OutOfBounds",
    "PoisonRead",
    "TensorMap",
    "run_kernel",
]
