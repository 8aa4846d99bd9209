"""One sweep at a time on a store: a lock file that names its holder and goes with the process, however that ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emmy.errors import StoreError

NAME = "sweep.lock"


@contextmanager
def sweep_lock(folder: Path) -> Iterator[None]:
    """Holds the lock of a work folder. Raises StoreError naming the process that holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 32).decode(errors="replace").strip() or "unknown"
            raise StoreError(
                f"another sweep runs in {folder}",
                found=f"process {holder}",
                expected="one sweep at a time",
                hint="wait for it, stop it, or set EMMY_TUNE_DB to another store",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
