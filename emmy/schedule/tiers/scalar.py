"""The scalar tier: contractions as register tiles of ordinary arithmetic, on every device.

A CPU runs one thread a block and explicit vectors (PoCL turns a float16 into one register); a GPU runs hundreds of
threads that share operand tiles through a shared-memory ring.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emmy.device.base import Capabilities
from emmy.errors import Refused
from emmy.ir.dtype import DType
from emmy.ir.expr import Const, Expr, Load
from emmy.ir.nest import Region
from emmy.ir.plan import Plan
from emmy.passes.contraction import Contraction, match_contraction
from emmy.passes.lower.scalar import lower_scalar
from emmy.passes.lower.scalar_threads import ScalarLeaf
from emmy.passes.lower.staging import PAD
from emmy.passes.lower.tile import loads_of
from emmy.schedule.knobs import OFF, Cooperative, KnobKey, KnobMap, KnobValue, Raster, Reduce, ScalarTile, Split, Stage
from emmy.schedule.tiers.base import Columns, Rule, Tier, concat, product, rule
from emmy.schedule.tiers.scalar_busy import busy
from emmy.schedule.tiers.split import HOWS, clustered_in_one_wave, peer_bytes

TRANSPORTS = ("", "sync", "async")
"""Codes of the transport column; 0: operands are read straight from memory."""

SM_REGISTERS = 65536
SM_THREADS = 1536
"""Of a multiprocessor; some architectures have 2048."""
SMEM_RESERVED = 1024
"""Bytes of shared memory that each block takes for itself, beyond what it asks for."""


def lanes_of(fn: Any, caps: Capabilities, dtype: DType) -> Any:
    """Width of a fragment's vectors: the largest power of two that divides fn, up to the device's vector."""
    widest = caps.vector_lanes(dtype.compute.nbytes)
    return np.minimum(np.asarray(fn) & -np.asarray(fn), widest)


def paired(
    threads: Sequence[tuple[int, int]],
    fragments: Sequence[tuple[int, int]],
    steps: Sequence[tuple[int, int]],
    **values: Sequence[int],
) -> Columns:
    """The product of pairs (n, m), (fn, fm) and (k, depth), and of ``values``."""
    pairs = {("n", "m"): threads, ("fn", "fm"): fragments, ("k", "depth"): steps}
    grid = product(**{name: range(len(choice)) for (name, _), choice in pairs.items()}, **values)
    for (first, second), choice in pairs.items():
        table = np.array(choice, dtype=np.int32)
        grid[second] = table[grid[first], 1]
        grid[first] = table[grid[first], 0]
    return grid


def _half(problem: Contraction) -> bool:
    """Whether both factors are read as 16-bit floats."""
    tensors = [problem.region.tensor(load.tensor) for side in (problem.a, problem.b) for load in loads_of(side)]
    return all(tensor.dtype in (DType.F16, DType.BF16) for tensor in tensors)


@rule("threads_fit")
def _threads_fit(problem: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """As many threads a block as the device takes, at most."""
    return c["n"] * c["m"] * c["slices"] <= caps.max_threads


@rule("registers_fit")
def _registers_fit(problem: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Fragments and what feeds them within the registers of a thread; on a CPU within half as many again, which its
    compiler spills gently."""
    limit = caps.registers * 3 // 2 if caps.kind == "cpu" else caps.registers
    return _registers(caps, problem, c) <= limit


