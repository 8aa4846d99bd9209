"""Nest IR: what a region computes, as loop nests over parallel and reduce axes with scalar expressions.

    Program ::= inputs, regions in order, outputs        a traced function; regions exchange named tensors
    Region  ::= symbols, inputs, comps in order, outputs  what is tuned as one
    Comp    ::= name[axes] = body                         a map
              | name[axes] = monoid over reduce of body   a reduction; a contraction is a sum of products
    body    ::= expressions of emmy.ir.expr over the axes' variables, with ``Load(tensor, coordinates)`` leaves

A computation's result is read as ``Load("name", axes)`` (component 0) or ``Load("name.k", axes)`` (component k of its
monoid). A component that carries axes is indexed by the parallel axes and then by the carried ones. Extents and strides
are index expressions over the region's size symbols, so a symbolic axis stays symbolic. Intermediate results are held
in the compute type (float32 for the 16-bit floats); only outputs are rounded to their storage type.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Expr, Lane, Load, Mem, Pack, Reg, Splat, Var, evaluate_int, walk
from emmy.ir.monoid import MONOIDS, Monoid


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size known at run time. ``hint`` is the size it is tuned and benched at.

    most: the largest size that the program is right for (a table of positions has an end), None where any size is.
    least: the smallest one (a slice or a window has a length of its own), 0 where an axis may be empty as well.
    """

    name: str
    hint: int = 512
    most: int | None = None
    least: int = 0


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop ``name`` running over ``0 … extent``; ``extent`` is an index expression over symbols."""

    name: str
    extent: Expr

    @property
    def var(self) -> Var:
        return Var(self.name, DType.I32)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named array: shape and strides in elements (index expressions), storage type. ``strides`` None: contiguous."""

    name: str
    shape: tuple[Expr, ...]
    dtype: DType
    strides: tuple[Expr, ...] | None = None

    def element_strides(self) -> tuple[Expr, ...]:
        """Strides in elements, row-major where none were given."""
        if self.strides is not None:
            return self.strides
        out: list[Expr] = []
        step: Expr = Const(1, DType.I32)
        for extent in reversed(self.shape):
            out.append(step)
            step = step * extent
        return tuple(reversed(out))

    def elements(self) -> Expr:
        """Number of elements (product of the shape)."""
        total: Expr = Const(1, DType.I32)
        for extent in self.shape:
            total = total * extent
        return total


@dataclass(frozen=True, slots=True)
class Comp:
    """One computation.

    axes: parallel axes, in the order the result is indexed.
    reduce: reduce axes; empty for a map.
    monoid: name in MONOIDS, None for a map.
    body: a map's single value; a reduction's values ``x0, x1, …`` that the monoid lifts.
    carried: axes that components carry (only for monoids that declare some).
    dtype: element type of the values (compute type follows).
    origin: names of the operations it realises, in order (``rms_norm``, ``mul``), for kernel names and reports.
    """

    name: str
    axes: tuple[Axis, ...]
    body: tuple[Expr, ...]
    dtype: DType
    reduce: tuple[Axis, ...] = ()
    monoid: str | None = None
    carried: tuple[Axis, ...] = ()
    origin: tuple[str, ...] = ()

    @property
    def is_map(self) -> bool:
        return self.monoid is None

    def algebra(self) -> Monoid:
        """The monoid. Raises TypeError for a map."""
        if self.monoid is None:
            raise TypeError(f"{self.name} is a map and has no monoid")
        return MONOIDS[self.monoid]

    def loads(self) -> tuple[Load, ...]:
        """Every distinct load in the body."""
        seen: dict[Load, None] = {}
        for expr in self.body:
            for node in walk(expr):
                if isinstance(node, Load):
                    seen.setdefault(node)
        return tuple(seen)


@dataclass(frozen=True, slots=True)
class Output:
    """An output tensor and the computation (``comp`` or ``comp.k``) that yields it."""

    tensor: Tensor
    source: str


