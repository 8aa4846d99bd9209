"""A toy tier whose plans lower in microseconds, and a recording of every leaf of it: searches without a device."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emmy.bench.jobs import ReferenceSet
from emmy.bench.records import CONFIRM, SCREEN, Measurement, Status
from emmy.device.base import Capabilities
from emmy.device.replay import ReplayBench, export
from emmy.errors import Refused
from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Load, i32
from emmy.ir.kernel import BufferParam, Kernel, Store
from emmy.ir.nest import Axis, Comp, Output, Region, Tensor, region_key
from emmy.ir.plan import Launch, Plan
from emmy.priors.uninformed import UninformedPrior
from emmy.schedule import space as spaces
from emmy.schedule.knobs import OFF, KnobMap, Reduce, ScalarTile, Split
from emmy.schedule.tiers.base import Tier, product, rule
from emmy.search import tuner as tuners
from emmy.search.screening import Progress, TuneOptions
from emmy.search.tuner import Tuner
from emmy.store import Store as TuneStore

CAPS = Capabilities(
    "toy-cpu",
    "cpu",
    "opencl",
    "avx2",
    "driver 1",
    "compiler 1",
    units=2,
    max_threads=64,
    smem_bytes=1 << 15,
    vector_bits=256,
    registers=16,
    warp=1,
    llc_bytes=1 << 25,
    memory_bytes=1 << 32,
)


def matmul(size: int, name: str = "k_matmul_toy", outputs: str = "out") -> Region:
    i, j, k = (Axis(axis, i32(size)) for axis in "ijk")
    left, right = (Tensor(t, (i32(size), i32(size)), DType.F32) for t in ("x0", "x1"))
    product_ = Call("mul", (Load("x0", (i.var, k.var), DType.F32), Load("x1", (k.var, j.var), DType.F32)), DType.F32)
    comp = Comp("mm", (i, j), (product_,), DType.F32, (k,), "sum", origin=("matmul",))
    return Region(name, (), (left, right), (comp,), (Output(Tensor(outputs, (i32(size), i32(size)), DType.F32), "mm"),))


@rule("toy_area")
def _area(problem: Any, caps: Capabilities, c: Any) -> Any:
    return c["fn"] * c["fm"] <= 64


class ToyTier(Tier):
    """TILE n1x1/fAxB/kK with A, B, K powers of two, optionally split over 2 blocks."""

    name = "scalar"
    rules = (_area,)

    def match(self, region: Region, caps: Capabilities) -> Region:
        if len(region.comps) != 1 or region.comps[0].is_map:
            raise Refused("toy_one_reduction", found=f"{len(region.comps)} computations")
        return region

    def grid(self, problem: Region, caps: Capabilities, fast_math: bool) -> Any:
        return product(fn=(1, 2, 4, 8, 16, 32), fm=(1, 2, 4, 8, 16), k=(1, 2, 4, 8), split=(1, 2))

    def knobs(self, problem: Region, columns: Any, row: int) -> KnobMap:
        fn, fm, k, split = (int(columns[name][row]) for name in ("fn", "fm", "k", "split"))
        reduce = Reduce(Split(2, "k")) if split == 2 else OFF
        whole = {
            "FUSE": OFF,
            "TILE": ScalarTile(1, 1, fn, fm, k),
            "REDUCE": reduce,
            "STAGE": OFF,
            "WSPEC": OFF,
            "RASTER": OFF,
        }
        return KnobMap.parse(whole)

    def read(self, problem: Region, knobs: KnobMap) -> Any:
        tile, reduce = knobs.get("TILE"), knobs.get("REDUCE", OFF)
        if not isinstance(tile, ScalarTile) or (tile.n, tile.m) != (1, 1) or tile.k is None:
            raise Refused("toy_tile", found=f"TILE={tile}", expected="n1x1/f.x./k.")
        if knobs.get("STAGE", OFF) != OFF:
            raise Refused("toy_stage", found=f"STAGE={knobs['STAGE']}", expected="''")
        values = {"fn": tile.fn, "fm": tile.fm, "k": tile.k, "split": 2 if reduce != OFF else 1}
        return {name: np.array([value], dtype=np.int32) for name, value in values.items()}

    def labels(self, problem: Region, columns: Any) -> Any:
        c = {name: column.astype(np.int64) for name, column in columns.items()}
        return {"cta": c["fn"] * 1000 + c["fm"], "k": c["k"], "reduce": c["split"]}

    def features(self, problem: Region, caps: Capabilities, columns: Any) -> Any:
        c = {name: column.astype(np.float64) for name, column in columns.items()}
        return {
            "fragment": c["fn"] * c["fm"] / 8,
            "k_unroll": c["k"],
            "split": c["split"],
            "registers": c["fm"],
            "work_thread": c["fn"] * c["fm"],
        }

    def lower(self, problem: Region, caps: Capabilities, columns: Any) -> Plan:
        reason = self.refuse(problem, caps, columns)
        if reason is not None:
            raise reason
        fn, fm, k, split = (int(columns[name][0]) for name in ("fn", "fm", "k", "split"))
        out = problem.outputs[0].tensor
        # a kernel of its own for each leaf: names do not tell kernels apart
        number = float(((fn * 17 + fm) * 9 + k) * 3 + split)
        body = (Store(out.name, i32(0), Const(number, DType.F32), DType.F32),)
        name = f"{problem.name}_{fn}_{fm}_{k}_{split}"
        kernel = Kernel(name, (BufferParam(out.name, DType.F32, writable=True),), (1, 1), body)
        launch = Launch(kernel, (i32(1), i32(1), i32(1)), (out.name,))
        return Plan(problem.name, (), problem.inputs, (out,), (), (launch,), str(self.knobs(problem, columns, 0)))


def latency_us(knobs: KnobMap) -> float:
    """Best at f16x4/k4 without a split; smooth around it."""
    tile = knobs["TILE"]
    assert isinstance(tile, ScalarTile)
    far = abs(math.log2(tile.fn / 16)) + 0.7 * abs(math.log2(tile.fm / 4)) + 0.2 * abs(math.log2((tile.k or 1) / 4))
    return 100.0 * math.exp(0.4 * far) * (1.0 if knobs["REDUCE"] == OFF else 1.3)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Capabilities:
    """Makes the toy tier the only one, and regions uncuttable; returns the toy device's capabilities."""
    monkeypatch.setattr(spaces, "tiers", lambda: (ToyTier(),))
    monkeypatch.setattr(tuners, "cuts", lambda region: ())
    return CAPS


