"""The process that compiles, launches and times: ``python -m emmy.bench.worker --device opencl``.

Jobs arrive on standard input and replies leave on a private copy of standard output (``emmy.bench.wire``), which itself
is turned into standard error, so that no library's printing can be taken for a reply. Before a job enters a phase that
may hang it says so, and the client's deadline for that phase starts. NumPy and the device's library are imported,
torch only for a job with a reference in it. The parent kills this process when a deadline passes, and it dies with
its parent.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import threading
import time

from emmy.bench import wire
from emmy.bench.records import Status
from emmy.errors import EmmyError

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """SIGKILL for this process as soon as its parent is gone.

    The kernel's signal covers a death at any moment; the poll covers a parent that died before the signal was set, and
    the end of the client's spawning thread (the signal follows threads, not processes).
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--torch", action="store_true", help="import torch at the start, for comparisons")
    options = parser.parse_args()
    die_with(options.parent)
    jobs, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    try:
        from emmy.bench.session import Session

        session = Session(options.device, lambda phase: wire.send(replies, {"phase": phase}))
        if options.torch:
            import torch  # noqa: F401
    except EmmyError as error:
        wire.send(replies, {"failed": str(error)})
        return
    wire.send(replies, {"ready": session.device.caps.name})
    while True:
        try:
            job = wire.receive(jobs)
        except wire.Closed:
            break
        try:
            reply = session.answer(job)
            wire.send(replies, {"reply": reply, "retire": session.tainted, "failed_before": session.failed_before})
        except wire.Closed:
            break
    # PoCL's threads may still run a kernel, or crash on memory a kernel ruined: nothing of it matters any more.
    sys.stderr.flush()
    os._exit(0)


def failure(error: BaseException) -> tuple[Status, str]:
    """Status and text of an exception that ended a job."""
    status = getattr(error, "status", None)
    if status is not None:
        return Status(status), str(error)
    return Status.BENCH_FAIL, f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
