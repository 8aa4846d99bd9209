"""A sweep that is killed goes on where it was; the command's locks, signals and exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from emmy import config
from emmy.errors import StoreError
from emmy.store import Store
from flows.lock import sweep_lock
from tests.flows.model_bench import ModelBench


def test_a_killed_sweep_is_resumed_without_measuring_anything_twice(
    bench: ModelBench, goldens: Path, results: Path, tmp_path: Path
) -> None:
    from prefect.settings import PREFECT_API_URL, PREFECT_HOME

    from flows.golden_sweep import golden_sweep

    environment = os.environ | {
        "PREFECT_API_URL": PREFECT_API_URL.value(), "PREFECT_HOME": str(PREFECT_HOME.value()),
        "PREFECT_LOCAL_STORAGE_PATH": str(results), "PREFECT_LOGGING_LEVEL": "CRITICAL",
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.flows.killed_sweep", str(tmp_path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        screened: list[str] = []
        for line in process.stdout:
            screened += [line.split()[1]] if line.startswith("screened") else []
            if len(set(screened)) == 2:
                break
        process.send_signal(signal.SIGKILL)
    before = Store(config.load().tune_db).measurements()
    done = set(before["plan_digest"])
    assert len(done) >= len(screened) - 1, "a row is kept as soon as it is measured"

    result = golden_sweep(kernel="quick.matmul", patience=3)
    assert [line.split()[1] for line in result["outcomes"]] == ["new"] * 4
    assert result["sweep"] == before["sweep"][0]
    after = Store(config.load().tune_db).measurements()
    again = after.filter(after["plan_digest"].is_in(list(done)) & after["protocol"].str.starts_with("screen."))
    kept = before.filter(before["protocol"].str.starts_with("screen."))
    assert again["measured_at"].to_list() == kept["measured_at"].to_list()
    first_shape = screened[0]
    assert ("screen", first_shape) not in bench.asked, "its search had ended and is not repeated"


def test_the_lock_names_its_holder_and_goes_with_the_process(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from flows.lock import sweep_lock\n"
        "with sweep_lock(Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match=f"process {holder.pid}") as refusal, sweep_lock(tmp_path):
            pass
        assert refusal.value.exit_code == 2
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with sweep_lock(tmp_path):
        pass


def test_the_server_listens_on_loopback_and_ends_with_its_parent(tmp_path: Path) -> None:
    """The parent is killed while the server starts: nothing is left behind."""
    script = (
        "import sys; from pathlib import Path; from flows.server import LocalServer\n"
        "server = LocalServer(Path(sys.argv[1])); server.start(); print(server.url, server.process.pid, flush=True)\n"
        "import time; time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        url, pid = parent.stdout.readline().split()
        assert url.startswith("http://127.0.0.1:")
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and _runs(int(pid)):
        time.sleep(0.1)
    assert not _runs(int(pid))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--patience", "-3"], "--patience: found -3, expected a whole number of at least 1"),
        (["--patience", "abc"], "--patience: found abc, expected a whole number"),
        (["--reconfirm", "-1"], "--reconfirm: found -1, expected a whole number"),
        (["--group", "quik"], "did you mean quick"),
        (["--nonsense"], "--help"),
        (["--rerun", "quick.matmul.25"], "a shape of this sweep"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    bench: ModelBench, goldens: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    arguments: list[str], message: str,
) -> None:  # fmt: skip
    from flows.command import main

    def flow(*_: Any) -> dict[str, Any]:
        raise AssertionError("the flow was started")

    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    assert main(flow, arguments) == 2
    told = capsys.readouterr().err
    assert message in told
    assert "Traceback" not in told


def test_a_malformed_variable_is_exit_code_2(
    bench: ModelBench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.command import main

    monkeypatch.setenv("EMMY_PATIENCE", "abc")
    assert main(lambda *_: {}, []) == 2
    assert "EMMY_PATIENCE" in capsys.readouterr().err


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
