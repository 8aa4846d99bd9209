"""``emmy compile --target`` on a machine without a GPU."""

from __future__ import annotations

import re

import pytest

from emmy.cli.main import main
from emmy.codegen import cubin
from emmy.errors import MissingPrerequisite
from tests.codegen.compilers import require_nvrtc

SNIPPET = "x0 = torch.randn(33, 48); x1 = torch.randn(48, 40); x0 @ x1"


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_120"])
def test_every_target_prints_source_and_ptx(capsys: pytest.CaptureFixture[str], arch: str) -> None:
    require_nvrtc()
    for ir, words in (("cuda", "__global__"), ("ptx", f".target {arch}")):
        assert main(["compile", "--target", arch, "--ir", ir, "-c", SNIPPET]) == 0
        assert words in capsys.readouterr().out


def test_sass_is_headed_by_registers_spills_and_shared_memory(capsys: pytest.CaptureFixture[str]) -> None:
    require_nvrtc()
    try:
        cubin.find_tools("nvdisasm", "cuobjdump")
    except MissingPrerequisite as error:
        pytest.skip(str(error))
    assert main(["compile", "--target", "sm_90a", "--ir", "sass", "-c", SNIPPET]) == 0
    head, *body = capsys.readouterr().out.splitlines()
    words = r"// k_matmul_\w+ for sm_90a: \d+ registers, \d+ bytes spilled, \d+ bytes of shared memory, \d+ threads"
    assert re.fullmatch(words, head), head
    assert any("EXIT" in line for line in body)
    assert not any(line.startswith("// ptxas") for line in body)


@pytest.mark.parametrize(
    ("there", "message"),
    [
        ((), "nvdisasm and cuobjdump are not installed; pip install nvidia-cuda-nvdisasm nvidia-cuda-cuobjdump"),
        (("nvdisasm",), "cuobjdump is not installed; pip install nvidia-cuda-cuobjdump"),
    ],
    ids=["both", "one"],
)
def test_missing_disassemblers_are_named_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr(cubin.shutil, "which", lambda name: name if name in there else None)
    monkeypatch.setattr(cubin, "_packaged", lambda tool: None)
    assert main(["compile", "--target", "sm_90a", "--ir", "sass", "-c", SNIPPET]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {message}"


def test_an_architecture_that_is_no_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "--target", "sm_42", "--ir", "cuda", "-c", SNIPPET]) == 2
    assert "sm_90a" in capsys.readouterr().err


def test_an_architecture_that_this_nvrtc_does_not_know(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    require_nvrtc()
    from cupy.cuda import nvrtc

    monkeypatch.setattr(nvrtc, "getSupportedArchs", lambda: (80, 89, 90))
    assert main(["compile", "--target", "sm_120", "--ir", "ptx", "-c", SNIPPET]) == 2
    message = capsys.readouterr().err
    assert "does not compile for sm_120" in message
    assert "sm_90" in message
