"""The greedy pick: what ``run`` and ``compile`` deploy, and what decided it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from emmy.device.base import Capabilities
from emmy.errors import KnobError, Refused
from emmy.ir.nest import Region, region_key
from emmy.priors.base import Prior
from emmy.schedule.space import Space, enumerate_space
from emmy.search.realise import realise
from emmy.search.structure import composed, cuts
from emmy.search.variant import Variant, read_knobs

if TYPE_CHECKING:
    from emmy.store.store import Store

Source = Literal["evidence", "online", "offline", "uninformed", "pin"]
"""What decided a pick: a measurement of this region on this device, a prior, or (no prior fits) a stated shuffle."""


@dataclass(frozen=True, slots=True)
class Pick:
    """A variant and what decided it. us: measured microseconds where ``source`` is evidence; about: one line on why."""

    variant: Variant
    source: Source
    us: float | None
    about: str


@dataclass(frozen=True)
class Picker:
    """Picks for one device. store: None for no evidence at all. sweep: whose evidence counts, None: the newest."""

    caps: Capabilities
    prior: Prior
    store: Store | None = None
    fast_math: bool = False
    sweep: str | None = None

    def greedy(self, region: Region) -> Pick:
        """Measured evidence, else the prior's choice. Raises Refused where no tier realises the region."""
        return self.evidence(region) or self.prior_pick(region)

    def evidence(self, region: Region) -> Pick | None:
        """The fastest confirmed, else screened variant on this device that still lowers to the same code."""
        if self.store is None or not self.store.exists:
            return None
        found: dict[str, Variant] = {}

        def digest(text: str) -> str | None:
            try:
                found[text] = realise(region, self.caps, read_knobs(text))
            except (Refused, KnobError):
                return None
            return found[text].digest

        row = self.store.best_evidence(
            region_key(region), self.caps.name, digest, sweep=self.sweep, lane=None if self.fast_math else "std"
        )
        if row is None:
            return None
        return Pick(found[row.knobs], "evidence", row.median_us, f"measured, {row.protocol}, sweep {row.sweep}")

    def prior_pick(self, region: Region) -> Pick:
        """The prior's first leaf; for a region without one, the first cut whose children all have a pick."""
        space = self.space(region)
        if len(space):
            leaf = int(np.argmin(self.prior.scores(space)))
            variant = Variant(region, self.caps, space.knobs(leaf), space.lower(leaf))
            return Pick(variant, self.prior.name, None, self.prior.about)  # type: ignore[arg-type]
        reasons = [f"{tier}: {refused}" for tier, refused in space.declined.items()]
        for cut in cuts(region):
            try:
                picks = [self.greedy(child) for child in cut.children]
            except Refused as refused:
                reasons.append(f"FUSE={cut.fuse}: {refused}")
                continue
            weakest = next((p for p in picks if p.source != "evidence"), picks[0])
            variant = composed(region, self.caps, cut, [pick.variant for pick in picks])
            return Pick(variant, weakest.source, None, f"cut; {weakest.about}")
        raise Refused("no_tier", found=region.name, expected="a tier that realises it", hint="; ".join(reasons) or None)

    def space(self, region: Region) -> Space:
        return enumerate_space(region, self.caps, self.fast_math)
