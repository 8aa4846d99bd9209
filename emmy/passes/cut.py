"""Declining a fusion: the FUSE family. A cut region becomes a program whose regions are tuned on their own.

A fused region is a chain of named steps. ``cut@STEP`` cuts in front of STEP; ``cut`` in front of every reduction. The
pieces are partitioned again, each for itself, so that nothing fuses across the cut.

    steps of a matmul        prologue?, matmul, epilogue?
    steps of an attention    prologue?, qk, softmax, pv
    steps of row kernels     prologue?, a step a reduction (softmax, norm, sum, max, …), epilogue?

A prologue is a step where it computes something: a bare load or cast is none. For a row reduction only a costly one
counts. Steps of one kind are numbered from the second on (``sum``, ``sum2``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from emmy.errors import Refused
from emmy.ir.expr import Call, Const, Expr, Load, call, free_vars, is_const, transform
from emmy.ir.nest import Axis, Comp, Output, Program, Region, text
from emmy.passes.fuse import PROLOGUE_COST, fuse
from emmy.passes.partition import regions_of
from emmy.passes.rewrite import base, loads_of
from emmy.passes.roles import cost, factors, is_attention, is_contraction
from emmy.passes.split import program, split

_NAMES = {"online_softmax": "softmax", "welford": "norm"}


@dataclass(frozen=True, slots=True)
class Step:
    """A named step of a region and its computations, unfused from the steps around it."""

    name: str
    comps: tuple[Comp, ...]
    reduces: bool


def steps(region: Region) -> tuple[Step, ...]:
    """The steps of a region, fused first, in order. Their computations together are the region again."""
    return _Unfused(fuse(region)).steps()


def cut_options(region: Region) -> list[tuple[str, str]]:
    """(label, why) for each way to cut ``region`` that FUSE offers beside ``''``; no two yield the same kernels."""
    found: list[tuple[str, str]] = []
    seen: list[list[str]] = []
    chain = steps(region)
    for label in ("cut", *(f"cut@{step.name}" for step in chain[1:])):
        try:
            parts = [text(replace(part, name="")) for part in cut(region, label).regions]
        except Refused:
            continue
        if len(parts) > 1 and parts not in seen:
            seen.append(parts)
            found.append((label, _reason(label, chain)))
    return found


def cut(region: Region, label: str) -> Program:
    """``region`` cut as ``label`` says (``cut`` or ``cut@STEP``): regions in order, fused, canonical and named.

    Raises Refused (``cut_in_front_of_step``) where the label names no step behind the first, or nothing is to cut.
    """
    region = fuse(region)
    unfused = _Unfused(region)
    chain = unfused.steps()
    _, at, name = label.partition("@")
    names = [step.name for step in chain]
    places = [n for n, step in enumerate(chain) if n and (step.name == name if at else step.reduces)]
    if label not in ("cut", f"cut@{name}") or not places:
        offered = [f"cut@{n}" for n in names[1:]]
        raise Refused("cut_in_front_of_step", found=label, expected=f"a step of {', '.join(names)}", nearest=offered)
    bounds = [0, *places, len(chain)]
    pieces = [[comp for step in chain[start:stop] for comp in step.comps] for start, stop in pairwise(bounds)]
    whole = replace(region, comps=tuple(comp for piece in pieces for comp in piece), outputs=unfused.outputs())
    regions = tuple(small for piece in split(whole, pieces) for small in regions_of(piece))
    return program(f"{region.name}:{label}", region, regions)


def _reason(label: str, chain: tuple[Step, ...]) -> str:
    if label == "cut":
        return "a kernel for each of " + ", ".join(step.name for step in chain if step.reduces)
    name = label.removeprefix("cut@")
    place = next(n for n, step in enumerate(chain) if step.name == name)
    before = ", ".join(step.name for step in chain[:place])
    return f"{before} stored before {name}"


# ------------------------------------------------------------------------------------------------------ unfusing


class _Unfused:
    """A fused region as the chain of its steps."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.found: list[Step] = []
        self.kept: dict[Expr, Load] = {}  # maps of inputs that are stored anyway, by their expression
        self.computed = {comp.name for comp in region.comps}
        self.attentions = {comp.name: comp for comp in region.comps if is_attention(comp)}
        self.scores = {base(load.tensor) for comp in self.attentions.values() for load in comp.loads()}
        self.plain: dict[str, str] = {}  # the sum of weighted values that stands for an attention's map

    def steps(self) -> tuple[Step, ...]:
        if not self.found:
            for comp in self.region.comps:
                self.visit(self.reading_kept(comp))
        return tuple(self.found)

    def reading_kept(self, comp: Comp) -> Comp:
        """``comp`` reading what an earlier step stores instead of computing it again."""
        read = replace(comp, body=tuple(transform(expr, self.kept.get) for expr in comp.body)) if self.kept else comp
        if comp.is_map and cost(comp.body[0]) > 0 and not {base(x.tensor) for x in comp.loads()} & self.computed:
            compute = comp.dtype.compute
            self.kept[comp.body[0]] = Load(comp.name, tuple(axis.var for axis in comp.axes), compute)
        return read

    def outputs(self) -> tuple[Output, ...]:
        return tuple(replace(out, source=self.plain.get(out.source, out.source)) for out in self.region.outputs)

    def visit(self, comp: Comp) -> None:
        if is_attention(comp):
            self.attention(comp)
        elif is_contraction(comp):
            comp, maps = _without_prologue(comp)
            self.add("prologue", maps)
            self.add("qk" if comp.name in self.scores and self.attentions else "matmul", [comp], reduces=True)
        elif not comp.is_map:
            comp, maps = _without_costly_value(comp)
            self.add("prologue", maps)
            self.add(_NAMES.get(comp.monoid or "", comp.monoid or ""), [comp], reduces=True)
        else:
            self.map(comp)

    def map(self, comp: Comp) -> None:
        reads = {base(load.tensor) for load in comp.loads()}
        attention = next((a for a in self.attentions if a in reads), None)
        if attention is not None:
            self.close(comp, attention)
        elif reads & self.computed:
            self.add("epilogue", [comp])
        else:
            self.add("", [comp])

    def add(self, name: str, comps: list[Comp], reduces: bool = False) -> None:
        """A new step, or more computations of the last one: epilogues and maps of inputs join what stands before."""
        if not comps:
            return
        last = self.found[-1] if self.found else None
        if last is not None and not reduces and (not name or last.name.rstrip("0123456789") == name):
            self.found[-1] = replace(last, comps=(*last.comps, *comps))
            return
        name = name or "prologue"
        count = sum(1 for step in self.found if step.name.rstrip("0123456789") == name)
        self.found.append(Step(name if not count else f"{name}{count + 1}", tuple(comps), reduces))

    # ---------------------------------------------------------------------------------------------- attention

    def attention(self, comp: Comp) -> None:
        """Scores stored, their softmax stored, then the weighted values."""
        (key,) = comp.reduce
        axes = (*comp.axes, key)
        index = tuple(axis.var for axis in axes)
        rows = tuple(axis.var for axis in comp.axes)
        compute = comp.dtype.compute
        names = {part: f"{comp.name}_{part}" for part in ("s", "ml", "p", "pv")}
        scores = Comp(names["s"], axes, comp.body[:1], comp.dtype, origin=("scores",))
        stored: Expr = Load(names["s"], index, compute)
        row = Comp(names["ml"], comp.axes, (stored,), comp.dtype, (key,), "online_softmax", origin=("softmax",))
        top, total = Load(names["ml"], rows, compute), Load(f"{names['ml']}.1", rows, compute)
        weight = call("div", call("exp", call("sub", stored, top)), total)
        guard = self.guard(comp)
        if guard is not None:
            held = transform(guard, lambda node: top if isinstance(node, Load) and node.tensor == comp.name else None)
            weight = call("select", held, Const(0.0, compute), weight)
        weights = Comp(names["p"], axes, (weight,), comp.dtype, origin=("softmax",))
        value = call("mul", Load(names["p"], index, compute), comp.body[1])
        summed = Comp(names["pv"], (*comp.axes, *comp.carried), (value,), comp.dtype, (key,), "sum", origin=("matmul",))
        last = self.found[-1]
        self.found[-1] = replace(last, comps=(*last.comps, scores))
        self.add("softmax", [row, weights], reduces=True)
        self.add("pv", [summed], reduces=True)

    def guard(self, comp: Comp) -> Expr | None:
        """The condition under which a row of the attention gives zero, over its own maximum; None without one."""
        for reader in self.region.comps:
            if reader.is_map and any(base(load.tensor) == comp.name for load in reader.loads()):
                match reader.body[0]:
                    case Call("select", (condition, zero, _)) if is_const(zero, 0):
                        return _over(condition, reader, comp)
        return None

    def close(self, comp: Comp, attention: str) -> None:
        """The map that divides by l reads the weighted values instead."""
        source = self.attentions[attention]
        summed = f"{attention}_pv"

        def rule(node: Expr) -> Expr | None:
            match node:
                case Call("div", (Load(output, index, dtype), Load(total, _))) if output == f"{attention}.2":
                    if total == f"{attention}.1":
                        return Load(summed, index, dtype)
            return None

        body = transform(comp.body[0], rule)
        match body:
            case Call("select", (condition, zero, value)) if is_const(zero, 0) and _reads(condition, attention):
                body = value
        if any(base(load.tensor) == attention for load in _loads(body)):
            raise Refused("attention_divides_by_its_total", found=comp.name, expected="an output divided by its total")
        axes = [axis.name for axis in (*source.axes, *source.carried)]
        match body:
            case Load(tensor, index) if tensor == summed:
                names = [getattr(i, "name", "") for i in index]
                if names == [axis.name for axis in comp.axes] and len(names) == len(axes):
                    self.plain[comp.name] = summed
                    return
        last = self.found[-1]
        self.found[-1] = replace(last, comps=(*last.comps, replace(comp, body=(body,))))


