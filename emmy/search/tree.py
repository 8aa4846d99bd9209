"""The fork tree of a space: which leaves share a branch at each fork, and how often each branch was tried."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FEW = 8
"""Forks with at most this many branches have each of them tried before any is explored again."""


_FIRST = 1e9


class ForkTree:
    """Branches of the forks that really fork, from the labels of a space.

    A *branch* of a level is a set of leaves whose labels agree up to that level; levels at which no branch splits are
    left out. ``branch[level][leaf]`` numbers the branch that holds a leaf.
    """

    def __init__(self, labels: NDArray[np.int64]) -> None:
        self.leaves = len(labels)
        self.branch: list[NDArray[np.int64]] = []
        self.level: list[int] = []
        known = 1
        for level in range(labels.shape[1]):
            _, numbers = np.unique(labels[:, : level + 1], axis=0, return_inverse=True)
            count = int(numbers.max()) + 1 if self.leaves else 0
            if count > known:
                self.branch.append(numbers.astype(np.int64).ravel())
                self.level.append(level)
                known = count
        self.visits = [np.zeros(int(b.max()) + 1, dtype=np.int64) for b in self.branch]

    def visit(self, leaf: int) -> None:
        for counts, branch in zip(self.visits, self.branch, strict=True):
            counts[branch[leaf]] += 1

    def least_tried(self, open_leaves: NDArray[np.bool_], order: NDArray[np.float64], trust: float) -> int:
        """The leaf that exploration takes among the open ones (at least one).

        Walks from the root; each fork takes the branch with the least ``best order in it − trust · √(ln N / (1 + n))``
        of its n visits out of N, so a branch that is not visited moves ahead however badly it is ranked; at a fork of
        FEW branches it is next. ``trust`` is in the unit of ``order``.
        """
        inside = np.flatnonzero(open_leaves)
        total = 1
        for counts, branch in zip(self.visits, self.branch, strict=True):
            numbers = branch[inside]
            if numbers[0] == numbers[-1] and (numbers == numbers[0]).all():
                total = max(1, int(counts[numbers[0]]))
                continue
            best = np.full(len(counts), np.inf)
            np.minimum.at(best, numbers, order[inside])
            value = best - trust * np.sqrt(np.log(1 + total) / (1 + counts))
            if np.isfinite(value).sum() <= FEW:
                value[(counts == 0) & np.isfinite(value)] -= _FIRST
            chosen = int(np.argmin(value))
            total = max(1, int(counts[chosen]))
            inside = inside[numbers == chosen]
        return int(inside[np.argmin(order[inside])])
