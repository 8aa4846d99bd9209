"""Graph IR: a traced function, one node an ATen operation, before anything is decomposed.

    Graph ::= symbols, inputs, nodes in order, outputs
    Node  ::= op(name=arg, …) -> results, where it was called
    Arg   ::= Ref(value) | number | text | None | DType | index expression over symbols | tuple of Arg

Arguments are bound to the names of the operation's ATen schema; those that equal their default are left out, and so are
device, layout and memory format. Sizes are index expressions over the graph's symbols.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, free_vars
from emmy.ir.nest import Symbol, Tensor, show


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of the graph: an input or a result of an earlier node."""

    name: str


Arg: TypeAlias = "Ref | int | float | bool | str | DType | Expr | tuple[Arg, ...] | None"


@dataclass(frozen=True, slots=True)
class Node:
    """One operation.

    op: ATen name with overload (``aten.add.Tensor``).
    args: bound arguments in schema order.
    results: one tensor an output; a result that does not exist (a mean nobody computes) is still listed.
    where: call site, ``file:line`` or ``snippet:line:column``.
    """

    op: str
    args: tuple[tuple[str, Arg], ...]
    results: tuple[Tensor, ...]
    where: str | None = None

    @property
    def name(self) -> str:
        """Name of the first result."""
        return self.results[0].name

    def refs(self) -> tuple[str, ...]:
        """Names of the values it reads, in order, repeats included."""
        return tuple(ref.name for _, arg in self.args for ref in _refs(arg))


@dataclass(frozen=True, slots=True)
class Graph:
    """A traced function. Nodes stand in execution order; ``outputs`` are names of inputs or results."""

    name: str
    symbols: tuple[Symbol, ...]
    inputs: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]

    def tensors(self) -> dict[str, Tensor]:
        """Every value by name."""
        found = {tensor.name: tensor for tensor in self.inputs}
        for node in self.nodes:
            found.update((tensor.name, tensor) for tensor in node.results)
        return found

    def hints(self) -> dict[str, int]:
        return {symbol.name: symbol.hint for symbol in self.symbols}


def _refs(arg: Arg) -> Iterator[Ref]:
    if isinstance(arg, Ref):
        yield arg
    elif isinstance(arg, tuple):
        for item in arg:
            yield from _refs(item)


def _exprs(arg: Arg) -> Iterator[Expr]:
    if isinstance(arg, Expr):
        yield arg
    elif isinstance(arg, tuple):
        for item in arg:
            yield from _exprs(item)


# --------------------------------------------------------------------------------------------------- printing


def show_arg(arg: Arg) -> str:
    """One-line text of an argument."""
    match arg:
        case Ref(name):
            return name
        case DType():
            return arg.value
        case Expr():
            return show(arg)
        case tuple():
            return f"[{', '.join(show_arg(item) for item in arg)}]"
        case float():
            return f"{arg:g}"
    return repr(arg)


def show_tensor(tensor: Tensor) -> str:
    return f"{tensor.name}: {tensor.dtype.value}[{', '.join(show(extent) for extent in tensor.shape)}]"


def lines(graph: Graph) -> Iterator[str]:
    """The printed form of a graph, line by line."""
    yield f"graph {graph.name}" + "".join(f" {s.name}={s.hint}" for s in graph.symbols)
    for tensor in graph.inputs:
        yield f"  in  {show_tensor(tensor)}"
    for node in graph.nodes:
        results = ", ".join(show_tensor(tensor) for tensor in node.results)
        args = ", ".join(f"{name}={show_arg(arg)}" for name, arg in node.args)
        yield f"  {results} = {node.op}({args})" + (f"  # {node.where}" if node.where else "")
    for name in graph.outputs:
        yield f"  out {name}"


def text(graph: Graph) -> str:
    """The printed form of a graph (``--ir graph``)."""
    return "\n".join(lines(graph)) + "\n"


# --------------------------------------------------------------------------------------------------- verifying


def verify(graph: Graph) -> None:
    """Checks that values are defined once and before use, and that sizes use known symbols.

    Raises ValueError naming the node and the fault.
    """
    symbols = {symbol.name for symbol in graph.symbols}
    known: set[str] = set()

    def define(tensor: Tensor, where: str) -> None:
        if tensor.name in known:
            raise ValueError(f"{where}: {tensor.name} is defined twice")
        known.add(tensor.name)
        for extent in tensor.shape:
            unknown = free_vars(extent) - symbols
            if unknown:
                raise ValueError(f"{where}: {tensor.name} has unknown size {', '.join(sorted(unknown))}")

    for tensor in graph.inputs:
        define(tensor, graph.name)
    for node in graph.nodes:
        if not node.results:
            raise ValueError(f"{graph.name}: {node.op} has no result")
        where = f"{graph.name}.{node.name} ({node.op})"
        for name in node.refs():
            if name not in known:
                raise ValueError(f"{where}: reads {name} before it is defined")
        for name, arg in node.args:
            for expr in _exprs(arg):
                if free_vars(expr) - symbols:
                    raise ValueError(f"{where}: {name} has unknown size {', '.join(sorted(free_vars(expr) - symbols))}")
        for tensor in node.results:
            define(tensor, where)
    for name in graph.outputs:
        if name not in known:
            raise ValueError(f"{graph.name}: output {name} is not computed")
