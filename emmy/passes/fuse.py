"""Fusing a region's computations: maps disappear into those that read them, attention becomes one computation.

The fused form holds reductions whose bodies read inputs and results of other reductions, and the maps that are outputs
or that are better kept than repeated. What fuses into what:

- a map into the maps that read it, and into a row reduction, while repeating it costs little;
- a map of a row's statistics (mean, maximum) into reductions and maps over the same rows: softmax and the norms stay
  together;
- into a contraction only a map of inputs that costs next to nothing for each product (a cast, a scale, an addition):
  a norm or an activation there would be repeated once per column of the result;
- a map that alone reads a contraction's result, cell for cell, only into one map over the same axes: it stays that
  kernel's epilogue, and the result itself is never stored;
- nothing where the expression would nest deeper than the later passes, which recurse, and the OpenCL and CUDA compilers
  (256 brackets) take, or grow beyond what they can write out: a chain of a thousand additions becomes several kernels.

A map is fused into all of its readers or into none. What is not fused here is never fused later; what is fused can be
declined (emmy.passes.cut).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from emmy.ir.expr import Load, Var, depth, free_vars, tree_size, walk
from emmy.ir.nest import Comp, Region
from emmy.passes.attention import fuse_attention, fuse_softmax
from emmy.passes.canonical import canonical
from emmy.passes.rewrite import base, inline, live, scope, uses
from emmy.passes.roles import cost, is_attention, is_contraction, is_heavy

PROLOGUE_COST = 4.0
"""Multiply-adds a map may cost where a contraction evaluates it for each product."""

BROADCAST_COST = 16.0
"""Multiply-adds a map may cost where its reader repeats it along an axis that the map does not have."""

REPEAT_COST = 64.0
"""Multiply-adds that evaluating a map again, in all its readers, may add to an element; below a memory round trip."""

MOST_DEPTH = 64
"""Levels that a fused expression may nest. A snippet of 100 additions in one expression still compiled, 200 did not."""


MOST_SIZE = 4096
"""Nodes of a fused expression written out: a value that is read twice is written twice, and twenty such steps in a row
would be a million."""


def fuse(region: Region) -> Region:
    """The fused canonical form of ``region``; fusing again changes nothing."""
    region = canonical(region)
    region = fuse_softmax(region)
    region = fuse_attention(region)
    region = inline_maps(region)
    return canonical(region)


def inline_maps(region: Region) -> Region:
    """Fuses every map that may be, first those that stand first."""
    done: set[str] = set()
    while True:
        facts = Facts.of(region)
        chosen = next((c for c in region.comps if c.is_map and c.name not in done and facts.fuses(c)), None)
        if chosen is None:
            return live(region)
        done.add(chosen.name)
        readers = set(uses(region)[chosen.name])
        comps = tuple(inline(comp, chosen) if comp.name in readers else comp for comp in region.comps)
        region = live(replace(region, comps=comps))


@dataclass(frozen=True, slots=True)
class Facts:
    """Who reads whom."""

    region: Region
    by_name: dict[str, Comp]
    readers: dict[str, list[str]]

    @classmethod
    def of(cls, region: Region) -> Facts:
        return cls(region, {comp.name: comp for comp in region.comps}, uses(region))

    def producers(self, comp: Comp) -> list[Comp]:
        names = dict.fromkeys(base(load.tensor) for load in comp.loads())
        return [self.by_name[name] for name in names if name in self.by_name]

    def fuses(self, comp: Comp) -> bool:
        """Whether map ``comp`` is fused into all that read it."""
        readers = [self.by_name[name] for name in self.readers[comp.name] if name in self.by_name]
        is_output = len(readers) < len(self.readers[comp.name])
        if not readers:
            return False
        if max(map(levels_of, readers)) + levels_of(comp) > MOST_DEPTH:
            return False
        own = {comp.name: size_of(comp)}
        if max(size_of(reader, own) for reader in readers) > MOST_SIZE:
            return False
        price = cost(comp.body[0])
        times = sum(len(set(_loads_of(reader, comp.name))) for reader in readers)
        sources = self.producers(comp)
        if any(self._closes(comp, source) for source in sources):
            same = _cell_for_cell(comp, readers[0])
            return not is_output and len(readers) == 1 and times == 1 and readers[0].is_map and same
        sources = [source for source in sources if not is_heavy(source)]  # read from memory, as an input is
        if times + is_output > 1 and not self._may_repeat(comp, readers, price * (times + is_output - 1)):
            return False
        return all(self._into(comp, reader, sources, price) for reader in readers)

    def _closes(self, comp: Comp, source: Comp) -> bool:
        """Whether map ``comp`` can take the place of the contraction ``source`` in memory: nothing else reads it."""
        if not is_heavy(source) or self.readers[source.name] != [comp.name]:
            return False
        return is_attention(source) or _cell_for_cell(source, comp)

    def _may_repeat(self, comp: Comp, readers: list[Comp], price: float) -> bool:
        if price <= PROLOGUE_COST:
            return True
        # more than a reduction and the map that closes its row: the readers end up in kernels far apart
        return len(readers) <= 2 and price <= REPEAT_COST

    def _into(self, comp: Comp, reader: Comp, sources: list[Comp], price: float) -> bool:
        if is_contraction(reader):
            return not sources and price <= PROLOGUE_COST and not _is_gather(comp)
        if reader.monoid == "online_attention":
            return not sources and price <= BROADCAST_COST
        rows = [source for source in sources if not source.is_map]
        if rows and not _row_map(comp, rows):
            # an element of a row, from its statistics: only where that row is walked again
            if not all(self._same_rows(source, comp, reader) for source in rows):
                return False
            if not reader.is_map and len(_loads_of(reader, comp.name)) > 2:
                return False
        elif rows and not reader.is_map:
            return all(self._same_rows(source, comp, reader) for source in rows)
        if _repeats(comp, reader) and not (rows and _row_map(comp, rows)):
            return price <= BROADCAST_COST
        return price <= REPEAT_COST or len(self.readers[comp.name]) == 1

    def _same_rows(self, source: Comp, comp: Comp, reader: Comp) -> bool:
        """Whether ``reader`` has the rows of reduction ``source``, which ``comp`` reads."""
        own = {axis.name for axis in (*reader.axes,)}
        extents = scope(reader)
        for load in _loads_of(reader, comp.name):
            at = {axis.name: index for axis, index in zip(comp.axes, load.index, strict=True)}
            for inner in comp.loads():
                if base(inner.tensor) != source.name:
                    continue
                rows = [at.get(i.name) if isinstance(i, Var) else None for i in inner.index[: len(source.axes)]]
                names = [row.name for row in rows if isinstance(row, Var)]
                if len(names) != len(source.axes) or len(set(names)) != len(names) or not set(names) <= own:
                    return False
                if any(extents[n] != axis.extent for n, axis in zip(names, source.axes, strict=True)):
                    return False
                if not reader.is_map and set(names) != own:
                    return False
        return True


def levels_of(comp: Comp) -> int:
    """Levels of the deepest expression of a computation."""
    return max(map(depth, comp.body))


def size_of(comp: Comp, inner: Mapping[str, int] = MappingProxyType({})) -> int:
    """Nodes of its largest expression written out; ``inner``: of computations that stand in it for their loads."""
    return max(tree_size(expr, lambda load: inner.get(base(load.tensor), 1)) for expr in comp.body)


def _loads_of(reader: Comp, name: str) -> list[Load]:
    return [load for load in reader.loads() if base(load.tensor) == name]


def _is_gather(comp: Comp) -> bool:
    return any(isinstance(node, Load) for load in comp.loads() for index in load.index for node in walk(index))


def _row_map(comp: Comp, rows: list[Comp]) -> bool:
    """Whether ``comp`` has one value a row of the reductions it reads, not one an element."""
    return any(len(comp.axes) == len(row.axes) for row in rows)


def _repeats(comp: Comp, reader: Comp) -> bool:
    """Whether ``reader`` evaluates an element of ``comp`` more than once."""
    every = {axis.name for axis in (*reader.axes, *reader.reduce)}
    return any(every - frozenset().union(*map(free_vars, load.index)) for load in _loads_of(reader, comp.name))


def _cell_for_cell(comp: Comp, reader: Comp) -> bool:
    """Whether ``reader`` walks the elements of ``comp`` one to one, in any order of axes."""
    for load in _loads_of(reader, comp.name):
        names = Counter(index.name for index in load.index if isinstance(index, Var))
        fixed = sum(1 for index in load.index if not isinstance(index, Var))
        if fixed or max(names.values(), default=1) > 1 or set(names) != {axis.name for axis in reader.axes}:
            return False
    return True