@dataclass(frozen=True, slots=True)
class Region:
    """A connected piece of a program: what is tuned as one. Comps stand in dependency order."""

    name: str
    symbols: tuple[Symbol, ...]
    inputs: tuple[Tensor, ...]
    comps: tuple[Comp, ...]
    outputs: tuple[Output, ...]

    def comp(self, name: str) -> Comp:
        """The computation ``name`` (a ``.k`` component suffix is ignored). Raises KeyError."""
        base = name.split(".")[0]
        for comp in self.comps:
            if comp.name == base:
                return comp
        raise KeyError(name)

    def tensor(self, name: str) -> Tensor:
        """The input tensor ``name``. Raises KeyError."""
        for tensor in self.inputs:
            if tensor.name == name:
                return tensor
        raise KeyError(name)

    def hints(self) -> dict[str, int]:
        return {symbol.name: symbol.hint for symbol in self.symbols}

    def sizes(self, axis: Axis, values: Mapping[str, int] | None = None) -> int:
        """Extent of ``axis`` at the given symbol values (the hints by default)."""
        return evaluate_int(axis.extent, values or self.hints())


@dataclass(frozen=True, slots=True)
class Program:
    """A traced function cut into regions, in execution order; tensors are passed between them by name."""

    name: str
    symbols: tuple[Symbol, ...]
    inputs: tuple[Tensor, ...]
    regions: tuple[Region, ...]
    outputs: tuple[str, ...]


# --------------------------------------------------------------------------------------------------- printing


def show(expr: Expr) -> str:
    """One-line text of an expression."""
    infix = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "lt": "<", "le": "<=",
             "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "and": "and", "or": "or"}  # fmt: skip
    match expr:
        case Const(value, _, _):
            return f"{value:g}" if isinstance(value, float) else str(value)
        case Var(name):
            return name
        case Call("cast", args, dtype):
            return f"{dtype.value}({show(args[0])})"
        case Call(fn, args) if fn in infix:
            return f"({show(args[0])} {infix[fn]} {show(args[1])})"
        case Call(fn, args):
            return f"{fn}({', '.join(show(a) for a in args)})"
        case Load(tensor, index):
            return f"{tensor}[{', '.join(show(i) for i in index)}]"
        case Reg(name, index):
            return f"{name}<{', '.join(show(i) for i in index)}>"
        case Mem(buffer, offset, _, lanes, guard):
            text = f"{buffer}[{show(offset)}]" + (f":{lanes}" if lanes > 1 else "")
            return text + (f" if {show(guard)}" if guard is not None else "")
        case Lane(value, lane):
            return f"{show(value)}.{lane}"
        case Pack(values):
            return f"({', '.join(show(v) for v in values)})"
        case Splat(value, lanes):
            return f"splat{lanes}({show(value)})"
    raise TypeError(f"not an expression: {expr!r}")


def _axes(axes: tuple[Axis, ...]) -> str:
    return ", ".join(f"{axis.name}:{show(axis.extent)}" for axis in axes)


def _tensor(tensor: Tensor) -> str:
    strides = "" if tensor.strides is None else f" strides ({', '.join(show(s) for s in tensor.strides)})"
    return f"{tensor.name}: {tensor.dtype.value}[{', '.join(show(e) for e in tensor.shape)}]{strides}"


def lines(region: Region) -> Iterator[str]:
    """The printed form of a region, line by line."""
    symbols = "".join(f" {s.name}={s.hint}" for s in region.symbols)
    yield f"region {region.name}{symbols}"
    for tensor in region.inputs:
        yield f"  in  {_tensor(tensor)}"
    for comp in region.comps:
        value = ", ".join(show(e) for e in comp.body)
        head = f"  {comp.name}[{_axes(comp.axes)}]"
        if comp.carried:
            head += f" carries [{_axes(comp.carried)}]"
        if comp.is_map:
            yield f"{head} = {value}"
        else:
            yield f"{head} = {comp.monoid}[{_axes(comp.reduce)}] {value}"
    for out in region.outputs:
        yield f"  out {_tensor(out.tensor)} = {out.source}"


def text(region: Region) -> str:
    """The printed form of a region (``--ir nest``)."""
    return "\n".join(lines(region)) + "\n"


