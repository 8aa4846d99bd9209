"""Stores and rows for the tests of the store."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from emmy.bench.records import SCREEN, Measurement, Status
from emmy.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "emmy.duckdb", lock_wait_s=5)


@pytest.fixture(scope="session")
def measurement() -> Callable[..., Measurement]:
    """`measurement(7, status=...)`: an OK measurement of variant 7, which takes 17 µs, with the changes given."""

    def build(index: int = 0, **changes: object) -> Measurement:
        values: dict[str, object] = {
            "region": f"r{index % 3}",
            "device": "cpu-test",
            "driver": "1",
            "compiler": "2",
            "kernel": f"k_matmul_{index % 3}",
            "knobs": json.dumps({"FUSE": "", "TILE": f"n16x8/f{index + 1}x2", "STAGE": "d2/sync" if index % 2 else ""}),
            "lane": "std",
            "regime": "O3",
            "protocol": SCREEN.label,
            "plan_digest": f"d{index}",
            "sweep": "s1",
            "status": Status.OK,
            "median_us": 10.0 + index,
            "low_us": 9.5 + index,
            "high_us": 10.5 + index,
            "samples": 3,
        }
        return Measurement(**(values | changes))  # type: ignore[arg-type]

    return build
