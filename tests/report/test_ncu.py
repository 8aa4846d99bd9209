"""Nsight Compute: its CSV read, the two sides told apart, and machines where it cannot count."""

from __future__ import annotations

import csv
import json
import stat
from pathlib import Path

import pytest

from emmy.report import ncu

RAW = (Path(__file__).parent / "ncu_raw.csv").read_text()
OWN = ("k_matmul_98874c", "k_matmul_98874c_final")


def test_launches_are_read_in_order_with_their_side() -> None:
    kernels = ncu.parse(RAW, OWN)
    assert [(k.side, k.grid, k.block) for k in kernels] == [
        ("emmy", "(8, 32, 2)", "(128, 1, 1)"), ("emmy", "(1024, 1, 1)", "(256, 1, 1)"),
        ("reference", "(132, 1, 1)", "(384, 1, 1)"),
    ]  # fmt: skip
    assert kernels[0].values == {
        "duration_us": 9.312, "occupancy_pct": 18.71, "sm_pct": 43.66, "dram_pct": 18.53, "fma_pct": 2.25,
        "tensor_pct": 41.07, "lsu_instructions": 1048576.0, "bank_conflicts": 4096.0, "dram_bytes": 6291456.0,
        "registers": 128.0,
    }  # fmt: skip
    assert kernels[1].values["tensor_pct"] is None


def test_units_that_ncu_scaled_are_scaled_back() -> None:
    scaled = RAW.replace('"byte","%","ns"', '"Mbyte","%","usecond"').replace('"6,291,456"', '"6.29"')
    (first, *_) = ncu.parse(scaled.replace('"9,312"', '"9.31"'), OWN)
    assert first.values["duration_us"] == pytest.approx(9.31)
    assert first.values["dram_bytes"] == pytest.approx(6.29e6)


@pytest.mark.parametrize("text", ["", "==PROF== Connected\n==WARNING== No kernels were profiled.\n", RAW[:500]])
def test_output_without_a_launch_is_no_launch(text: str) -> None:
    assert ncu.parse(text, OWN) == []


def test_the_table_puts_both_sides_below_each_other() -> None:
    lines = ncu.text(ncu.parse(RAW, OWN)).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["emmy", "emmy", "emmy", "reference"]
    assert "12.4" in lines[3]
    assert "4,096" in lines[1]


def test_both_files(tmp_path: Path) -> None:
    kernels = ncu.parse(RAW, OWN)
    paths = ncu.write(kernels, tmp_path / "dump")
    assert [path.name for path in paths] == ["61_ncu_metrics.csv", "61_ncu_metrics.json"]
    rows = list(csv.DictReader(paths[0].open()))
    assert [row["side"] for row in rows] == ["emmy", "emmy", "reference"]
    assert (rows[0]["duration_us"], rows[1]["tensor_pct"], rows[0]["grid"]) == ("9.312", "", "(8, 32, 2)")
    content = json.loads(paths[1].read_text())
    assert content["metrics"]["registers"] == "launch__registers_per_thread"
    assert content["kernels"][2]["values"]["duration_us"] == 7.104


def fake(tmp_path: Path, script: str) -> str:
    path = tmp_path / "ncu"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_ncu_is_run_around_the_program(tmp_path: Path) -> None:
    (tmp_path / "raw").write_text(RAW)
    tool = fake(tmp_path, f'echo "$@" > {tmp_path}/args; cat {tmp_path}/raw')
    assert len(ncu.profile(["python", "-m", "it"], OWN, ncu=tool)) == 3
    arguments = (tmp_path / "args").read_text()
    assert "--clock-control none" in arguments
    assert "--profile-from-start off" in arguments
    assert arguments.strip().endswith("python -m it")


def test_a_metric_that_this_ncu_does_not_have_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "raw").write_text(RAW)
    missing = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
    tool = fake(tmp_path, f'case "$*" in *{missing}*) echo "==ERROR== Failed to find metric {missing}"; exit 1;; esac; '
                f"cat {tmp_path}/raw")  # fmt: skip
    assert len(ncu.profile(["it"], OWN, ncu=tool)) == 3


def test_no_permission_is_told_apart(tmp_path: Path) -> None:
    tool = fake(tmp_path, "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
                "Performance Counters on the target device 0.'; exit 1")  # fmt: skip
    with pytest.raises(ncu.Unavailable, match="ERR_NVGPUCTRPERM"):
        ncu.profile(["it"], OWN, ncu=tool)


def test_a_program_that_fails_under_ncu_gives_its_last_words(tmp_path: Path) -> None:
    tool = fake(tmp_path, "echo '==ERROR== The application returned an error code (3).'; exit 3")
    with pytest.raises(ncu.ProfileFailed, match=r"exit code 3.*returned an error code"):
        ncu.profile(["it"], OWN, ncu=tool)


def test_a_program_that_never_ends(tmp_path: Path) -> None:
    with pytest.raises(ncu.ProfileFailed, match=r"no end after 0.2 s"):
        ncu.profile(["it"], OWN, 0.2, ncu=fake(tmp_path, "exec sleep 5"))


def test_no_ncu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(ncu, "TOOLKITS", ())
    with pytest.raises(ncu.Unavailable, match="ncu is not installed"):
        ncu.find_ncu()
