"""The space of a region on a device: every legal leaf of every tier and structural choice, as columns.

A ``Space`` holds one ``Part`` a tier; leaves are numbered through all parts. Knob maps, plans and fork labels are made
on demand, so that a space of a hundred thousand leaves costs about a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from emmy.device.base import Capabilities
from emmy.errors import Refused
from emmy.ir.nest import Region, region_key
from emmy.ir.plan import Plan
from emmy.passes.naming import safe
from emmy.schedule import features
from emmy.schedule.knobs import OFF, AtomTile, KnobMap, RowTile, ScalarTile
from emmy.schedule.tiers.base import LEVELS, Columns, Rule, Tier, take

FAMILY_LEVELS = {
    "FUSE": ("fuse",),
    "TILE": ("cta", "warp", "k"),
    "REDUCE": ("reduce",),
    "STAGE": ("stage",),
    "WSPEC": ("wspec",),
    "RASTER": ("raster",),
}
"""The fork levels that together decide a family; a family that is not listed depends on all of them."""


@dataclass(frozen=True, slots=True)
class Part:
    """The legal leaves of one tier. ``problem`` is the tier's analysis; ``refused`` counts leaves by rule."""

    tier: Tier
    problem: object
    columns: Columns
    refused: dict[str, int]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def family(self, family: str) -> tuple[NDArray[np.int64], list[KnobMap]]:
        """(value number of every leaf, the family's part of the map a value), one map a distinct value."""
        labels = self.tier.labels(self.problem, self.columns)
        code = np.zeros(len(self), dtype=np.int64)
        for level in FAMILY_LEVELS.get(family, tuple(labels)):
            if level in labels:
                _, inverse = np.unique(labels[level], return_inverse=True)
                _, code = np.unique(code * (int(inverse.max(initial=0)) + 1) + inverse, return_inverse=True)
        _, first = np.unique(code, return_index=True)
        values = []
        for row in first:
            whole = self.tier.knobs(self.problem, self.columns, int(row))
            values.append(KnobMap(tuple(item for item in whole.items_ if item[0].family == family)))
        return code, values


@dataclass
class Space:
    """All leaves of a region on one device.

    region: as fused. parts: per tier. declined: why the other tiers do not apply (tier name → refusal).
    """

    region: Region
    caps: Capabilities
    fast_math: bool
    parts: tuple[Part, ...]
    declined: dict[str, Refused] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        return region_key(self.region)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """First leaf number of each part, and the total at the end."""
        return np.concatenate([[0], np.cumsum([len(p) for p in self.parts])]).astype(np.int64)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def locate(self, leaf: int) -> tuple[Part, int]:
        """(part, row in it) of a leaf number. Raises IndexError."""
        if not 0 <= leaf < len(self):
            raise IndexError(f"leaf {leaf} of {len(self)}")
        number = int(np.searchsorted(self.starts, leaf, side="right")) - 1
        return self.parts[number], leaf - int(self.starts[number])

    def knobs(self, leaf: int) -> KnobMap:
        """The complete knob map of a leaf."""
        part, row = self.locate(leaf)
        return part.tier.knobs(part.problem, part.columns, row)

    def lower(self, leaf: int) -> Plan:
        """The plan of a leaf."""
        part, row = self.locate(leaf)
        plan = part.tier.lower(part.problem, self.caps, take(part.columns, slice(row, row + 1)))
        return safe(self.region).restore(plan, self.region)

    @cached_property
    def features(self) -> NDArray[np.float32]:
        """(leaves, features) in the order of emmy.schedule.features.NAMES."""
        parts = [
            features.matrix(
                len(p),
                p.tier.features(p.problem, self.caps, p.columns)
                | {f"tier_{p.tier.name}": 1.0}
                | {"symbolic": float(bool(self.region.symbols))},
            )
            for p in self.parts
        ]
        return np.concatenate(parts) if parts else np.zeros((0, len(features.NAMES)), np.float32)

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """(leaves, levels) fork labels in the order of LEVELS: leaves with equal prefixes share a branch."""
        out = np.zeros((len(self), len(LEVELS)), dtype=np.int64)
        for number, part in enumerate(self.parts):
            rows = slice(int(self.starts[number]), int(self.starts[number + 1]))
            out[rows, LEVELS.index("tier")] = number
            for level, column in part.tier.labels(part.problem, part.columns).items():
                out[rows, LEVELS.index(level)] = column
        return out

    def find(self, knobs: KnobMap) -> int | None:
        """The leaf with exactly these knobs, or None."""
        for number, part in enumerate(self.parts):
            try:
                wanted = part.tier.read(part.problem, knobs)
            except Refused:
                continue
            same = np.ones(len(part), dtype=bool)
            for name, column in part.columns.items():
                same &= column == wanted[name][0]
            hits = np.flatnonzero(same)
            if len(hits):
                return int(self.starts[number] + hits[0])
        return None

    def matching(self, pin: KnobMap) -> NDArray[np.int64]:
        """Leaves whose knob maps meet a partial pin (a family it does not name is free)."""
        hits: list[NDArray[np.int64]] = []
        for number, part in enumerate(self.parts):
            met = np.ones(len(part), dtype=bool)
            for family in {name.partition("@")[0] for name in pin}:
                own = KnobMap.parse({n: v for n, v in pin.items() if n.partition("@")[0] == family}, keep_unknown=True)
                codes, values = part.family(family)
                met &= np.array([not value.unmet(own) for value in values], dtype=bool)[codes]
            hits.append(np.flatnonzero(met) + self.starts[number])
        return np.concatenate(hits) if hits else np.zeros(0, np.int64)

    def values(self, family: str) -> list[str]:
        """The offered values of a family or ``FAMILY@step``, each once."""
        name = family.partition("@")[0]
        found = {str(value[family]): None for part in self.parts for value in part.family(name)[1] if family in value}
        return list(found)


