"""Graph → nests: every operation becomes maps, reductions, contractions or index maps by its row of the table.

Nothing is fused: each computation keeps its result, in the compute type. Views and creations are no computations: they
become coordinates and constants in the loads of their readers. What no output needs is dropped.
"""

from __future__ import annotations

from emmy.errors import UnsupportedOp
from emmy.ir.expr import Load, cast
from emmy.ir.graph import Arg, Graph, Node, Ref
from emmy.ir.nest import Comp, Output, Region, Tensor
from emmy.passes.ops import OPS, Builder, Val
from emmy.passes.ops.core import short_name

LEFT_OUT = {
    "sort": "data-dependent order", "topk": "data-dependent order", "argsort": "data-dependent order",
    "nonzero": "data-dependent shape", "masked_select": "data-dependent shape", "item": "data-dependent value",
    "local_scalar_dense": "data-dependent value", "convolution": "convolutions are not compiled",
    "fft_r2c": "Fourier transforms are not compiled", "fft_c2c": "Fourier transforms are not compiled",
    "fft_c2r": "Fourier transforms are not compiled",
}  # fmt: skip
"""Why the best known of the operations without a row have none."""


def decompose(graph: Graph) -> Region:
    """The whole graph as one region of unfused computations.

    Outputs are named ``out`` (``out0``, ``out1``, … when there are several). Raises UnsupportedOp, naming the operation
    and its call site, for an operation without a row.
    """
    return decompose_held(graph)[0]


def decompose_held(graph: Graph) -> tuple[Region, dict[str, str]]:
    """As ``decompose``; with the value of the graph that each result holds, by the result's name.

    A result is a computation (``comp``) or a further component of one (``comp.k``). Results inside an operation (the
    statistics of a softmax) hold no value and are not there; of several equal values the first is named.
    """
    outputs = output_names(graph)
    builder = Builder(graph.inputs, taken=(*outputs, *(symbol.name for symbol in graph.symbols)))
    values: dict[str, Val] = {tensor.name: _input(tensor) for tensor in graph.inputs}
    for node in graph.nodes:
        values.update(_lower(builder, node, values))
    tensors = graph.tensors()
    held: dict[str, str] = {}
    for name, value in values.items():
        if value.source is not None:
            held.setdefault(value.source, name)
    results = []
    for name, result in zip(outputs, graph.outputs, strict=True):
        source = _stored(builder, values[result], tensors[result])
        held.setdefault(source, result)
        tensor = tensors[result]
        results.append(Output(Tensor(name, tensor.shape, tensor.dtype), source))
    comps = _needed(builder.comps, [out.source for out in results])
    return Region(graph.name, graph.symbols, graph.inputs, comps, tuple(results)), held


def output_names(graph: Graph) -> list[str]:
    """Names of the graph's outputs in its region, in order."""
    taken = {tensor.name for tensor in graph.inputs}
    names = ["out"] if len(graph.outputs) == 1 else [f"out{n}" for n in range(len(graph.outputs))]
    return [name if name not in taken else f"{name}_" for name in names]


def _input(tensor: Tensor) -> Val:
    compute = tensor.dtype.compute
    return Val(tensor.shape, tensor.dtype, lambda c: cast(Load(tensor.name, c, tensor.dtype), compute))


def _lower(builder: Builder, node: Node, values: dict[str, Val]) -> dict[str, Val]:
    op = OPS.get(node.op)
    if op is None:
        raise UnsupportedOp(node.op, node.where, hint=LEFT_OUT.get(short_name(node.op)))
    builder.node = node
    built = op.build(builder, **{name: _bound(arg, values) for name, arg in node.args})
    made = built if isinstance(built, tuple) else (built,)
    for value, tensor in zip(made, node.results, strict=False):
        if value.rank != len(tensor.shape) or value.dtype != tensor.dtype:
            raise ValueError(f"{node.op}: row yields {value.dtype.value} of rank {value.rank}, "
                             f"traced {tensor.dtype.value} of rank {len(tensor.shape)}")  # fmt: skip
    return {tensor.name: value for value, tensor in zip(made, node.results, strict=False)}


def _bound(arg: Arg, values: dict[str, Val]) -> object:
    if isinstance(arg, Ref):
        return values[arg.name]
    if isinstance(arg, tuple):
        return tuple(_bound(item, values) for item in arg)
    return arg


def _stored(builder: Builder, value: Val, tensor: Tensor) -> str:
    """The computation that holds an output; a view or an input is copied into one."""
    if value.source is not None:
        return value.source
    builder.node = Node("aten.copy.default", (), (tensor,))
    stored = builder.map(tensor.shape, tensor.dtype, value.at).source
    assert stored is not None
    return stored


def _needed(comps: list[Comp], sources: list[str]) -> tuple[Comp, ...]:
    wanted = {source.split(".")[0] for source in sources}
    kept: list[Comp] = []
    for comp in reversed(comps):
        if comp.name in wanted:
            wanted.update(load.tensor.split(".")[0] for load in comp.loads())
            kept.append(comp)
    return tuple(reversed(kept))
