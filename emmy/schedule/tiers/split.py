"""What the contraction tiers share of a k axis split over blocks: the codes of the ``how`` column, and its memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emmy.schedule.knobs.values import SplitHow
from emmy.schedule.tiers.base import Columns

HOWS: tuple[SplitHow, ...] = ("k", "a", "c")
"""Codes of the how column: a finalising kernel, atomics, a cluster."""


def clustered_in_one_wave(c: Columns, tiles: Any, units: int) -> NDArray[np.bool_]:
    """Whether the blocks of a clustered split run at once, all of them, where a cluster is of four or eight.

    Such a cluster needs its multiprocessors in one part of the GPU, and the parts do not come out even: on one NVIDIA
    H200 120 of 132 multiprocessors take part (2026-11-30), so that 128 blocks take twice the time of 120. Clusters of
    two use them all.
    """
    blocks = np.asarray(tiles, dtype=np.int64) * c["split"]
    return (c["how"] != HOWS.index("c")) | (c["split"] <= 2) | (blocks * 10 <= 9 * units)


def peer_bytes(c: Columns, tile: Any) -> NDArray[np.int64]:
    """Shared memory that the blocks of a cluster send their float32 sums to: all parts but a block's own share of the
    ``tile`` elements; none for other splits."""
    parts = c["split"].astype(np.int64)
    return np.where(c["how"] == HOWS.index("c"), np.asarray(tile, dtype=np.int64) * (parts - 1) // parts * 4, 0)
