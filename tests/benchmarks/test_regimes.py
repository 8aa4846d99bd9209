"""The comparison of the two builds, on a bench that answers from a formula."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.regimes import ENOUGH, Sampled, judge, run, sample
from emmy.bench.jobs import Reply
from emmy.bench.records import Status
from emmy.config import project_root
from emmy.device.cuda_targets import cuda_target
from emmy.priors.uninformed import UninformedPrior


def test_a_sample_is_denser_in_front_and_has_no_leaf_twice() -> None:
    drawn = sample(list(range(1000, 9000)), 24)
    places = [place for place, _ in drawn]
    assert places == sorted(set(places))
    assert len(places) == 24
    assert (places[0], places[-1]) == (1, 8000)
    assert sum(place <= 100 for place in places) > 10
    assert all(leaf == 999 + place for place, leaf in drawn)
    assert sample([7, 8, 9], 24) == [(1, 7), (2, 8), (3, 9)]
    assert sample([], 24) == []


def rows(cheap: list[float], real: list[float]) -> list[Sampled]:
    return [
        Sampled(n + 1, f"leaf {n}", "ok", o1, o3, o3, 0.25, 1.0)
        for n, (o1, o3) in enumerate(zip(cheap, real, strict=True))
    ]


def test_an_inversion_within_the_tolerance_costs_nothing_but_a_build() -> None:
    """The O1 best is 20 % behind; the next, 5 % slower in O1, is the best in O3."""
    cheap = [10.0, 10.5, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0]
    verdict = judge(rows(cheap, [12.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0]), 0.15)
    assert verdict is not None
    assert (verdict.regret_trusted, verdict.regret, verdict.contenders) == (1.2, 1.0, 2)
    assert (verdict.o1_build_s, verdict.contenders_build_s, verdict.o3_build_s) == (2.0, 2.0, 8.0)
    assert verdict.correlation == pytest.approx(1 - 6 * 2 / (8 * 63))
    assert verdict.floor == pytest.approx(1.0)


def test_an_inversion_beyond_the_tolerance_is_lost() -> None:
    cheap = [10.0, 12.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0]
    verdict = judge(rows(cheap, [15.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0]), 0.15)
    assert verdict is not None
    assert (verdict.regret, verdict.contenders) == (1.5, 1)


def test_what_failed_in_one_build_does_not_count() -> None:
    few = rows([10.0] * ENOUGH, [10.0] * ENOUGH)
    assert judge(few, 0.15) is not None
    assert judge([*few[:-1], Sampled(9, "", "O3 timeout", 1.0, None, None)], 0.15) is None


class Formula:
    """Latency and build seconds by kernel and build: O1 is slower and ranks alike, but for one leaf that fails."""

    def __init__(self, folder: Path) -> None:
        self.cache_dir = folder / "binaries"
        self.asked: list[str] = []
        self.first: str | None = None

    def screen(self, artefact: Any, refs: Any, best_us: float | None, regime: str, lane: str) -> Reply:
        self.asked.append(regime)
        self.first = self.first or artefact.plan_digest
        if artefact.plan_digest == self.first:
            return Reply(Status.LAUNCH_FAILED, "no")
        number = int(hashlib.sha256(artefact.plan_digest.encode()).hexdigest()[:4], 16)
        us = 50.0 + number / 100
        return Reply(Status.OK, "", us * (1.5 if regime == "O1" else 1.0), build_s=0.3 if regime == "O1" else 0.8)


def work_of(folder: Path, bench: Formula) -> Any:
    @contextmanager
    def opened(sweep: str) -> Iterator[Formula]:
        bench.cache_dir.mkdir()
        yield bench

    prior = UninformedPrior("a test")
    return SimpleNamespace(
        caps=cuda_target("sm_90a"), prior=prior, folder=folder, settings=SimpleNamespace(o3_tol=0.15), bench=opened
    )


def test_a_run_prints_every_leaf_and_a_verdict_and_leaves_no_binaries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Formula(tmp_path)
    assert run(work_of(tmp_path, bench), ["quick.matmul.256"], 12, tmp_path / "out.json") == 0
    printed = capsys.readouterr().out
    assert printed.count("  rank ") == 13
    assert "quick.matmul.256: 11 leaves ran in both builds" in printed
    assert "O1 with O3 1.000, O3 with itself 1.000" in printed
    assert "O1 launch_failed" in printed
    assert "8.8 all in O3" in printed
    assert not bench.cache_dir.exists()
    assert bench.asked[:6] == ["O1", "O3", "O3", "O3", "O1", "O3"]
    stored = json.loads((tmp_path / "out.json").read_text())["shapes"]["quick.matmul.256"]
    assert len(stored["rows"]) == 12
    assert stored["verdict"]["regret"] == 1.0


def test_too_few_leaves_are_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(work_of(tmp_path, Formula(tmp_path)), ["quick.matmul.256"], 4, None) == 1
    assert "fewer than 8 leaves" in capsys.readouterr().out


def test_a_device_without_the_cheap_build_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.regimes", "--device", "opencl"]
    env = os.environ | {"EMMY_TUNE_DB": str(tmp_path / "emmy.duckdb")}
    done = subprocess.run(command, env=env, cwd=project_root(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "there is no cheap build to judge" in done.stdout
