"""What a search learns within a run: how this region's latencies depart from what the prior said."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Residuals:
    """Gaussian-process regression of ln(latency) minus the prior's score, over a region's features.

    Attempts until within 5 % of the best of the recorded leaves, from a shuffled prior, mean of 30 seeds, without and
    with it (AVX2 CPU, 2 cores, PoCL, screened on a machine with other work, 2026-11-30): quick.matmul.256 17.6 and
    8.5 of 75, quick.softmax.1024x4096 34.9 and 18.9 of 106, quick.matmul.512 30.5 and 33.5 of 80.

    Squared-exponential kernel on features that are scaled to unit variance within the space, one length scale for all
    (the median distance between leaves), plus a constant. ``noise`` is the standard deviation, in ln(latency), of what
    features cannot explain.
    """

    def __init__(self, features: NDArray[np.float32], prior: NDArray[np.float64], noise: float = 0.05) -> None:
        spread = features.std(axis=0) if len(features) else np.zeros(features.shape[1])
        varying = features[:, spread > 0].astype(np.float64)
        self.points = varying / spread[spread > 0]
        self.prior = prior
        self.noise = noise
        self.leaves: list[int] = []
        self.values: list[float] = []
        self.rows: list[NDArray[np.float64]] = []
        self.length2 = self._median_distance2()

    def _median_distance2(self) -> float:
        if len(self.points) < 2 or self.points.shape[1] == 0:
            return 1.0
        some = self.points[np.linspace(0, len(self.points) - 1, min(len(self.points), 64)).astype(int)]
        apart = ((some[:, None, :] - some[None, :, :]) ** 2).sum(-1)
        return float(np.median(apart[apart > 0])) if (apart > 0).any() else 1.0

    def add(self, leaf: int, ln_latency: float) -> None:
        self.leaves.append(leaf)
        self.values.append(ln_latency)
        apart = ((self.points - self.points[leaf]) ** 2).sum(-1)
        self.rows.append(np.exp(-0.5 * apart / self.length2))

    def order(self) -> NDArray[np.float64]:
        """Predicted ln(latency) of every leaf, up to the prior's constant while nothing was measured."""
        if not self.leaves:
            return self.prior
        measured = np.array(self.leaves)
        residual = np.array(self.values) - self.prior[measured]
        level = float(residual.mean())
        scale2 = max(float(residual.var()), self.noise**2)
        cross = np.stack(self.rows)
        gram = cross[:, measured] + (self.noise**2 / scale2 + 1e-6) * np.eye(len(measured))
        solved = np.linalg.solve(gram, residual - level)
        out: NDArray[np.float64] = self.prior + level + solved @ cross
        return out
