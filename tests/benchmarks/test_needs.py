"""What the commands of ``benchmarks/`` say where a GPU or a file is missing: one line, exit code 2, nothing started."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from benchmarks import h200, leaves, regimes, register_banks, sanitize
from benchmarks.h200_report import Result
from benchmarks.h200_results import Results, read
from emmy.cli.main import guarded
from emmy.config import project_root
from emmy.device.cuda_targets import cuda_target
from emmy.errors import MissingPrerequisite
from tests.device.machine import pretend

INSUFFICIENT = "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"
LINE = json.dumps({"sweep": "s", **asdict(Result("softmax.2048x2048", "ok", emmy_us=1.0, eager_us=2.0))})


def command(name: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *args],
        env=os.environ, cwd=project_root(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def refused(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stdout) == (2, ""), done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.fixture
def leaf(tmp_path: Path) -> str:
    path = tmp_path / "leaves.txt"
    path.write_text("quick.matmul.256\n")
    return str(path)


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ({"count": INSUFFICIENT, "driver": 0}, ("found no NVIDIA driver",)),
        ({"count": 0}, ("no CUDA GPU",)),
        ({"nvrtc": "libnvrtc.so.13: cannot open shared object file"}, ("NVRTC cannot be used",)),
    ],
    ids=["no driver", "no GPU", "no NVRTC"],
)
@pytest.mark.parametrize("name", ["h200", "streaming", "launch_cost", "leaves", "sanitize"])
def test_a_gpu_that_cannot_be_used_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    leaf: str,
    machine: dict[str, Any],
    words: tuple[str, ...],
    name: str,
) -> None:
    pretend(monkeypatch, tmp_path / "gpu", **machine)
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexit 9\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    line = refused(command(name, *([leaf] if name == "leaves" else [])))
    assert f"benchmarks.{name} needs a CUDA GPU" in line
    assert all(word in line for word in words), line
    assert "--device opencl" not in line
    assert not (tmp_path / "_tune").exists()


def test_the_comparison_of_builds_says_it_of_a_gpu_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend(monkeypatch, tmp_path / "gpu", count=0)
    assert "no CUDA GPU" in refused(command("regimes", "--device", "cuda"))


def ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], module: Any, *args: str) -> str:
    """The line with which a command ends, in this process."""
    monkeypatch.setattr("sys.argv", [module.__name__, *args])
    assert guarded(module.main) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


@pytest.mark.parametrize("name", ["opencl", "sm_90a"])
@pytest.mark.parametrize("module", [h200, leaves], ids=lambda module: module.__name__)
def test_another_device_is_refused_before_there_is_a_store(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    leaf: str,
    module: Any,
    name: str,
) -> None:
    args = [leaf] if module is leaves else []
    line = ended(monkeypatch, capsys, module, *args, "--device", name)
    assert line.startswith(
        f"{module.__name__}: found the device opencl, expected a CUDA GPU"
        if name == "opencl"
        else "device: found sm_90a"
    )
    assert not (tmp_path / "_tune").exists()


def test_a_report_opens_no_sweep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, tmp_path / "gpu")
    line = refused(command("h200", "--report", "--device", "cuda"))
    assert "--report: found no sweep on NVIDIA Stub in" in line
    assert "run without --report first" in line
    assert not (tmp_path / "_tune" / "emmy.duckdb").exists()
    assert not (tmp_path / "_tune" / "emmy.duckdb.journal").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot read {path}: found No such file or directory, expected results of benchmarks.h200"),
        (b"", "{path}: found no result in it"),
        (b"\xff\xfe", "cannot read {path}: found bytes that are not UTF-8"),
        (b'{"sweep": "s", "ceilings": {}}\n', "{path}: found no result in it"),
        ((LINE + "\n" + LINE[: len(LINE) // 2]).encode(), "{path}:2: found a line that is cut off or no JSON"),
        (b"# Benchmarks\n", "{path}:1: found a line that is cut off or no JSON"),
        (b"[1, 2]\n", "{path}:1: found a line of something else"),
        (b'"sweep"\n', "{path}:1: found a line of something else"),
        (b'{"name": "softmax.2048x2048"}\n', "{path}:1: found a line of something else"),
        (b'{"sweep": "s", "name": "x", "latency": 3}\n', "{path}:1: found a line of something else"),
        (b'{"sweep": "s", "device": {"name": "NVIDIA H200"}}\n', "{path}:1: found a line of something else"),
    ],
    ids=["missing", "empty", "binary", "no result", "cut off", "text", "list", "string", "no sweep", "field", "device"],
)
@pytest.mark.parametrize("option", ["--from", "--retime"])
def test_a_file_of_results_that_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes | None,
    words: str, option: str,
) -> None:  # fmt: skip
    path = tmp_path / "h200.jsonl"
    if content is not None:
        path.write_bytes(content)
    line = ended(monkeypatch, capsys, h200, option, str(path))
    assert line.startswith(words.format(path=path)), line
    assert not (tmp_path / "_tune").exists()


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "h200.jsonl"
    device = replace(cuda_target("sm_90a"), name="NVIDIA H200")
    written = Results(path, [], "new")
    written.set_device(device)
    written.set_ceilings({"copy.4": {"us": 1.0}})
    written.add(Result("a", "ok", emmy_us=1.0))
    found = Results(path, read(path), "new")
    assert (found.rows, found.ceilings, found.device) == (written.rows, written.ceilings, device)
    found.set_device(device)
    assert len(read(path)) == 3, "the device is written once"
    other = Results(path, read(path), "newer")
    assert (other.rows, other.ceilings, other.device) == ({}, {}, None)


def test_what_was_brought_home_can_be_read() -> None:
    for path in (project_root() / "benchmarks" / "results").glob("*.jsonl"):
        assert Results(path, read(path)).rows, path


def test_other_files_and_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    nothing, empty = tmp_path / "nothing", tmp_path / "empty"
    empty.write_text("# no leaf\n")
    missing = f"cannot read {nothing}: found No such file or directory"
    assert ended(monkeypatch, capsys, leaves, str(nothing)).startswith(missing)
    assert ended(monkeypatch, capsys, leaves, str(empty)).startswith(f"{empty}: found no leaf in it")
    assert ended(monkeypatch, capsys, register_banks, str(nothing)).startswith(missing)
    assert ended(monkeypatch, capsys, register_banks, str(empty)).startswith(f"{empty}: found no loop with an FFMA")
    assert ended(monkeypatch, capsys, regimes, "--json", str(nothing / "x")).startswith("--json: found")
    assert ended(monkeypatch, capsys, h200, "--kernel", "nowhere").startswith("--kernel: found 'nowhere'")


def test_a_missing_sanitizer_is_a_missing_prerequisite(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sanitize, "gpu", lambda command: cuda_target("sm_90a"))
    monkeypatch.setattr(sanitize.shutil, "which", lambda name: None)
    line = ended(monkeypatch, capsys, sanitize)
    assert line.startswith("compute-sanitizer is not installed")
    assert line.endswith("it comes with the CUDA toolkit")


def test_why_the_streaming_kernels_gave_no_ceilings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from benchmarks.streaming import ceilings

    pretend(monkeypatch, tmp_path / "gpu", count=0)
    monkeypatch.chdir(project_root())
    with pytest.raises(MissingPrerequisite) as caught:
        ceilings()
    assert str(caught.value).startswith(
        "the streaming kernels: found benchmarks.streaming needs a CUDA GPU: no CUDA GPU"
    )


@pytest.mark.parametrize("name", ["foundation", "h200", "leaves", "regimes", "sanitize", "streaming"])
def test_the_list_of_benchmarks_has_every_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    text = (project_root() / "benchmarks" / "README.md").read_text()
    rows = "".join(line for line in text.splitlines() if line.startswith(f"| `python -m benchmarks.{name}"))
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit):
        import_module(f"benchmarks.{name}").main()
    options = re.findall(r"^  (?:-h, )?(--[\w-]+)", capsys.readouterr().out, re.MULTILINE)
    assert options
    assert [option for option in options if option not in rows] == ["--help"]
