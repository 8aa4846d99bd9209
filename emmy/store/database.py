"""The DuckDB file: opened for moments, since DuckDB locks out every other process while one has it open to write."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from emmy.errors import FullDisk, StoreError
from emmy.store.rows import TABLES, schema_of

MIGRATIONS_DIR = Path(__file__).parent / "sql"
_CONFIG = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
_THREAD_LOCKS: dict[Path, threading.RLock] = {}
_THREAD_LOCKS_GUARD = threading.Lock()


def migrations() -> tuple[str, ...]:
    """The SQL of each schema version: number i of the list leads from version i to i + 1."""
    return tuple(path.read_text() for path in sorted(MIGRATIONS_DIR.glob("[0-9]*.sql")))


@dataclass(frozen=True, slots=True)
class Database:
    """The file ``path``. ``lock_wait_s``: how long to wait for another process that has it open."""

    path: Path
    lock_wait_s: float = 30.0
    scripts: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        """The schema version that this program reads and writes."""
        return len(self._scripts())

    def _scripts(self) -> tuple[str, ...]:
        return self.scripts or migrations()

    @contextmanager
    def open(self, *, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection at the current schema; closed, and on an error rolled back, at the end.

        Raises StoreError: not a store, corrupt, of a newer schema, or locked for longer than ``lock_wait_s``; FullDisk.
        A reader of an older schema migrates first (a short write).
        """
        with _thread_lock(self.path):
            try:
                connection = self._connect(read_only)
                try:
                    found = _schema_version(connection, self.path)
                    if found > self.version:
                        raise _newer(self.path, found, self.version)
                    if found < self.version and read_only:
                        connection.close()
                        with self.open():
                            pass
                        connection = self._connect(read_only)
                    elif found < self.version:
                        self._migrate(connection, found)
                    yield connection
                finally:
                    connection.close()
            except duckdb.Error as error:
                raise database_error(error, self.path) from error

    def obstacle(self) -> str:
        """Why the file cannot be written; empty where it can, or does not exist yet."""
        # Within the lock: closing any handle of a file drops the locks that this process has on it.
        with _thread_lock(self.path):
            try:
                os.close(os.open(self.path, os.O_RDWR | os.O_CLOEXEC))
            except FileNotFoundError:
                return ""
            except OSError as error:
                return error.strerror or str(error)
        return ""

    def _connect(self, read_only: bool) -> duckdb.DuckDBPyConnection:
        """Open the file, waiting for other processes. Raises StoreError when they do not let go, or duckdb.Error."""
        if not read_only:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + self.lock_wait_s
        pause_s = 0.005
        while True:
            try:
                return duckdb.connect(str(self.path), read_only=read_only, config=dict(_CONFIG))
            except duckdb.IOException as error:
                if "Could not set lock" not in str(error):
                    raise
                if time.monotonic() >= deadline:
                    raise _locked(self.path, error, self.lock_wait_s) from error
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.2)

    def _migrate(self, connection: duckdb.DuckDBPyConnection, found: int) -> None:
        for version, script in enumerate(self._scripts()[found:], start=found + 1):
            connection.begin()
            try:
                if version == 1:
                    connection.execute("CREATE TABLE schema_version (version INTEGER NOT NULL)")
                    connection.execute("INSERT INTO schema_version VALUES (0)")
                connection.execute(script)
                connection.execute("UPDATE schema_version SET version = ?", [version])
                connection.commit()
            except BaseException:
                connection.rollback()
                raise

    def insert(self, connection: duckdb.DuckDBPyConnection, table: str, rows: pl.DataFrame) -> None:
        """Upsert ``rows`` (unique keys) into ``table``: a row replaces one of its key only when its stamp is later."""
        columns = list(schema_of(table))
        updates = ", ".join(f"{name} = excluded.{name}" for name in columns if name != "key")
        connection.register("incoming", rows.select(columns))
        try:
            connection.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(columns)} FROM incoming "
                f"ON CONFLICT (key) DO UPDATE SET {updates} WHERE excluded.stamp > {table}.stamp"
            )
        finally:
            connection.unregister("incoming")

    def frame(
        self, connection: duckdb.DuckDBPyConnection, table: str, where: Sequence[tuple[str, Any]] = ()
    ) -> pl.DataFrame:
        """Rows of ``table`` whose columns equal the given values."""
        columns = ", ".join(schema_of(table))
        condition = " AND ".join(f"{name} = ?" for name, _ in where)
        query = f"SELECT {columns} FROM {table}" + (f" WHERE {condition}" if condition else "")
        return connection.sql(query, params=[value for _, value in where]).pl().cast(schema_of(table))


def _schema_version(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    """0 for a database without tables. Raises StoreError for one that is not a store."""
    names = {row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if not names:
        return 0
    if "schema_version" not in names:
        raise StoreError(
            f"{path} is not a tune store",
            found=f"a DuckDB database with the tables {', '.join(sorted(names)[:5])}",
            expected=f"the tables {', '.join(TABLES)}",
            hint="set EMMY_TUNE_DB to another path; this file was left as it is",
        )
    rows = connection.execute("SELECT version FROM schema_version").fetchall()
    if len(rows) != 1:
        raise StoreError(f"{path} has a damaged schema_version table", found=f"{len(rows)} rows", expected="one row",
                         hint="move the file away and run again; the file was left as it is")  # fmt: skip
    return int(rows[0][0])


def _newer(path: Path, found: int, expected: int) -> StoreError:
    return StoreError(
        f"the store {path} was written by a newer emmy",
        found=f"schema version {found}",
        expected=f"{expected} or older",
        hint="update emmy, or set EMMY_TUNE_DB to another path; the file was left as it is",
    )


def _locked(path: Path, error: duckdb.Error, waited_s: float) -> StoreError:
    holder = re.search(r"Conflicting lock is held in (.+?\(PID \d+\))", str(error))
    return StoreError(
        f"the store {path} is locked",
        found=f"{holder[1] if holder else 'another process'} has had it open for {waited_s:g} s",
        expected="to be let in between its writes",
        hint="wait for that process or end it, then run again; what was measured is safe in the journal",
    )


def database_error(error: duckdb.Error, path: Path) -> FullDisk | StoreError:
    """The project's error for a DuckDB error."""
    text = str(error).strip()
    if "No space left on device" in text or "disk quota" in text.lower():
        return FullDisk(path)
    first = text.splitlines()[0] if text else type(error).__name__
    return StoreError(
        f"the store {path} cannot be read or written",
        found=first,
        expected="a DuckDB file that emmy wrote",
        hint="move it away (its journal keeps what was not folded in) or set EMMY_TUNE_DB; the file was left as it is",
    )


def _thread_lock(path: Path) -> threading.RLock:
    """One lock a file: DuckDB refuses two connections of a process that differ in read_only."""
    with _THREAD_LOCKS_GUARD:
        return _THREAD_LOCKS.setdefault(path.absolute(), threading.RLock())
