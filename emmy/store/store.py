"""The store: rows in, Polars frames out. Appends go to the journal at once, ``fold`` moves them into DuckDB."""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from emmy.bench.records import Measurement
from emmy.errors import InputError, StoreError
from emmy.files import obstacle
from emmy.store import views
from emmy.store.database import Database
from emmy.store.journal import Abandoned, DamagedLine, Entry, Journal, journal_error, take_abandoned
from emmy.store.rows import TABLES, Row, SweepRow, from_mapping, schema_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoldReport:
    """What a fold did: distinct rows handed to DuckDB, segments removed, lines that were damaged, seconds."""

    rows: int
    segments_removed: int
    damaged: tuple[DamagedLine, ...]
    seconds: float


@dataclass(slots=True)
class Store:
    """The tune store at ``path`` and its journal beside it.

    Nothing is opened or created before the first call. Any number of processes may append and read at once. Every
    method may raise StoreError (exit code 2) for a file that is not a store, is corrupt, newer, or stays locked.
    """

    path: Path
    lock_wait_s: float = 30.0
    _journal: Journal = field(init=False, repr=False)
    _database: Database = field(init=False, repr=False)
    _lock: threading.RLock = field(init=False, repr=False, default_factory=threading.RLock)
    _index: dict[str, Measurement | int] | None = field(init=False, repr=False, default=None)
    _indexed: pl.DataFrame | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self.path = Path(self.path)
        self._journal = Journal(self.path.with_name(self.path.name + ".journal"))
        self._database = Database(self.path, self.lock_wait_s)

    @property
    def exists(self) -> bool:
        """Whether anything was ever stored here."""
        return self.path.exists() or bool(self._journal.segments())

    @property
    def journal_dir(self) -> Path:
        return self._journal.folder

    # ---------------------------------------------------------------------------------------------------- writing

    def append(self, *rows: Row) -> None:
        """Journal the rows, fsynced, all of the call or none. Raises FullDisk, StoreError."""
        if not rows:
            return
        with self._lock:
            self._journal.append(rows)
            if self._index is not None:
                self._index.update({row.key: row for row in rows if isinstance(row, Measurement)})

    def fold(self) -> FoldReport:
        """Move what is journalled, by every process, into DuckDB; idempotent. Raises FullDisk, StoreError.

        Of rows with the same key the latest appended stands. A segment is removed only after the commit, and only when
        its writer has ended (this process leaves its own first); one with a damaged line is kept under ``damaged/``.
        """
        started = time.perf_counter()
        with self._lock:
            self._journal.rotate()
        # Appends go on, into a new segment, while this waits for the file.
        with self._database.open() as connection:
            segments = self._journal.segments()
            abandoned = [held for path in segments if (held := take_abandoned(path)) is not None]
            try:
                entries, damaged = self._journal.read(segments)
                count = 0
                connection.begin()
                for table, frame in frames_of(entries).items():
                    self._database.insert(connection, table, frame)
                    count += frame.height
                connection.commit()
                self._remove(abandoned, {line.segment for line in damaged})
            finally:
                for held in abandoned:
                    held.release()
        for line in damaged:
            log.warning("damaged journal line skipped: %s", line)
        return FoldReport(count, len(abandoned), tuple(damaged), time.perf_counter() - started)

    def _remove(self, abandoned: Iterable[Abandoned], damaged: set[Path]) -> None:
        try:
            for held in abandoned:
                held.remove(damaged=held.path in damaged)
        except OSError as error:
            raise journal_error(error, self._journal.folder) from error

    # ---------------------------------------------------------------------------------------------------- reading

    def check(self, *, to_write: bool = False) -> None:
        """Raise what the first read would raise, and with ``to_write`` the first write: call it before a long run."""
        if to_write:
            why = obstacle(self.path.parent) or obstacle(self._journal.folder) or self._database.obstacle()
            if why:
                raise StoreError(f"the store {self.path} cannot be written", found=why, expected="a writable file",
                                 hint="check owner and mode, or set EMMY_TUNE_DB to another path")  # fmt: skip
        if self.path.exists():
            with self._database.open(read_only=True):
                pass

    def frame(self, table: str, **equal: Any) -> pl.DataFrame:
        """Rows of a table (names in ``rows.TABLES``), journal included, whose columns equal the values; None: any.

        Columns are ``key``, ``stamp`` and the row class's fields; rows are in the order they were appended. Every row
        appended before the call, by any process, is in it.
        """
        where = [(name, value) for name, value in equal.items() if value is not None]
        # Journal first: a row folded in between is then seen in the database.
        entries, damaged = self._journal.read()
        for line in damaged:
            log.warning("damaged journal line skipped: %s", line)
        parts = []
        if self.path.exists():
            with self._database.open(read_only=True) as connection:
                parts.append(self._database.frame(connection, table, where))
        overlay = frames_of(entry for entry in entries if entry.table == table).get(table)
        if overlay is not None:
            parts.append(overlay.filter([pl.col(name) == value for name, value in where]) if where else overlay)
        if not parts:
            return pl.DataFrame(schema=schema_of(table))
        return latest(pl.concat(parts)).sort("stamp", "key")

    def measurements(
        self,
        region: str | None = None,
        device: str | None = None,
        sweep: str | None = None,
        regime: str | None = None,
        protocol: str | None = None,
    ) -> pl.DataFrame:
        """Measurements, all statuses, filtered by equality. ``protocol`` is a label such as ``screen.v1.cold``."""
        return self.frame("measurement", region=region, device=device, sweep=sweep, regime=regime, protocol=protocol)

    def lookup(self, key: str) -> Measurement | None:
        """The measurement of this key, from an index in memory.

        The index holds what was stored when it was first used, and every append through this object since; what other
        processes append later is not in it until ``refresh``.
        """
        with self._lock:
            if self._index is None:
                self._indexed = self.measurements()
                self._index = {key: place for place, key in enumerate(self._indexed["key"])}
            found = self._index.get(key)
            if isinstance(found, int):
                assert self._indexed is not None
                found = from_mapping("measurement", self._indexed.row(found, named=True))
                self._index[key] = found
            return found

    def refresh(self) -> None:
        """Drop the index of ``lookup``; the next call reads the store again."""
        with self._lock:
            self._index = self._indexed = None

    def best(
        self, region: str, device: str, sweep: str | None, regime: str, protocol: str, lane: str | None = None
    ) -> Measurement | None:
        """The fastest OK measurement that was not abandoned; ``sweep`` None: of any sweep, ``lane`` None: of either."""
        frame = self.measurements(region, device, sweep, regime, protocol)
        usable = views.usable(frame)
        if lane is not None:
            usable = usable.filter(pl.col("lane") == lane)
        if usable.is_empty():
            return None
        return from_mapping("measurement", usable.sort("median_us", "key").row(0, named=True))

    def node_best(
        self, prefix: Mapping[str, object], region: str, device: str, sweep: str | None, regime: str, protocol: str,
        lane: str | None = None,
    ) -> float | None:  # fmt: skip
        """Best latency, µs, under a partial knob map: the minimum over the measured variants that share it."""
        frame = self.measurements(region, device, sweep, regime, protocol)
        return views.node_best(frame if lane is None else frame.filter(pl.col("lane") == lane), prefix)

    # ----------------------------------------------------------------------------------------------------- sweeps

    def sweeps(self, device: str | None = None) -> pl.DataFrame:
        """Every sweep, oldest first."""
        return self.frame("sweep", device=device).sort("started_ns")

    def start_sweep(self, device: str, settings: Mapping[str, Any] | None = None, *, sweep: str | None = None) -> str:
        """Open a sweep and return its id. ``sweep``: an id of the caller's choice. Raises InputError when it exists."""
        known = self.frame("sweep")
        now = datetime.now(UTC)
        if sweep is None:
            sweep = f"{now:%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:6]}"
        if sweep in set(known["sweep"]):
            raise InputError("sweep id", found=f"{sweep}, which exists", expected="a new one")
        # Clocks may step back between runs; the order of sweeps may not.
        newest = known["started_ns"].to_list()
        started = max([time.time_ns(), *(value + 1 for value in newest)])
        self.append(SweepRow(sweep, device, started, now.isoformat(timespec="seconds"),
                             json.dumps(dict(settings or {}), sort_keys=True, default=str)))  # fmt: skip
        return sweep

    def current_sweep(self, device: str) -> str | None:
        """The newest sweep of the device, which a resumed run continues; None when there is none."""
        known = self.sweeps(device)
        return None if known.is_empty() else str(known["sweep"][-1])

    def clean(self, device: str, settings: Mapping[str, Any] | None = None, *, forget: Iterable[Path] = ()) -> str:
        """Start a cold sweep of the device and return its id.

        Evidence and lookups go by the sweep, so nothing measured before counts; older sweeps stay readable. ``forget``:
        this device's online prior and binaries, files or folders, which are deleted. Raises InputError for a path among
        the goldens or of the store itself.
        """
        from emmy.config import goldens_dir

        doomed = [Path(path).resolve() for path in forget]
        kept = [goldens_dir().resolve(), self.path.resolve(), self._journal.folder.resolve()]
        for path in doomed:
            for keep in kept:
                if path == keep or keep in path.parents or path in keep.parents:
                    raise InputError("clean", found=f"{path} in the list to forget", expected=f"nothing of {keep}")
        sweep = self.start_sweep(device, settings)
        for path in doomed:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        return sweep

    # --------------------------------------------------------------------------------------------------- evidence

    def evidence(
        self, region: str, device: str, digest_of: Callable[[str], str | None], *, sweep: str | None = None,
        regime: str = "O3", lane: str | None = None,
    ) -> pl.DataFrame:  # fmt: skip
        """The measurements that may decide a deployment, best first.

        OK rows of one sweep (default: the device's current one) whose plan digest equals ``digest_of(knobs)``, what the
        knobs (JSON text) lower to now; None: they no longer lower. A row a knob map: its confirmation where it has one.
        Confirmed rows stand before screened ones, since numbers of two protocols are not compared.
        """
        rows = list(self._evidence(region, device, digest_of, sweep, regime, lane))
        return pl.DataFrame(rows, schema=schema_of("measurement"), orient="row")

    def best_evidence(
        self, region: str, device: str, digest_of: Callable[[str], str | None], *, sweep: str | None = None,
        regime: str = "O3", lane: str | None = None,
    ) -> Measurement | None:  # fmt: skip
        """The first row of ``evidence``, lowering no more leaves than it takes to find it."""
        for row in self._evidence(region, device, digest_of, sweep, regime, lane):
            return from_mapping("measurement", row)
        return None

    def _evidence(
        self, region: str, device: str, digest_of: Callable[[str], str | None], sweep: str | None, regime: str,
        lane: str | None,
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        sweep = sweep or self.current_sweep(device)
        if sweep is None:
            return
        frame = views.usable(self.measurements(region, device, sweep, regime)).filter(
            pl.col("protocol").str.ends_with(".cold"),
            pl.lit(True) if lane is None else pl.col("lane") == lane,
        )
        confirmed = pl.col("protocol").str.starts_with("confirm.")
        ordered = frame.sort(confirmed, pl.col("median_us"), pl.col("key"), descending=[True, False, False])
        digests: dict[str, str | None] = {}
        yielded: set[str] = set()
        for row in ordered.iter_rows(named=True):
            knobs = row["knobs"]
            if knobs in yielded:
                continue
            if knobs not in digests:
                digests[knobs] = digest_of(knobs)
            if digests[knobs] == row["plan_digest"]:
                yielded.add(knobs)
                yield row


def frames_of(entries: Iterable[Entry]) -> dict[str, pl.DataFrame]:
    """A frame a table: columns of ``schema_of``, the latest entry of each key, in order of append."""
    by_table: dict[str, list[Entry]] = {}
    for entry in entries:
        by_table.setdefault(entry.table, []).append(entry)
    return {table: latest(_frame(table, rows)) for table, rows in by_table.items()}


def _frame(table: str, entries: list[Entry]) -> pl.DataFrame:
    schema = schema_of(table)
    defaults = {item.name: item.default for item in fields(TABLES[table])}
    columns: dict[str, list[Any]] = {"key": [e.key for e in entries], "stamp": [e.stamp for e in entries]}
    for name, default in defaults.items():
        columns[name] = [entry.values.get(name, default) for entry in entries]
    return pl.DataFrame(columns, schema=schema, strict=False)


def latest(frame: pl.DataFrame) -> pl.DataFrame:
    """One row a key, that of the latest stamp."""
    return frame.sort("stamp").unique("key", keep="last", maintain_order=True)