def _over(condition: Expr, reader: Comp, comp: Comp) -> Expr:
    """``condition`` of a map over an attention's rows, over the axes of the attention."""
    top = next(load for load in _loads(condition) if base(load.tensor) == comp.name)
    own = Load(comp.name, tuple(axis.var for axis in comp.axes), top.dtype)
    return transform(condition, lambda node: own if node == top else None)


def _reads(expr: Expr, name: str) -> bool:
    return any(base(load.tensor) == name for load in _loads(expr))


def _loads(expr: Expr) -> tuple[Load, ...]:
    return loads_of((expr,))


def _without_prologue(comp: Comp) -> tuple[Comp, list[Comp]]:
    """A contraction of stored operands, and the maps that compute them; factors that cost nothing stay."""
    maps: list[Comp] = []
    value: Expr | None = None
    for number, factor in enumerate(factors(comp.body[0])):
        if cost(factor) > 0 and _loads(factor):
            stored = _stored(comp, factor, f"{comp.name}_x{number}")
            maps.append(stored)
            factor = Load(stored.name, tuple(axis.var for axis in stored.axes), stored.dtype.compute)
        value = factor if value is None else call("mul", value, factor)
    assert value is not None
    return (replace(comp, body=(value,)), maps) if maps else (comp, [])


def _without_costly_value(comp: Comp) -> tuple[Comp, list[Comp]]:
    """A row reduction of a stored value, where computing it costs enough to be worth storing."""
    own = {base(load.tensor) for load in comp.loads()}
    if len(comp.body) != 1 or cost(comp.body[0]) <= PROLOGUE_COST or not own:
        return comp, []
    stored = _stored(comp, comp.body[0], f"{comp.name}_x")
    load = Load(stored.name, tuple(axis.var for axis in stored.axes), stored.dtype.compute)
    return replace(comp, body=(load,)), [stored]


def _stored(comp: Comp, value: Expr, name: str) -> Comp:
    used = free_vars(value)
    axes: tuple[Axis, ...] = tuple(axis for axis in (*comp.axes, *comp.reduce) if axis.name in used)
    return Comp(name, axes, (value,), comp.dtype, origin=comp.origin)
