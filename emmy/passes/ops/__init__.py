"""The operation table: one row an ATen operation, split over files by kind."""

from emmy.passes.ops import composite, contraction, conversion, creation, index, pointwise, reduction, write
from emmy.passes.ops.core import OPS, Builder, Op, Sample, T, Val

__all__ = [
    "OPS",
    "Builder",
    "Op",
    "Sample",
    "T",
    "Val",
    "composite",
    "contraction",
    "conversion",
    "creation",
    "index",
    "pointwise",
    "reduction",
    "write",
]
