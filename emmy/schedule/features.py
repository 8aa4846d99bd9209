"""The features that priors rank leaves by: one table of names, units and meanings.

A tier returns the features it knows; the others are 0 for its leaves. ``log`` features are stored as log2(1 + x), since
what matters of a size is its order of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature: its unit, what it says, and whether its value is stored as log2(1 + x).

    slope: what one more of the stored value is known to add to ln(latency); 0 where nothing is known.
    """

    name: str
    unit: str
    meaning: str
    log: bool = False
    slope: float = 0.0


_ROWS = [
    Feature("tier_scalar", "0/1", "scalar tile of a contraction"),
    Feature("tier_row", "0/1", "row kernel"),
    Feature("tier_cell", "0/1", "one thread a cell"),
    Feature("tier_attention", "0/1", "fused attention"),
    Feature("tier_warp", "0/1", "warp atoms (mma.sync)"),
    Feature("tier_cut", "0/1", "the region cut into several kernels"),
    Feature("symbolic", "0/1", "the region has a symbolic axis (guards in every block)"),
    Feature("threads", "threads", "threads a block", log=True),
    Feature("blocks", "blocks", "blocks of the grid at the hint", log=True),
    Feature("waves", "blocks/unit", "blocks over SMs or cores", log=True),
    Feature("tail_units", "share", "units idle in the last wave"),
    Feature("tail_m", "share", "rows of the tiles that lie outside the problem"),
    Feature("tail_n", "share", "columns of the tiles that lie outside the problem"),
    Feature("vector_share", "share", "used lanes of the widest vector"),
    Feature("fragment", "vectors", "accumulator vectors a thread", log=True),
    Feature("registers", "vectors", "vector registers a thread needs", log=True),
    Feature("spill", "vectors", "vector registers beyond those of the device", log=True),
    Feature("intensity", "flop/byte", "arithmetic per byte a thread reads in its inner loop", log=True),
    Feature("block_bytes", "bytes", "bytes a block reads from memory", log=True),
    Feature("traffic", "ratio", "bytes all blocks read over the fewest bytes", log=True),
    Feature("smem_bytes", "bytes", "shared memory a block uses", log=True),
    Feature("smem_share", "share", "shared memory over what a block may use"),
    Feature("stage_depth", "slots", "slots of the shared-memory ring"),
    Feature("k_step", "elements", "k step", log=True),
    Feature("k_unroll", "elements", "inner steps unrolled", log=True),
    Feature("split", "blocks", "blocks that share a reduce axis", log=True),
    Feature("atomic", "0/1", "partial results joined by atomics"),
    Feature("cluster", "0/1", "partial results joined inside a cluster"),
    Feature("cooperative", "threads", "threads of a block that share a reduce axis", log=True),
    Feature("barriers", "count", "barriers a block passes", log=True),
    Feature("passes", "count", "passes over the row in memory"),
    Feature("row_bytes", "bytes", "bytes of a row a thread handles in one pass", log=True),
    Feature("rows_block", "rows", "rows a block handles", log=True),
    Feature("work_thread", "elements", "elements a thread handles", log=True),
    Feature("exp_elements", "exp/element", "exponentials evaluated an element"),
    Feature("grouped", "0/1", "blocks in grouped or Hilbert order"),
    Feature("l1_share", "share", "inner-loop working set of a thread over 32 KiB, at most 4"),
    Feature("page_stride", "0/1", "the inner loop strides by a page or more"),
    Feature("launches", "count", "launches of the plan"),
    Feature("unit_stride", "share", "accesses whose neighbours lie beside each other in memory"),
    Feature("gathers", "loads/access", "memory instructions an access of a vector takes"),
    Feature("bytes_total", "bytes", "bytes that all passes of all blocks read and write", log=True),
    Feature("row_setup", "share", "a row's fixed work over its memory accesses, at most 64", log=True),
    Feature("resident_blocks", "blocks", "blocks an SM holds at once", log=True),
    Feature("ring_bytes", "bytes", "bytes a block has in flight ahead of its arithmetic", log=True),
    Feature("async_copies", "0/1", "operands copied asynchronously to shared memory"),
    Feature("half_accumulate", "0/1", "products accumulated in float16, or operands rounded to tf32"),
    Feature(
        "busy",
        "ratio",
        "cycles of the busiest unit over those of the arithmetic alone, less one",
        log=True,
        slope=math.log(2),
    ),
    Feature("fast_exp", "0/1", "the device's approximate exponential"),
]

FEATURES: dict[str, Feature] = {row.name: row for row in _ROWS}
NAMES: tuple[str, ...] = tuple(FEATURES)
_PLACE = {name: place for place, name in enumerate(NAMES)}


def matrix(count: int, values: Mapping[str, NDArray[np.float64] | float]) -> NDArray[np.float32]:
    """The (count, features) matrix of one tier's values, in table order; log features transformed.

    Raises KeyError for a feature that the table does not hold.
    """
    out = np.zeros((count, len(NAMES)), dtype=np.float32)
    for name, column in values.items():
        feature = FEATURES[name]
        array = np.broadcast_to(np.asarray(column, dtype=np.float64), (count,))
        out[:, _PLACE[name]] = np.log2(1.0 + np.maximum(array, 0.0)) if feature.log else array
    return out


__all__ = ["FEATURES", "NAMES", "Feature", "matrix"]
