"""``emmy run --profile`` where nothing can be counted: said, and no failure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emmy.cli import profile
from emmy.report import ncu
from emmy.schedule.knobs import KnobMap


def test_without_ncu_the_profile_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> str:
        raise ncu.Unavailable("ncu is not installed", hint="it comes with the CUDA toolkit (Nsight Compute)")

    monkeypatch.setattr(ncu, "find_ncu", missing)
    nothing: Any = SimpleNamespace()
    assert profile.profile_one(nothing, nothing, KnobMap(), None) == 0
    assert capsys.readouterr().out.startswith("profile skipped: ncu is not installed")


def test_a_device_without_counters_is_refused(emmy: Any) -> None:
    done = emmy("run", "--profile", "--device", "opencl", "-c", "x0 = torch.randn(4, 4); x0 + 1")
    assert done.returncode == 2
    assert "--profile" in done.stderr
