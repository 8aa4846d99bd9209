"""What the contraction tiers share of a k axis split over blocks: the codes of the ``how`` column, and its memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emmy.schedule.knobs.values import SplitHow
from emmy.schedule.tiers.base import Columns

HOWS: tuple[SplitHow, ...] = ("k", "a", "c")
"""Codes of the how column: a finalising kernel, atomics, a cluster."""


def peer_bytes(c: Columns, tile: Any) -> NDArray[np.int64]:
    """Shared memory that the blocks of a cluster send their float32 sums to: all parts but a block's own share of the
    ``tile`` elements; none for other splits."""
    parts = c["split"].astype(np.int64)
    return np.where(c["how"] == HOWS.index("c"), np.asarray(tile, dtype=np.int64) * (parts - 1) // parts * 4, 0)
