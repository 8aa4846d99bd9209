"""Features of row leaves: physical quantities, a column each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emmy.device.base import Capabilities
from emmy.ir.expr import Call, Const, Expr, Load, free_vars, walk
from emmy.passes.lower.access import affine, flat_offset
from emmy.passes.lower.row_program import Sweep, varies
from emmy.schedule.tiers.base import Columns
from emmy.schedule.tiers.row_problem import REREAD, RowProblem, registers, smem_bytes, step_exprs, threads_a_block


def row_features(problem: RowProblem, caps: Capabilities, columns: Columns) -> dict[str, NDArray[np.float64]]:
    """Physical quantities of each leaf; see emmy.schedule.features for names and units."""
    c = {name: column.astype(np.float64) for name, column in columns.items()}
    program = problem.program
    access = problem.access(caps, columns["vec"]).astype(np.float64)
    slots = c["vec"] / access
    resident = columns["residency"] != REREAD
    lanes = access if program.across else np.ones_like(access)
    block_threads = threads_a_block(problem, caps, columns).astype(np.float64)
    sweeps = np.where(resident, len(problem.phased), len(problem.online)).astype(np.float64)
    memory_passes = np.where(resident, 1.0, float(len(problem.online)))
    work_columns = float(problem.columns)
    if program.is_map:
        step = c["vec"] * c["threads"]
        steps = np.ceil(max(problem.columns, 1) / step) * max(problem.rows, 1)
        blocks = np.ceil(steps / c["rows"])
        work_thread = c["rows"] * c["vec"]
        tail = 1.0 - problem.rows * problem.columns / np.maximum(steps * step, 1.0)
        rows_block = c["rows"] * step / max(problem.columns, 1)
    else:
        blocks = np.ceil(max(problem.rows, 1) / c["rows"]) * c["split"]
        serial = c["rows"] / lanes if caps.warp == 1 else np.ones_like(lanes)
        share = work_columns / (c["threads"] * c["split"])
        work_thread = share * serial * lanes
        size = c["threads"] * c["split"] * (np.ones_like(access) if program.across else access)
        whole = np.floor(work_columns / size) * size
        tail = (work_columns - whole) / max(work_columns, 1.0)
        rows_block = c["rows"]
    blocks = np.maximum(blocks, 1.0)
    waves = blocks / caps.units
    element_bytes, unit = _traffic(problem)
    fast = np.where(c["fast_exp"] > 0, 0.4, 1.0)
    exps = np.where(resident, _exp_count(problem, phased=True), problem.exps(problem.online)) * fast
    need = registers(problem, caps, columns).astype(np.float64)
    combines = np.where(resident, _reduction_count(problem.phased), _reduction_count(problem.online))
    rounds = np.where(c["threads"] > caps.warp, 2.0, 0.0) if caps.warp > 1 else np.log2(c["threads"]) + 2.0
    smem = smem_bytes(problem, caps, columns).astype(np.float64)
    return {
        "threads": block_threads,
        "blocks": blocks,
        "waves": waves,
        "tail_units": 1.0 - waves / np.ceil(waves),
        "tail_n": tail,
        "vector_share": access / problem.widest(caps),
        "fragment": slots,
        "registers": need,
        "spill": np.maximum(need - caps.registers, 0.0),
        "block_bytes": element_bytes * work_columns * rows_block / c["split"],
        "traffic": memory_passes,
        "smem_bytes": smem,
        "smem_share": smem / max(caps.smem_bytes, 1),
        "split": c["split"],
        "atomic": c["atomic"],
        "cooperative": c["threads"],
        "barriers": np.where(c["threads"] > 1, combines * rounds, 0.0),
        "passes": sweeps,
        "row_bytes": element_bytes * work_columns / (c["threads"] * c["split"]),
        "rows_block": rows_block,
        "work_thread": work_thread,
        "exp_elements": exps,
        "unit_stride": np.full_like(waves, unit),
        "bytes_total": memory_passes * element_bytes * problem.rows * work_columns,
        "row_setup": 1.0 / np.maximum(work_columns / (c["threads"] * c["split"] * access), 1.0 / 64),
        "launches": np.where((c["split"] > 1), 2.0, 1.0),
    }


def _reduction_count(sweeps: tuple[Sweep, ...]) -> int:
    return sum(len(s.reductions) for s in sweeps)


def _exp_count(problem: RowProblem, phased: bool) -> int:
    """Exponentials an element where values are held: what a later sweep reads again is not evaluated again."""
    total = 0
    held: frozenset[Expr] = frozenset()
    for sweep in problem.phased if phased else problem.online:
        seen: set[Expr] = set()
        stack = [*(v for r in sweep.reductions for v in r.values), *(w.value for w in sweep.writes)]
        while stack:
            node = stack.pop()
            if node in seen or node in held:
                continue
            seen.add(node)
            total += isinstance(node, Call) and node.fn == "exp" and varies(node, problem.program.inner)
            stack += node.children
        held = frozenset(sweep.held)
    return total


def _traffic(problem: RowProblem) -> tuple[float, float]:
    """Bytes an element reads and writes in one pass, and the share of accesses with unit stride."""
    program = problem.program
    axis = (program.rows if program.across else program.columns)[-1].name
    tensors = {t.name: t for t in problem.region.inputs}
    exprs = step_exprs(problem.online)
    loads = {n for e in exprs for n in walk(e) if isinstance(n, Load)}
    places = [(tensors[load.tensor], load.index) for load in loads if varies(load, program.inner)]
    places += [(w.tensor, w.index) for w in program.writes]
    rows = {a.name for a in program.rows}
    total = 0.0
    straight = 0
    for tensor, index in places:
        parts = affine(flat_offset(tensor, index), frozenset((axis,)))
        stride = parts[1].get(axis) if parts else None
        straight += isinstance(stride, Const) and stride.value == 1
        whole = not rows or any(free_vars(i) & rows for i in index)
        total += tensor.dtype.nbytes if whole else 0.0
    return max(total, 1.0), straight / max(len(places), 1)
