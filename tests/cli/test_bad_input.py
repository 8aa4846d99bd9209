"""One clear message and exit code 2, before anything is started."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from emmy.cli.main import main

SNIPPET = "x0 = torch.randn(8, 8); x0 + 1"


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err
    return captured.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("tune", "--golden", "square.512", "--patience", "-3"), ("--patience", "-3", "at least 1")),
        (("tune", "--golden", "square.512", "--dynamic", "seq_len@x0:0"), ("--dynamic beside --golden",)),
        (("tune",), ("--dataset golden",)),
        (("tune", "--dataset", "golden", "--golden", "square.512"), ("both",)),
        (("tune", "--golden", "square.512", "--group", "quick"), ("--group", "--dataset golden")),
        (("tune", "--dataset", "golden", "--kernel", "nowhere"), ("'nowhere'", "nearest")),
        (("run",), ("no target",)),
        (("run", "-c", SNIPPET, "--ab", "TILE=n1x1/f1x1/k1"), ("--ab", "--bench")),
        (("run", "-c", SNIPPET, "--json", "x.json"), ("--json", "--bench")),
        (("run", "-c", SNIPPET, "--bench", "--bench-backends", "eager,tvm,emmy"), ("eager,tvm,emmy",)),
        (("run", "-c", SNIPPET, "--bench", "--bench-backends", "eager"), ("--bench-backends",)),
        (("run", "-c", SNIPPET, "--bench", "--ab", "TILE=n16"), ("--ab", "n16")),
        (("run", "-c", SNIPPET, "--bench", "--ab", ""), ("--ab",)),
        (("compile", "-c", SNIPPET, "--ir", "ptx"), ("--ir ptx", "--target sm_90a")),
        (("compile", "-c", SNIPPET, "--target", "sm_90a", "--device", "opencl"), ("--target beside --device",)),
        (("run", "--ir", "nothing.torch.json"), ("no file nothing.torch.json",)),
        (("fit",), ("tune store", "emmy tune --dataset golden")),
    ],
)
def test_bad_flags(capsys: pytest.CaptureFixture[str], args: Sequence[str], words: Sequence[str]) -> None:
    message = refused(capsys, *args)
    assert all(word in message for word in words), message


@pytest.mark.parametrize("command", ["tune", "run"])
def test_a_bad_variable_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("EMMY_PATIENCE", "abc")
    message = refused(capsys, command, "-c", SNIPPET)
    assert "EMMY_PATIENCE" in message
    assert "'abc'" in message


@pytest.mark.parametrize("below", ["emmy.duckdb", "folder/emmy.duckdb"])
@pytest.mark.parametrize("args", [("tune", "-c", SNIPPET), ("run", "-c", SNIPPET), ("eval", "variants"), ("fit",)])
def test_a_store_below_a_file_is_bad_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, below: str, args: Sequence[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    monkeypatch.setenv("EMMY_TUNE_DB", str(file / below))
    message = refused(capsys, *args)
    assert "EMMY_TUNE_DB" in message
    assert str(file / below) in message
    assert file.read_text() == "kept"


@pytest.mark.parametrize(
    "args",
    [
        ("run", "-c", SNIPPET, "--bench", "--json", "/proc/x.json"),
        ("run", "-c", SNIPPET, "--dump-dir", "/proc/x"),
        ("tune", "-c", SNIPPET, "--dump-dir", "/proc/x/y"),
        ("compile", "-c", SNIPPET, "--dump-dir", "/proc/x"),
        ("eval", "variants", "--json", "/proc/x.json"),
        ("fit", "--json", "/proc/x.json"),
        ("fit", "--out", "/proc/x.json"),
    ],
)
def test_a_place_that_cannot_be_written_is_found_before_the_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, args: Sequence[str]
) -> None:
    message = refused(capsys, *args)
    assert message.startswith(f"error: {args[-2]}: found {args[-1]}: no file can be made in /proc (")
    assert not (tmp_path / "_tune").exists()


@pytest.mark.parametrize("command", ["tune", "run", "compile"])
@pytest.mark.parametrize(("place", "why"), [("/proc/x", "no file can be made in /proc"), ("file", "is no folder")])
def test_a_dump_folder_of_the_variable_is_checked_too(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: str,
    place: str,
    why: str,
) -> None:
    (tmp_path / "file").write_text("kept")
    monkeypatch.setenv("EMMY_DUMP_DIR", str(tmp_path / place))
    message = refused(capsys, command, "-c", SNIPPET)
    assert message.startswith(f"error: EMMY_DUMP_DIR: found {tmp_path / place}: ")
    assert why in message
    assert not (tmp_path / "_tune").exists()


@pytest.mark.parametrize("command", ["tune", "run"])
@pytest.mark.parametrize("fault", ["a folder in its place", "a file as its journal", "no writing there", "read-only"])
def test_a_store_that_cannot_be_written_is_found_before_the_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, fault: str
) -> None:
    path = tmp_path / "store" / "emmy.duckdb"
    path.parent.mkdir()
    if fault == "a folder in its place":
        path.mkdir()
    elif fault == "a file as its journal":
        path.with_name("emmy.duckdb.journal").touch()
    elif fault == "no writing there":
        path = Path("/proc/emmy/emmy.duckdb")
    else:  # whatever its mode says, it does not bind root
        from emmy.store import Store

        Store(path).start_sweep("a device")
        Store(path).fold()
        monkeypatch.setattr("emmy.store.database.os.open", _denied(path))
    monkeypatch.setenv("EMMY_TUNE_DB", str(path))
    monkeypatch.setattr("emmy.device.registry.capabilities", lambda *_: pytest.fail("the device was opened"))
    message = refused(capsys, command, "-c", SNIPPET, "--device", "opencl")
    assert message.startswith(f"error: the store {path} cannot be written: found ")
    assert "EMMY_TUNE_DB" in message


def _denied(path: Path) -> Callable[..., int]:
    opened = os.open

    def denied(name: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if name == path and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "Permission denied", str(name))
        return opened(name, flags, *args, **kwargs)

    return denied


def test_an_unknown_golden_lists_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "tune", "--golden", "square.521")
    assert "square.512" in message


def test_a_syntax_error_points_at_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "run", "-c", "x0 = torch.randn(8, 8); x0 +")
    assert "syntax error" in message
    assert "^" in message


def test_a_model_is_said_not_to_be_supported(capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "tune", "some/model")
    assert "some/model" in message
    assert "-c SNIPPET" in message


def test_several_gpus_are_refused_on_a_cpu_device(capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "tune", "--golden", "quick.matmul.256", "--gpus", "2", "--device", "opencl")
    assert "--gpus" in message
    assert "2 devices" in message


def test_a_store_that_is_none_stops_a_sweep_before_it_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "emmy.duckdb"
    path.write_bytes(b"not a store" * 1000)
    monkeypatch.setenv("EMMY_TUNE_DB", str(path))
    refused(capsys, "tune", "--golden", "quick.matmul.256", "--device", "opencl")
    assert path.read_bytes() == b"not a store" * 1000


def test_a_missing_linker_names_the_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from emmy.device import registry
    from emmy.errors import MissingPrerequisite

    def none(*args: object) -> object:
        raise MissingPrerequisite("the OpenCL device cannot compile", hint="install gcc")

    monkeypatch.setattr(registry, "capabilities", none)
    assert "install gcc" in refused(capsys, "tune", "--golden", "quick.matmul.256")


def test_a_pin_of_many_digits_is_no_value(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMMY_TILE", f"n{'9' * 23}x1/f1x1/k1")
    assert "EMMY_TILE" in refused(capsys, "compile", "-c", SNIPPET)


def test_a_closed_standard_output_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    assert main(["golden", "list"]) == 0


@pytest.mark.parametrize("words", ["Not enough free space to write 33554432 bytes", "No space left on device"])
def test_a_full_disk_in_other_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(words)

    monkeypatch.setattr("emmy.cli.main._invoke", full)
    assert "disk full" in refused(capsys, "golden", "list")
