"""The bars out of results: what is missing, with which patience, from a file without a GPU."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import h200
from benchmarks.h200_report import Result, patience_of, report
from benchmarks.h200_shapes import GROUPS
from emmy.device.cuda_targets import cuda_target

CAPS = cuda_target("sm_90a")


def result(name: str, **fields: Any) -> Result:
    values = {"status": "ok", "emmy_us": 10.0, "eager_us": 20.0, "tcompile_us": 15.0, "live": 9, "tune_s": 4.0,
              "screen_s": 1.0, "parent_s": 1.0, "patience": 50}  # fmt: skip
    return Result(name, **values | fields)  # type: ignore[arg-type]


def rows(group: str, **fields: Any) -> dict[str, Result]:
    return {subject.name: result(subject.name, **fields) for subject in GROUPS[group]}


def table(group: str, found: dict[str, Result]) -> tuple[list[str], bool]:
    text, passed = report([group], found, {}, CAPS)
    return text.splitlines(), passed


def test_row_kernels_are_held_against_the_faster_of_both_references() -> None:
    lines, passed = table("rows", rows("rows"))
    assert lines[0].startswith("PASS  row kernels, min(eager, torch.compile)/emmy: geometric mean 1.500 (bar 1.4)")
    assert passed


def test_a_row_without_torch_compile_leaves_its_bar_open() -> None:
    found = rows("rows")
    name = next(iter(found))
    found[name] = replace(found[name], tcompile_us=None)
    lines, passed = table("rows", found)
    assert lines[0].startswith("INCOMPLETE  row kernels")
    assert f"of {len(found) - 1} of {len(found)}" in lines[0]
    assert next(line for line in lines if name in line).endswith("no torch.compile")
    assert not passed
    lines, passed = table("rows", rows("rows", tcompile_us=None))
    assert lines[0].startswith("INCOMPLETE  row kernels")
    assert not passed


def test_a_failed_row_fails_its_bar_whatever_is_missing() -> None:
    found = rows("rows", tcompile_us=None)
    name = next(iter(found))
    found[name] = replace(found[name], status="wrong_result", reason="worst at [3]")
    lines, passed = table("rows", found)
    assert lines[0].startswith("FAIL  row kernels")
    assert any("FAIL wrong_result: worst at [3]" in line for line in lines)
    assert not passed


def test_a_twin_that_failed_is_no_measure() -> None:
    found = rows("dyn")
    static = next(name for name in found if not name.endswith(".dynM"))
    found[static] = replace(found[static], status="wrong_result")
    lines, _ = table("dyn", found)
    assert lines[0].startswith("INCOMPLETE  symbolic M")
    assert next(line for line in lines if f"{static}.dynM" in line).endswith("no static row")


def test_the_time_to_tune_is_asked_of_a_patient_search() -> None:
    for patience, seconds, state in ((50, 5.0, "PASS"), (30, 5.0, "INCOMPLETE"), (30, 7.0, "FAIL"), (50, 7.0, "FAIL")):
        name = "softmax.2048x2048"
        searched = {name: result(name, patience=patience, tune_s=seconds), "of no bar": result("b", tune_s=99.0)}
        text, _ = report(["rows"], searched, {}, CAPS)
        assert next(line for line in text.splitlines() if "time to tune" in line).startswith(state)


def test_patience_is_what_was_used() -> None:
    some = [result("a", patience=20), result("b"), result("c", patience=30)]
    assert patience_of(some) == "20 to 50"
    assert patience_of(some[1:2]) == "50"
    assert patience_of([*some, result("d", patience=0)]) == "20 to 50 or unknown"
    assert patience_of([]) == "unknown"
    lines, _ = table("rows", rows("rows", patience=20))
    assert "(bar 6 at patience 50), patience 20; a leaf: " in lines[-1]


def test_a_file_of_results_is_printed_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "h200.jsonl"
    older = {"sweep": "old"} | asdict(result("softmax.2048x2048", emmy_us=99.0))
    device = replace(CAPS, name="NVIDIA H200", driver="13000", compiler="nvrtc 13.0").to_dict()
    lines = [older, {"sweep": "new", "device": device}, {"sweep": "new", "ceilings": {}}]
    lines += [{"sweep": "new"} | asdict(row) for row in rows("rows", patience=60).values()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr("sys.argv", ["h200", "--from", str(path), "--group", "rows"])
    assert h200.main() == 0
    out = capsys.readouterr().out
    assert out.startswith("NVIDIA H200, driver 13000, nvrtc 13.0, sweep old, new, read from h200.jsonl\nPASS  row ker")
    assert "8 of 8 subjects measured, patience 60" in out
    monkeypatch.setattr("sys.argv", ["h200", "--from", str(path)])
    assert h200.main() == 1, "the other bars are not measured"


def test_a_bar_of_projections_is_told_by_their_number_of_rows() -> None:
    found = rows("fp16")
    for name, row in found.items():
        found[name] = replace(
            row, emmy_us=10.0, eager_us=12.0 if ".s32." in name else 8.0 if ".s512." in name else 10.0
        )
    lines, _ = table("fp16", found)
    assert lines[0].endswith("(bar 0.95); 32 rows 1.200, 128 rows 1.000, 512 rows 0.800")
    assert len(GROUPS["fused"]) == 30
    lines, _ = table("stream", rows("stream"))
    assert "rows" not in lines[0].partition("(bar")[2]