def tiers() -> tuple[Tier, ...]:
    """Every tier, in the order its leaves are numbered."""
    from emmy.schedule.tiers.attention import AttentionTier
    from emmy.schedule.tiers.cell import CellTier
    from emmy.schedule.tiers.row import RowTier
    from emmy.schedule.tiers.scalar import ScalarTier
    from emmy.schedule.tiers.warp import WarpTier

    return (ScalarTier(), WarpTier(), RowTier(), AttentionTier(), CellTier())


def enumerate_space(region: Region, caps: Capabilities, fast_math: bool = False) -> Space:
    """The legal leaves of ``region`` as one kernel plan on ``caps``. Cuts are composed by emmy.search.structure."""
    parts: list[Part] = []
    declined: dict[str, Refused] = {}
    for tier in tiers():
        try:
            problem = tier.match(safe(region).region, caps)
        except Refused as refusal:
            declined[tier.name] = refusal
            continue
        columns = tier.grid(problem, caps, fast_math)
        allowed, first = tier.legal(problem, caps, columns)
        refused = {tier.rules[number].name: int(np.count_nonzero(first == number)) for number in range(len(tier.rules))}
        parts.append(Part(tier, problem, take(columns, allowed), refused))
    return Space(region, caps, fast_math, tuple(parts), declined)


MEANT: dict[type, tuple[str, ...]] = {
    ScalarTile: ("scalar", "attention", "cell"), AtomTile: ("warp", "attention"), RowTile: ("row",),
}  # fmt: skip
"""The tiers that a kind of tile is meant for."""


def refusal(region: Region, caps: Capabilities, knobs: KnobMap) -> Refused | None:
    """Why a complete knob map cannot be realised on ``caps``, or None where it can (pins may exceed the grid).

    Several tiers may turn it down: a tier that applies to the region is heard before one that does not, and among
    those the one that the map's tile is meant for.
    """
    tile = next((value for key, value in knobs.items_ if key.family == "TILE"), OFF)
    meant = MEANT.get(type(tile), ())
    reasons: list[tuple[bool, bool, Refused]] = []
    for tier in tiers():
        applies = False
        try:
            problem = tier.match(region, caps)
            applies = True
            columns = tier.read(problem, knobs)
        except Refused as reason:
            reasons.append((not applies, tier.name not in meant, reason))
            continue
        return tier.refuse(problem, caps, columns)
    if not reasons:
        return Refused("no_tier", found=str(knobs))
    return min(reasons, key=lambda reason: reason[:2])[2]


def lower(region: Region, caps: Capabilities, knobs: KnobMap) -> Plan:
    """The plan of a complete knob map. Raises Refused with the rule where no tier realises it exactly."""
    renamed = safe(region)
    for tier in tiers():
        try:
            problem = tier.match(renamed.region, caps)
            columns = tier.read(problem, knobs)
        except Refused:
            continue
        reason = tier.refuse(problem, caps, columns)
        if reason is not None:
            raise reason
        return renamed.restore(tier.lower(problem, caps, columns), region)
    reason = refusal(region, caps, knobs)
    raise reason if reason is not None else Refused("no_tier", found=str(knobs))


def rules() -> Iterator[tuple[str, Rule]]:
    """(tier name, rule) of every rule there is."""
    for tier in tiers():
        for one in tier.rules:
            yield tier.name, one
