"""Which names of devices a command takes, and what it says of the others before anything is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from emmy import config
from emmy.cli.fit import recorded_capabilities
from emmy.cli.main import main
from emmy.device import registry
from emmy.device.cuda_targets import TARGETS, cuda_target
from emmy.device.registry import on_this_machine
from emmy.errors import InputError, MissingPrerequisite

SNIPPET = "x0 = torch.randn(8, 8); x0 + 1"


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize("command", ["tune", "run", "compile"])
@pytest.mark.parametrize("by_variable", [False, True], ids=["flag", "variable"])
def test_a_target_is_no_device(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, by_variable: bool
) -> None:
    if by_variable:
        monkeypatch.setenv("EMMY_DEVICE", "sm_90a")
    line = refused(capsys, command, *([] if by_variable else ["--device", "sm_90a"]), "-c", SNIPPET)
    assert line == (
        "error: device: found sm_90a, a compile target, expected auto, cuda, opencl; "
        "emmy compile --target sm_90a compiles for it on any machine"
    )
    assert not (tmp_path / "_tune").exists(), "nothing was started"


@pytest.mark.parametrize("name", ["opencl", "auto", "cuda", "pocl-cpu-avx2"])
def test_a_device_is_no_target(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    line = refused(capsys, "compile", "--target", name, "-c", SNIPPET)
    assert line == f"error: --target: found {name!r}, expected {', '.join(TARGETS)}"
    assert not (tmp_path / "_tune").exists()


def test_a_target_goes_before_the_variable(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMMY_DEVICE", "opencl")
    assert main(["compile", "--target", "sm_90a", "--ir", "cuda", "-c", SNIPPET]) == 0
    assert "__global__" in capsys.readouterr().out


def test_this_machines_device_goes_by_its_own_name_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own = registry.capabilities("opencl", tmp_path / "_tune").name
    assert main(["compile", "--device", own, "-c", SNIPPET]) == 0
    assert "__kernel" in capsys.readouterr().out
    line = refused(capsys, "tune", "--device", f"{own}-of-another", "-c", SNIPPET)
    assert line == f"error: device: found '{own}-of-another', expected auto, cuda, opencl, {own}"


def test_a_workspace_opens_this_machines_device_by_its_own_name(tmp_path: Path) -> None:
    from emmy.pipeline import open_workspace

    own = registry.capabilities("opencl", tmp_path / "_tune")
    work = open_workspace(config.load(device=own.name))
    assert (work.device, work.settings.device, work.caps) == ("opencl", "opencl", own)
    with pytest.raises(InputError, match=r"found 'of-another', expected auto, cuda, opencl"):
        open_workspace(config.load(device="of-another"))


def test_a_gpu_goes_by_its_own_name_too(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = replace(cuda_target("sm_90a"), name="NVIDIA H200")
    monkeypatch.setattr(registry, "has_cuda_gpu", lambda: True)
    monkeypatch.setattr(registry, "capabilities", lambda name, folder: gpu)
    assert on_this_machine(config.load(device="NVIDIA H200")).device == "cuda"
    with pytest.raises(InputError, match=r"found 'NVIDIA H100', expected auto, cuda, opencl, NVIDIA H200"):
        on_this_machine(config.load(device="NVIDIA H100"))


def test_a_misspelt_name_is_not_blamed_on_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> object:
        raise MissingPrerequisite("the CUDA device needs CuPy")

    monkeypatch.setattr(registry, "has_cuda_gpu", lambda: True)
    monkeypatch.setattr(registry, "capabilities", missing)
    with pytest.raises(InputError, match=r"found 'opncl', expected auto, cuda, opencl$"):
        on_this_machine(config.load(device="opncl"))


def test_a_fit_takes_the_name_of_a_gpu_that_is_elsewhere(tmp_path: Path) -> None:
    brought = recorded_capabilities(config.load(device="NVIDIA H200"))
    assert (brought.name, brought.arch) == ("NVIDIA H200", "sm_90a")
    own = registry.capabilities("opencl", tmp_path / "_tune")
    assert recorded_capabilities(config.load(device=own.name)) == own
    with pytest.raises(InputError, match="a compile target"):
        recorded_capabilities(config.load(device="sm_90a"))


def test_an_unknown_name_lists_devices_and_says_what_targets_are_for() -> None:
    with pytest.raises(InputError) as caught:
        registry.resolve("vulkan")
    assert str(caught.value).startswith("device: found 'vulkan', expected auto, cuda, opencl; sm_80, ")
    assert str(caught.value).endswith("are targets, for emmy compile --target")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--gpus", "2"), "--gpus: found 2 devices"),
        (("--gpus", "1", "--devices", "0,1"), "--devices: found 2 devices"),
        (("--devices", "1"), "--devices: found 1, expected 0"),
        (("--devices", "all"), "--devices: found all, expected 0"),
        (("--devices", ""), "--devices: found , expected 0"),
    ],
)
def test_one_device_tunes_and_it_is_the_first(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], words: str
) -> None:
    assert words in refused(capsys, "tune", "--device", "opencl", "-c", SNIPPET, *flags)


@pytest.mark.parametrize(
    ("args", "says", "not_any_more"),
    [
        (("tune", "--help"), "How many GPUs to tune on: 1; more are refused.", "Spread the shapes over N GPUs"),
        (("tune", "--help"), "CUDA_VISIBLE_DEVICES chooses another", "The GPUs to use, by number"),
        (("run", "--help"), "auto, cuda, opencl, or its own name as goldens have it", "or a device's own name"),
        (("run", "--help"), "Only shapes and dtypes of its tensors count: inputs get random values.", "MODEL only"),
        (("--help",), "share above the fastest within which a screened leaf is a finalist", "slack within which O1"),
        (("--help",), "online prior, which no command writes or reads yet", "EMMY_ONLINE_FILE online prior (default"),
    ],
)
def test_help_says_what_is_so(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], says: str, not_any_more: str
) -> None:
    assert main(args) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert says in text
    assert not_any_more not in text