def region_key(region: Region) -> str:
    """Digest of what the region computes: operations, extents, types, strides. Names and hints are not in it.

    Two regions that differ only in the names of tensors, axes, symbols and computations share the key.
    """
    names: dict[str, str] = {}

    def rename(name: str) -> str:
        base, dot, tail = name.partition(".")
        return names.setdefault(base, f"%{len(names)}") + dot + tail

    def canon(expr: Expr) -> str:
        match expr:
            case Const(value, dtype):
                return f"{value!r}:{dtype.value}"
            case Var(name):
                return rename(name)
            case Call(fn, args, dtype):
                return f"{fn}:{dtype.value}({','.join(canon(a) for a in args)})"
            case Load(tensor, index, dtype):
                return f"{rename(tensor)}:{dtype.value}[{','.join(canon(i) for i in index)}]"
        raise TypeError(f"{type(expr).__name__} does not occur in a nest")

    def canon_axes(axes: tuple[Axis, ...]) -> str:
        return ",".join(f"{rename(a.name)}:{canon(a.extent)}" for a in axes)

    parts = [rename(s.name) for s in region.symbols]
    for t in region.inputs:
        parts.append(f"in {rename(t.name)} {t.dtype.value} {[canon(e) for e in t.shape]} "
                     f"{[canon(e) for e in t.element_strides()]}")  # fmt: skip
    for c in region.comps:
        axes = f"[{canon_axes(c.axes)}][{canon_axes(c.reduce)}][{canon_axes(c.carried)}]"
        parts.append(f"{rename(c.name)}{axes}{c.monoid}:{c.dtype.value} {[canon(e) for e in c.body]}")
    for o in region.outputs:
        parts.append(f"out {o.tensor.dtype.value} {[canon(e) for e in o.tensor.shape]} "
                     f"{[canon(e) for e in o.tensor.element_strides()]} {rename(o.source)}")  # fmt: skip
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


# --------------------------------------------------------------------------------------------------- verifying


def verify(region: Region) -> None:
    """Checks names, scopes, arities and ranks. Raises ValueError naming the computation and the fault."""
    known = {t.name: len(t.shape) for t in region.inputs}
    symbols = {s.name for s in region.symbols}
    for comp in region.comps:
        where = f"{region.name}.{comp.name}"
        if comp.name in known:
            raise ValueError(f"{where}: defined twice")
        scope = symbols | {a.name for a in (*comp.axes, *comp.reduce, *comp.carried)}
        if comp.is_map and (len(comp.body) != 1 or comp.reduce):
            raise ValueError(f"{where}: a map has one value and no reduce axes")
        if not comp.is_map:
            algebra = comp.algebra()
            if not comp.reduce:
                raise ValueError(f"{where}: a {comp.monoid} needs a reduce axis")
            if sum(1 for n in algebra.carried if n) and not comp.carried:
                raise ValueError(f"{where}: {comp.monoid} carries axes and none are given")
        for expr in comp.body:
            for node in walk(expr):
                if isinstance(node, Var) and node.name not in scope:
                    raise ValueError(f"{where}: unknown variable {node.name}")
                if isinstance(node, Mem | Reg):
                    raise ValueError(f"{where}: {type(node).__name__} belongs to kernel IR")
                if isinstance(node, Load):
                    rank = known.get(node.tensor.split(".")[0] if node.tensor not in known else node.tensor)
                    if node.tensor in known:
                        rank = known[node.tensor]
                    if rank is None:
                        raise ValueError(f"{where}: reads {node.tensor} before it is defined")
                    if len(node.index) != rank and "." not in node.tensor:
                        raise ValueError(f"{where}: {node.tensor} has rank {rank}, read with {len(node.index)} indices")
        known[comp.name] = len(comp.axes)
        if not comp.is_map:
            for k, carried in enumerate(comp.algebra().carried):
                known[f"{comp.name}.{k}"] = len(comp.axes) + carried
    for out in region.outputs:
        if out.source not in known:
            raise ValueError(f"{region.name}: output {out.tensor.name} reads {out.source}, which is not computed")
        if known[out.source] != len(out.tensor.shape):
            raise ValueError(f"{region.name}: output {out.tensor.name} has rank {len(out.tensor.shape)}, "
                             f"{out.source} has {known[out.source]}")  # fmt: skip
