"""What the row tier tries on a GPU: few leaves, each of which some shape wants.

A row's accesses are as wide as they can be (16 bytes where rows are whole accesses of that width). What is left to
choose is how many threads share a row, how many rows a block has, and, where the row is not kept, how many accesses a
thread has under way.
"""

from __future__ import annotations

from emmy.device.base import Capabilities
from emmy.schedule.tiers.base import Columns, concat, product
from emmy.schedule.tiers.row_problem import REG, REREAD, SMEM, RowProblem

BLOCKS = (32, 128, 256)
"""Threads of a block with several rows, and of the smallest with one."""
THREADS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
KEPT = 32768
"""Columns of the longest row that is only tried as kept: 32 elements of each of 1024 threads."""
WAVES = 4
"""A row is shared by blocks where whole rows give the device fewer blocks a unit."""


def accesses(problem: RowProblem, caps: Capabilities) -> list[int]:
    """Elements of one access: the widest that rows are whole accesses of; single ones too where that is not known."""
    widest = problem.widest(caps)
    if not problem.constant_last:
        return [1, widest]
    return [min(widest, problem.last & -problem.last) or 1]


def shares(problem: RowProblem, access: int) -> list[tuple[int, int]]:
    """(rows a block, threads a row): a warp or more where all find an access in a row, rows that fill a block."""
    needed = max(-(-problem.last // access), 1)
    most = 1 << max(problem.rows - 1, 0).bit_length()
    least = 32 if needed > 16 else max(1 << max(needed - 1, 0).bit_length(), 4) // 4
    found = []
    for threads in THREADS:
        if threads < least or (threads > least and threads >= 2 * needed):
            continue
        rows = {max(min(block // threads, most), 1) for block in BLOCKS}
        found += [(r, threads) for r in sorted(rows)]
    return found


def gpu_rows(problem: RowProblem, caps: Capabilities, gates: tuple[int, ...]) -> Columns:
    """Leaves of a program with reductions along its rows."""
    parts: list[Columns] = []

    def offer(rows: int, vecs: list[int], threads: int, where: tuple[int, ...], splits: tuple[int, ...] = (1,)) -> None:
        atomic = (0,) if splits == (1,) else (0, 1)
        parts.append(product(rows=(rows,), vec=vecs, residency=where, threads=(threads,), split=splits, atomic=atomic,
                             fast_exp=gates))  # fmt: skip

    kept = problem.held > 0 and problem.fixed
    for access in accesses(problem, caps):
        for rows, threads in shares(problem, access):
            each = -(-problem.last // (access * threads))
            if kept:
                offer(rows, [access], threads, (REG, SMEM) if problem.columns > KEPT else (REG,))
            if kept and problem.columns <= KEPT:
                continue
            # several accesses a step are of the widest kind: TILE's vector width says both
            most = (4, 8, 16) if access == problem.widest(caps) else (1,)
            vecs = [access * slots for slots in sorted({min(slots, _power(each)) for slots in most})]
            offer(rows, vecs, threads, (REREAD,))
            if problem.splits and rows == 1 and threads >= 128 and problem.rows < WAVES * caps.units:
                offer(1, vecs[:1], threads, (REREAD,), (2, 4, 8, 16, 32, 64))
    return concat(parts)


def gpu_map(problem: RowProblem, caps: Capabilities, gates: tuple[int, ...]) -> Columns:
    """Leaves of a program without reductions: a few accesses a thread, blocks that fill a unit."""
    parts: list[Columns] = []

    def offer(vecs: list[int], threads: tuple[int, ...]) -> None:
        parts.append(product(rows=(1,), vec=vecs, residency=(REREAD,), threads=threads, split=(1,), atomic=(0,),
                             fast_exp=gates))  # fmt: skip

    for access in accesses(problem, caps):
        several = (1, 2, 4) if access == problem.widest(caps) else (1,)
        offer([access * slots for slots in several], (64, 128, 256, 512, 1024))
    offer([1], (1, 32))
    return concat(parts)


def _power(count: int) -> int:
    """The largest power of two that is at most ``count``."""
    return 1 << (max(count, 1).bit_length() - 1)
