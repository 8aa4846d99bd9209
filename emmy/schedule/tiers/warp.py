"""The warp tier: contractions of 16-bit operands on mma.sync atoms, tiles through a shared-memory ring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emmy.device.base import Capabilities
from emmy.errors import Refused
from emmy.ir.dtype import DType
from emmy.ir.fragment import ATOMS
from emmy.ir.nest import Region
from emmy.ir.plan import Plan
from emmy.passes.contraction import Contraction, match_contraction
from emmy.passes.lower.access import Memory
from emmy.passes.lower.operand import Operand
from emmy.passes.lower.prefetch import landing_bytes
from emmy.passes.lower.warp import lower_warp
from emmy.passes.lower.warp_leaf import WarpLeaf, chains, operands, stage_dtype, touched_ahead
from emmy.schedule.knobs import OFF, AtomTile, Cooperative, KnobKey, KnobMap, KnobValue, Raster, Reduce, Split, Stage
from emmy.schedule.knobs.values import is_fast_math_atom
from emmy.schedule.tiers.base import Columns, Rule, Tier, concat, product, rule
from emmy.schedule.tiers.split import HOWS, clustered_in_one_wave, peer_bytes

MMA = tuple(name for name, atom in ATOMS.items() if not atom.is_wgmma)
"""Codes of the atom column."""

TRANSPORTS = ("", "sync", "async")
"""Codes of the transport column; 0 is not used: operands always pass through shared memory."""

WARPS = ((1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (2, 4), (4, 2))
"""Warp grids (m, n) of the enumeration: 2, 4 and 8 warps."""

SLICED = ((1, 1), (1, 2), (2, 1), (2, 2))
"""Warp grids that are taken several times over, each set for its part of a k step."""

ATOM_M, ATOM_N, ATOM_K = 16, 8, 16
SM_REGISTERS = 65536
SM_THREADS = 2048


@dataclass(frozen=True, slots=True)
class WarpProblem:
    """A contraction whose factors are both of one 16-bit type.

    staged: see emmy.passes.lower.warp_leaf.stage_dtype. touched: bytes of an element of what is touched ahead there.
    """

    contraction: Contraction
    a: Operand
    b: Operand
    staged: DType | None
    touched: tuple[int, ...]
    atoms: tuple[str, ...]

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        return self.contraction.sizes


@rule("atom_takes_the_operands")
def _atom(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """An atom of the operands' types."""
    return np.array([name in p.atoms for name in MMA])[c["atom"]]


