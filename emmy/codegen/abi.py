"""The launch interface of a printed kernel.

Arguments are passed in the order of ``Kernel.params``: buffers as pointers, size symbols and numbers by value with the
width of their type (int32 for symbols; see scalar_format for the narrow types), tensor maps by value (128 bytes).
A launch has ``Kernel.block`` threads (x, y) a block.
"""

from __future__ import annotations

from emmy.ir.dtype import DType
from emmy.ir.kernel import Kernel, ScalarParam

STATIC_SHARED_BYTES = 48 * 1024
"""Shared memory that a CUDA kernel may declare itself; more is requested at the launch."""


def dynamic_shared_bytes(kernel: Kernel) -> int:
    """Bytes of shared memory that a CUDA launch requests: 0 while the kernel declares its own.

    A launch of a kernel that needs some must raise the function's ``MAX_DYNAMIC_SHARED_SIZE_BYTES`` to this first.
    """
    return kernel.smem_bytes if kernel.smem_bytes > STATIC_SHARED_BYTES else 0


def scalar_format(param: ScalarParam) -> str:
    """The ``struct``/NumPy format character a by-value argument is packed with."""
    return _FORMATS[param.dtype]


_FORMATS = {
    DType.BOOL: "B", DType.U8: "B", DType.I8: "b", DType.I16: "h", DType.I32: "i", DType.I64: "q",
    DType.F16: "f", DType.BF16: "f", DType.F32: "f", DType.F64: "d",
}  # fmt: skip