@pytest.fixture
def recording(toy: Capabilities, tmp_path: Path) -> Callable[..., Path]:
    """Records every leaf of regions as if swept: ``spread`` is the relative width of the quartiles.

    us: latencies, of the deployable build; cheap: of the cheap one, screened alone, where it is given.
    """

    def row(
        variant: tuners.Variant, protocol: str, status: Status, us: float | None, spread: float, regime: str = "O3"
    ) -> Measurement:
        whole = (
            region_key(variant.region),
            toy.name,
            toy.driver,
            toy.compiler,
            variant.region.name,
            variant.text,
            "std",
        )
        low, high = us and us * (1 - spread / 2), us and us * (1 + spread / 2)
        build = (regime, protocol, variant.digest, "recorded", status)
        return Measurement(*whole, *build, median_us=us, low_us=low, high_us=high, samples=5)

    def record(
        *regions: Region,
        spread: float = 0.0,
        fails: Callable[[KnobMap], Status | None] = lambda _: None,
        also: Sequence[tuple[tuners.Variant, float]] = (),
        us: Callable[[KnobMap], float] = latency_us,
        cheap: Callable[[KnobMap], float] | None = None,
    ) -> Path:
        source = TuneStore(tmp_path / "source" / "emmy.duckdb")
        rows = []
        for region in regions:
            space = spaces.enumerate_space(region, toy)
            for leaf in range(len(space)):
                variant = tuners.Variant(region, toy, space.knobs(leaf), space.lower(leaf))
                status = fails(variant.knobs) or Status.OK
                took = us(variant.knobs) if status is Status.OK else None
                rows += [row(variant, protocol.label, status, took, spread) for protocol in (SCREEN, CONFIRM)]
                if cheap is not None:
                    rows.append(row(variant, SCREEN.label, Status.OK, cheap(variant.knobs), spread, "O1"))
        rows += [row(v, protocol.label, Status.OK, took, spread) for v, took in also for protocol in (SCREEN, CONFIRM)]
        source.append(*rows)
        export(source, "recorded", tmp_path / "sweep.parquet")
        return tmp_path / "sweep.parquet"

    return record


@pytest.fixture
def make_tuner(toy: Capabilities, tmp_path: Path) -> Callable[..., Tuner]:
    """A tuner on recorded replies: ``make_tuner(recording, patience=…, store=…, seen=list)``."""

    def make(
        recording: Path,
        *,
        patience: int = 12,
        store: TuneStore | None = None,
        sweep: str = "s1",
        seen: list[Progress] | None = None,
        prior: Any = None,
    ) -> Tuner:
        return Tuner(
            ReplayBench(recording),
            store or TuneStore(tmp_path / "tuned" / "emmy.duckdb"),
            toy,  # type: ignore[arg-type]
            prior or UninformedPrior("a test"),
            lambda region: ReferenceSet("none", 0, ()),
            sweep,
            TuneOptions(patience, o1=True),
            (seen if seen is not None else []).append,
        )

    return make


@pytest.fixture
def region(toy: Capabilities) -> Region:
    return matmul(64)


@pytest.fixture
def region_of() -> Callable[..., Region]:
    """``region_of(size, name)``: a square matmul of the toy tier."""
    return matmul


@pytest.fixture
def true_us() -> Callable[[KnobMap], float]:
    """The latency that a recording holds for a leaf."""
    return latency_us
