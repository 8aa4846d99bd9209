"""The golden findings report: its text against a file, its tally, its order, and that a missing name is an error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest

from emmy.bench.records import Status
from emmy.bench.stats import Comparison, Verdict
from emmy.evaluate.ab import AbResult, Benched
from emmy.evaluate.verdict import Category, Look
from emmy.files import write_text
from emmy.report.evidence import Evidence, recommend
from emmy.report.golden import TEMPLATE, Outcome, Sweep, context, findings, report, tally
from emmy.report.render import render

EXPECTED = Path(__file__).parent / "expected" / "golden_findings.md"

OFF = {"FUSE": "", "REDUCE": "", "STAGE": "", "WSPEC": "", "RASTER": "", "FAST_EXP": ""}
PICK = OFF | {"TILE": "n8x1/f8x4/k4"}
GOLDEN = OFF | {"TILE": "n16x1/f8x4/k8", "RASTER": "g4"}


def ab(shape: str, greedy_us: float | None, golden_us: float | None, lane: str = "std", **changes: Any) -> AbResult:
    greedy = Benched("greedy", "greedy", lane, PICK, Status.OK if greedy_us else Status.TIMEOUT, "", greedy_us)
    rows = (Benched("golden A", "golden", lane, GOLDEN, Status.OK, "", golden_us, None, None, golden_us, 1000.0),)
    ratios, timed = {}, {}
    if greedy_us and golden_us:
        ratio = greedy_us / golden_us
        ratios, timed = {"golden A": Comparison(ratio, ratio * 0.99, ratio * 1.01, 6)}, {"golden A": golden_us}
    eager = Benched("eager", "reference", "std", {}, Status.OK, "", 1000.0)
    result = AbResult(
        shape, "r" * 32, "k_matmul_000001", "model-cpu", "20261130-1", "", "evidence", greedy,
        rows if golden_us else (), (eager,), Look(greedy_us, timed, ratios, 1000.0), 0.012, wall_s=4.5,
    )  # fmt: skip
    return replace(result, **changes)


def outcome(shape: str, verdict: Verdict, greedy_us: float, golden_us: float | None, **changes: Any) -> Outcome:
    result = ab(shape, greedy_us, golden_us)
    ratio = result.look.ratios.get("golden A")
    why = f"greedy/golden {ratio} against golden A" if ratio else "no golden of this shape is recorded"
    category = Category(shape, "std", verdict, (why,), (), "golden A" if ratio else None, ratio)
    tuned = {"seconds": 12.0, "live": 20, "ok": 19, "failed": 1}
    return replace(Outcome(shape, "256 × 256 × 256", "std", tuned, result, (), category), **changes)


EVIDENCE = Evidence(
    "golden A", (("TILE", "n8x1/f8x4/k4", "n16x1/f8x4/k8"), ("RASTER", "off", "g4")), 812, 4766, "offline",
    "413 rows", "", (), 1, 19, "high", "the offline prior misprices this shape (rank 812 of 4766): fit it again",
)  # fmt: skip

OUTCOMES = (
    outcome("quick.matmul.256", Verdict.BETTER, 800.0, 1200.0, operations=("replace",),
            again=(ab("quick.matmul.256", 801.0, 1199.0),) * 2),
    outcome("quick.matmul.512", Verdict.WORSE, 1100.0, 1000.0, evidence=EVIDENCE),
    outcome("quick.matmul.64x512x256", Verdict.WORSE, 1500.0, 1000.0, error="the shape could not be traced again"),
    outcome("quick.reduce.1024x4096", Verdict.SAME, 1001.0, 1000.0, operations=("add",)),
    outcome("quick.pointwise.1024x4096", Verdict.NEW, 700.0, None, operations=("new",)),
    outcome("quick.rms_norm.1024x4096", Verdict.SAME, 1000.0, 1000.0),
    outcome("quick.softmax.1024x4096", Verdict.UNRESOLVED, 1030.0, 1000.0),
    Outcome("quick.attention.b1h4s256d64.causal", "1 × 4 × 256 × 64", "std", error="no variant ran"),
)  # fmt: skip

SWEEP = Sweep(
    "20261130-020000-abcdef", "2026-11-30 02:05 UTC", "model-cpu", "model 1", 2,
    "python -m flows.golden_sweep --group quick", 247.4, 12, "offline: weights: 413 rows of 10 regions", "eager",
    (("tune", 96.0, 8), ("A/B", 31.5, 7), ("reconfirm", 9.0, 2)),
    ("patience 12 is below 50: with a cold start wide TILE forks are found late",),
    "_tune/20261130-020000-abcdef/golden-patch.diff",
)  # fmt: skip


def test_the_report_reads_as_expected() -> None:
    """Look at the difference, then write the new text over the file if it is meant."""
    assert report(SWEEP, OUTCOMES) == EXPECTED.read_text(encoding="utf-8")


def test_on_cuda_the_reference_is_cublas_and_its_ratio_the_losers_view() -> None:
    text = report(replace(SWEEP, reference="cublas"), OUTCOMES[:1])
    assert "| cuBLAS µs | vs cuBLAS |" in text
    assert "| 1000 | 0.800 |" in text
    assert "| 1000 | 1.250 |" in report(SWEEP, OUTCOMES[:1])


def test_the_tally_counts_changes_and_verdicts() -> None:
    assert tally(OUTCOMES) == (
        "1 replaced / 1 added / 0 lowered / 0 pruned / 1 new / 1 unchanged / 2 worse / 1 unresolved / 1 failed"
    )


def test_findings_are_the_worse_shapes_the_furthest_first() -> None:
    assert [one.shape for one in findings(OUTCOMES)] == ["quick.matmul.64x512x256", "quick.matmul.512"]


def test_lanes_have_tables_of_their_own() -> None:
    fast = replace(OUTCOMES[0], lane="fm")
    lanes = context(SWEEP, (*OUTCOMES, fast))["lanes"]
    assert [(lane["lane"], len(lane["rows"])) for lane in lanes] == [("std", 8), ("fm", 1)]


def test_a_name_that_the_context_lacks_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render(TEMPLATE, {key: value for key, value in context(SWEEP, OUTCOMES).items() if key != "tally"})


def test_an_ab_survives_json() -> None:
    import json

    result = ab("quick.matmul.256", 800.0, 1200.0, lost=("process 1: died",))
    assert AbResult.from_json(json.loads(json.dumps(result.to_json()))) == result
    failed = ab("quick.matmul.256", None, 1200.0)
    again = AbResult.from_json(json.loads(json.dumps(failed.to_json())))
    assert again.failed
    assert again.greedy.status is Status.TIMEOUT


@pytest.mark.parametrize(
    ("rank", "measured", "missing", "prior", "priority", "words"),
    [
        (None, (), "refused by smem (x.py:1)", "offline", "high", "x.py:1"),
        (5, (("screen.v2.cold", "ok", 900.0),), "", "offline", "medium", "the other way round"),
        (5, (("screen.v2.cold", "timeout", None),), "", "offline", "high", "ended as timeout"),
        (5, (("O1 screen.v2.cold", "ok", 9.0),), "", "offline", "medium", "EMMY_O1=0"),
        (5, (("screen.v2.cold", "timeout", None), ("O1 screen.v2.cold", "ok", 9.0)), "", "offline", "high", "ended as"),
        (5, (("O1 screen.v2.cold", "timeout", None),), "", "offline", "high", "tried in O1 and ended as timeout"),
        (5, (), "", "uninformed", "high", "emmy fit"),
        (60, (), "", "offline", "medium", "--patience beyond 50"),
        (2000, (), "", "offline", "high", "misprices"),
    ],
)
def test_a_recommendation_follows_from_the_evidence(
    rank: int | None, measured: Any, missing: str, prior: str, priority: str, words: str
) -> None:
    found = recommend(rank, 4766, 50, measured, missing, prior)
    assert found[0] == priority
    assert words in found[1]


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_text(tmp_path / "a" / "b.md", "one\n")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(5, "broken")))
    with pytest.raises(OSError, match="broken"):
        write_text(path, "two\n")
    assert path.read_text() == "one\n"
    assert [one.name for one in path.parent.iterdir()] == ["b.md"]
