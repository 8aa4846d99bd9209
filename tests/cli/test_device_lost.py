"""A sweep whose device goes away: one message, what is left is counted, nothing after it is tried."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from emmy import config
from emmy.cli.tuning import run_tune
from emmy.device.cuda_targets import cuda_target
from emmy.errors import DeviceLost
from emmy.ir.nest import Region
from emmy.pipeline import Workspace
from emmy.priors.uninformed import UninformedPrior
from emmy.search.tuner import Tuned
from emmy.store import Store
from emmy.target import Target, TargetKind


def test_the_sweep_ends_with_one_message(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def tune(region: Region, shape: str) -> Tuned:
        tried.append(region.name)
        if len(tried) == 2:
            raise DeviceLost("NVIDIA H200", "cudaErrorDevicesUnavailable")
        return Tuned(region, shape, skipped="a test")

    def tuner(*_: object, on_progress: Callable[..., None]) -> Any:
        return SimpleNamespace(tune=tune)

    monkeypatch.setattr(Workspace, "bench", lambda *_: nullcontext(SimpleNamespace()))
    monkeypatch.setattr(Workspace, "tuner", tuner)
    settings = config.load()
    work = Workspace(settings, "cuda", cuda_target("sm_90a"), Store(settings.tune_db), UninformedPrior("a test"))
    targets = [Target(TargetKind.SNIPPET, f"x0 = torch.randn({n}, 8); x0 + 1") for n in (3, 4, 5, 6)]
    assert run_tune(work, targets, then_bench=True) == 1
    out = capsys.readouterr().out
    assert out.count("the device NVIDIA H200 was lost") == 1
    assert "the same command goes on from there" in out
    assert "! stopped: 3 of 4 targets are not done" in out
    assert len(tried) == 2
