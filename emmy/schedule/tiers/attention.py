"""The attention tier: scores, online softmax and values in one kernel, on scalar threads or a CPU's vectors.

TILE@qk spells the scores' tile (keys × query rows), TILE@pv the output's (value columns × query rows, keys a block as
its k step); both have the same threads and rows, since a thread keeps its rows' maximum, total and output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emmy.device.base import Capabilities
from emmy.errors import Refused
from emmy.ir.nest import Region
from emmy.ir.plan import Plan
from emmy.passes.attention_parts import Attention, match_attention
from emmy.passes.lower.attention import lower_attention
from emmy.passes.lower.attention_leaf import AttentionLeaf
from emmy.schedule.knobs import OFF, Gate, KnobKey, KnobMap, KnobValue, ScalarTile, Stage
from emmy.schedule.tiers.base import Columns, Rule, Tier, concat, product, rule

STEPS = ("qk", "pv")
"""The steps that this tier's TILE keys name."""


def lanes_of(fm: Any, n: Any, caps: Capabilities) -> Any:
    """Width of the row vectors: on a CPU the largest power of two that divides fm, up to the device's vector."""
    if caps.kind != "cpu":
        return np.ones_like(np.asarray(fm))
    rows = np.asarray(fm)
    return np.where(np.asarray(n) == 1, np.minimum(rows & -rows, caps.vector_lanes(4)), 1)


