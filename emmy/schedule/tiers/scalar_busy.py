"""A first-order model of a scalar tile's time on a GPU: how long a multiprocessor is busy, beyond its arithmetic.

Cycles are counted along the multiprocessor that has most to do: whole waves of the blocks that it holds at once, then
what is left. A k step of a block takes the issue slots of its products and reads, or the time that shared memory needs
for the reads; a slot of the ring adds its copies and a barrier that other blocks hide; a kernel adds its start and its
end, and what joins a split.

The constants were fitted on 1,404 screened leaves of 19 float32 products on one NVIDIA H200 (2026-11-30, O3), and are
judged on the same: the logarithm of the model is off by 0.064 (root mean square, after a constant a shape, fast leaves
counting most), and its rank correlation with the latencies of a shape is 0.57 to 0.86, 0.80 in the median. That of the
linear prior that had led the search to these leaves was -0.67 to 0.20.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emmy.schedule.tiers.base import Columns

Cycles = NDArray[np.float64]

PARTS = 4
"""Parts of a multiprocessor; each issues an instruction of a warp a cycle, and an FFMA is done in one."""
FFMA, READ, WAIT = 0.87, 1.28, 4.35
"""Cycles of an FFMA, of a warp's 128-bit read in shared memory (of the whole multiprocessor), between k steps."""
COPY = 12.9
"""Cycles that an asynchronous copy of a warp keeps its part from other work."""
BARRIER, LAUNCH, CLUSTER, KERNEL = 60.0, 4700.0, 820.0, 1860.0
"""Cycles of a slot's barrier, of a kernel's start and end, of a cluster's sum, of the kernel that joins a split."""
BYTES_A_CYCLE = 2200.0
"""That the device writes and reads again of partial sums."""


def busy(
    c: Columns, sizes: tuple[int, int, int, int], units: int, held: Cycles, clustered: NDArray[np.bool_]
) -> Cycles:
    """Cycles of the busiest multiprocessor over those of the products alone, less one.

    sizes: (batch, m, n, k). held: blocks that a multiprocessor holds at once. clustered: leaves whose split is joined
    in a cluster. A leaf without a ring is taken to need three times the cycles of one with.
    """
    f = {name: column.astype(np.float64) for name, column in c.items()}
    batch, m, n, k = (float(max(size, 1)) for size in sizes)
    block_m, block_n = f["m"] * f["fm"], f["n"] * f["fn"]
    threads = f["n"] * f["m"] * f["slices"]
    blocks = np.ceil(m / block_m) * np.ceil(n / block_n) * batch * f["split"]
    slots = np.maximum(1.0, np.ceil(k / f["split"] / f["k"]))
    reads = np.ceil(f["fm"] / 4) + np.ceil(f["fn"] / 4)
    # a is copied in single elements, since its rows run along k and the tile's along m; b in vectors of four
    copies = (block_m + block_n / 4) * f["k"] / threads

    def of(together: Cycles) -> Cycles:
        """Cycles of ``together`` blocks side by side."""
        warps = together * threads / 32
        issue = warps / PARTS * (f["fm"] * f["fn"] * FFMA + reads + 1)
        alone = f["fm"] * f["fn"] * FFMA + reads + WAIT
        step = np.maximum(np.maximum(issue, warps * reads * READ), alone)
        slot = f["k"] / f["slices"] * step + warps / PARTS * copies * COPY + BARRIER / together
        return np.asarray(slots * slot)

    waves = np.floor(blocks / (units * held))
    left = blocks - waves * units * held
    cycles = waves * of(held) + np.where(left > 0, of(np.maximum(np.ceil(left / units), 1.0)), 0.0)
    cycles = np.where(f["depth"] > 0, cycles, 3 * cycles) + LAUNCH + np.where(clustered, CLUSTER, 0.0)
    partial = KERNEL + f["split"] * m * n * batch * 4 / BYTES_A_CYCLE
    cycles += np.where((f["split"] > 1) & ~clustered, partial, 0.0)
    fewest = batch * m * n * k / (32 * PARTS * units)
    return np.asarray(np.maximum(cycles / fewest - 1.0, 0.0))
