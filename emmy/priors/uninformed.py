"""The order of a search that has no prior: a shuffle whose seed is stated, so that it is the same everywhere."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emmy.priors.base import Scores

if TYPE_CHECKING:
    from emmy.schedule.space import Space


@dataclass(frozen=True, slots=True)
class UninformedPrior:
    """Ranks by a shuffle seeded with ``seed`` and the region key. ``reason``: why there is nothing better."""

    reason: str
    seed: int = 0
    name: str = "uninformed"
    trusted: bool = False

    @property
    def about(self) -> str:
        return f"shuffled order (seed {self.seed}): {self.reason}"

    def scores(self, space: Space) -> Scores:
        """A permutation scaled to 0 … 1: it orders, and says next to nothing about how far apart leaves are."""
        state = int.from_bytes(hashlib.sha256(f"{self.seed} {space.key}".encode()).digest()[:8], "little")
        return np.random.default_rng(state).permutation(len(space)) / max(len(space), 1)