@rule("shared_memory_fits")
def _smem_fits(problem: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A ring within the shared memory of a block."""
    return _smem(problem, caps, c) <= caps.smem_bytes


@rule("transport_offered")
def _transport_offered(problem: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A transport that the device has, and a depth beside it; neither for operands read straight from memory."""
    offered = np.array([not name or name in caps.transports for name in TRANSPORTS])
    return offered[c["transport"]] & ((c["transport"] == 0) == (c["depth"] == 0))


@rule("tile_within_problem", policy=True)
def _tile_within(problem: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A tile that overhangs the problem by less than a whole tile: the next smaller one does the same work."""
    _, m, n, _ = problem.sizes
    return ((c["m"] * c["fm"] < 2 * max(m, 1)) | (c["m"] * c["fm"] == 1)) & (
        (c["n"] * c["fn"] < 2 * max(n, 1)) | (c["n"] * c["fn"] == 1)
    )


@rule("vector_clamp_inside")
def _vector_inside(problem: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Vectors no wider than a row, and none along a symbolic N: edges are read at the row's last whole vector."""
    n = problem.size(problem.n)
    lanes = lanes_of(c["fn"], caps, problem.comp.dtype)
    symbolic = bool(problem.region.symbols) and not isinstance(problem.n.extent, Const)
    return np.asarray(lanes <= max(n, 1)) & ~np.asarray(symbolic & (lanes > 1))


@rule("split_within_k")
def _split_within(problem: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A split that leaves each part a k step."""
    return (c["split"] == 1) | (c["split"] * c["k"] <= problem.size(problem.k))


@rule("split_fills_the_device", policy=True)
def _split_fills(problem: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """On a GPU at most eight blocks a multiprocessor: a split buys blocks with traffic."""
    return (c["split"] == 1) | (caps.kind == "cpu") | (_tiles(problem, c) * c["split"] <= 8 * caps.units)


@rule("atomics_need_plain_f32_sum")
def _atomics(problem: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Atomics for a split whose one output is the plain float32 sum, on a device that adds float32 atomically."""
    plain = len(problem.epilogue) == 1 and problem.epilogue[0][1] is None
    f32 = problem.epilogue[0][0].tensor.dtype == DType.F32
    return (c["how"] != HOWS.index("a")) | ((c["split"] > 1) & bool(caps.atomics_f32 and plain and f32))


@rule("split_one_k_axis")
def _split_one_axis(problem: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """One reduced axis for a split."""
    return (c["split"] == 1) | (not problem.k_outer)


@rule("staged_in_order")
def _staged(problem: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """One reduced axis for a ring."""
    return (c["depth"] == 0) | (not problem.k_outer)


@rule("cluster_on_device")
def _cluster(p: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A cluster of 2, 4 or 8 blocks, as many as the device starts together."""
    sizes = np.isin(c["split"], (2, 4, 8)) & (c["split"] <= caps.cluster)
    return (c["how"] != HOWS.index("c")) | sizes


@rule("cluster_in_one_wave", policy=True)
def _one_wave(p: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Clusters that all run at once."""
    return clustered_in_one_wave(c, _tiles(p, c), caps.units)


@rule("cluster_shares_fragment")
def _cluster_shares(problem: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A cluster over a ring, whose blocks each sum as many whole float32 vectors of a fragment."""
    lanes = lanes_of(c["fn"], caps, problem.comp.dtype)
    even = (c["fm"] * c["fn"] // lanes) % c["split"] == 0
    able = problem.comp.dtype.compute == DType.F32
    return (c["how"] != HOWS.index("c")) | (even & (c["depth"] > 0) & able)


@rule("slices_are_warps")
def _slices(problem: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Slices of whole warps (n a multiple of 8, m of 4) over a ring, with as many steps of a slot each, on a GPU."""
    warps = (c["n"] % 8 == 0) & (c["m"] % 4 == 0) & (c["depth"] > 0) & (caps.kind != "cpu")
    return (c["slices"] == 1) | (warps & (c["k"] % c["slices"] == 0))


@rule("slices_for_few_tiles", policy=True)
def _slices_few(problem: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Slices for few tiles, 64 to 512 threads and 8 of k each: where blocks abound, more of them do the same without a
    sum."""
    threads = c["n"] * c["m"] * c["slices"]
    fits = (threads >= 64) & (threads <= 512) & (c["k"] >= 8 * c["slices"])
    return (c["slices"] == 1) | (fits & (_tiles(problem, c) * c["split"] <= 3 * caps.units))


@rule("group_within_rows")
def _group(problem: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A group of rows of blocks that the problem has."""
    _, m, _, _ = problem.sizes
    return (c["group"] == 0) | (c["group"] * c["m"] * c["fm"] < 2 * m)


@rule("group_orders_waves", policy=True)
def _group_waves(problem: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """More blocks than run at once: else their order does not matter."""
    return (c["group"] == 0) | (caps.kind == "cpu") | (_tiles(problem, c) > caps.units)


class ScalarTier(Tier):
    """Contractions on scalar threads; knobs TILE, REDUCE, STAGE and RASTER."""

    name: ClassVar[str] = "scalar"
    o1_valid: ClassVar[bool] = True
    rules: ClassVar[tuple[Rule, ...]] = (
        _threads_fit, _registers_fit, _smem_fits, _transport_offered, _tile_within, _vector_inside, _split_within,
        _split_one_axis, _staged, _atomics, _cluster, _one_wave, _cluster_shares,
        _slices, _slices_few, _split_fills, _group, _group_waves,
    )  # fmt: skip

    def match(self, region: Region, caps: Capabilities) -> Contraction:
        return match_contraction(region)

    def grid(self, problem: Contraction, caps: Capabilities, fast_math: bool) -> Columns:
        if caps.kind == "cpu":
            return self._cpu_grid(caps.vector_lanes(problem.comp.dtype.compute.nbytes))
        return self._gpu_grid(problem, caps)

    @staticmethod
    def _gpu_grid(problem: Contraction, caps: Capabilities) -> Columns:
        """Staged tiles through the device's best transport, a few through registers, and small plain ones.

        What is left out has no way to win: a fragment below 4 × 4 reads more than one shared word for two products (a
        small M has no choice), and a k step of 64 has the work of two of 32 in twice the shared memory.
        """
        plain = product(n=(8, 16, 32), m=(4, 8), fn=(1, 2, 4), fm=(1, 2, 4), k=(4, 8), depth=(0,), transport=(0,),
                        split=(1, 2, 4, 8), how=(0, 1), slices=(1,), group=(0,))  # fmt: skip
        through = product(n=(16,), m=(8, 16), fn=(2, 4, 8), fm=(4, 8), k=(8, 16), depth=(1, 2), transport=(1,),
                          split=(1, 2, 4), how=(0, 1), slices=(1,), group=(0,))  # fmt: skip
        if "async" not in caps.transports:
            wide = product(n=(8, 16, 32), m=(4, 8, 16), fn=(4, 8), fm=(1, 2, 4, 8), k=(8, 16, 32), depth=(1, 2),
                           transport=(1,), split=(1, 2, 4, 8), how=(0, 1), slices=(1,), group=(0, 8))  # fmt: skip
            return concat([wide, plain])
        rest = {"transport": (2,), "how": tuple(range(len(HOWS))), "slices": (1,)}
        if any(atom.startswith("mma") for atom in caps.atoms) and _half(problem):
            # matrix atoms always win: one NVIDIA H200, 2026-11-30, 1024³ float16: 9 us against the 73 us of the best
            # scalar leaf; what stays is for shapes that atoms refuse, and keeps the search from drowning in the rest
            few = paired([(16, 8), (16, 16)], [(4, 4), (8, 8)], [(16, 3)], split=(1, 2, 4), group=(0,), **rest)
            return concat([few, through, plain])
        threads = [(8, 8), (8, 16), (16, 4), (16, 8), (16, 16), (32, 4), (32, 8)]
        fragments = [(4, 4), (4, 8), (8, 4), (8, 8), (16, 4), (16, 8), (8, 16)]
        steps = [(8, 4), (16, 2), (16, 3), (16, 4), (32, 2), (32, 3)]
        m, n = problem.sizes[1], problem.sizes[2]
        # 96 columns a block of 8 threads across: 512 rows of 3072 are 128 such tiles, and 96 of 128 columns
        thirds = [(12, 8)] if n % 96 == 0 else []
        fragments += thirds
        parts = [paired(threads, fragments, steps, split=(1, 2, 3, 4, 6, 8, 16), group=(0, 8), **rest)]
        if m <= 128 or n <= 128:
            low = [(1, 4), (2, 4), (4, 1), (4, 2), (8, 1), (8, 2)]
            parts.append(paired(threads, low, steps, split=(1, 2, 4, 8, 16), group=(0,), **rest))
        # small tiles, and slices that give a multiprocessor warps all the same: for few tiles of an output
        small = [(8, 4), (8, 8), (16, 4), (8, 16), (16, 8)]
        deep = [(32, 2), (32, 3), (32, 4), (64, 2), (64, 3)]
        shared = {**rest, "slices": (2, 4, 8)}
        compact = [(4, 4), (4, 8), (8, 4), (8, 8), (16, 8), *thirds]
        parts.append(paired(small, compact, deep, split=(1, 2, 4, 8), group=(0,), **shared))
        # the tiles of recorded goldens: what a golden holds has to be within the search's reach
        parts.append(paired([(16, 8), (32, 8)], [(2, 4), (4, 8)], [(64, 2), (64, 3)], split=(1,), group=(0,), **rest))
        return concat([*parts, through, plain])

    @staticmethod
    def _cpu_grid(wide: int) -> Columns:
        """Register tiles on one thread a block, and a few blocks of several work-items: PoCL compiles those slowly, and
        they lose on 2 cores of an AMD EPYC 9004 (512³, 2026-11-30: 2.2 ms of CPU time against 1.5 ms)."""
        fn = sorted({max(1, wide // 2), wide, 2 * wide, 3 * wide, 4 * wide, 6 * wide} | {1, 4})
        one = {"n": (1,), "m": (1,), "depth": (0,), "transport": (0,), "how": (0,), "slices": (1,)}
        several = {
            "n": (1, 2, 4),
            "m": (4, 8),
            "fn": (wide, 2 * wide),
            "split": (1,),
            "how": (0,),
            "slices": (1,),
            "group": (0,),
        }
        return concat(
            [
                product(**one, fn=fn, fm=(1, 2, 3, 4, 6, 8, 12), k=(1, 2, 4, 8), split=(1, 2, 4), group=(0, 8, 32)),
                product(**several, fm=(2, 4, 6), k=(4,), depth=(0,), transport=(0,)),
                product(**several, fm=(4, 6), k=(64, 128, 256), depth=(1,), transport=(1,)),
            ]
        )

    def knobs(self, problem: Contraction, columns: Columns, row: int) -> KnobMap:
        v = {name: int(column[row]) for name, column in columns.items()}
        split = Split(v["split"], HOWS[v["how"]]) if v["split"] > 1 else None
        slices = Cooperative(v["slices"]) if v["slices"] > 1 else None
        values: dict[str, KnobValue] = {
            "FUSE": OFF,
            "TILE": ScalarTile(v["n"], v["m"], v["fn"], v["fm"], v["k"]),
            "REDUCE": Reduce(split, slices) if split or slices else OFF,
            "STAGE": Stage(v["depth"], TRANSPORTS[v["transport"]]) if v["depth"] else OFF,  # type: ignore[arg-type]
            "WSPEC": OFF,
            "RASTER": Raster(f"g{v['group']}") if v["group"] else OFF,
        }
        return KnobMap(tuple((KnobKey.parse(name), value) for name, value in values.items()))

    def read(self, problem: Contraction, knobs: KnobMap) -> Columns:
        tile = knobs.get("TILE")
        if not isinstance(tile, ScalarTile) or tile.k is None:
            raise Refused("scalar_tile", found=f"TILE={tile}", expected="a scalar tile with a k step: n1x1/f64x6/k4")
        if knobs.get("FUSE", OFF) != OFF or knobs.get("WSPEC", OFF) != OFF:
            raise Refused("scalar_families", found=str(knobs), expected="FUSE and WSPEC off")
        reduce, stage, raster = knobs.get("REDUCE", OFF), knobs.get("STAGE", OFF), knobs.get("RASTER", OFF)
        split = reduce.split if isinstance(reduce, Reduce) else None
        slices = reduce.cooperative if isinstance(reduce, Reduce) else None
        if isinstance(raster, Raster) and (raster.group is None or raster.cluster or raster.persistent):
            raise Refused("scalar_raster", found=f"RASTER={raster}", expected="'' or gN")
        if isinstance(stage, Stage) and stage.transport not in TRANSPORTS:
            raise Refused("scalar_stage", found=f"STAGE={stage}", expected="'', dN/sync or dN/async")
        group = raster.group if isinstance(raster, Raster) else 0
        values = {
            "n": tile.n, "m": tile.m, "fn": tile.fn, "fm": tile.fm, "k": tile.k,
            "depth": stage.depth if isinstance(stage, Stage) else 0,
            "transport": TRANSPORTS.index(stage.transport) if isinstance(stage, Stage) else 0,
            "split": split.parts if split else 1, "how": HOWS.index(split.how) if split else 0,
            "slices": slices.threads if slices else 1,
            "group": group or 0,
        }  # fmt: skip
        return {name: np.array([value], dtype=np.int32) for name, value in values.items()}

    def labels(self, problem: Contraction, columns: Columns) -> Mapping[str, NDArray[np.int64]]:
        c = {name: column.astype(np.int64) for name, column in columns.items()}
        return {
            "cta": c["m"] * c["fm"] * 65536 + c["n"] * c["fn"],
            "warp": c["fm"] * 65536 + c["fn"],
            "k": c["k"],
            "reduce": (c["slices"] * 4096 + c["split"]) * 4 + c["how"],
            "stage": c["depth"] * 4 + c["transport"],
            "raster": c["group"],
        }

    def features(self, problem: Contraction, caps: Capabilities, columns: Columns) -> dict[str, NDArray[np.float64]]:
        c = {name: column.astype(np.float64) for name, column in columns.items()}
        batch, m, n, k = problem.sizes
        nbytes = problem.comp.dtype.compute.nbytes
        lanes = lanes_of(columns["fn"], caps, problem.comp.dtype).astype(np.float64)
        block_m, block_n = c["m"] * c["fm"], c["n"] * c["fn"]
        tiles_m, tiles_n = np.ceil(max(m, 1) / block_m), np.ceil(max(n, 1) / block_n)
        blocks = tiles_m * tiles_n * batch * c["split"]
        waves = blocks / caps.units
        registers = _registers(caps, problem, columns).astype(np.float64)
        block_bytes = (block_m + block_n) * k / c["split"] * nbytes
        fewest = max(1.0, float(batch * (m * k + k * n) * nbytes))
        smem = _smem(problem, caps, columns).astype(np.float64)
        steps = np.ceil(k / (c["k"] * c["split"]))
        return {
            "threads": c["n"] * c["m"] * c["slices"],
            "cooperative": c["slices"],
            "blocks": blocks,
            "waves": waves,
            "tail_units": 1.0 - waves / np.ceil(np.maximum(waves, 1e-9)),
            "tail_m": 1.0 - m / (tiles_m * block_m),
            "tail_n": 1.0 - n / (tiles_n * block_n),
            "vector_share": lanes / caps.vector_lanes(nbytes),
            "fragment": c["fm"] * c["fn"] / lanes,
            "registers": registers,
            "spill": np.maximum(0.0, registers - caps.registers),
            "intensity": 2 * c["fm"] * c["fn"] / ((c["fm"] + c["fn"]) * nbytes),
            "block_bytes": block_bytes,
            "traffic": block_bytes * blocks / fewest,
            "smem_bytes": smem,
            "smem_share": smem / max(1, caps.smem_bytes),
            "stage_depth": c["depth"],
            "k_step": c["k"],
            "k_unroll": np.where(c["depth"] > 0, 1.0, c["k"]),
            "split": c["split"],
            "atomic": c["how"] == HOWS.index("a"),
            "cluster": c["how"] == HOWS.index("c"),
            "barriers": np.where(c["depth"] > 0, steps * np.where(c["depth"] > 1, 1, 2), 0.0),
            "work_thread": c["fm"] * c["fn"] * k / (c["split"] * c["slices"]),
            "grouped": (c["group"] > 0).astype(np.float64),
            "l1_share": np.minimum(4.0, (block_m + block_n) * np.minimum(k, 64) * nbytes / 32768),
            "launches": 1.0 + ((c["split"] > 1) & (c["how"] != HOWS.index("c"))),
            "busy": np.zeros(len(blocks)) if caps.kind == "cpu" else self._busy(problem, caps, columns),
        }

    @staticmethod
    def _busy(problem: Contraction, caps: Capabilities, columns: Columns) -> NDArray[np.float64]:
        held = np.maximum(_held(problem, caps, columns), 1).astype(np.float64)
        return busy(columns, problem.sizes, caps.units, held, columns["how"] == HOWS.index("c"))

    def lower(self, problem: Contraction, caps: Capabilities, columns: Columns) -> Plan:
        reason = self.refuse(problem, caps, columns)
        if reason is not None:
            raise reason
        v = {name: int(column[0]) for name, column in columns.items()}
        lanes = int(lanes_of(v["fn"], caps, problem.comp.dtype))
        leaf = ScalarLeaf(
            v["n"], v["m"], v["fn"], v["fm"], v["k"], lanes, v["split"], HOWS[v["how"]], v["depth"],
            TRANSPORTS[v["transport"]], v["group"], caps.kind == "cpu", _min_blocks(problem, caps, columns),
            v["slices"],
        )  # fmt: skip
        return lower_scalar(problem, leaf, problem.region.name, str(self.knobs(problem, columns, 0)))


def _tiles(problem: Contraction, c: Columns) -> NDArray[np.int64]:
    """Tiles of the output, all batches."""
    batch, m, n, _ = problem.sizes
    tiles = -(-max(m, 1) // (c["m"] * c["fm"])) * -(-max(n, 1) // (c["n"] * c["fn"])) * batch
    return np.asarray(tiles, dtype=np.int64)


def _registers(caps: Capabilities, problem: Contraction, c: Columns) -> NDArray[np.int64]:
    """Accumulators, a row of b and one of a: vector registers on a CPU, 32-bit registers on a GPU."""
    lanes = lanes_of(c["fn"], caps, problem.comp.dtype)
    if caps.kind == "cpu":
        columns = c["fn"] // lanes
        return np.asarray(c["fm"] * columns + columns + 1, dtype=np.int64)
    words = max(1, problem.comp.dtype.compute.nbytes // 4)
    return np.asarray((c["fm"] * c["fn"] + 2 * (c["fm"] + c["fn"])) * words + 24, dtype=np.int64)


def _min_blocks(problem: Contraction, caps: Capabilities, c: Columns) -> int:
    """Blocks that a multiprocessor holds by all estimates, so that the compiler keeps it so; 0 for one, or none staged.

    Left alone, the compiler takes 147 registers for a fragment of 8 × 8 that fits 128, and one block of 256 threads
    then has the multiprocessor to itself.
    """
    if caps.kind == "cpu" or not c["depth"][0]:
        return 0
    held = int(_held(problem, caps, c)[0])
    return held if held > 1 else 0


def _held(problem: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.int64]:
    """Blocks that a multiprocessor holds at once, by registers, shared memory and threads; 0 where none fits."""
    threads = (c["n"] * c["m"] * c["slices"]).astype(np.int64)
    registers = -(-_registers(caps, problem, c) // 8) * 8
    smem = _smem(problem, caps, c) + SMEM_RESERVED
    # each of the four parts of a multiprocessor has a quarter of the registers, and holds whole warps
    warps = SM_REGISTERS // 4 // (32 * registers) * 4
    by_memory = (caps.smem_bytes + SMEM_RESERVED) // smem
    return np.asarray(np.minimum(np.minimum(warps * 32 // threads, by_memory), SM_THREADS // threads), dtype=np.int64)


def _smem(problem: Contraction, caps: Capabilities, c: Columns) -> NDArray[np.int64]:
    """Bytes of the ring, each tile in the type it is staged in: an upper bound, whichever way rows of a run."""

    def width(factor: Expr) -> int:
        return (problem.region.tensor(factor.tensor).dtype if isinstance(factor, Load) else factor.dtype.compute).nbytes

    rows, k = (c["m"] * c["fm"]).astype(np.int64), c["k"].astype(np.int64)
    padding = PAD * k if caps.kind == "cpu" else PAD * np.maximum(rows, k)
    a = (rows * k + padding) * width(problem.a)
    b = (c["n"] * c["fn"]).astype(np.int64) * k * width(problem.b)
    ring = np.where(c["depth"] > 0, (a + b) * c["depth"], 0)
    tile = (c["m"] * c["fm"] * c["n"] * c["fn"]).astype(np.int64)
    slices = tile * (c["slices"] - 1) * problem.comp.dtype.compute.nbytes
    return np.asarray(ring + peer_bytes(c, tile) + slices, dtype=np.int64)
