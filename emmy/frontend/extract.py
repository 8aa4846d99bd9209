"""The operations that a kernel realises, as a graph of its own: from its region's outputs back to its inputs.

What passes between regions is named after the value of the graph that it holds. Views between two regions belong to the
one that reads: they stand between its inputs and its other operations. Where regions exchange what no operation returns
(a softmax cut in front of its map), neither is a graph of whole operations; then the operations of both are taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from emmy.ir.expr import Expr, free_vars
from emmy.ir.graph import Arg, Graph, Node, Ref, verify
from emmy.ir.nest import Region, Tensor, region_key
from emmy.passes.decompose import decompose, decompose_held, output_names
from emmy.passes.partition import partition


@dataclass(frozen=True, slots=True)
class Extract:
    """The operations of ``region``. note: why they are not this kernel alone, empty where they are."""

    region: Region
    graph: Graph
    note: str = ""


def extract(graph: Graph, regions: Sequence[Region], kernels: Sequence[Region] | None = None) -> tuple[Extract, ...]:
    """A graph for each of ``regions``, which together realise ``graph`` and pass tensors to each other by name.

    kernels: the regions again, those that are cut replaced by what they are cut into; then a graph for each of these.
    Where the note is empty, the graph makes one region, equal to the kernel's up to names: their keys are the same.
    """
    cutter = _Cutter(graph, regions, regions if kernels is None else kernels)
    return tuple(cutter.extract(number) for number in range(len(cutter.regions)))


class _Cutter:
    def __init__(self, graph: Graph, whole: Sequence[Region], regions: Sequence[Region]) -> None:
        self.regions = regions
        self.graph, same = without_repeats(graph)
        self.tensors = self.graph.tensors()
        self.node_of = {tensor.name: node for node in self.graph.nodes for tensor in node.results}
        self.writer = {out.tensor.name: n for n, region in enumerate(regions) for out in region.outputs}
        self.final = set(output_names(graph))
        self.value = {tensor.name: tensor.name for tensor in graph.inputs}
        self.value |= {name: same.get(v, v) for name, v in zip(output_names(graph), graph.outputs, strict=True)}
        held = decompose_held(graph)[1]
        for region in (*whole, *regions):
            for out in region.outputs:
                value = held.get(out.source)
                if value is not None and self.tensors[same.get(value, value)].dtype == out.tensor.dtype:
                    self.value.setdefault(out.tensor.name, same.get(value, value))

    def extract(self, number: int) -> Extract:
        region, group = self.regions[number], self.joined(number)
        graph = self.cut(region.name, group)
        if len(group) > 1:
            names = ", ".join(dict.fromkeys(self.regions[n].name for n in group))
            handed = dict.fromkeys(t.name for n in group for t in self.regions[n].inputs if t.name not in self.value)
            note = f"the operations of {names}: they exchange {', '.join(handed)}, which no operation returns"
            return Extract(region, graph, note)
        alone = partition(decompose(graph)).regions
        if [region_key(one) for one in alone] != [region_key(region)]:
            found = ", ".join(one.name for one in alone)
            return Extract(region, graph, f"alone, these operations make {found}")
        return Extract(region, graph)

    def joined(self, number: int) -> list[int]:
        """The regions that region ``number`` exchanges parts of operations with, itself included, in order."""
        group, grown = {number}, True
        while grown:
            grown = False
            for reader, region in enumerate(self.regions):
                for tensor in region.inputs:
                    writer = self.writer.get(tensor.name)
                    if writer is not None and tensor.name not in self.value and len({writer, reader} & group) == 1:
                        group |= {writer, reader}
                        grown = True
        return sorted(group)

    def cut(self, name: str, group: Sequence[int]) -> Graph:
        inside = {out.tensor.name for n in group for out in self.regions[n].outputs}
        read = {tensor.name for n, region in enumerate(self.regions) if n not in group for tensor in region.inputs}
        given = {t.name for n in group for t in self.regions[n].inputs} - inside
        outputs = [
            self.value[out.tensor.name]
            for n in group
            for out in self.regions[n].outputs
            if out.tensor.name in self.value
            and (len(group) == 1 or out.tensor.name in self.final or out.tensor.name in read)
        ]
        stop = {self.value[tensor] for tensor in given}
        while True:
            nodes, inputs = self.walk(outputs, stop)
            # an operation that is needed for another of its results computes this one as well
            again = stop & {tensor.name for node in nodes for tensor in node.results}
            if not again:
                break
            stop -= again
        tensors = [tensor for tensor in self.tensors.values() if tensor.name in inputs]
        cut = Graph(name, (), tuple(replace(t, strides=None) for t in tensors), tuple(nodes), tuple(outputs))
        used = set().union(*map(free_vars, _sizes(cut)))
        cut = replace(cut, symbols=tuple(symbol for symbol in self.graph.symbols if symbol.name in used))
        verify(cut)
        return cut

    def walk(self, outputs: Iterable[str], stop: set[str]) -> tuple[list[Node], set[str]]:
        """The nodes between ``outputs`` and ``stop``, in order, and the values that they are given."""
        found: set[str] = set()
        inputs: set[str] = set()
        pending = list(outputs)
        while pending:
            name = pending.pop()
            node = self.node_of.get(name)
            if name in stop or node is None:
                inputs.add(name)
            elif node.name not in found:
                found.add(node.name)
                pending += node.refs()
        return [node for node in self.graph.nodes if node.name in found], inputs


def without_repeats(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """``graph`` with every operation on the same arguments once; with the value that stands for each dropped one."""
    same: dict[str, str] = {}
    first: dict[str, Node] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        node = replace(node, args=tuple((name, _renamed(arg, same)) for name, arg in node.args))
        kept = first.setdefault(f"{node.op} {node.args!r}", node)
        if kept is node:
            nodes.append(node)
        else:
            same |= {t.name: k.name for t, k in zip(node.results, kept.results, strict=True)}
    outputs = tuple(same.get(name, name) for name in graph.outputs)
    return replace(graph, nodes=tuple(nodes), outputs=outputs), same


def _renamed(arg: Arg, same: dict[str, str]) -> Arg:
    if isinstance(arg, Ref):
        return Ref(same.get(arg.name, arg.name))
    if isinstance(arg, tuple):
        return tuple(_renamed(item, same) for item in arg)
    return arg


def _sizes(graph: Graph) -> list[Expr]:
    """Every size and every argument over sizes."""

    def of(arg: Arg) -> list[Expr]:
        if isinstance(arg, tuple):
            return [expr for item in arg for expr in of(item)]
        return [arg] if isinstance(arg, Expr) else []

    tensors: list[Tensor] = [*graph.inputs, *(tensor for node in graph.nodes for tensor in node.results)]
    args = [arg for node in graph.nodes for _, arg in node.args]
    return [extent for tensor in tensors for extent in tensor.shape] + [expr for arg in args for expr in of(arg)]
