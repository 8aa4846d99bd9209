"""Recorded configurations of other GPUs against what is offered on their architecture; no GPU is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from emmy.cli.main import main
from emmy.device.cuda_targets import TARGETS, target_of_gpu
from emmy.evaluate.offered import capabilities_of, places
from emmy.goldens.schema import load_goldens

MATMUL = """\
  - kernel: matmul
    name: {name}
    M: 512
    N: 512
    K: 512
    knobs: {knobs}
    emmy_us: 18.4
    cublas_us: 20.9
"""
OFF = "REDUCE: '', WSPEC: '', RASTER: ''"
ENTRIES = (
    ("square.512", "{BN: 16, BM: 8, FM: 4, FN: 2, FK: 1, BK: 64, SPLITK: 1, BR: 1, STAGE: '11', RING: 3}"),
    ("square.512", f"{{FUSE: '', TILE: n16x16/f8x8/k16, {OFF}, STAGE: d9/async}}"),
    ("square.512", f"{{FUSE: '', TILE: n16x16/f8x8/k5, {OFF}, STAGE: d1/sync}}"),
    ("square.512.fp16", f"{{FUSE: '', TILE: 'a:wgmma_m64n256k16_f16_f32/w2x1/k4', {OFF}, STAGE: d4/tma}}"),
    ("square.512.fp16", f"{{FUSE: '', TILE: 'a:mma_m16n8k16_f16_f16/w2x2/f2x4/k2', {OFF}, STAGE: d2/async}}"),
    ("square.512", "{BN: 32, BM: 8, FM: 8, FN: 4, FK: 2, BK: 64, SPLITK: 1, BR: 1, STAGE: '11', RING: 2}"),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rtx5090.yaml"
    head = "device: NVIDIA GeForce RTX 5090\nmachines: any\ngoldens:\n"
    path.write_text(head + "".join(MATMUL.format(name=name, knobs=knobs) for name, knobs in ENTRIES))
    return path


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("NVIDIA GeForce RTX 5090", "sm_120"), ("NVIDIA H200", "sm_90a"), ("NVIDIA H100 80GB HBM3", "sm_90a"),
        ("NVIDIA A100-SXM4-80GB", "sm_80"), ("NVIDIA GeForce RTX 4090", "sm_89"), ("NVIDIA L40S", "sm_89"),
        ("NVIDIA RTX 6000 Ada Generation", "sm_89"), ("NVIDIA GeForce RTX 3090", "sm_86"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", "sm_86"), ("NVIDIA RTX A6000", "sm_86"), ("NVIDIA A10", "sm_86"),
        ("NVIDIA A10G", "sm_86"), ("NVIDIA A30", "sm_80"), ("Quadro RTX 6000", None), ("NVIDIA GeForce RTX 2080", None),
        ("Tesla T4", None), ("pocl-cpu-avx512", None),
    ],
)  # fmt: skip
def test_a_gpu_is_known_by_its_name(name: str, arch: str | None) -> None:
    assert target_of_gpu(name) == arch
    assert arch is None or arch in TARGETS


def test_each_entry_has_its_place(file: Path) -> None:
    caps = capabilities_of("NVIDIA GeForce RTX 5090")
    assert caps is not None
    found = places(load_goldens(file).entries, caps)
    states = [place.state for place in found]
    assert states[0] == "offered"
    assert states[1] == "refused"
    assert "shared_memory_fits (emmy/schedule/tiers/" in found[1].text
    assert states[2] in ("pinned only", "refused")
    assert states[3] == "refused"
    assert "atom_of_device" in found[3].text
    assert "wgmma_m64n256k16_f16_f32 on sm_120" in found[3].text
    assert states[4] == "offered"
    assert len(found) == 5, "an entry that the grammar does not know has no place"


SOFTMAX = """\
  - kernel: softmax
    name: softmax.2048x2048
    M: 2048
    N: 2048
    knobs: {knobs}
    emmy_us: 18.4
    cublas_us: 20.9
"""


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ("{FUSE: '', TILE: r1/v4/reg, REDUCE: g2x, STAGE: '', WSPEC: '', RASTER: ''}", ""),
        ("{FUSE: '', TILE: r1/v4/reg, REDUCE: c256, STAGE: d2/async, WSPEC: '', RASTER: ''}", "/tiers/row.py:"),
        ("{FUSE: '', TILE: n16x8/f2x4/k64, REDUCE: '', STAGE: '', WSPEC: '', RASTER: ''}", "/tiers/row.py:"),
        ("{FUSE: cut, TILE: r1/v4/reg, REDUCE: '', STAGE: '', WSPEC: '', RASTER: ''}", "no_such_cut"),
    ],
)
def test_the_tier_that_a_schedule_is_meant_for_says_why_not(tmp_path: Path, knobs: str, words: str) -> None:
    path = tmp_path / "a100.yaml"
    path.write_text("device: NVIDIA A100\nmachines: any\ngoldens:\n" + SOFTMAX.format(knobs=knobs))
    caps = capabilities_of("NVIDIA A100")
    assert caps is not None
    found = places(load_goldens(path).entries, caps)
    if not words:
        assert found == [], "what the grammar does not know has no place"
        return
    assert found[0].state == "refused"
    assert words in found[0].text


@pytest.mark.parametrize(
    ("device", "rule"), [("NVIDIA H200", "warp_tile"), ("NVIDIA A100-SXM4-80GB", "atom_of_device")]
)
def test_warpgroup_atoms_of_other_cards_load_and_have_a_place(file: Path, device: str, rule: str) -> None:
    file.write_text(file.read_text().replace("NVIDIA GeForce RTX 5090", device))
    content = load_goldens(file)
    assert [dict(entry.written) for entry in content.entries][3]["TILE"] == "a:wgmma_m64n256k16_f16_f32/w2x1/k4"
    caps = capabilities_of(device)
    assert caps is not None
    place = places(content.entries, caps)[3]
    assert place.state == "refused"
    assert f"refused by {rule} (" in place.text


def test_the_command_lists_what_is_offered_and_which_rule_refuses(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["golden", "check", str(file)]) == 1
    out = capsys.readouterr().out
    assert "refused by shared_memory_fits (emmy/schedule/tiers/" in out
    assert "square.512: not in the grammar, kept as they stand: " in out
    assert "FK 2" in out
    assert "on sm_120: " in out
    assert "2 offered" in out
    assert "  offered: square.512:4 square.512.fp16:36\n" in out
    assert "1 not in the grammar" in out


def test_a_device_without_an_architecture_is_said(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(file.read_text().replace("NVIDIA GeForce RTX 5090", "Tesla T4"))
    main(["golden", "check", str(file)])
    assert "no architecture is known for Tesla T4: offers not checked" in capsys.readouterr().out
