"""The row tier: reductions over rows with what comes before and after them, and pure maps.

TILE ``r{rows}/v{vec}/{residency}``: rows a block (of a map: steps), elements a thread takes a step, and where a row
stays between sweeps. ``vec`` beyond the device's vector means several accesses a step, each with an accumulator of its
own. REDUCE ``c{threads}``: threads that share a row; ``g{n}k`` and ``g{n}a``: blocks that share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from emmy.device.base import Capabilities
from emmy.errors import Refused
from emmy.ir.nest import Region
from emmy.ir.plan import Plan
from emmy.passes.lower.row_leaf import RowLeaf
from emmy.passes.lower.row_plan import lower_row
from emmy.passes.lower.row_program import row_program
from emmy.schedule.knobs import OFF, Cooperative, Gate, KnobKey, KnobMap, KnobValue, Reduce, RowTile, Split
from emmy.schedule.tiers.base import Columns, Rule, Tier, concat, product, rule
from emmy.schedule.tiers.row_features import row_features
from emmy.schedule.tiers.row_grid import gpu_map, gpu_rows
from emmy.schedule.tiers.row_problem import (
    REG,
    REREAD,
    RESIDENCIES,
    SMEM,
    RowProblem,
    registers,
    smem_bytes,
    threads_a_block,
)

# ------------------------------------------------------------------------------------------------------ rules


@rule("vec_is_power_of_two")
def _vec_power(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A power of two elements a thread and step."""
    return (c["vec"] > 0) & (c["vec"] & (c["vec"] - 1) == 0)


@rule("threads_are_power_of_two")
def _threads_power(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A power of two threads a row."""
    return c["threads"] & (c["threads"] - 1) == 0


@rule("threads_fit")
def _threads_fit(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """As many threads a block as the device takes, at most."""
    return threads_a_block(problem, caps, c) <= caps.max_threads


@rule("vec_at_most_32_accesses")
def _vec_accesses(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """At most 32 accesses a thread and step."""
    return c["vec"] // problem.access(caps, c["vec"]) <= 32


@rule("step_within_row", policy=True)
def _step_within(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A step that overhangs the row by less than a whole step: the next smaller one does the same work."""
    if problem.program.across:
        return (problem.access(caps, c["vec"]) < 2 * max(problem.last, 1)) | (c["vec"] == 1)
    step = c["vec"] * c["threads"] * c["split"]
    return (step < 2 * max(problem.last, 1)) | (step == 1)


@rule("rows_within_problem", policy=True)
def _rows_within(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A block that overhangs the rows by less than a whole block."""
    total = np.full(len(c["vec"]), problem.rows, dtype=np.int64)
    if problem.program.is_map:
        total *= -(-problem.columns // (c["vec"] * c["threads"]).astype(np.int64))
    lanes = problem.access(caps, c["vec"]) if problem.program.across else 1
    return np.asarray((c["rows"] < 2 * np.maximum(total, 1)) | (c["rows"] == lanes) | (c["rows"] == 1))


@rule("rows_are_whole_vectors")
def _rows_vectors(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Whole vectors of rows, where the rows are the contiguous axis."""
    if not problem.program.across:
        return np.ones(len(c["vec"]), dtype=bool)
    return c["rows"] % problem.access(caps, c["vec"]) == 0


@rule("threads_share_contiguous_rows")
def _threads_share(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """One thread a row, where the rows are the contiguous axis."""
    return (c["threads"] == 1) | (not problem.program.across)


@rule("residency_holds_something")
def _holds(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A row that is read more than once, to hold it."""
    return (c["residency"] == REREAD) | ((problem.held > 0) & (problem.columns > 0))


@rule("resident_row_has_constant_columns")
def _constant(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Columns of a constant number that lie one after the other, to hold a row."""
    return (c["residency"] == REREAD) | (problem.fixed and not problem.program.across)


@rule("register_row_is_whole_accesses")
def _reg_divides(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A row of whole accesses, to hold it in registers."""
    return (c["residency"] != REG) | (problem.columns % problem.access(caps, c["vec"]) == 0)


@rule("registers_fit")
def _registers_fit(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A held row within the registers of a thread."""
    return (c["residency"] != REG) | (registers(problem, caps, c) <= caps.registers)


@rule("shared_memory_fits")
def _smem_fits(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Held rows and exchanged values within the shared memory of a block."""
    return smem_bytes(problem, caps, c) <= caps.smem_bytes


@rule("split_reductions_are_independent")
def _split_level(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Reductions that do not wait for each other, to split a row over blocks."""
    return (c["split"] == 1) | problem.splits


@rule("split_rereads")
def _split_rereads(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A row that is not held, to split it over blocks."""
    return (c["split"] == 1) | (c["residency"] == REREAD)


@rule("split_within_columns")
def _split_within(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A split that leaves each block's threads an access."""
    width = 1 if problem.program.across else 1 * c["vec"]
    return (c["split"] == 1) | (c["split"] * c["threads"] * width <= problem.columns)


@rule("atomics_join_plain_sums")
def _atomics(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Atomics for a split whose outputs are plain float32 sums of contiguous rows, on a device that adds float32
    atomically."""
    able = caps.atomics_f32 and problem.plain and not problem.program.across
    return (c["atomic"] == 0) | ((c["split"] > 1) & able)


@rule("map_has_nothing_to_keep")
def _map_plain(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Nothing held and no split, where nothing is reduced."""
    plain = (c["residency"] == REREAD) & (c["split"] == 1)
    return plain | (not problem.program.is_map)


@rule("fast_exp_needs_exp")
def _fast_exp(problem: RowProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """An exponential, to make it a fast one."""
    return (c["fast_exp"] == 0) | problem.has_exp


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
        gates = (0, 1) if fast_math and problem.has_exp else (0,)
        if caps.warp > 1 and not problem.program.across:
            return gpu_map(problem, caps, gates) if problem.program.is_map else gpu_rows(problem, caps, gates)
        widest = problem.widest(caps)
        residencies = (REREAD,) if problem.held == 0 else (REG, SMEM, REREAD)
        vecs = [v for v in (1, 2, 4, 8, 16, 32, 64, 128, 256) if v >= min(widest, 4) // 2]
        if caps.warp == 1:
            rows = [1, 2, 4, 8, 16, 32, 64]
            if problem.program.is_map:
                rows += [128, 256, 512, 1024]
            splits: tuple[int, ...] = (1, 2, 4, 8, 16)
        else:
            vecs = [v for v in vecs if v <= 8 * widest]
            splits = (1, 2, 4, 8, 16, 32, 64)
        if problem.program.across:
            rows = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
        whole = product(rows=rows, vec=vecs, residency=residencies, threads=(1,), split=(1,), atomic=(0,),
                        fast_exp=gates)  # fmt: skip
        if not problem.splits:
            return whole
        split = product(rows=rows[:4] if not problem.program.across else rows, vec=vecs, residency=(REREAD,),
                        threads=(1,), split=splits[1:], atomic=(0, 1), fast_exp=gates)  # fmt: skip
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
