"""Input values: random ones by shape and type, and the way between NumPy arrays and torch tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from emmy.frontend.types import TORCH
from emmy.ir.dtype import DType
from emmy.ir.expr import Const, Expr, evaluate_int
from emmy.ir.graph import Graph, Node, Ref
from emmy.ir.nest import Tensor
from emmy.ir.scalar import numpy_dtype, round_bf16

Array = np.ndarray[Any, Any]

INTEGERS = 8
"""Integers that index nothing are drawn from ``-8 … 7`` (unsigned: ``0 … 7``)."""

_INDEXED = {
    "aten.embedding.default": ("indices", "weight", 0),
    "aten.index_select.default": ("index", "self", None),
    "aten.gather.default": ("index", "self", None),
}
"""Operation → its index argument, the indexed tensor, and the axis (None: the ``dim`` argument)."""

_CARRY = (
    "view",
    "reshape",
    "permute",
    "transpose",
    "unsqueeze",
    "squeeze",
    "expand",
    "slice",
    "select",
    "to_copy",
    "clone",
)


def random_inputs(
    graph: Graph, seed: int = 0, symbols: Mapping[str, int] | None = None, only: Iterable[str] | None = None
) -> dict[str, Array]:
    """Inputs of ``graph`` by name, the same for the same seed whatever is asked for.

    Floats are standard normal, bools even, integers small, and whatever is an index of an embedding or a gather lies
    within the axis it indexes. 16-bit floats hold values that they can represent; bfloat16 is held as float32.
    symbols: sizes of the symbolic axes (the hints by default). only: names to make (all by default).
    """
    sizes = dict(graph.hints()) | dict(symbols or {})
    bounds = index_bounds(graph, sizes)
    wanted = None if only is None else set(only)
    made = {}
    for n, tensor in enumerate(graph.inputs):
        if wanted is None or tensor.name in wanted:
            made[tensor.name] = _random(tensor, np.random.default_rng((seed, n)), sizes, bounds.get(tensor.name))
    return made


def shape_of(tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Sizes of a tensor in numbers."""
    return tuple(_number(extent, sizes) for extent in tensor.shape)


def _number(extent: Expr, sizes: Mapping[str, int]) -> int:
    return int(extent.value) if isinstance(extent, Const) else evaluate_int(extent, sizes)


def _random(tensor: Tensor, rng: np.random.Generator, sizes: Mapping[str, int], bound: int | None) -> Array:
    shape, dtype = shape_of(tensor, sizes), tensor.dtype
    if dtype == DType.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if not dtype.is_float:
        low, high = (0, bound) if bound is not None else (0 if dtype == DType.U8 else -INTEGERS, INTEGERS)
        return rng.integers(low, max(high, low + 1), shape).astype(numpy_dtype(dtype))
    values = np.asarray(rng.standard_normal(shape, dtype=np.float64 if dtype == DType.F64 else np.float32))
    return round_bf16(values).reshape(shape) if dtype == DType.BF16 else values.astype(numpy_dtype(dtype))


def index_bounds(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """For every input that is used as an index: the smallest axis that it indexes."""
    tensors = graph.tensors()
    makers = {result.name: node for node in graph.nodes for result in node.results}
    found: dict[str, int] = {}

    def note(name: str, bound: int) -> None:
        node = makers.get(name)
        if node is None:
            found[name] = min(bound, found.get(name, bound))
        elif node.op.split(".")[1].lstrip("_") in _CARRY:
            note(node.refs()[0], bound)

    for node in graph.nodes:
        for name, bound in _indices(node, tensors, sizes):
            note(name, bound)
    return found


def _indices(node: Node, tensors: Mapping[str, Tensor], sizes: Mapping[str, int]) -> list[tuple[str, int]]:
    args: dict[str, Any] = dict(node.args)
    if node.op == "aten.index.Tensor":
        shape = shape_of(tensors[args["self"].name], sizes)
        return [(ref.name, shape[n]) for n, ref in enumerate(args["indices"]) if isinstance(ref, Ref)]
    if node.op not in _INDEXED:
        return []
    index, table, axis = _INDEXED[node.op]
    shape = shape_of(tensors[args[table].name], sizes)
    return [(args[index].name, shape[args["dim"] if axis is None else axis])]


def to_torch(arrays: Mapping[str, Array], tensors: Iterable[Tensor], device: str = "cpu") -> dict[str, torch.Tensor]:
    """torch tensors of the storage types, in the order of ``tensors``."""
    return {t.name: torch.from_numpy(np.array(arrays[t.name])).to(device=device, dtype=TORCH[t.dtype]) for t in tensors}


def to_numpy(tensor: torch.Tensor) -> Array:
    """An array of the storage type; bfloat16 as float32."""
    plain = tensor.detach().cpu()
    return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
