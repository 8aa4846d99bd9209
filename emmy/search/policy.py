"""The search policy: which leaf to measure next. Pure and seedless; the tuner asks, measures and tells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emmy.bench.records import Status
from emmy.schedule import features as table
from emmy.schedule.tiers.base import LEVELS
from emmy.search.learn import Residuals
from emmy.search.tree import ForkTree

EXPLORE_EVERY = 4
"""Every fourth attempt goes to the branch of the fork tree that was tried least for its promise.

On the same recordings as in emmy.search.learn it costs 0.6 to 1.9 attempts until within 5 % of the best: the price of
not depending on the ranking alone.
"""

NEARBY_EVERY = 4
"""Every fourth attempt, between the explored ones, changes one thing of the best leaf so far.

A ranking that is wrong in one knob is wrong in it everywhere, and puts all its first leaves there: on one H200
(2026-11-30, 2048 cubed, float32) fifty attempts had a k step of 32, and with 16 the best of them is 6 % faster. On
recordings of 33 matmuls there (63 to 146 leaves each, 16 under way) it takes 20.7 attempts until within 1 % of the best
instead of 23.4, from a shuffled prior 30.1 instead of 32.1; every second or third attempt are no better.
"""

RESOLUTION = 0.01
"""A new best is faster by more than this share: less is within the repeatability of a screening measurement."""

_KIND = tuple(LEVELS.index(level) for level in ("fuse", "tier"))
_MOVES = tuple(
    tuple(LEVELS.index(level) for level in levels)
    for levels in (("cta", "warp"), ("k",), ("reduce",), ("stage",), ("wspec",), ("raster",))
)
"""What one step from a leaf changes, by the levels of the fork tree."""

_UNROLLED = ("fragment", "k_unroll", "work_thread")
"""Features whose product is the code volume of an inner loop, which is what a compiler's time grows with."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One told leaf. live: it was measured now, not known before. origin: ``prior``, ``explore`` or ``nearby``."""

    leaf: int
    status: Status
    latency_us: float | None
    live: bool
    origin: str


class Search:
    """Best first under a prior, corrected by what was measured, with shares of exploration over the fork tree and of
    steps from the best leaf.

    labels: (leaves, levels); features: (leaves, features); scores: the prior's, lower is faster. The order of asks is
    a function of these and of what was told, so that a search on recorded measurements repeats itself.
    """

    def __init__(
        self,
        labels: NDArray[np.int64],
        features: NDArray[np.float32],
        scores: NDArray[np.float64],
        patience: int,
        learn: bool = True,
        explore_every: int = EXPLORE_EVERY,
        nearby_every: int = NEARBY_EVERY,
    ) -> None:
        self.patience = patience
        self.learn = learn
        self.explore_every = explore_every
        self.nearby_every = nearby_every
        self.labels = labels
        self.features = features
        self.scores = scores
        self.tree = ForkTree(labels)
        self.residuals = Residuals(features, scores)
        self.open = np.ones(len(scores), dtype=bool)
        self.attempts: list[Attempt] = []
        self.pruned: dict[int, int] = {}
        self.best: int | None = None
        self.best_us = float("inf")
        self.live_since_best = 0
        self._record_us = float("inf")
        self._pending: dict[int, str] = {}

    @property
    def done(self) -> bool:
        """Whether patience has run out or every leaf was tried."""
        return self.live_since_best >= self.patience or not self.open.any()

    @property
    def live(self) -> int:
        return sum(attempt.live for attempt in self.attempts)

    def origin(self, leaf: int) -> str:
        """Why a leaf that was asked for was chosen: ``prior``, ``explore`` or ``nearby``."""
        return self._pending.get(leaf, "prior")

    def ask(self, count: int = 1) -> list[int]:
        """The leaves to measure next: at most ``count``, no more than patience allows; empty when the search is over.

        Leaves asked for and not told yet are not given again; they do not inform the order until they are told.
        """
        count = min(count, self.patience - self.live_since_best - len(self._pending))
        if count < 1 or not self.open.any():
            return []
        order = self.residuals.order() if self.learn else self.scores
        free = self.open.copy()
        free[list(self._pending)] = False
        chosen: list[int] = []
        while len(chosen) < count and free.any():
            turn = len(self.attempts) + len(self._pending) + 1
            step = None
            if self.nearby_every and turn % self.nearby_every == self.nearby_every // 2:
                step = self._step(free, order)
            if step is not None:
                leaf, origin = step, "nearby"
            elif self.explore_every and turn % self.explore_every == 0:
                leaf, origin = self.tree.least_tried(free, order, trust=self._trust(order)), "explore"
            else:
                leaf, origin = int(np.argmin(np.where(free, order, np.inf))), "prior"
            self._pending[leaf] = origin
            free[leaf] = False
            chosen.append(leaf)
        return chosen

    def _step(self, free: NDArray[np.bool_], order: NDArray[np.float64]) -> int | None:
        """The free leaf that differs from the best one in one move: of the move that was tried least from there, the
        best in ``order``. None while nothing was measured, and where all of them were tried."""
        if self.best is None:
            return None
        differs = self.labels != self.labels[self.best]
        moved = np.stack([differs[:, list(levels)].any(axis=1) for levels in _MOVES], axis=1)
        near = (moved.sum(axis=1) == 1) & ~differs[:, list(_KIND)].any(axis=1)
        found = []
        for move in range(len(_MOVES)):
            inside = np.flatnonzero(near & moved[:, move])
            open_ones = inside[free[inside]]
            if len(open_ones):
                leaf = int(open_ones[np.argmin(order[open_ones])])
                found.append((len(inside) - len(open_ones), float(order[leaf]), leaf))
        return min(found)[2] if found else None

    def _trust(self, order: NDArray[np.float64]) -> float:
        """How far exploration looks beyond the ranking: the spread of the order over the space."""
        return float(np.std(order)) or 1.0

    def tell(self, leaf: int, status: Status, latency_us: float | None = None, live: bool = True) -> None:
        """What became of a leaf. A known one (``live=False``) informs the order and costs no patience."""
        self.attempts.append(Attempt(leaf, status, latency_us, live, self._pending.pop(leaf, "prior")))
        self.open[leaf] = False
        self.tree.visit(leaf)
        if live:
            self.live_since_best += 1
        if status == Status.OK and latency_us is not None:
            self.residuals.add(leaf, float(np.log(latency_us)))
            if latency_us < self.best_us:
                self.best, self.best_us = leaf, latency_us
            if latency_us < self._record_us * (1.0 - RESOLUTION):
                self._record_us = latency_us
                self.live_since_best = 0
        elif status == Status.TIMEOUT:
            self._prune_larger(leaf)

    def _prune_larger(self, leaf: int) -> None:
        """Closes the leaves of the same tier whose unrolled code is at least as large as one that timed out."""
        columns = [table.NAMES.index(name) for name in _UNROLLED]
        kind = [place for place, name in enumerate(table.NAMES) if name.startswith("tier_")]
        mine = self.features[leaf]
        larger = (self.features[:, columns] >= mine[columns]).all(axis=1)
        larger &= (self.features[:, kind] == mine[kind]).all(axis=1)
        # Where a tier knows none of these features every leaf looks alike, and there is no ground to prune on.
        if mine[columns].any():
            hit = larger & self.open
            if hit.any():
                self.pruned[leaf] = int(np.count_nonzero(hit))
                self.open &= ~larger
