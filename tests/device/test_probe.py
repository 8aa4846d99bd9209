"""Capabilities: probed once in a process of its own, cached, and clear about what is missing."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from emmy.device import probe, registry
from emmy.device.base import Capabilities
from emmy.device.cuda_targets import TARGETS, cuda_target
from emmy.device.opencl import vector_bits
from emmy.errors import FullDisk, InputError, MissingPrerequisite


@pytest.fixture(scope="module")
def work_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


def test_probe_measures_a_cpu(work_dir: Path) -> None:
    caps = registry.capabilities("opencl", work_dir)
    assert caps.language == "opencl"
    assert caps.name == f"pocl-cpu-{caps.arch}"
    assert caps.units == os.cpu_count() or caps.units > 0
    assert caps.smem_bytes >= 32 << 10
    assert 1e9 < caps.peak_flops < 1e13 * caps.units
    assert caps.peak_bytes <= caps.cache_bytes_s < 1e12 * caps.units


def test_second_answer_is_read_not_measured(work_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = registry.capabilities("opencl", work_dir)
    monkeypatch.setattr(probe, "run_probe", lambda *_: pytest.fail("probed again"))
    assert registry.capabilities("opencl", work_dir) == first


def test_another_processor_or_a_broken_file_is_probed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [cuda_target("sm_80"), cuda_target("sm_89"), cuda_target("sm_120")]
    monkeypatch.setattr(probe, "run_probe", lambda *_: answers.pop(0))
    assert probe.opencl_capabilities(tmp_path).arch == "sm_80"
    assert probe.opencl_capabilities(tmp_path).arch == "sm_80"
    monkeypatch.setattr(probe, "processor", lambda: "another")
    assert probe.opencl_capabilities(tmp_path).arch == "sm_89"
    (tmp_path / "device-opencl.json").write_text('{"key": ')
    assert probe.opencl_capabilities(tmp_path).arch == "sm_120"


def test_no_linker_says_what_to_install(tmp_path: Path) -> None:
    # PoCL finds its linker on the PATH; with an empty one the probing process aborts, not this one.
    environ = dict(os.environ) | {"PATH": str(tmp_path)}
    with pytest.raises(MissingPrerequisite) as caught:
        probe.run_probe(tmp_path / "binaries", environ)
    text = str(caught.value)
    assert "gcc" in text
    assert "binutils" in text
    assert "libc6-dev" in text
    assert "no cc and no ld on the PATH" in text


def test_no_pyopencl_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pyopencl.py").write_text("raise ImportError('not here')\n")
    environ = dict(os.environ) | {"PYTHONPATH": str(tmp_path)}
    with pytest.raises(MissingPrerequisite, match=r"pip install 'pyopencl\[pocl\]'"):
        probe.run_probe(tmp_path / "binaries", environ)


def test_capabilities_survive_json() -> None:
    caps = cuda_target("sm_90a")
    assert Capabilities.from_dict(json.loads(json.dumps(caps.to_dict()))) == caps


def test_targets_answer_without_a_gpu() -> None:
    hopper = registry.capabilities("sm_90a")
    assert (hopper.units, hopper.smem_bytes, hopper.warp) == (132, 232448, 32)
    assert "tma" in hopper.transports
    assert any(atom.startswith("wgmma_m64n256k16") for atom in hopper.atoms)
    for arch in TARGETS:
        caps = cuda_target(arch)
        assert caps.arch == arch
        assert "async" in caps.transports
        assert "mma_m16n8k16_f16_f32" in caps.atoms
        assert caps.peak_bytes < caps.cache_bytes_s < caps.peak_flops
    assert not any(atom.startswith("wgmma") for atom in cuda_target("sm_120").atoms)


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(InputError, match="sm_90a"):
        cuda_target("sm_42")
    with pytest.raises(InputError, match="opencl"):
        registry.capabilities("vulkan")


def test_auto_prefers_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "has_cuda_gpu", lambda: False)
    assert registry.resolve(None) == registry.resolve("auto") == "opencl"
    monkeypatch.setattr(registry, "has_cuda_gpu", lambda: True)
    assert registry.resolve("auto") == "cuda"


@pytest.mark.skipif(registry.has_cuda_gpu(), reason="there is a GPU")
def test_no_gpu_is_said_clearly() -> None:
    with pytest.raises(MissingPrerequisite, match=r"nvidia-smi|NVIDIA driver|CuPy"):
        registry.capabilities("cuda")


@pytest.mark.parametrize(("stdout", "code", "there"), [("GPU 0: X (UUID: 1)\n", 0, True), ("No devices\n", 6, False)])
def test_gpu_is_looked_for_with_the_drivers_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stdout: str, code: int, there: bool
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nprintf '{stdout.strip()}\\n'\nexit {code}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(tool) if name == "nvidia-smi" else None)
    assert registry.has_cuda_gpu() is there


@pytest.mark.parametrize(
    ("version", "reported", "bits"),
    [
        ("OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-znver3", 512, 256),
        ("OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-znver4", 512, 512),
        ("OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-skylake-avx512", 512, 512),
        ("OpenCL 3.0 PoCL HSTR: cpu-x86_64-unknown-linux-gnu-sapphirerapids", 512, 512),
        ("OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-haswell", 256, 256),
        ("OpenCL 3.0 (Build 0)", 512, 512),
    ],
)
def test_vector_width_is_what_the_compiler_emits(version: str, reported: int, bits: int) -> None:
    assert vector_bits(version, reported) == bits


def test_a_full_disk_is_no_missing_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_ask", lambda *_: ("signal 6", "cannot write: No space left on device"))
    with pytest.raises(FullDisk, match="disk full while writing"):
        probe.run_probe(tmp_path / "binaries")
