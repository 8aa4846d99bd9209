"""The contract of ``run --bench``: its JSON object, its tables, its exit code."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from emmy.bench.jobs import Reply
from emmy.bench.records import Status
from emmy.cli.benching import backend_table, kernel_table
from emmy.comparison import Candidate, Comparison, Timed, weakest
from emmy.goldens.dataset import shape
from emmy.goldens.entry import GoldenConfig
from emmy.schedule.knobs import KnobMap
from emmy.search.pick import Pick

PICKED = KnobMap.parse("FUSE=,TILE=n1x1/f16x4/k4,REDUCE=,STAGE=,WSPEC=,RASTER=")
RECORDED = KnobMap.parse("FUSE=,TILE=n1x1/f8x4/k4,REDUCE=g2k,STAGE=,WSPEC=,RASTER=")


def pick(knobs: KnobMap, source: Any = "evidence") -> Pick:
    variant: Any = SimpleNamespace(knobs=knobs, lane=knobs.lane, region=SimpleNamespace(name="k_matmul_1"))
    return Pick(variant, source, None, "")


@pytest.fixture
def comparison() -> Comparison:
    golden = GoldenConfig.of(shape("quick.matmul.256"), RECORDED, 120.0, eager_us=240.0)
    label = "golden quick.matmul.256 [std]"
    refused = Candidate("ab STAGE=d4/tma", "ab", KnobMap.parse("STAGE=d4/tma"), (), "refused by rule (file.py:3)")
    return Comparison(
        "quick.matmul.256",
        "k_matmul_1",
        "toy-cpu",
        "confirm.v2.cold",
        {},
        Timed(Candidate("greedy", "greedy", KnobMap(), (pick(PICKED),)), Status.OK, "", 100.0, 98.0, 103.0),
        (
            Timed(
                Candidate(label, "golden", RECORDED, (pick(RECORDED),), "", golden), Status.OK, "", 110.0, 108.0, 113.0
            ),
            Timed(refused, Status.PIN_UNMATCHED, refused.unmatched),
        ),
        {"eager": Reply(Status.OK, median_us=250.0)},
    )


def test_the_json_is_the_contracts_object(comparison: Comparison) -> None:
    body = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert set(body) == {
        "name",
        "kernel",
        "device",
        "protocol",
        "dynamic",
        "hint",
        "greedy",
        "pinned",
        "backends",
        "vs_eager",
        "recorded",
    }
    greedy = body["greedy"]
    assert {"lane", "knobs", "record_knobs", "source", "us", "status", "reason"} <= set(greedy)
    assert (greedy["lane"], greedy["source"], greedy["status"], greedy["us"]) == ("std", "evidence", "ok", 100.0)
    assert greedy["knobs"] == {"TILE": "n1x1/f16x4/k4"}
    families = {"FUSE", "TILE", "REDUCE", "STAGE", "WSPEC", "RASTER", "FAST_EXP"}
    assert set(greedy["record_knobs"]) == families
    assert greedy["record_knobs"]["REDUCE"] == ""
    first, second = body["pinned"]
    keys = {"label", "origin", "lane", "knobs", "record_knobs", "us", "low_us", "high_us", "status", "reason"}
    assert set(first) == set(second) == keys
    assert (first["origin"], first["us"], first["record_knobs"]["REDUCE"]) == ("golden", 110.0, "g2k")
    assert (second["origin"], second["us"], second["status"]) == ("ab", None, "pin_unmatched")
    assert body["backends"] == {"eager": 250.0, "emmy": 100.0}
    assert body["vs_eager"] == 2.5
    assert body["recorded"] == {"emmy_us": 120.0, "eager_us": 240.0}


def test_a_failed_row_fails_the_command_and_the_rest_is_printed(comparison: Comparison) -> None:
    assert not comparison.ok
    good = replace(comparison, pinned=comparison.pinned[:1])
    assert good.ok
    text = kernel_table(comparison)
    assert "NOT benched" in text
    assert "pin_unmatched" in text
    assert "golden quick.matmul.256 [std]" in text
    assert "0.909" in text
    assert not replace(good, greedy=Timed(good.greedy.candidate, Status.BENCH_FAIL, "hung")).ok


def test_the_backend_table_says_its_direction_and_the_hint(comparison: Comparison) -> None:
    text = backend_table(replace(comparison, symbols={"seq_len": 512}))
    assert "vs Eager" in text
    assert "2.50x" in text
    assert "benched at seq_len=512 (symbolic hint)" in text
    assert "symbolic" not in backend_table(comparison)


def test_the_best_golden_is_one_of_greedys_own_lane(comparison: Comparison) -> None:
    fast = Candidate("golden q [fm]", "golden", KnobMap.parse("FAST_EXP=true"), (pick(KnobMap.parse("FAST_EXP=true")),))
    both = replace(comparison, pinned=(*comparison.pinned, Timed(fast, Status.OK, "", 10.0, 10.0, 10.0)))
    best = both.best_golden()
    assert best is not None
    assert best.us == 110.0


def test_a_pick_of_several_kernels_is_as_certain_as_its_least_certain_kernel() -> None:
    assert weakest([pick(PICKED), pick(PICKED, "offline")]) == "offline"
    assert weakest([pick(PICKED, "online"), pick(PICKED)]) == "online"
