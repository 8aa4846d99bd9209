"""tune, run and compile of small programs on the embedded OpenCL device, through the command line."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from emmy.cli.main import main

MATMUL = "x0 = torch.randn(48, 40); x1 = torch.randn(40, 32); x0 @ x1"
CHAIN = "x = torch.randn(6, 24); w = torch.randn(16, 24); torch.softmax(F.gelu(F.linear(x, w)), -1)"

Emmy = Callable[..., subprocess.CompletedProcess[str]]


def test_tune_then_run_then_replay(emmy: Emmy, tmp_path: Path) -> None:
    work = tmp_path / "_tune"
    dump = tmp_path / "dump"
    tuned = emmy("tune", "-c", MATMUL, "--patience", "2", "--device", "opencl", "--dump-dir", str(dump))
    assert tuned.returncode == 0, tuned.stdout + tuned.stderr
    last = tuned.stdout.splitlines()[-1]
    assert last.startswith("done: 1 kernels, ")
    assert " ok / 0 failed) in " in last
    assert "patience 2 is below 50" in tuned.stdout
    log = (work / "tune.log").read_text()
    assert last in log
    assert log.count("k_matmul_") > 3
    (reproducer,) = dump.glob("*.torch.json")
    assert reproducer.name.startswith("k_matmul_")
    assert list(dump.glob("k_matmul_*.cl"))

    replayed = emmy("run", "--ir", str(reproducer), "--device", "opencl")
    assert replayed.returncode == 0, replayed.stderr
    assert "[evidence]" in replayed.stdout
    assert "relative error against eager PyTorch" in replayed.stdout

    result = tmp_path / "result.json"
    benched = emmy(
        "run",
        "-c",
        MATMUL,
        "--device",
        "opencl",
        "--bench",
        "--ab",
        "TILE=n1x1/f8x4/k1,REDUCE=",
        "--ab",
        "STAGE=d4/tma",
        "--json",
        str(result),
    )
    assert benched.returncode == 1, benched.stderr
    body = json.loads(result.read_text())
    assert (body["greedy"]["source"], body["greedy"]["status"]) == ("evidence", "ok")
    assert [row["status"] for row in body["pinned"]] == ["ok", "pin_unmatched"]
    assert body["pinned"][0]["record_knobs"]["TILE"] == "n1x1/f8x4/k1"
    assert body["backends"]["eager"] > 0
    assert body["vs_eager"] > 0
    assert "unreproducible pin STAGE=d4/tma" in benched.stdout
    assert "NOT benched" in benched.stdout

    again = emmy("tune", "-c", MATMUL, "--patience", "2", "--device", "opencl")
    assert "0 of " in again.stdout
    assert "known" in again.stdout


def test_a_program_of_several_kernels_runs_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-c", CHAIN, "--device", "opencl"]) == 0
    out = capsys.readouterr().out
    assert out.count("\nk_") + out.startswith("k_") >= 2
    assert "relative error against eager PyTorch" in out


def test_a_pinned_variable_decides_the_greedy_pick(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMMY_TILE", "n1x1/f8x2/k2")
    assert main(["run", "-c", MATMUL, "--device", "opencl"]) == 0
    out = capsys.readouterr().out
    assert "[pin]" in out
    assert "TILE=n1x1/f8x2/k2" in out
    monkeypatch.setenv("EMMY_TILE", "n512x512/f8x2/k2")
    assert main(["run", "-c", MATMUL, "--device", "opencl"]) == 2
    assert "threads_fit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ir", "words"),
    [
        ("graph", ("aten.matmul.default",)),
        ("nest", ("region k_matmul_", "= sum[")),
        ("schedule", ("leaves on", "scalar:", "plan k_matmul_")),
        ("kernel", ("k_matmul_",)),
        ("opencl", ("__kernel void k_matmul_",)),
    ],
)
def test_every_ir_prints(capsys: pytest.CaptureFixture[str], ir: str, words: tuple[str, ...]) -> None:
    assert main(["compile", "-c", MATMUL, "--ir", ir, "--device", "opencl"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in words), out


@pytest.mark.parametrize(("ir", "word"), [("cuda", "__global__"), ("ptx", ".target sm_90a")])
def test_a_named_target_needs_no_gpu(capsys: pytest.CaptureFixture[str], ir: str, word: str) -> None:
    pytest.importorskip("cupy")
    assert main(["compile", "-c", MATMUL, "--ir", ir, "--target", "sm_90a"]) == 0
    assert word in capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "tune"])
def test_a_shape_too_large_for_memory_is_one_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    from dataclasses import replace

    from emmy.device import registry

    real = registry.capabilities
    monkeypatch.setattr(registry, "capabilities", lambda *args: replace(real(*args), memory_bytes=10_000))
    assert main([command, "-c", MATMUL, "--device", "opencl"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "does not fit on" in captured.err
    assert "x0" in captured.err


def test_an_input_that_no_kernel_reads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-c", "x0 = torch.randn(8); x1 = torch.randn(8); x0 + 1"]) == 0
    assert "relative error against eager PyTorch 0.00e+00" in capsys.readouterr().out


def test_an_expression_of_400_terms(emmy: Emmy) -> None:
    ran = emmy("run", "-c", "x0 = torch.randn(8, 8); x0" + " + 1" * 400, "--device", "opencl")
    assert ran.returncode == 0, ran.stderr
    assert "relative error against eager PyTorch 0.00e+00" in ran.stdout
