"""The row tier: reductions over rows with what comes before and after them, and pure maps.

TILE ``r{rows}/v{vec}/{residency}``: rows a block (of a map: steps), elements a thread takes a step, and where a row
stays between sweeps. ``vec`` beyond the device's vector means several accesses a step, each with an accumulator of its
own. REDUCE ``c{threads}``: threads that share a row; ``g{n}k`` and ``g{n}a``: blocks that share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emmy.device.base import Capabilities
from emmy.errors import Refused
from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Expr, Load, evaluate_int, free_vars, walk
from emmy.ir.nest import Region
from emmy.ir.plan import Plan
from emmy.passes.lower.access import affine, flat_offset
from emmy.passes.lower.row import RowLeaf
from emmy.passes.lower.row_plan import lower_row
from emmy.passes.lower.row_program import RowProgram, Sweep, row_program, value_nodes, varies
from emmy.schedule.knobs import (
    OFF,
    Cooperative,
    Gate,
    KnobKey,
    KnobMap,
    KnobValue,
    Reduce,
    RowTile,
    Split,
)
from emmy.schedule.tiers.base import Columns, Rule, Tier, concat, product, rule

RESIDENCIES = ("reg", "smem", "reread")
"""Codes of the residency column."""
REG, SMEM, REREAD = range(3)


@dataclass(frozen=True)
class RowProblem:
    """A row program and the numbers that schedules depend on, at the hints."""

    program: RowProgram

    @property
    def region(self) -> Region:
        return self.program.region

    @cached_property
    def rows(self) -> int:
        return evaluate_int(self.program.row_count(), self.region.hints())

    @cached_property
    def columns(self) -> int:
        """Columns of a row."""
        return evaluate_int(self.program.column_count(), self.region.hints())

    @cached_property
    def last(self) -> int:
        """Extent of the axis that neighbouring elements lie along."""
        axis = self.program.rows[-1] if self.program.across else self.program.columns[-1]
        return evaluate_int(axis.extent, self.region.hints())

    @cached_property
    def fixed(self) -> bool:
        """Whether a row has one column axis of a size known at compile time."""
        return len(self.program.columns) == 1 and isinstance(self.program.columns[0].extent, Const)

    @cached_property
    def online(self) -> tuple[Sweep, ...]:
        return self.program.sweeps()

    @cached_property
    def phased(self) -> tuple[Sweep, ...]:
        return self.program.phased().sweeps(hold=True)

    @cached_property
    def held(self) -> int:
        """Arrays of a row that are held between sweeps."""
        return max((len(s.held) for s in self.phased), default=0)

    @cached_property
    def held_bytes(self) -> int:
        return max((e.dtype.compute.nbytes for s in self.phased for e in s.held), default=0)

    @cached_property
    def splits(self) -> bool:
        """Whether the reductions do not wait for each other, so that blocks can share a row."""
        return (
            not self.program.is_map
            and len(self.online) <= 2
            and all(not s.reductions for s in self.online[1:])
            and len(self.program.columns) == 1
        )

    @cached_property
    def plain(self) -> bool:
        """Whether the only output is one sum as it is, or an integer extreme: what atomics can join."""
        if len(self.program.reductions) != 1 or self.program.writes or len(self.program.row_writes) != 1:
            return False
        (reduction,), (write,) = self.program.reductions, self.program.row_writes
        dtype = write.tensor.dtype
        if write.value != reduction.result(0) or dtype != reduction.dtypes[0]:
            return False
        if reduction.monoid == "sum":
            return dtype in (DType.F32, DType.I32)
        return reduction.monoid in ("max", "min") and dtype == DType.I32

    @cached_property
    def compute_bytes(self) -> int:
        """Bytes of the widest value computed with; booleans are held as int32 masks."""
        dtypes = [d for r in self.program.reductions for d in r.dtypes]
        exprs = _step_exprs(self.online) + [w.value for w in self.program.row_writes]
        dtypes += [n.dtype.compute for e in exprs for n in value_nodes(e)]
        return max((4 if d == DType.BOOL else d.nbytes for d in dtypes), default=4)

    @cached_property
    def storage_bytes(self) -> int:
        """Bytes of the narrowest element that varies along the columns."""
        found = [t.dtype.nbytes for t in self.region.inputs if t.shape]
        return min(found + [o.tensor.dtype.nbytes for o in self.region.outputs], default=4)

    @cached_property
    def tuple_width(self) -> int:
        """Components of all tuples that one sweep accumulates, at most."""
        return max((sum(r.algebra.arity for r in s.reductions) for s in (*self.online, *self.phased)), default=0)

    @cached_property
    def has_exp(self) -> bool:
        return self.exps(self.online) > 0

    def exps(self, sweeps: tuple[Sweep, ...]) -> int:
        """Exponentials an element."""
        return sum(1 for e in _step_exprs(sweeps) for n in walk(e) if isinstance(n, Call) and n.fn == "exp")

    def widest(self, caps: Capabilities) -> int:
        """Elements of one memory access at most: a CPU's arithmetic vector, or 16 bytes on a GPU."""
        if caps.warp > 1:
            return max(1, 16 // self.storage_bytes)
        return min(16, caps.vector_lanes(self.compute_bytes))

    def access(self, caps: Capabilities, vec: Any) -> Any:
        return np.minimum(vec, self.widest(caps))


def _step_exprs(sweeps: tuple[Sweep, ...]) -> list[Expr]:
    out: list[Expr] = []
    for sweep in sweeps:
        for reduction in sweep.reductions:
            out += [*reduction.values, *reduction.algebra.combine]
        out += [w.value for w in sweep.writes]
    return out


# ------------------------------------------------------------------------------------------------------ rules


@rule("vec_is_power_of_two")
def _vec_power(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    return (c["vec"] > 0) & (c["vec"] & (c["vec"] - 1) == 0)


@rule("threads_are_power_of_two")
def _threads_power(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    return c["threads"] & (c["threads"] - 1) == 0


@rule("threads_fit")
def _threads_fit(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    return threads_a_block(problem, caps, c) <= caps.max_threads


@rule("vec_at_most_32_accesses")
def _vec_accesses(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    return c["vec"] // problem.access(caps, c["vec"]) <= 32


@rule("step_within_row")
def _step_within(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    # threads or accesses that find no element in a row only cost; the next smaller step does the same work
    if problem.program.across:
        return (problem.access(caps, c["vec"]) < 2 * max(problem.last, 1)) | (c["vec"] == 1)
    step = c["vec"] * c["threads"] * c["split"]
    return (step < 2 * max(problem.last, 1)) | (step == 1)


@rule("rows_within_problem")
def _rows_within(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    total = np.full(len(c["vec"]), problem.rows, dtype=np.int64)
    if problem.program.is_map:
        total *= -(-problem.columns // (c["vec"] * c["threads"]).astype(np.int64))
    lanes = problem.access(caps, c["vec"]) if problem.program.across else 1
    return np.asarray((c["rows"] < 2 * np.maximum(total, 1)) | (c["rows"] == lanes) | (c["rows"] == 1))


@rule("rows_are_whole_vectors")
def _rows_vectors(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    if not problem.program.across:
        return np.ones(len(c["vec"]), dtype=bool)
    return c["rows"] % problem.access(caps, c["vec"]) == 0


@rule("threads_share_contiguous_rows")
def _threads_share(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    return (c["threads"] == 1) | (not problem.program.across)


@rule("residency_holds_something")
def _holds(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    return (c["residency"] == REREAD) | (problem.held > 0)


@rule("resident_row_has_constant_columns")
def _constant(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    return (c["residency"] == REREAD) | (problem.fixed and not problem.program.across)


@rule("register_row_is_whole_accesses")
def _reg_divides(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    return (c["residency"] != REG) | (problem.columns % problem.access(caps, c["vec"]) == 0)


@rule("registers_fit")
def _registers_fit(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    return (c["residency"] != REG) | (registers(problem, caps, c) <= caps.registers)


@rule("shared_memory_fits")
def _smem_fits(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    return smem_bytes(problem, caps, c) <= caps.smem_bytes


@rule("split_reductions_are_independent")
def _split_level(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    return (c["split"] == 1) | problem.splits


@rule("split_rereads")
def _split_rereads(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    return (c["split"] == 1) | (c["residency"] == REREAD)


@rule("split_within_columns")
def _split_within(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    width = 1 if problem.program.across else 1 * c["vec"]
    return (c["split"] == 1) | (c["split"] * c["threads"] * width <= problem.columns)


@rule("atomics_join_plain_sums")
def _atomics(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    able = caps.atomics_f32 and problem.plain and not problem.program.across
    return (c["atomic"] == 0) | ((c["split"] > 1) & able)


@rule("map_has_nothing_to_keep")
def _map_plain(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    plain = (c["residency"] == REREAD) & (c["split"] == 1)
    return plain | (not problem.program.is_map)


@rule("fast_exp_needs_exp")
def _fast_exp(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    return (c["fast_exp"] == 0) | problem.has_exp


def threads_a_block(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[Any]:
    if caps.warp == 1 or problem.program.is_map:
        return c["threads"]
    lanes = problem.access(caps, c["vec"]) if problem.program.across else 1
    return c["threads"] * np.maximum(c["rows"] // lanes, 1)


def registers(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[Any]:
    """Registers a thread needs: of vectors on a CPU, of 32 bits on a GPU."""
    access = problem.access(caps, c["vec"])
    slots = np.where(c["residency"] == REG, -(-problem.columns // (access * c["threads"])), 0) * problem.held
    accumulators = c["vec"] // access * problem.tuple_width
    working = 4 * np.ones_like(slots)
    if caps.warp == 1:
        return slots + accumulators + working
    words = max(1, problem.compute_bytes // 4)
    return (slots + accumulators) * access * words + working * 6


def smem_bytes(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[Any]:
    """Shared memory of a block: rows kept there, and the tuples that threads exchange."""
    rows = c["rows"] if caps.warp > 1 else np.ones_like(c["rows"])
    row = -(-problem.columns * problem.held_bytes // 64) * 64 * problem.held
    kept = np.where(c["residency"] == SMEM, rows.astype(np.int64) * row, 0)
    sweeps = sum(_tuple_bytes(s) for s in problem.phased)
    online = sum(_tuple_bytes(s) for s in problem.online)
    each = np.where(c["residency"] == REREAD, online, sweeps)
    block = threads_a_block(problem, caps, c).astype(np.int64)
    exchanged = np.where(c["threads"] > 1, np.maximum(block * each, 16), 0)
    return kept + exchanged


def _tuple_bytes(sweep: Sweep) -> int:
    return sum(dtype.nbytes for r in sweep.reductions for dtype in r.dtypes)


# ------------------------------------------------------------------------------------------------------- tier


class RowTier(Tier):
    """Rows and maps; knobs TILE, REDUCE and FAST_EXP."""

    name: ClassVar[str] = "row"
    rules: ClassVar[tuple[Rule, ...]] = (
        _vec_power, _threads_power, _threads_fit, _vec_accesses, _step_within, _rows_within, _rows_vectors,
        _threads_share, _holds, _constant, _reg_divides, _registers_fit, _smem_fits, _split_level, _split_rereads,
        _split_within, _atomics, _map_plain, _fast_exp,
    )  # fmt: skip

    def match(self, region: Region, caps: Capabilities) -> RowProblem:
        return RowProblem(row_program(region))

    def grid(self, problem: RowProblem, caps: Capabilities, fast_math: bool) -> Columns:
        widest = problem.widest(caps)
        gates = (0, 1) if fast_math and problem.has_exp else (0,)
        residencies = (REREAD,) if problem.held == 0 else (REG, SMEM, REREAD)
        vecs = [v for v in (1, 2, 4, 8, 16, 32, 64, 128, 256) if v >= min(widest, 4) // 2]
        if caps.warp == 1:
            rows = [1, 2, 4, 8, 16, 32, 64]
            threads: list[int] = [1]
            if problem.program.is_map:
                rows += [128, 256, 512, 1024]
            splits: tuple[int, ...] = (1, 2, 4, 8, 16)
        else:
            rows = [1, 2, 4, 8, 16]
            threads = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
            vecs = [v for v in vecs if v <= 8 * widest]
            splits = (1, 2, 4, 8, 16, 32, 64)
        if problem.program.across:
            rows = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
            threads = [1]
        whole = product(rows=rows, vec=vecs, residency=residencies, threads=threads, split=(1,), atomic=(0,),
                        fast_exp=gates)  # fmt: skip
        if not problem.splits:
            return whole
        split = product(rows=rows[:4] if not problem.program.across else rows, vec=vecs, residency=(REREAD,),
                        threads=threads, split=splits[1:], atomic=(0, 1), fast_exp=gates)  # fmt: skip
        return concat([whole, split])

    def knobs(self, problem: RowProblem, columns: Columns, row: int) -> KnobMap:
        v = {name: int(column[row]) for name, column in columns.items()}
        split = Split(v["split"], "a" if v["atomic"] else "k") if v["split"] > 1 else None
        shared = Cooperative(v["threads"]) if v["threads"] > 1 else None
        values: dict[str, KnobValue] = {
            "FUSE": OFF,
            "TILE": RowTile(v["rows"], v["vec"], RESIDENCIES[v["residency"]]),  # type: ignore[arg-type]
            "REDUCE": Reduce(split, shared) if split or shared else OFF,
            "STAGE": OFF,
            "WSPEC": OFF,
            "RASTER": OFF,
            "FAST_EXP": Gate() if v["fast_exp"] else OFF,
        }
        return KnobMap(tuple((KnobKey.parse(name), value) for name, value in values.items()))

    def read(self, problem: RowProblem, knobs: KnobMap) -> Columns:
        tile, reduce = knobs.get("TILE"), knobs.get("REDUCE", OFF)
        if not isinstance(tile, RowTile):
            raise Refused("row_tile", found=f"TILE={tile}", expected="a row tile: r1/v8/reread")
        for family in ("FUSE", "STAGE", "WSPEC", "RASTER"):
            if knobs.get(family, OFF) != OFF:
                raise Refused("row_families", found=f"{family}={knobs[family]}", expected=f"{family} off")
        split = reduce.split if isinstance(reduce, Reduce) else None
        shared = reduce.cooperative if isinstance(reduce, Reduce) else None
        if split is not None and split.how == "c":
            raise Refused("row_reduce", found=f"REDUCE={reduce}", expected="'', cN, gNk, gNa, gNk/cN or gNa/cN")
        values = {
            "rows": tile.rows, "vec": tile.vec, "residency": RESIDENCIES.index(tile.residency),
            "threads": shared.threads if shared else 1, "split": split.parts if split else 1,
            "atomic": int(split is not None and split.how == "a"),
            "fast_exp": int(knobs.get("FAST_EXP", OFF) != OFF),
        }  # fmt: skip
        return {name: np.array([value], dtype=np.int32) for name, value in values.items()}

    def labels(self, problem: RowProblem, columns: Columns) -> Mapping[str, NDArray[np.int64]]:
        c = {name: column.astype(np.int64) for name, column in columns.items()}
        return {
            "cta": c["rows"] * 4 + c["residency"],
            "warp": c["vec"],
            "k": c["fast_exp"],
            "reduce": (c["threads"] * 4096 + c["split"]) * 2 + c["atomic"],
        }

    def features(self, problem: RowProblem, caps: Capabilities, columns: Columns) -> dict[str, NDArray[np.float64]]:
        return row_features(problem, caps, columns)

    def lower(self, problem: RowProblem, caps: Capabilities, columns: Columns) -> Plan:
        refusal = self.refuse(problem, caps, columns)
        if refusal is not None:
            raise refusal
        v = {name: int(column[0]) for name, column in columns.items()}
        leaf = RowLeaf(
            v["rows"], v["vec"], int(problem.access(caps, v["vec"])), RESIDENCIES[v["residency"]], v["threads"],
            v["split"], bool(v["atomic"]), caps.warp > 1, bool(v["fast_exp"]),
        )  # fmt: skip
        return lower_row(problem.program, leaf, problem.region.name, str(self.knobs(problem, columns, 0)))


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
    exprs = _step_exprs(problem.online)
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


__all__ = ["RowProblem", "RowTier", "row_features"]