@rule("threads_fit")
def _threads_fit(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """As many threads a block as the device takes, at most."""
    return _threads(c) <= caps.max_threads


@rule("accumulators_fit")
def _accumulators_fit(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """At most 128 accumulators a thread, half of its registers: fragments, addresses and copies take the rest."""
    return _accumulators(c) <= 128


@rule("registers_fit")
def _registers_fit(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Estimated registers within those of a thread, and of a multiprocessor."""
    each = _registers(p, c)
    return (each <= caps.registers) & (each * _threads(c) <= SM_REGISTERS)


@rule("shared_memory_fits")
def _smem_fits(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A ring within the shared memory of a block."""
    return _smem(p, c) <= caps.smem_bytes


@rule("transport_offered")
def _transport_offered(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A ring, by a transport that the device has."""
    offered = np.array([bool(name) and name in caps.transports for name in TRANSPORTS])
    return offered[c["transport"]] & (c["depth"] >= 1)


@rule("async_copies_aligned_words")
def _async_aligned(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Operands that cp.async can copy: 4, 8 or 16 aligned bytes, and nothing computed on the way."""
    able = p.a.async_copies and p.b.async_copies
    return (c["transport"] != TRANSPORTS.index("async")) | able


@rule("ring_no_deeper_than_k", policy=True)
def _ring_depth(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """No more slots than k steps, two aside: those that no step fills cost memory and nothing else."""
    return (c["depth"] <= 2) | (c["depth"] - 1 <= _steps(p, c))


@rule("tile_within_problem", policy=True)
def _tile_within(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A tile that overhangs the problem by less than a whole tile: the next smaller one does the same work."""
    _, m, n, _ = p.sizes
    block_m, block_n = _block(c)
    return ((block_m < 2 * max(m, 1)) | (c["wm"] * c["fm"] == 1)) & (
        (block_n < 2 * max(n, 1)) | (c["wn"] * c["fn"] == 1)
    )


@rule("one_k_axis")
def _one_k(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """One reduced axis."""
    return np.full(len(c["wm"]), not p.contraction.k_outer)


@rule("split_within_k")
def _split_within(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A split that leaves each part a k step."""
    return (c["split"] == 1) | (c["split"] * c["k"] * ATOM_K <= p.sizes[3])


@rule("split_fills_the_device", policy=True)
def _split_fills(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """At most three blocks a multiprocessor: a split buys blocks with traffic."""
    return (c["split"] == 1) | (_tiles(p, c) * c["split"] <= 3 * caps.units)


@rule("atomics_need_plain_f32_sum")
def _atomics(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Atomics for a split whose one output is the plain float32 sum, on a device that adds float32 atomically."""
    epilogue = p.contraction.epilogue
    plain = len(epilogue) == 1 and epilogue[0][1] is None and epilogue[0][0].tensor.dtype == DType.F32
    return (c["how"] != HOWS.index("a")) | ((c["split"] > 1) & bool(caps.atomics_f32 and plain))


@rule("cluster_on_device")
def _cluster(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A cluster of 2, 4 or 8 blocks, as many as the device starts together."""
    sizes = np.isin(c["split"], (2, 4, 8)) & (c["split"] <= caps.cluster)
    return (c["how"] != HOWS.index("c")) | sizes


@rule("cluster_in_one_wave", policy=True)
def _one_wave(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Clusters that all run at once."""
    return clustered_in_one_wave(c, _tiles(p, c), caps.units)


@rule("cluster_shares_atoms")
def _cluster_shares(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A cluster whose blocks each sum as many of a warp's atoms: rows of them, or parts of a row."""
    parts = c["split"] // c["fm"]
    rows = c["fm"] % c["split"] == 0
    columns = (c["split"] % c["fm"] == 0) & (c["fn"] % np.maximum(parts, 1) == 0)
    return (c["how"] != HOWS.index("c")) | rows | columns


@rule("slices_share_atoms")
def _slices(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """As many atoms of a k step for every slice."""
    return c["k"] % c["slices"] == 0


@rule("slices_for_few_tiles", policy=True)
def _slices_few(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """Slices for few tiles: where blocks abound, more of them a multiprocessor do the same without a sum."""
    return (c["slices"] == 1) | (_tiles(p, c) * c["split"] <= 2 * caps.units)


@rule("group_within_rows")
def _group(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """A group of rows of blocks that the problem has."""
    block_m, _ = _block(c)
    return (c["group"] == 0) | (c["group"] * block_m < 2 * p.sizes[1])


@rule("group_orders_waves", policy=True)
def _group_waves(p: WarpProblem, caps: Capabilities, c: Columns) -> NDArray[np.bool_]:
    """More blocks than run at once: else their order does not matter."""
    return (c["group"] == 0) | (_tiles(p, c) > caps.units)


class WarpTier(Tier):
    """Contractions on warps' matrix atoms; knobs TILE, REDUCE, STAGE and RASTER."""

    name: ClassVar[str] = "warp"
    rules: ClassVar[tuple[Rule, ...]] = (
        _atom, _one_k, _threads_fit, _accumulators_fit, _registers_fit, _smem_fits, _transport_offered, _async_aligned,
        _ring_depth, _tile_within, _split_within, _split_fills, _atomics,
        _cluster, _one_wave, _cluster_shares, _slices, _slices_few, _group, _group_waves,
    )  # fmt: skip

    def match(self, region: Region, caps: Capabilities) -> WarpProblem:
        contraction = match_contraction(region)
        a, b = operands(contraction)
        if a.dtype != b.dtype:
            raise Refused("operands_of_one_type", found=f"{a.dtype.value} and {b.dtype.value}")
        atoms = tuple(name for name in MMA if name in caps.atoms and ATOMS[name].operand == a.dtype)
        if not atoms:
            raise Refused("device_has_atoms", found=caps.arch or caps.name, expected=f"mma.sync on {a.dtype.value}")
        return WarpProblem(contraction, a, b, stage_dtype(contraction), _touched(contraction), atoms)

    def grid(self, problem: WarpProblem, caps: Capabilities, fast_math: bool) -> Columns:
        atoms = [MMA.index(name) for name in problem.atoms if fast_math or not is_fast_math_atom(name)]
        able = problem.a.async_copies and problem.b.async_copies
        rings = [(2, TRANSPORTS.index("sync"))]
        if able:
            rings += [(depth, TRANSPORTS.index("async")) for depth in (2, 3, 4, 6)]
        parts = [
            product(
                atom=atoms, wm=(wm,), wn=(wn,), fm=(1, 2, 4), fn=(2, 4, 6, 8), k=(2, 4, 8), depth=(depth,),
                transport=(transport,), split=(1, 2, 3, 4, 8), how=tuple(range(len(HOWS))), group=(0, 4, 8, 16),
                slices=(1,),
            )
            for wm, wn in WARPS
            for depth, transport in rings
        ]  # fmt: skip
        parts += [
            product(
                atom=atoms, wm=(wm,), wn=(wn,), fm=(1, 2, 4), fn=(2, 4, 8), k=(4, 8), depth=(2, 3, 4),
                transport=(rings[-1][1],), split=(1, 2, 4), how=(HOWS.index("k"), HOWS.index("c")), group=(0,),
                slices=(2, 4),
            )
            for wm, wn in SLICED
        ]  # fmt: skip
        return concat(parts)

    def knobs(self, problem: WarpProblem, columns: Columns, row: int) -> KnobMap:
        v = {name: int(column[row]) for name, column in columns.items()}
        split = Split(v["split"], HOWS[v["how"]]) if v["split"] > 1 else None
        slices = Cooperative(v["slices"]) if v["slices"] > 1 else None
        values: dict[str, KnobValue] = {
            "FUSE": OFF,
            "TILE": AtomTile(MMA[v["atom"]], v["wm"], v["wn"], v["fm"], v["fn"], v["k"]),
            "REDUCE": Reduce(split, slices) if split or slices else OFF,
            "STAGE": Stage(v["depth"], TRANSPORTS[v["transport"]]),  # type: ignore[arg-type]
            "WSPEC": OFF,
            "RASTER": Raster(f"g{v['group']}") if v["group"] else OFF,
        }
        return KnobMap(tuple((KnobKey.parse(name), value) for name, value in values.items()))

    def read(self, problem: WarpProblem, knobs: KnobMap) -> Columns:
        tile = knobs.get("TILE")
        if not isinstance(tile, AtomTile) or tile.atom not in MMA:
            raise Refused("warp_tile", found=f"TILE={tile}", expected=f"atoms {', '.join(MMA)}")
        if knobs.get("FUSE", OFF) != OFF or knobs.get("WSPEC", OFF) != OFF:
            raise Refused("warp_families", found=str(knobs), expected="FUSE and WSPEC off")
        reduce, stage, raster = knobs.get("REDUCE", OFF), knobs.get("STAGE", OFF), knobs.get("RASTER", OFF)
        split = reduce.split if isinstance(reduce, Reduce) else None
        slices = reduce.cooperative if isinstance(reduce, Reduce) else None
        if isinstance(raster, Raster) and (raster.group is None or raster.cluster or raster.persistent):
            raise Refused("warp_raster", found=f"RASTER={raster}", expected="'' or gN")
        if not isinstance(stage, Stage) or stage.transport not in TRANSPORTS:
            raise Refused("warp_stage", found=f"STAGE={stage}", expected="dN/sync or dN/async")
        values = {
            "atom": MMA.index(tile.atom), "wm": tile.wm, "wn": tile.wn, "fm": tile.fm, "fn": tile.fn, "k": tile.k,
            "depth": stage.depth, "transport": TRANSPORTS.index(stage.transport),
            "split": split.parts if split else 1, "how": HOWS.index(split.how) if split else 0,
            "slices": slices.threads if slices else 1,
            "group": (raster.group or 0) if isinstance(raster, Raster) else 0,
        }  # fmt: skip
        return {name: np.array([value], dtype=np.int32) for name, value in values.items()}

    def labels(self, problem: WarpProblem, columns: Columns) -> Mapping[str, NDArray[np.int64]]:
        c = {name: column.astype(np.int64) for name, column in columns.items()}
        block_m, block_n = _block(c)
        return {
            "cta": (c["atom"] * 65536 + block_m) * 65536 + block_n,
            "warp": c["wm"] * 65536 + c["wn"],
            "k": c["k"],
            "reduce": (c["slices"] * 4096 + c["split"]) * 4 + c["how"],
            "stage": c["depth"] * 4 + c["transport"],
            "raster": c["group"],
        }

    def features(self, problem: WarpProblem, caps: Capabilities, columns: Columns) -> dict[str, NDArray[np.float64]]:
        c = {name: column.astype(np.float64) for name, column in columns.items()}
        batch, m, n, k = problem.sizes
        block_m, block_n = _block(c)
        tiles_m, tiles_n = np.ceil(max(m, 1) / block_m), np.ceil(max(n, 1) / block_n)
        blocks = tiles_m * tiles_n * batch * c["split"]
        waves = blocks / caps.units
        registers = _registers(problem, columns).astype(np.float64)
        smem = _smem(problem, columns).astype(np.float64)
        threads = _threads(c)
        block_bytes = (block_m + block_n) * k / c["split"] * 2
        fewest = max(1.0, float(batch * (m * k + k * n) * 2))
        steps = _steps(problem, columns).astype(np.float64)
        warp_m, warp_n = c["fm"] * ATOM_M, c["fn"] * ATOM_N
        held = np.minimum(SM_REGISTERS / (registers * threads), SM_THREADS / threads)
        held = np.minimum(held, caps.smem_bytes / np.maximum(smem, 1.0))
        fast = np.array([is_fast_math_atom(name) for name in MMA])[columns["atom"]]
        return {
            "threads": threads,
            "cooperative": c["slices"],
            "blocks": blocks,
            "waves": waves,
            "tail_units": 1.0 - waves / np.ceil(np.maximum(waves, 1e-9)),
            "tail_m": 1.0 - m / (tiles_m * block_m),
            "tail_n": 1.0 - n / (tiles_n * block_n),
            "vector_share": np.full(len(threads), min(problem.a.lanes, problem.b.lanes) / 8.0),
            "fragment": c["fm"] * c["fn"],
            "registers": registers,
            "intensity": warp_m * warp_n / (warp_m + warp_n),
            "block_bytes": block_bytes,
            "traffic": block_bytes * blocks / fewest,
            "smem_bytes": smem,
            "smem_share": smem / max(1, caps.smem_bytes),
            "stage_depth": c["depth"],
            "k_step": c["k"] * ATOM_K,
            "k_unroll": c["k"],
            "split": c["split"],
            "atomic": c["how"] == HOWS.index("a"),
            "cluster": c["how"] == HOWS.index("c"),
            "barriers": steps,
            "work_thread": c["fm"] * c["fn"] * k / (c["split"] * c["slices"]),
            "grouped": (c["group"] > 0).astype(np.float64),
            "launches": 1.0 + ((c["split"] > 1) & (c["how"] != HOWS.index("c"))),
            "resident_blocks": np.floor(np.maximum(held, 1.0)),
            "ring_bytes": _slot_bytes(columns) * np.maximum(c["depth"] - 1, 1),
            "async_copies": (columns["transport"] == TRANSPORTS.index("async")).astype(np.float64),
            "half_accumulate": fast.astype(np.float64),
        }

    def lower(self, problem: WarpProblem, caps: Capabilities, columns: Columns) -> Plan:
        reason = self.refuse(problem, caps, columns)
        if reason is not None:
            raise reason
        v = {name: int(column[0]) for name, column in columns.items()}
        leaf = WarpLeaf(
            MMA[v["atom"]], v["wm"], v["wn"], v["fm"], v["fn"], v["k"], v["depth"], TRANSPORTS[v["transport"]],
            v["split"], HOWS[v["how"]], v["group"], _min_blocks(problem, caps, columns), v["slices"],
        )  # fmt: skip
        knobs = str(self.knobs(problem, columns, 0))
        return lower_warp(problem.contraction, leaf, problem.contraction.region.name, knobs)


def _threads(c: Any) -> Any:
    return 32 * c["wm"] * c["wn"] * c["slices"]


def _block(c: Any) -> tuple[Any, Any]:
    """(rows, columns) of a block's tile."""
    return c["wm"] * c["fm"] * ATOM_M, c["wn"] * c["fn"] * ATOM_N


def _touched(contraction: Contraction) -> tuple[int, ...]:
    memory = Memory.of(contraction.region)
    return tuple(memory.tensors[load.tensor].dtype.nbytes for load in touched_ahead(contraction))


def _tiles(p: WarpProblem, c: Columns) -> NDArray[np.int64]:
    """Tiles of the output, all batches."""
    batch, m, n, _ = p.sizes
    block_m, block_n = _block(c)
    return np.asarray(-(-max(m, 1) // block_m) * -(-max(n, 1) // block_n) * batch, dtype=np.int64)


def _steps(p: WarpProblem, c: Columns) -> NDArray[np.int64]:
    """k steps of a block."""
    step = c["k"].astype(np.int64) * ATOM_K
    return -(-max(p.sizes[3], 1) // (step * c["split"]))


def _accumulators(c: Columns) -> NDArray[np.int64]:
    """32-bit registers that hold a thread's accumulators."""
    wide = np.array([4 if ATOMS[name].acc == DType.F32 else 2 for name in MMA])[c["atom"]]
    return np.asarray(c["fm"] * c["fn"] * wide * chains(c["fm"], c["fn"], c["k"] // c["slices"]), dtype=np.int64)


def _registers(p: WarpProblem, c: Columns) -> NDArray[np.int64]:
    """32-bit registers a thread needs: accumulators, fragments (of two atoms where a step has several), addresses, and
    with synchronous fills what it holds of the next step."""
    fragments = (4 * c["fm"] + 2 * c["fn"]) * np.where(c["k"] > c["slices"], 2, 1)
    addresses = 24 + 2 * c["k"] + c["fn"] // 2
    held = np.where(c["transport"] == TRANSPORTS.index("sync"), _held(p, c), 0)
    return _accumulators(c) + np.asarray(fragments + addresses + held, dtype=np.int64)


def _held(p: WarpProblem, c: Columns) -> NDArray[np.int64]:
    """32-bit registers that hold a thread's part of the next step: one for two elements that came as a vector."""
    total = np.zeros(len(c["wm"]), dtype=np.int64)
    for side, size in zip((p.a, p.b), _block(c), strict=True):
        elements = size.astype(np.int64) * c["k"] * ATOM_K // _threads(c)
        total += elements // (2 if side.load is not None and side.lanes > 1 else 1)
    return total


def _min_blocks(p: WarpProblem, caps: Capabilities, c: Columns) -> int:
    """Two where a multiprocessor holds two blocks by all estimates, so that the compiler keeps it so; else 0."""
    threads = int(_threads(c)[0])
    registers = int(_registers(p, c)[0]) * threads * 2 <= SM_REGISTERS
    smem = (int(_smem(p, c)[0]) + 1024) * 2 <= caps.smem_bytes + 1024
    return 2 if registers and smem and threads * 2 <= SM_THREADS else 0


def _slot_bytes(c: Columns) -> NDArray[np.int64]:
    block_m, block_n = _block(c)
    return np.asarray((block_m + block_n).astype(np.int64) * c["k"] * ATOM_K * 2, dtype=np.int64)


def _smem(p: WarpProblem, c: Columns) -> NDArray[np.int64]:
    """Bytes of the ring, of the pieces in which warps turn their results round, and of what they touch ahead."""
    turn = np.zeros(len(c["wm"]), dtype=np.int64)
    if p.staged is not None:
        piece = 2 * ATOM_M * c["fn"].astype(np.int64) * ATOM_N * p.staged.nbytes
        rows, columns = (side.astype(np.int64) for side in _block(c))
        landings = sum(landing_bytes(nbytes, rows, columns, _threads(c), c["split"]) for nbytes in p.touched)
        words = np.where(c["transport"] == TRANSPORTS.index("async"), landings, 0)
        turn = np.where((c["split"] == 1) | (c["how"] == HOWS.index("c")), piece * c["wm"] * c["wn"] + words, 0)
    block_m, block_n = _block(c)
    tile = (block_m * block_n).astype(np.int64)
    return _slot_bytes(c) * c["depth"] + turn + peer_bytes(c, tile) + tile * (c["slices"] - 1) * 4
