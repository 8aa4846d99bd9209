"""How a ranking is judged. A tie with the best counts as a loss in each of these."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


def ranks(values: Values) -> Values:
    """Ranks from 1, ties sharing their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: Values = last - (counts - 1) / 2.0
    return mean[inverse]


def spearman(left: Values, right: Values) -> float | None:
    """Rank correlation, ties by their mean rank; None where it cannot be measured (fewer than 3, or a constant)."""
    if len(left) < 3 or np.ptp(left) == 0 or np.ptp(right) == 0:
        return None
    return float(np.corrcoef(ranks(left), ranks(right))[0, 1])


def pick_regret(scores: Values, latency_us: Values) -> float:
    """Latency of the pick over the best, at least 1. Of leaves tied at the lowest score the slowest is the pick."""
    tied = scores == scores.min()
    return float(latency_us[tied].max() / latency_us.min())


def rank_of(scores: Values, leaf: int) -> int:
    """Place of a leaf in the ranking, 1 first; behind every leaf that it ties with."""
    return int(np.count_nonzero(scores <= scores[leaf]))
