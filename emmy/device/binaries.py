"""Compiled CUDA binaries on disk, keyed by what they were compiled from, and a process pool that fills the cache.

NVRTC needs no GPU, so the parent compiles ahead with every core while the worker times: the worker finds the binary.
A file is written under a temporary name and renamed, so that two processes may compile the same kernel at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from emmy.errors import CompileFailed, TimedOut

VERSION = 1
"""Of the file format: in the key."""


@dataclass(frozen=True, slots=True)
class Binary:
    """A cubin with what the compiler said. ``error`` is set, and ``cubin`` empty, where the source did not compile."""

    cubin: bytes
    log: str
    seconds: float
    error: str = ""


class BinaryCache:
    """Binaries in ``folder``, one file a key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def key(source: str, arch: str, options: Sequence[str], compiler: str) -> str:
        """Digest of source, architecture, options and compiler version."""
        text = "\x1f".join((str(VERSION), source, arch, *options, compiler))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def get(self, key: str) -> Binary | None:
        """The binary, or None where there is none or its file is damaged."""
        try:
            data = (self.folder / f"{key}.cubin").read_bytes()
            head, _, cubin = data.partition(b"\n")
            facts = json.loads(head)
            if facts["bytes"] != len(cubin):
                return None
            return Binary(cubin, facts["log"], facts["seconds"], facts["error"])
        except (OSError, ValueError, KeyError):
            return None

    def put(self, key: str, binary: Binary) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        facts = {"bytes": len(binary.cubin), "log": binary.log, "seconds": binary.seconds, "error": binary.error}
        handle, path = tempfile.mkstemp(dir=self.folder, prefix=f"{key}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(json.dumps(facts).encode() + b"\n" + binary.cubin)
            os.replace(path, self.folder / f"{key}.cubin")
        except BaseException:
            Path(path).unlink(missing_ok=True)
            raise

    def compile(self, source: str, arch: str, options: Sequence[str]) -> Binary:
        """The binary of ``source``, compiled now unless the cache has it. A failure is kept like a success."""
        from emmy.codegen.nvrtc import compile_cuda, nvrtc_version

        key = self.key(source, arch, options, "nvrtc {}.{}".format(*nvrtc_version()))
        found = self.get(key)
        if found is not None:
            return found
        try:
            result = compile_cuda(source, arch, tuple(options))
            binary = Binary(result.cubin, result.log, result.seconds)
        except CompileFailed as failure:
            binary = Binary(b"", failure.log, 0.0, failure.message)
        self.put(key, binary)
        return binary


def _compile(folder: str, source: str, arch: str, options: tuple[str, ...]) -> bool:
    return not BinaryCache(Path(folder)).compile(source, arch, options).error


def _start() -> None:
    # Ctrl-C reaches the whole process group; the parent decides what ends
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class CompilePool:
    """Processes that compile into a cache ahead of the worker. A broken pool is started again at the next request."""

    def __init__(self, cache: BinaryCache, processes: int) -> None:
        self.cache, self.processes = cache, processes
        self.pool: ProcessPoolExecutor | None = None
        self.pending: dict[str, Future[bool]] = {}

    def request(self, jobs: Iterable[tuple[str, str, tuple[str, ...]]]) -> None:
        """Starts compiling (source, arch, options) jobs that are neither compiled nor under way."""
        for source, arch, options in jobs:
            name = BinaryCache.key(source, arch, options, "")
            if name in self.pending:
                continue
            try:
                self.pending[name] = self._started().submit(_compile, str(self.cache.folder), source, arch, options)
            except BrokenProcessPool:
                self.close()

    def _started(self) -> ProcessPoolExecutor:
        if self.pool is None:
            self.pool = ProcessPoolExecutor(self.processes, mp_context=get_context("spawn"), initializer=_start)
        return self.pool

    def wait(self, source: str, arch: str, options: tuple[str, ...], deadline_s: float) -> None:
        """Waits until a requested job is done. Raises TimedOut after ``deadline_s``; the pool is killed then."""
        future = self.pending.get(BinaryCache.key(source, arch, options, ""))
        if future is None:
            return
        try:
            future.result(timeout=deadline_s)
        except TimeoutError:
            self.close()
            raise TimedOut("compilation", deadline_s) from None
        except BrokenProcessPool:
            self.close()

    def close(self) -> None:
        """Kills the processes; what they compiled stays in the cache."""
        pool, self.pool = self.pool, None
        self.pending.clear()
        if pool is not None:
            for process in list((pool._processes or {}).values()):
                process.kill()
            pool.shutdown(wait=False, cancel_futures=True)
