"""A store with two kernels of a newer sweep, one of an older sweep, and failures."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from emmy.bench.records import CONFIRM, SCREEN, Measurement, Status
from emmy.store import Store, VariantRow

Put = Callable[..., Measurement]
DEVICE = "cpu-test"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Empty, where the command looks for it."""
    return Store(tmp_path / "_tune" / "emmy.duckdb")


@pytest.fixture
def put(store: Store) -> Put:
    """`put("matmul", 1, 12.5, rank=3)`: variant 1 of k_matmul took 12.5 µs and was third of 40 to the prior."""

    def append(kind: str, tile: int, us: float | None, *, rank: int = 0, stage: str = "", prior: str = "offline",
               **changes: object) -> Measurement:  # fmt: skip
        knobs = json.dumps({"FUSE": "", "TILE": f"n{tile}x8", "STAGE": stage})
        values: dict[str, object] = {
            "region": f"region of {kind}",
            "device": DEVICE,
            "driver": "1",
            "compiler": "2",
            "kernel": f"k_{kind}_3fa2c1",
            "knobs": knobs,
            "lane": "std",
            "regime": "O3",
            "protocol": SCREEN.label,
            "plan_digest": f"{kind} {tile}",
            "sweep": store.current_sweep(DEVICE),
            "status": Status.OK,
            "shape": f"quick.{kind}.256",
            "median_us": us,
        }
        row = Measurement(**(values | changes))  # type: ignore[arg-type]
        store.append(row)
        if rank:
            store.append(VariantRow(row.region, DEVICE, row.sweep, knobs, "std", "prior", prior, None, rank, 40))
        return row

    return append


@pytest.fixture
def measured(store: Store, put: Put) -> Store:
    """What the docstring of this file says, all of it still in the journal."""
    store.start_sweep(DEVICE, sweep="old")
    put("reduce", 1, 5.0)
    store.start_sweep(DEVICE, sweep="new")
    serialised = "(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized"
    put("matmul", 1, 12.5, rank=1, registers=40, spills=2, smem_bytes=4096, warnings=serialised)
    put("matmul", 2, 10.0, rank=7, registers=32)
    put("matmul", 2, 10.4, protocol=CONFIRM.label, registers=32)
    put("matmul", 3, 1234.5, regime="O1")
    put("matmul", 4, 300.0, abandoned=True, rank=2)
    put("matmul", 64, None, stage="d2/sync", status=Status.TIMEOUT, error="run exceeded its deadline of 5 s")
    put("matmul", 65, None, stage="d2/sync", status=Status.TIMEOUT, error="run exceeded its deadline of 6 s\nat 0x7f10")
    put("matmul", 66, None, status=Status.COMPILE_FAILED, error="ptxas: too much shared memory")
    put("softmax", 1, 3.0, rank=1, size="seq_len=512")
    return store
