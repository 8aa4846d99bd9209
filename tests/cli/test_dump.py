"""--dump-dir and EMMY_DUMP_DIR: a reproducer for each kernel of a program, which replays alone."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

CHAIN = "x = torch.randn(6, 24); w = torch.randn(16, 24); torch.softmax(F.gelu(F.linear(x, w)), -1)"

Emmy = Callable[..., subprocess.CompletedProcess[str]]


def test_a_reproducer_for_each_kernel(emmy: Emmy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = tmp_path / "dump"
    monkeypatch.setenv("EMMY_DUMP_DIR", str(dump))
    ran = emmy("run", "-c", CHAIN, "--device", "opencl")
    assert ran.returncode == 0, ran.stderr
    assert "wrote 2 kernels and 2 reproducers" in ran.stderr
    files = sorted(dump.glob("*.torch.json"), reverse=True)
    ops = {file.name[:9]: [node["op"] for node in json.loads(file.read_text())["nodes"]] for file in files}
    assert ops == {
        "k_softmax": ["aten.softmax.int"],
        "k_linear_": ["aten.linear.default", "aten.gelu.default"],
    }
    kernels = [file.name.removesuffix(".torch.json") for file in files]
    assert [name for name in kernels if not (dump / f"{name}.cl").is_file()] == []
    monkeypatch.delenv("EMMY_DUMP_DIR")
    again = emmy("run", "--ir", str(files[1]), "--device", "opencl")
    assert again.returncode == 0, again.stderr
    assert kernels[1] in again.stdout
