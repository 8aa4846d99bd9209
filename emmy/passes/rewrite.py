"""What the region passes share: replacing loads, inlining a map, uses of a result, dead code, flat offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from emmy.ir.expr import Call, Expr, Load, i32, substitute, transform, walk
from emmy.ir.nest import Axis, Comp, Region, Tensor
from emmy.ir.simplify import Simplifier


def scope(comp: Comp) -> dict[str, Expr]:
    """Extent of every axis of a computation, by name."""
    return {axis.name: axis.extent for axis in (*comp.axes, *comp.reduce, *comp.carried)}


def simplified(comp: Comp) -> Comp:
    """``comp`` with its index arithmetic simplified."""
    simplifier = Simplifier(scope(comp))
    return replace(comp, body=tuple(simplifier.body(expr) for expr in comp.body))


def base(name: str) -> str:
    """The computation that ``name`` or ``name.k`` belongs to."""
    return name.split(".")[0]


def loads_of(exprs: Iterable[Expr]) -> tuple[Load, ...]:
    """Every distinct load, inner ones (of gathers) included."""
    found: dict[Load, None] = {}
    for expr in exprs:
        for node in walk(expr):
            if isinstance(node, Load):
                found.setdefault(node)
    return tuple(found)


def map_loads(comp: Comp, rule: Callable[[Load], Expr | None]) -> Comp:
    """``comp`` with each load replaced by what ``rule`` returns (None keeps it), then simplified."""

    def visit(node: Expr) -> Expr | None:
        return rule(node) if isinstance(node, Load) else None

    body = tuple(transform(expr, visit) for expr in comp.body)
    return comp if body == comp.body else simplified(replace(comp, body=body))


def element(producer: Comp, index: tuple[Expr, ...]) -> Expr:
    """The value of map ``producer`` at ``index``."""
    return substitute(producer.body[0], {axis.name: i for axis, i in zip(producer.axes, index, strict=True)})


def inline(consumer: Comp, producer: Comp) -> Comp:
    """``consumer`` with every load of map ``producer`` replaced by its expression; the origins are joined."""
    out = map_loads(consumer, lambda load: element(producer, load.index) if load.tensor == producer.name else None)
    return out if out is consumer else replace(out, origin=(*producer.origin, *consumer.origin))


def uses(region: Region) -> dict[str, list[str]]:
    """For each computation the computations that read it (each once, in order), and ``out NAME`` for outputs."""
    found: dict[str, list[str]] = {comp.name: [] for comp in region.comps}
    for comp in region.comps:
        for name in dict.fromkeys(base(load.tensor) for load in comp.loads()):
            if name in found:
                found[name].append(comp.name)
    for out in region.outputs:
        found[base(out.source)].append(f"out {out.tensor.name}")
    return found


def live(region: Region) -> Region:
    """Without computations and inputs that no output needs."""
    needed = {base(out.source) for out in region.outputs}
    kept: list[Comp] = []
    for comp in reversed(region.comps):
        if comp.name in needed:
            kept.append(comp)
            needed |= {base(load.tensor) for load in comp.loads()}
    inputs = tuple(t for t in region.inputs if t.name in needed)
    return replace(region, comps=tuple(reversed(kept)), inputs=inputs)


def result_tensor(comp: Comp, component: int = 0) -> Tensor:
    """A contiguous tensor that holds a result, in its compute type."""
    axes = comp.axes
    dtype = comp.dtype.compute
    if not comp.is_map:
        algebra = comp.algebra()
        axes = (*axes, *comp.carried) if algebra.carried[component] else axes
        dtype = algebra.component_dtypes(comp.dtype)[component]
    name = f"{comp.name}.{component}" if component else comp.name
    return Tensor(name, tuple(axis.extent for axis in axes), dtype)


def component(name: str) -> int:
    """The ``k`` of ``name.k``; 0 where there is none."""
    return int(name.partition(".")[2] or 0)


def tensors(region: Region) -> dict[str, Tensor]:
    """Everything that can be loaded: inputs by name, results as contiguous tensors (``name``, ``name.k``)."""
    found = {tensor.name: tensor for tensor in region.inputs}
    for comp in region.comps:
        found[comp.name] = result_tensor(comp)
        if not comp.is_map:
            for k in range(1, comp.algebra().arity):
                found[f"{comp.name}.{k}"] = result_tensor(comp, k)
            found[f"{comp.name}.0"] = found[comp.name]
    return found


def flat(tensor: Tensor, index: tuple[Expr, ...]) -> Expr:
    """Element offset of logical coordinates."""
    total: Expr = i32(0)
    for coordinate, stride in zip(index, tensor.element_strides(), strict=True):
        total = total + coordinate * stride
    return total


def outside_loads(expr: Expr) -> Iterable[Expr]:
    """Subexpressions of ``expr`` that are not inside a load."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, Load):
            stack.extend(node.children)


def divisions(expr: Expr) -> set[Expr]:
    """Distinct divisions and remainders of ``expr``, those inside loads left out."""
    return {node for node in outside_loads(expr) if isinstance(node, Call) and node.fn in ("floordiv", "mod")}


def rename_axes(comp: Comp, names: dict[str, str]) -> Comp:
    """``comp`` with its axes renamed."""
    variables: dict[str, Expr] = {}

    def renamed(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(names.get(axis.name, axis.name), axis.extent) for axis in axes)

    for axis in (*comp.axes, *comp.reduce, *comp.carried):
        variables[axis.name] = Axis(names.get(axis.name, axis.name), axis.extent).var
    body = tuple(substitute(expr, variables) for expr in comp.body)
    return replace(comp, axes=renamed(comp.axes), reduce=renamed(comp.reduce), carried=renamed(comp.carried), body=body)
