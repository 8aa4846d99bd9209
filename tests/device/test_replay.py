import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from emmy.bench.artefact import Artefact
from emmy.bench.jobs import Row, TorchSource
from emmy.bench.records import CONFIRM, SCREEN, Measurement, Status
from emmy.bench.stats import compare, judge
from emmy.device.replay import Leaf, ReplayBench, export
from emmy.errors import InputError
from emmy.store import Store

FAST = Leaf("r", json.dumps({"TILE": "n16x8"}))
SLOW = Leaf("r", json.dumps({"TILE": "n4x8"}))
BROKEN = Leaf("r", json.dumps({"TILE": "n64x8"}))
STRANGER = Leaf("r", json.dumps({"TILE": "n1x1"}))
ARTEFACT = Artefact("k", "opencl", (), (), (), 1, 1)


def row(leaf: Leaf, median: float | None, **changes: object) -> Measurement:
    values: dict[str, object] = {
        "region": leaf.region,
        "device": "cpu-test",
        "driver": "1",
        "compiler": "2",
        "kernel": "k",
        "knobs": leaf.knobs,
        "lane": "std",
        "regime": "O3",
        "protocol": SCREEN.label,
        "plan_digest": f"digest of {leaf.knobs}",
        "sweep": "s1",
        "status": Status.OK,
        "median_us": median,
        "low_us": median and median * 0.98,
        "high_us": median and median * 1.02,
        "samples": 5,
        "registers": 32,
        "build_s": 0.25,
        "warnings": "C7504\nC7519",
    }
    return Measurement(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    store = Store(tmp_path / "emmy.duckdb")
    store.append(
        row(SLOW, 40.0), row(FAST, 10.0, plan_digest=ARTEFACT.plan_digest), row(FAST, 8.0, regime="O1"),
        row(FAST, 11.0, protocol=CONFIRM.label, plan_digest=ARTEFACT.plan_digest),
        row(BROKEN, None, status=Status.WRONG_RESULT, error="rel 0.5"), row(STRANGER, 1.0, sweep="another"),
    )  # fmt: skip
    assert export(store, "s1", tmp_path / "out" / "sweep.parquet") == 5
    return tmp_path / "out" / "sweep.parquet"


def test_a_reply_is_the_recorded_one_with_fresh_noise(recording: Path) -> None:
    reply = ReplayBench(recording).screen(FAST)
    assert (reply.status, reply.samples, reply.registers, reply.build_s) == (Status.OK, 5, 32, 0.25)
    assert reply.warnings == ("C7504", "C7519")
    assert reply.median_us is not None
    assert reply.low_us is not None
    assert reply.median_us != 10.0
    assert reply.median_us == pytest.approx(10.0, rel=0.1)
    assert reply.low_us / reply.median_us == pytest.approx(0.98)


def test_replies_depend_on_variant_and_seed_not_on_order(recording: Path) -> None:
    first, second = ReplayBench(recording), ReplayBench(recording)
    leaves = [SLOW, FAST, BROKEN, STRANGER]
    there = [first.screen(leaf) for leaf in leaves]
    back = [second.screen(leaf) for leaf in reversed(leaves)][::-1]
    assert there == back
    assert first.screen(FAST) == there[1]
    assert ReplayBench(recording, seed=1).screen(FAST).median_us != there[1].median_us


def test_the_spread_over_seeds_is_that_of_a_median(recording: Path) -> None:
    medians = [ReplayBench(recording, seed=seed).screen(FAST).median_us for seed in range(200)]
    logs = np.log(np.array(medians, dtype=float))
    sigma = math.log(1.02 / 0.98) / (2 * 0.67449)
    assert float(np.mean(logs)) == pytest.approx(math.log(10.0), abs=4 * sigma / math.sqrt(5 * 200))
    assert float(np.std(logs)) == pytest.approx(1.2533 * sigma / math.sqrt(5), rel=0.2)


def test_regime_and_protocol_are_told_apart(recording: Path) -> None:
    bench = ReplayBench(recording)
    assert bench.screen(FAST, regime="O1").median_us == pytest.approx(8.0, rel=0.1)
    assert bench.screen(SLOW, regime="O1").status == Status.NOT_RECORDED
    assert bench.screen(FAST, cache="warm").status == Status.NOT_RECORDED


def test_failures_are_replayed(recording: Path) -> None:
    reply = ReplayBench(recording).screen(BROKEN)
    assert (reply.status, reply.error, reply.median_us) == (Status.WRONG_RESULT, "rel 0.5", None)


def test_what_was_not_recorded_fails_as_such(recording: Path) -> None:
    reply = ReplayBench(recording).screen(STRANGER)
    assert (reply.status, reply.median_us) == (Status.NOT_RECORDED, None)
    assert "sweep.parquet" in reply.error


def test_an_artefact_is_found_by_its_plan_digest(recording: Path) -> None:
    bench = ReplayBench(recording)
    assert bench.screen(ARTEFACT) == bench.screen(FAST)
    assert bench.screen(Artefact("k", "opencl", ("-x",), (), (), 1, 1)).status == Status.NOT_RECORDED
    assert bench.qualify(ARTEFACT).status == Status.OK
    assert bench.qualify(ARTEFACT).rough_us == bench.screen(FAST).median_us


def test_leaves_are_those_of_the_recording(recording: Path) -> None:
    bench = ReplayBench(recording)
    assert set(bench.leaves()) == {FAST, SLOW, BROKEN}
    assert set(bench.leaves("r")) == {FAST, SLOW, BROKEN}
    assert bench.leaves("other") == []


def test_a_comparison_has_rounds_that_the_statistics_can_judge(recording: Path) -> None:
    with ReplayBench(recording) as bench:
        rows = [Row("a", FAST), Row("b", SLOW), Row("a again", FAST), Row("bad", BROKEN)]  # type: ignore[arg-type]
        result = bench.confirm(rows, sources=[TorchSource("x + 1")], processes=7, rounds=4)
    assert [len(process) for process in result.seconds["a"]] == [4] * 7
    # FAST has a confirmation on record, 11 µs; SLOW a screening alone.
    assert result.replies["a"].median_us == pytest.approx(11.0, rel=0.05)
    assert result.replies["b"].median_us == pytest.approx(40.0, rel=0.05)
    assert judge(compare(result.seconds["a"], result.seconds["b"])) == "better"
    assert judge(compare(result.seconds["a"], result.seconds["a again"])) in ("same", "unresolved")
    assert result.seconds["a"] != result.seconds["a again"]
    assert result.replies["bad"].status == Status.WRONG_RESULT
    assert result.replies["eager"].status == Status.NOT_RECORDED
    assert result.seconds["bad"] == result.seconds["eager"] == ()


def test_a_comparison_repeats_by_seed(recording: Path) -> None:
    bench, rows = ReplayBench(recording), [Row("a", FAST)]  # type: ignore[arg-type]
    assert bench.confirm(rows, seed=1).seconds == bench.confirm(rows, seed=1).seconds
    assert bench.confirm(rows, seed=1).seconds != bench.confirm(rows, seed=2).seconds


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file"):
        ReplayBench(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(InputError, match=r"text\.parquet"):
        ReplayBench(tmp_path / "text.parquet")
    pl.DataFrame({"region": ["r"]}).write_parquet(tmp_path / "other.parquet")
    with pytest.raises(InputError, match="no column knobs"):
        ReplayBench(tmp_path / "other.parquet")


def test_two_devices_do_not_make_one_recording(tmp_path: Path) -> None:
    store = Store(tmp_path / "emmy.duckdb")
    store.append(row(FAST, 10.0), row(FAST, 10.0, device="other"))
    export(store, "s1", tmp_path / "both.parquet")
    with pytest.raises(InputError, match="2 devices"):
        ReplayBench(tmp_path / "both.parquet")


def test_a_sweep_without_measurements_is_not_exported(tmp_path: Path) -> None:
    store = Store(tmp_path / "emmy.duckdb")
    store.start_sweep("cpu-test", sweep="s9")
    with pytest.raises(InputError, match="s9"):
        export(store, "s1", tmp_path / "x.parquet")
    assert not (tmp_path / "x.parquet").exists()
