"""The append-only journal beside the store: a row is safe, fsynced, before ``append`` returns.

A folder of segments, one for each writing process, so that two writers never share a file. A line is
``<crc32 hex> <JSON {table, key, stamp, row}>``. A writer holds an flock on its segment while it lives: a segment whose
lock can be taken belongs to a process that ended. A torn last line is an append that never returned and is ignored; a
damaged line elsewhere is skipped, reported, and its segment kept under ``damaged/``.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from emmy.errors import FullDisk, StoreError
from emmy.store.rows import TABLE_OF, TABLES

SUFFIX = ".jsonl"
DAMAGED = "damaged"
FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Entry:
    """One journalled row. ``values`` are the row's fields; ``stamp`` is the time of the append in nanoseconds."""

    table: str
    key: str
    stamp: int
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DamagedLine:
    """A line whose checksum or form is wrong. ``line`` is 1-based."""

    segment: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.segment}:{self.line}: {self.reason}"


def encode(entry: Entry) -> bytes:
    """A whole line, newline included. JSON text has no raw newline, so a line is a record."""
    text = json.dumps({"table": entry.table, "key": entry.key, "stamp": entry.stamp, "row": entry.values},
                      separators=(",", ":")).encode()  # fmt: skip
    return b"%08x %s\n" % (zlib.crc32(text), text)


def decode(line: bytes) -> Entry:
    """Inverse of encode, without the newline. Raises ValueError saying what is wrong."""
    checksum, space, text = line.partition(b" ")
    if not space or len(checksum) != 8:
        raise ValueError("not a journal line")
    if b"%08x" % zlib.crc32(text) != checksum:
        raise ValueError("checksum does not match")
    data = json.loads(text)
    table, row = data["table"], data["row"]
    if table not in TABLES:
        raise ValueError(f"unknown table {table!r}")
    required, known = _FIELDS[table]
    if missing := required - row.keys():
        raise ValueError(f"{table} row without {', '.join(sorted(missing))}")
    if strange := row.keys() - known:
        raise ValueError(f"{table} row with the unknown {', '.join(sorted(strange))}: written by a newer emmy")
    return Entry(table, data["key"], data["stamp"], row)


def _fields(cls: type[Any]) -> tuple[frozenset[str], frozenset[str]]:
    """(fields without a default, all fields)."""
    required = frozenset(f.name for f in fields(cls) if f.default is MISSING)
    return required, frozenset(f.name for f in fields(cls))


_FIELDS = {table: _fields(cls) for table, cls in TABLES.items()}


@dataclass(slots=True)
class Segment:
    """The open segment of this process."""

    path: Path
    handle: int
    pid: int

    def write(self, data: bytes) -> None:
        """Write and fsync. Raises OSError; what was written in part is cut off again where that is possible."""
        start = os.fstat(self.handle).st_size
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self.handle, view) :]
            os.fsync(self.handle)
        except OSError:
            os.ftruncate(self.handle, start)
            raise

    def close(self) -> None:
        os.close(self.handle)


@dataclass(slots=True)
class Journal:
    """The segments in ``folder``. Not thread-safe by itself: the store holds its lock around calls."""

    folder: Path
    _segment: Segment | None = None
    _last_stamp: int = 0
    _serial: int = field(default=0)

    def append(self, rows: Sequence[Any]) -> list[Entry]:
        """Journal the rows with one fsync. Raises FullDisk (nothing of the call is kept) or StoreError."""
        entries = [self._entry(row) for row in rows]
        data = b"".join(encode(entry) for entry in entries)
        try:
            self._open().write(data)
        except OSError as error:
            # A segment after a failed write may end in half a line, which must stay its last one.
            self.rotate()
            raise journal_error(error, self.folder) from error
        return entries

    def _entry(self, row: Any) -> Entry:
        self._last_stamp = max(self._last_stamp + 1, time.time_ns())
        return Entry(TABLE_OF[type(row)], row.key, self._last_stamp, asdict(row))

    def _open(self) -> Segment:
        segment = self._segment
        if segment is not None and segment.pid == os.getpid() and segment.path.exists():
            return segment
        self.folder.mkdir(parents=True, exist_ok=True)
        self._serial += 1
        path = self.folder / f"{time.time_ns():020d}-{socket.gethostname()}-{os.getpid()}-{self._serial}{SUFFIX}"
        # Locked before it has its name: nobody can take an open segment for an abandoned one.
        unnamed = path.with_suffix(".new")
        handle = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        fcntl.flock(handle, fcntl.LOCK_EX)
        unnamed.rename(path)
        _sync_folder(self.folder)
        self._segment = Segment(path, handle, os.getpid())
        return self._segment

    def rotate(self) -> None:
        """Leave the current segment: the next append opens another. After a fork the parent's handle stays open."""
        if self._segment is not None and self._segment.pid == os.getpid():
            self._segment.close()
        self._segment = None

    def segments(self) -> list[Path]:
        """Every segment, oldest first, of whatever process."""
        try:
            return sorted(path for path in self.folder.iterdir() if path.suffix == SUFFIX)
        except FileNotFoundError:
            return []

    def read(self, segments: Iterable[Path] | None = None) -> tuple[list[Entry], list[DamagedLine]]:
        """Rows of the segments (all by default), and their damaged lines. A segment removed meanwhile is skipped."""
        entries: list[Entry] = []
        damaged: list[DamagedLine] = []
        for path in self.segments() if segments is None else segments:
            for item in read_segment(path):
                if isinstance(item, Entry):
                    entries.append(item)
                else:
                    damaged.append(item)
        return entries, damaged


def read_segment(path: Path) -> Iterator[Entry | DamagedLine]:
    """Rows and damaged lines in order; nothing for a torn last line or a segment that is gone."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    *lines, _torn = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            yield decode(line)
        except (ValueError, KeyError, TypeError) as error:
            yield DamagedLine(path, number, str(error))


@dataclass(slots=True)
class Abandoned:
    """A segment without a living writer, locked until ``release``. Locked before it is read, it cannot grow after."""

    path: Path
    handle: int

    def remove(self, *, damaged: bool) -> None:
        """Remove the segment; with ``damaged`` keep it, out of the way, under ``damaged/``."""
        if damaged:
            (self.path.parent / DAMAGED).mkdir(exist_ok=True)
            self.path.replace(self.path.parent / DAMAGED / self.path.name)
        else:
            self.path.unlink(missing_ok=True)

    def release(self) -> None:
        os.close(self.handle)


def take_abandoned(path: Path) -> Abandoned | None:
    """Lock a segment whose writer has ended; None when it lives or the segment is gone."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return Abandoned(path, handle)


def journal_error(error: OSError, path: Path) -> FullDisk | StoreError:
    """The project's error for a failed write."""
    if error.errno in FULL:
        return FullDisk(path)
    return StoreError(f"cannot write the journal {path}", found=error.strerror or str(error),
                      expected="a writable folder", hint="check its owner and mode, or set EMMY_TUNE_DB")  # fmt: skip


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