@rule("threads_fit")
def _threads_fit(problem: Attention, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """As many threads a block as the device takes, at most."""
    return c["n"] * c["m"] <= caps.max_threads


@rule("threads_power_of_two")
def _threads_power(problem: Attention, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A power of two threads a row: they exchange maxima and totals by halving."""
    return (c["n"] & (c["n"] - 1)) == 0


@rule("passes_cover_key_block")
def _passes(problem: Attention, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A block of keys of whole passes."""
    return c["bk"] % (c["n"] * c["fq"]) == 0


@rule("head_dim_covered")
def _columns_covered(problem: Attention, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A head dimension that the threads' columns divide."""
    return problem.sizes[4] % (c["n"] * c["fp"]) == 0


@rule("block_within_problem", policy=True)
def _block_within(problem: Attention, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A block that overhangs rows and keys by less than a whole block."""
    _, m, n, _, _ = problem.sizes
    rows = c["m"] * c["fm"]
    return ((rows < 2 * max(m, 1)) | (rows == 1)) & ((c["bk"] < 2 * max(n, 1)) | (c["bk"] == c["n"] * c["fq"]))


@rule("registers_fit")
def _registers_fit(problem: Attention, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Fragments within the registers of a thread; on a CPU within half as many again, which its compiler spills
    gently."""
    limit = caps.registers * 3 // 2 if caps.kind == "cpu" else min(caps.registers, 255)
    return _registers(problem, caps, c) <= limit


@rule("shared_memory_fits")
def _smem_fits(problem: Attention, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Blocks of keys and values within the shared memory of a block."""
    return _smem(problem, caps, c) <= caps.smem_bytes


@rule("float32_values")
def _float32(problem: Attention, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Operands computed with in float32."""
    return np.full(len(c["n"]), problem.comp.dtype.compute.value == "f32")


class AttentionTier(Tier):
    """Fused attention; knobs TILE@qk, TILE@pv, STAGE and FAST_EXP."""

    name: ClassVar[str] = "attention"
    rules: ClassVar[tuple[Rule, ...]] = (
        _float32, _threads_fit, _threads_power, _passes, _columns_covered, _block_within, _registers_fit, _smem_fits,
    )  # fmt: skip

    def match(self, region: Region, caps: Capabilities) -> Attention:
        return match_attention(region)

    def grid(self, problem: Attention, caps: Capabilities, fast_math: bool) -> Columns:
        fast = (0, 1) if fast_math else (0,)
        if caps.kind == "cpu":
            wide = caps.vector_lanes(4)
            return product(
                n=(1,), m=(1,), fm=sorted({1, 4, wide, 2 * wide, 3 * wide, 4 * wide}), fq=(1, 2, 4, 6, 8, 16),
                fp=(1, 2, 4, 8, 16), bk=(16, 32, 48, 64, 128, 256), stage=(0, 1), fast=fast,
            )  # fmt: skip
        return concat(
            [
                product(
                    n=(n,),
                    m=(2, 4, 8, 16, 32),
                    fm=(1, 2, 4, 8),
                    fq=(1, 2, 4, 8),
                    fp=sorted({max(1, problem.sizes[4] // n), max(1, problem.sizes[4] // (2 * n))}),
                    bk=(16, 32, 64, 128),
                    stage=(0, 1),
                    fast=fast,
                )
                for n in (4, 8, 16, 32)
            ]
        )

    def knobs(self, problem: Attention, columns: Columns, row: int) -> KnobMap:
        v = {name: int(column[row]) for name, column in columns.items()}
        values: dict[str, KnobValue] = {
            "FUSE": OFF,
            "TILE@qk": ScalarTile(v["n"], v["m"], v["fq"], v["fm"]),
            "TILE@pv": ScalarTile(v["n"], v["m"], v["fp"], v["fm"], v["bk"]),
            "REDUCE": OFF,
            "STAGE": Stage(1, "sync") if v["stage"] else OFF,
            "WSPEC": OFF,
            "RASTER": OFF,
            "FAST_EXP": Gate() if v["fast"] else OFF,
        }
        return KnobMap(tuple((KnobKey.parse(name), value) for name, value in values.items()))

    def read(self, problem: Attention, knobs: KnobMap) -> Columns:
        tiles = {step: knobs.get(f"TILE@{step}", knobs.get("TILE")) for step in STEPS}
        qk, pv = tiles["qk"], tiles["pv"]
        if not isinstance(qk, ScalarTile) or not isinstance(pv, ScalarTile) or pv.k is None:
            raise Refused("attention_tiles", found=f"TILE@qk={qk}, TILE@pv={pv}",
                          expected="scalar tiles, pv's with keys a block: n1x1/f4x16, n1x1/f4x16/k64")  # fmt: skip
        if (qk.n, qk.m, qk.fm) != (pv.n, pv.m, pv.fm) or qk.k is not None:
            raise Refused("attention_tiles_agree", found=f"TILE@qk={qk}, TILE@pv={pv}",
                          expected="the same threads and rows, a k step for pv alone")  # fmt: skip
        stage = knobs.get("STAGE", OFF)
        if stage not in (OFF, Stage(1, "sync")):
            raise Refused("attention_stage", found=f"STAGE={stage}", expected="'' or d1/sync")
        for family in ("FUSE", "REDUCE", "WSPEC", "RASTER"):
            if knobs.get(family, OFF) != OFF:
                raise Refused("attention_families", found=f"{family}={knobs[family]}", expected=f"{family} off")
        values = {
            "n": qk.n, "m": qk.m, "fm": qk.fm, "fq": qk.fn, "fp": pv.fn, "bk": pv.k,
            "stage": int(stage != OFF), "fast": int(isinstance(knobs.get("FAST_EXP", OFF), Gate)),
        }  # fmt: skip
        return {name: np.array([value], dtype=np.int32) for name, value in values.items()}

    def labels(self, problem: Attention, columns: Columns) -> Mapping[str, NDArray[np.int64]]:
        c = {name: column.astype(np.int64) for name, column in columns.items()}
        return {
            "cta": c["m"] * c["fm"] * 65536 + c["bk"],
            "warp": ((c["n"] * 1024 + c["fm"]) * 1024 + c["fq"]) * 1024 + c["fp"],
            "stage": c["stage"] * 2 + c["fast"],
        }

    def features(self, problem: Attention, caps: Capabilities, columns: Columns) -> dict[str, NDArray[np.float64]]:
        c = {name: column.astype(np.float64) for name, column in columns.items()}
        outer, m, n, d, columns_ = problem.sizes
        lanes = lanes_of(columns["fm"], columns["n"], caps).astype(np.float64)
        rows = c["m"] * c["fm"]
        tiles = np.ceil(max(m, 1) / rows)
        blocks = tiles * outer
        waves = blocks / caps.units
        registers = _registers(problem, caps, columns).astype(np.float64)
        smem = _smem(problem, caps, columns).astype(np.float64)
        key_blocks = np.ceil(max(n, 1) * problem.visible / c["bk"])
        threaded = c["n"] * c["m"] > 1
        block_bytes = (rows * (d + columns_) + n * problem.visible * (d + columns_)) * 4
        fewest = max(1.0, 4.0 * outer * (m + n) * (d + columns_))
        return {
            "threads": c["n"] * c["m"],
            "blocks": blocks,
            "waves": waves,
            "tail_units": 1.0 - waves / np.ceil(np.maximum(waves, 1e-9)),
            "tail_m": 1.0 - m / (tiles * rows),
            "tail_n": 1.0 - n / (np.ceil(max(n, 1) / c["bk"]) * c["bk"]),
            "vector_share": lanes / caps.vector_lanes(4),
            "fragment": c["fq"] * c["fm"] / lanes,
            "registers": registers,
            "spill": np.maximum(0.0, registers - caps.registers),
            "intensity": 2 * c["fq"] * c["fm"] / ((c["fq"] + c["fm"]) * 4),
            "block_bytes": block_bytes,
            "traffic": block_bytes * blocks / fewest,
            "smem_bytes": smem,
            "smem_share": smem / max(1, caps.smem_bytes),
            "stage_depth": c["stage"],
            "k_step": c["bk"],
            "split": np.ones_like(rows),
            "barriers": np.where(threaded, key_blocks * (2 + c["stage"] + 2 * np.log2(np.maximum(c["n"], 1))), 0.0),
            "work_thread": c["fm"] * n * problem.visible * (d + columns_) / c["n"],
            "l1_share": np.minimum(4.0, smem / 32768),
            "launches": np.ones_like(rows),
            "fast_exp": c["fast"],
        }

    def lower(self, problem: Attention, caps: Capabilities, columns: Columns) -> Plan:
        reason = self.refuse(problem, caps, columns)
        if reason is not None:
            raise reason
        v = {name: int(column[0]) for name, column in columns.items()}
        lanes = int(lanes_of(v["fm"], v["n"], caps))
        leaf = AttentionLeaf(
            v["n"], v["m"], v["fm"], v["fq"], v["fp"], v["bk"], lanes, bool(v["stage"]), bool(v["fast"])
        )
        return lower_attention(problem, leaf, problem.region.name, str(self.knobs(problem, columns, 0)))


def _registers(problem: Attention, caps: Capabilities, c: Columns) -> NDArray[np.int64]:
    """The larger of the two accumulators with its operands: vector registers on a CPU, 32-bit ones on a GPU."""
    lanes = lanes_of(c["fm"], c["n"], caps)
    vectors = c["fm"] // lanes
    if caps.kind == "cpu":
        return np.asarray(np.maximum(c["fq"], c["fp"]) * vectors + vectors + 1, dtype=np.int64)
    whole = c["n"] * c["fp"] == problem.sizes[4]
    output = c["fp"] * c["fm"]
    live = np.where(whole, output + c["fq"] * c["fm"], np.maximum(output, c["fq"] * c["fm"]))
    return np.asarray(live + 4 * c["fm"] + c["fq"] + c["fp"] + 32, dtype=np.int64)


def _smem(problem: Attention, caps: Capabilities, c: Columns) -> NDArray[np.int64]:
    """Bytes of a leaf's shared arrays, all float32; see emmy.passes.lower.attention_leaf.shared_elements."""
    _, _, _, d, columns = problem.sizes
    rows, bk = (c["m"] * c["fm"]).astype(np.int64), c["bk"].astype(np.int64)
    elements = (d + bk) * rows
    turned = (c["n"] * c["fp"] != columns) | (lanes_of(c["fm"], c["n"], caps) > 1)
    elements = elements + np.where(turned, columns * rows, 0)
    elements = elements + np.where(c["stage"] == 1, bk * (d + 1 + columns), 0)
    return np.asarray(4 * (elements + np.where(c["n"] > 1, c["n"] * c["m"], 0)), dtype=np.int64)
