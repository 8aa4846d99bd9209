"""Cutting a whole program into the regions that are tuned one by one.

Greedy, in the order of execution, on the fused form. Contractions and attentions each anchor a region; reductions over
the same rows share one. A map joins the producer whose cells, or whose rows, it walks; what it could share with several
it shares with the last. Maps of inputs that cost little were fused into their readers before; the others are regions of
their own, together where they walk the same axes over the same data. The regions never wait for each other in a circle.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from emmy.ir.expr import Load, Var
from emmy.ir.nest import Comp, Program, Region
from emmy.passes.fuse import MOST_DEPTH, MOST_SIZE, fuse, levels_of, size_of
from emmy.passes.rewrite import base, loads_of
from emmy.passes.roles import is_attention, is_heavy
from emmy.passes.split import named, program, split


def partition(region: Region, name: str | None = None) -> Program:
    """``region`` (a whole traced function, fused or not) as a program of fused, canonical, named regions.

    name: the program's name; that of the region by default. Program inputs keep their shapes; regions view them.
    """
    return program(name or region.name, region, regions_of(region))


def regions_of(region: Region) -> tuple[Region, ...]:
    """The regions of ``partition``, in execution order."""
    fused = fuse(region)
    groups = group(fused)
    return tuple(named(fuse(part)) for part in split(fused, groups))


def group(region: Region) -> list[list[Comp]]:
    """The computations of a fused region in groups, each a region to be; both in execution order."""
    groups = _Groups(region)
    for comp in region.comps:
        groups.place(comp)
    groups.join_siblings()
    return groups.ordered()


@dataclass(slots=True)
class _Groups:
    """A growing partition of a region's computations; ``of`` names each group by its first member."""

    region: Region
    of: dict[str, str] = field(default_factory=dict)
    by_name: dict[str, Comp] = field(default_factory=dict)

    def place(self, comp: Comp) -> None:
        self.by_name[comp.name] = comp
        self.of[comp.name] = comp.name
        if is_heavy(comp) and not is_attention(comp):
            return
        producers = self._producers(comp)
        for producer in reversed(producers):
            if is_heavy(producer) and self._belongs(comp, producer) and self.join(comp.name, producer.name):
                return
        for producer in reversed(producers):
            if not is_heavy(producer) and self._belongs(comp, producer):
                self.join(comp.name, producer.name)

    def join_siblings(self) -> None:
        """Reductions over the same rows of the same data; maps of the data they reduce; maps over the same axes."""
        comps = list(self.by_name.values())
        for n, first in enumerate(comps):
            for second in comps[n + 1 :]:
                if self._siblings(first, second):
                    self.join(first.name, second.name)

    def _siblings(self, first: Comp, second: Comp) -> bool:
        heads = [self._anchors(comp) for comp in (first, second)]
        if any(is_heavy(anchor) for anchors in heads for anchor in anchors):
            return False
        if not set(_inputs(first)) & set(_inputs(second)):
            return False
        if first.is_map and second.is_map:
            return not any(heads) and _names(first) == _names(second)
        if first.is_map or second.is_map:
            one, row = (first, second) if first.is_map else (second, first)
            if self._anchors(one):
                return False
            return set(_names(one)) == _walked(row) and set(_inputs(one)) <= set(_inputs(row))
        return set(_names(first)) == set(_names(second)) and _walked(first) == _walked(second)

    def _anchors(self, comp: Comp) -> list[Comp]:
        head = self.of[comp.name]
        return [c for name, c in self.by_name.items() if self.of[name] == head and not c.is_map]

    def _producers(self, comp: Comp) -> list[Comp]:
        names = dict.fromkeys(base(load.tensor) for load in comp.loads())
        return [self.by_name[name] for name in names if name in self.by_name]

    def _belongs(self, comp: Comp, producer: Comp) -> bool:
        if is_attention(comp):
            # the scores of this attention, not values that happen to come from a contraction
            return any(base(load.tensor) == producer.name for load in _loads(comp, 0))
        reads = [load for load in comp.loads() if base(load.tensor) == producer.name]
        if is_heavy(producer):
            return comp.is_map and all(map(_bare, reads)) and any(_walks(load, comp) for load in reads)
        if producer.is_map:
            return False
        rows = set(_names(producer))
        if not all(_bare(load) for load in reads) or not rows <= set(_names(comp)):
            return False
        if not comp.is_map:
            return set(_names(comp)) == rows
        return set(_names(comp)) - rows in (set(), _walked(producer) - rows)

    # ------------------------------------------------------------------------------------------------- joining

    def join(self, first: str, second: str) -> bool:
        """Makes the groups of two computations one.

        False where regions would then wait for each other, or one would be too deep for the passes behind this one.
        """
        a, b = self.of[first], self.of[second]
        trial = {name: (b if head == a else head) for name, head in self.of.items()}
        if a != b and (self._too_large(trial, b) or self._order(trial) is None):
            return False
        self.of = trial
        return True

    def _too_large(self, of: dict[str, str], head: str) -> bool:
        """Whether a group's largest expression, its maps put into their readers, is too much for the later passes."""
        levels: dict[str, int] = {}
        sizes: dict[str, int] = {}
        for name, comp in self.by_name.items():
            if of[name] != head:
                continue
            inner = [producer.name for producer in self._producers(comp) if producer.is_map and producer.name in levels]
            levels[name] = levels_of(comp) + max((levels[producer] for producer in inner), default=0)
            sizes[name] = size_of(comp, {producer: sizes[producer] for producer in inner})
        return max(levels.values()) > MOST_DEPTH or max(sizes.values()) > MOST_SIZE

    def ordered(self) -> list[list[Comp]]:
        order = self._order(self.of)
        assert order is not None
        return [[c for name, c in self.by_name.items() if self.of[name] == head] for head in order]

    def _order(self, of: dict[str, str]) -> list[str] | None:
        """The groups in execution order, earliest member first; None where there is a circle."""
        waits: dict[str, set[str]] = {head: set() for head in of.values()}
        for name, head in of.items():
            for producer in self._producers(self.by_name[name]):
                if of[producer.name] != head:
                    waits[head].add(of[producer.name])
        place = {head: min(n for n, name in enumerate(self.by_name) if of[name] == head) for head in waits}
        order: list[str] = []
        while len(order) < len(waits):
            ready = [head for head in waits if head not in order and waits[head] <= set(order)]
            if not ready:
                return None
            order.append(min(ready, key=place.__getitem__))
        return order


def _loads(comp: Comp, number: int) -> list[Load]:
    return list(loads_of((comp.body[number],)))


def _names(comp: Comp) -> tuple[str, ...]:
    return tuple(axis.name for axis in comp.axes)


def _walked(comp: Comp) -> set[str]:
    return {axis.name for axis in (*comp.axes, *comp.reduce)}


def _inputs(comp: Comp) -> list[str]:
    return [load.tensor for load in comp.loads()]


def _bare(load: Load) -> bool:
    names = [index.name for index in load.index if isinstance(index, Var)]
    return len(names) == len(load.index) == len(set(names))


def _walks(load: Load, comp: Comp) -> bool:
    """Whether ``comp`` walks the cells of ``load`` one to one."""
    return _bare(load) and {i.name for i in load.index if isinstance(i, Var)} == set(_names(comp))
