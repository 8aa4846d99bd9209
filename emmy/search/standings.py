"""What the leaves of a region take, by the build they were measured in. Pure, no device here.

A region is screened in one of two ways. Where the cheap build stands for nearly every leaf, those leaves are screened
in O1, the few others in O3, and the best of the O1 rows are measured again in O3 when patience ends. Where it does not
(tensor tiers, row kernels, most regions of half precision) every leaf is screened in O3: the policy compares all leaves
it draws from, and a latency in O1 is never compared with one in O3.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from emmy.bench.jobs import Reply
from emmy.bench.records import Status
from emmy.bench.regimes import LIMIT, next_contender, screening_regime
from emmy.schedule.space import Space

MINORITY = 0.05
"""Share of a region's leaves without O1 below which the others are still screened in O1.

On sm_90a the cell tier has 25 to 37 leaves beside 4510 to 7790 scalar ones of a float32 product; beside tensor tiles
(1660 leaves and more) scalar ones are the smaller part.
"""


def regimes_of(space: Space, offered: tuple[str, ...]) -> tuple[str, ...]:
    """The regime in which the leaves of each part of a space are screened; ``offered``: the device's regimes."""
    found = [screening_regime(part.tier.o1_valid, offered) for part in space.parts]
    deployable = sum(len(part) for part, regime in zip(space.parts, found, strict=True) if regime == "O3")
    if deployable >= MINORITY * len(space):
        return ("O3",) * len(found)
    return tuple(found)


@dataclass
class Standings:
    """Latencies of a region's leaves, µs. regimes: of the space's parts, see ``regimes_of``.

    cheap: O1 rows that ended well and were not abandoned. deployed: O3 rows, None for one that failed. ended: status of
    every leaf, the deployable build's where there is one.

    The policy is told the latencies of ``regime`` alone. In a region screened in O1 its model therefore fits O1 rows,
    whose constant distance from the prior's O3 scores is the level that the model fits anyway; the few leaves of other
    tiers count as tried and tell it nothing, their O3 rows wait in ``deployed`` for the contenders.
    """

    space: Space
    regimes: tuple[str, ...]
    cheap: dict[int, float] = field(default_factory=dict)
    deployed: dict[int, float | None] = field(default_factory=dict)
    ended: dict[int, Status] = field(default_factory=dict)

    @property
    def regime(self) -> str:
        """In which the region is screened, and its policy thinks."""
        return "O1" if "O1" in self.regimes else "O3"

    def of(self, leaf: int) -> str:
        """The regime in which a leaf is screened."""
        part, _ = self.space.locate(leaf)
        return next(regime for one, regime in zip(self.space.parts, self.regimes, strict=True) if one is part)

    def add(self, leaf: int, regime: str, reply: Reply) -> float | None:
        """Takes in how a leaf ended; its latency where the policy may be told."""
        self.ended[leaf] = reply.status
        us = reply.median_us if reply.ok else None
        if regime == "O3":
            self.deployed[leaf] = us
        elif us is not None and not reply.abandoned:
            self.cheap[leaf] = us
        return us if regime == self.regime else None

    def best_us(self, regime: str = "O3") -> float | None:
        """The fastest row of a regime."""
        return min(self._rows(regime).values(), default=None)

    def leaders(self, tolerance: float, count: int, regime: str = "O3") -> list[int]:
        """At most ``count`` leaves of a regime within ``tolerance`` (a share) of its fastest, fastest first."""
        rows = self._rows(regime)
        near = min(rows.values(), default=0.0) * (1.0 + tolerance)
        return sorted((leaf for leaf, us in rows.items() if us <= near), key=lambda leaf: (rows[leaf], leaf))[:count]

    def contender(self, tolerance: float) -> int | None:
        """The leaf that was screened in O1 and is to be measured in O3 next; None when no other can matter."""
        return next_contender(self.cheap, self.deployed, tolerance, LIMIT)

    def _rows(self, regime: str) -> dict[int, float]:
        if regime == "O1":
            return self.cheap
        return {leaf: us for leaf, us in self.deployed.items() if us is not None}
