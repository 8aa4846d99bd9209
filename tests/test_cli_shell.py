import errno
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from emmy import __version__
from emmy.cli import common
from emmy.cli.main import COMMANDS, LazyGroup, cli, main
from emmy.errors import CompileFailed, InputError
from emmy.target import DynamicSpec, Target, TargetKind

Emmy = Callable[..., subprocess.CompletedProcess[str]]

HEAVY = ("torch", "prefect", "catboost", "polars", "duckdb", "numpy", "pydantic", "pyopencl", "cupy")


def test_importing_emmy_and_its_command_line_imports_nothing_heavy() -> None:
    code = f"import sys, emmy, emmy.cli.main, emmy.cli.common; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_imports_no_command_and_names_commands_variables_and_exit_codes() -> None:
    code = (
        "import sys; from emmy.cli.main import COMMANDS, main; code = main(['--help']); "
        f"print('MODULES', [m for m in {HEAVY!r} if m in sys.modules], "
        "[c for c in COMMANDS if f'emmy.cli.{c}' in sys.modules], code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "MODULES [] [] 0" in done.stdout
    assert "EMMY_PATIENCE" in done.stdout
    assert "(default: 50)" in done.stdout
    assert "Exit codes" in done.stdout
    for name in cli.list_commands(click.Context(cli)):
        assert COMMANDS[name] in " ".join(done.stdout.split())


def test_only_commands_that_exist_are_listed_and_each_has_its_command() -> None:
    context = click.Context(cli)
    folder = Path(common.__file__).parent
    for name in COMMANDS:
        exists = (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists()
        assert (name in cli.list_commands(context)) == exists


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"emmy, version {__version__}\n"


@pytest.mark.parametrize("args", [["tuen"], ["--bogus"], []])
def test_bad_arguments_give_2_and_go_to_stderr(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err


def test_an_unknown_command_lists_what_there_is(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(lambda: None, name="tune")
    assert main(["tuen"]) == 2
    assert "did you mean tune?" in capsys.readouterr().err


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a command of the test's own into the group, under one of its names."""
    installed: dict[str, click.Command] = {}
    monkeypatch.setattr(LazyGroup, "list_commands", lambda self, ctx: sorted(installed))
    monkeypatch.setattr(LazyGroup, "get_command", lambda self, ctx, name: installed.get(name))

    def install(body: Callable[..., object], *options: Callable[..., object], name: str = "run") -> None:
        for option in reversed(options):
            body = option(body)
        installed[name] = click.command(name)(body)

    return install


def _raiser(error: BaseException) -> Callable[[], None]:
    def body() -> None:
        raise error

    return body


def _wrapped_disk_full() -> Exception:
    error = RuntimeError("cannot append")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device", "/x/journal")
    return error


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InputError("--x", found=1, expected="2"), 2, "error: --x: found 1, expected 2\n"),
        (CompileFailed("k_matmul did not compile"), 1, "error: k_matmul did not compile\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), 2, "error: disk full while writing /x/y; "),
        (_wrapped_disk_full(), 2, "error: disk full; "),
        (RuntimeError("IO Error: No space left on device"), 2, "error: disk full; "),
        (
            OSError(errno.EROFS, "Read-only file system", "/x/y"),
            2,
            "error: no access to /x/y: found Read-only file sys",
        ),
        (SystemExit("stopped by a library"), 1, "stopped by a library\n"),
        (MemoryError(), 2, "error: out of memory; choose a smaller shape\n"),
        (
            ModuleNotFoundError("No module named 'pyopencl'", name="pyopencl"),
            2,
            "error: python package pyopencl is not",
        ),
        (ModuleNotFoundError("No module named 'emmy.x'", name="emmy.x"), 1, "internal error: ModuleNotFoundError: "),
        (ZeroDivisionError("by zero"), 1, "internal error: ZeroDivisionError: by zero; EMMY_DEBUG=1 shows where\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_an_exception_becomes_one_line_and_an_exit_code(
    error: BaseException,
    code: int,
    message: str,
    command: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command(_raiser(error))
    assert main(["run"]) == code
    err = capsys.readouterr().err
    assert err.startswith(message)
    assert err.count("\n") == 1
    monkeypatch.setenv("EMMY_DEBUG", "1")
    assert main(["run"]) == code
    assert ("Traceback" in capsys.readouterr().err) == isinstance(error, Exception)


@pytest.mark.parametrize(("result", "code"), [(None, 0), (0, 0), (1, 1)])
def test_a_command_returns_its_exit_code(result: int | None, code: int, command: Callable[..., None]) -> None:
    command(lambda: result)
    assert main(["run"]) == code


def test_a_bad_variable_stops_every_command_before_it_starts(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    command(lambda: started.append(1))
    monkeypatch.setenv("EMMY_PATIENCE", "abc")
    assert main(["run"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: environment variable EMMY_PATIENCE: found 'abc', expected a whole"
    )
    assert started == []


def test_a_misspelt_variable_is_a_warning(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command(lambda: None)
    monkeypatch.setenv("EMMY_TIEL", "r4")
    assert main(["run"]) == 0
    assert capsys.readouterr().err == "warning: emmy does not read EMMY_TIEL; did you mean EMMY_TILE?\n"


def test_no_traceback_reaches_a_user_in_a_real_process(emmy: Emmy) -> None:
    done = emmy("nonsense")
    assert done.returncode == 2
    assert done.stderr.startswith("error: command: found nonsense")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_standard_output_gives_2() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "emmy", "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: disk full")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_goes_away_leaves_no_noise() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "emmy", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    noise = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=30)
    assert noise == ""


def test_an_interrupt_gives_130_and_one_line() -> None:
    code = (
        "import sys, time, click; from emmy.cli import main as m; "
        "m.LazyGroup.list_commands = lambda s, c: ['run']; "
        "body = lambda: (print('up', flush=True), time.sleep(60)); "
        "m.LazyGroup.get_command = lambda s, c, n: click.command('run')(body); "
        "sys.exit(m.main(['run']))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "interrupted\n")


def _target(*args: str, **settings: bool) -> Target | None:
    """What a command with target options gets for `args`. Raises what the options raise."""
    caught: list[Target | None] = []

    @click.command()
    @common.target_options(**settings)
    def probe(target: Target | None) -> None:
        caught.append(target)

    probe.main(list(args), standalone_mode=False)
    return caught[0]


def test_each_form_of_a_target(tmp_path: Path) -> None:
    saved = tmp_path / "k_matmul_3fa2c1.torch.json"
    saved.write_text("{}")
    assert _target("-c", "x + 1") == Target(TargetKind.SNIPPET, "x + 1")
    assert _target("--golden", "square.512.dynM") == Target(TargetKind.GOLDEN, "square.512.dynM")
    assert _target("--ir", str(saved)) == _target(str(saved)) == Target(TargetKind.REPRODUCER, str(saved))
    assert _target("Qwen/Qwen3-0.6B", "--seq-len", "64") == Target(TargetKind.MODEL, "Qwen/Qwen3-0.6B", (), 64)
    assert _target("-c", "x @ y", "--dynamic", "seq_len@x:1", "--dynamic", "n@y.0:2") == Target(
        TargetKind.SNIPPET, "x @ y", (DynamicSpec("seq_len", "x", 1), DynamicSpec("n", "y.0", 2))
    )
    assert _target(required=False) is None


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "no target: expected -c SNIPPET, --golden NAME, --ir F.torch.json, a model or a reproducer"),
        (("-c", "x", "--golden", "g"), "more than one target: found --code and --golden, expected one"),
        (("m", "--golden", "g"), "more than one target: found model m and --golden, expected one"),
        (("-c", " "), "--code: found an empty text, expected a snippet"),
        (("--ir", "nowhere.torch.json"), "reproducer: found no file nowhere.torch.json"),
        (("nowhere.torch.json",), "reproducer: found no file nowhere.torch.json"),
        (("--golden", "g", "--dynamic", "s@x0:0"), "--dynamic beside --golden; drop --dynamic"),
        (("--ir", "f.torch.json", "--dynamic", "s@x0:0"), "--dynamic beside --ir; drop --dynamic"),
        (("f.torch.json", "--dynamic", "s@x0:0"), "--dynamic beside f.torch.json; drop --dynamic"),
        (("--golden", "g", "--seq-len", "3"), "--seq-len beside --golden; drop --seq-len"),
        (("-c", "x", "--seq-len", "0"), "--seq-len: found 0, expected a whole number of at least 1"),
        (("-c", "x", "--dynamic", "s@x:0", "--dynamic", "t@x:0"), "--dynamic: found axis x:0 named twice"),
        (("--dynamic", "s@x:0"), "--dynamic: found no snippet or model"),
    ],
)
def test_a_bad_target_is_refused(args: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError) as caught:
        _target(*args)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "text", ["", "s", "s@x", "@x:0", "s@:0", "s@x:", "s@x:-1", "s@x:a", "1s@x:0", "s@x:0:1", "s@x:0 1"]
)
def test_a_malformed_dynamic_axis_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"expected NAME@INPUT:AXIS, for example seq_len@x0:0"):
        DynamicSpec.parse(text)


def test_a_dynamic_axis_prints_as_it_is_read() -> None:
    assert str(DynamicSpec.parse("seq_len@x0:0")) == "seq_len@x0:0"


def test_ir_means_something_else_where_a_command_says_so() -> None:
    with pytest.raises(click.NoSuchOption):
        _target("--ir", "f.torch.json", ir_option=False)


@pytest.mark.parametrize("text", ["-3", "0", "abc", "1.5"])
def test_patience_is_at_least_1(text: str, command: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    command(lambda patience: None, common.patience_option)
    assert main(["run", "--patience", text]) == 2
    assert capsys.readouterr().err == f"error: --patience: found {text}, expected a whole number of at least 1\n"


def test_shared_options_reach_the_command(tmp_path: Path, command: Callable[..., None]) -> None:
    got: dict[str, object] = {}
    command(
        lambda **values: got.update(values),
        common.patience_option,
        common.device_option,
        common.dump_dir_option,
        common.json_option,
        common.group_option,
        common.kernel_option,
    )
    assert main(["run"]) == 0
    assert got == dict.fromkeys(("patience", "device", "dump_dir", "json_path", "kernel")) | {"groups": ()}
    out = tmp_path / "a.json"
    flags = ["--patience", "9", "--device", "opencl", "--dump-dir", str(tmp_path / "new"), "--json", str(out)]
    assert main(["run", *flags, "--group", "a", "--group", "b", "--kernel", "square"]) == 0
    assert got == {
        "patience": 9,
        "device": "opencl",
        "dump_dir": tmp_path / "new",
        "json_path": out,
        "groups": ("a", "b"),
        "kernel": "square",
    }


def test_output_paths_are_checked_before_anything_starts(tmp_path: Path, command: Callable[..., None]) -> None:
    started = []
    command(lambda **values: started.append(values), common.json_option, common.dump_dir_option)
    file = tmp_path / "file"
    file.touch()
    for flags in (["--json", str(tmp_path / "no" / "a.json")], ["--json", str(tmp_path)], ["--dump-dir", str(file)]):
        assert main(["run", *flags]) == 2
    assert started == []


def test_json_is_written_whole_or_not_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.json"
    common.write_json(path, {"us": 1.5, "name": "µ"})
    assert json.loads(path.read_text(encoding="utf-8")) == {"us": 1.5, "name": "µ"}
    for bad in ({"us": float("nan")}, {"us": object()}):
        with pytest.raises((ValueError, TypeError)):
            common.write_json(path, bad)
    assert json.loads(path.read_text(encoding="utf-8"))["us"] == 1.5
    assert list(tmp_path.iterdir()) == [path]
    common.write_json(Path("-"), [1])
    assert json.loads(capsys.readouterr().out) == [1]
