"""A Prefect server for one command: on the loopback interface, without telemetry, gone when the command ends.

Where PREFECT_API_URL names a server, that one is used. Prefect's own temporary server outlives a SIGKILL of the process
that started it; this one does not.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx

from emmy.bench.protocol import need_disk
from emmy.config import debug_requested
from emmy.errors import MissingPrerequisite

START_S = 120.0
_PR_SET_PDEATHSIG = 1


def environment(folder: Path) -> dict[str, str]:
    """The variables that the server and this process's client share. ``folder``: the work folder."""
    return {
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_TO_API_ENABLED": "false",
    }


class LocalServer:
    """The server as a child process. ``start`` returns at once; ``wait`` returns its API's address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    @property
    def log_path(self) -> Path:
        return self.folder / "prefect" / "server.log"

    def start(self) -> None:
        """Spawns it, in a session of its own, so that an interrupt reaches the flow first and the server last."""
        import prefect

        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log = self.log_path.open("wb")
        command = [
            sys.executable, "-m", "uvicorn", "--app-dir", str(Path(prefect.__file__).parent.parent), "--factory",
            "prefect.server.api.server:create_app", "--host", "127.0.0.1", "--port", str(self.port),
            "--log-level", "error", "--lifespan", "on",
        ]  # fmt: skip
        # What Prefect sets for its own temporary server: no UI, no scheduler, only the services that a run needs.
        own = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
        self.process = subprocess.Popen(
            command, env=os.environ | environment(self.folder) | own, stdin=subprocess.DEVNULL, stdout=self._log,
            stderr=self._log, start_new_session=True, preexec_fn=_end_with_parent,
        )  # fmt: skip

    def wait(self) -> str:
        """Waits until it answers. Raises MissingPrerequisite with the last lines of its log, and FullDisk."""
        deadline = time.monotonic() + START_S
        with httpx.Client() as client:
            while time.monotonic() < deadline and self.process is not None and self.process.poll() is None:
                try:
                    if client.get(f"{self.url}/health", timeout=5).status_code == 200:
                        return self.url
                except httpx.HTTPError:
                    pass
                time.sleep(0.1)
        ended = None if self.process is None else self.process.poll()
        words = " | ".join(self.log_path.read_text(errors="replace").strip().splitlines()[-3:])
        self.stop()
        need_disk(self.folder)
        silent = f"no answer in {START_S:g} s" if ended is None else f"its end with exit code {ended}"
        raise MissingPrerequisite("the Prefect server did not start", found=words or silent,
                                  hint=f"its log is {self.log_path}")  # fmt: skip

    def stop(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.close()


@contextmanager
def connected(server: LocalServer | None, folder: Path) -> Iterator[str]:
    """Prefect's settings for this command, its client pointed at ``server`` (None: the one that is configured)."""
    from prefect.settings import (
        PREFECT_API_URL,
        PREFECT_HOME,
        PREFECT_LOCAL_STORAGE_PATH,
        PREFECT_LOGGING_LEVEL,
        PREFECT_LOGGING_TO_API_ENABLED,
        temporary_settings,
    )

    # A failed task is told by the command itself; Prefect would print its traceback twice.
    level = "WARNING" if debug_requested() else "CRITICAL"
    for name in ("prefect", "prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).setLevel(level)
    quiet = {PREFECT_LOGGING_LEVEL: level}
    if server is None:
        with temporary_settings(updates=quiet):
            yield str(PREFECT_API_URL.value())
        return
    url = server.wait()
    home = folder / "prefect"
    updates = quiet | {
        PREFECT_API_URL: url,
        PREFECT_HOME: home,
        PREFECT_LOCAL_STORAGE_PATH: home / "storage",
        PREFECT_LOGGING_TO_API_ENABLED: False,
    }
    try:
        with temporary_settings(updates=updates):
            yield url
    finally:
        server.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
