"""PyTorch programs into graphs and nests. Importing it imports torch."""

from emmy.frontend.inputs import random_inputs, to_numpy, to_torch
from emmy.frontend.trace import Traced, trace, trace_callable, trace_golden, trace_reproducer, trace_snippet

__all__ = [
    "Traced", "random_inputs", "to_numpy", "to_torch", "trace", "trace_callable", "trace_golden",
    "trace_reproducer", "trace_snippet",
]  # fmt: skip
