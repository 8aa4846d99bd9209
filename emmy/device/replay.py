"""Replays recorded measurements: the bench's answers from a Parquet of a real sweep, on any machine, deterministic."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from emmy.bench.artefact import Artefact
from emmy.bench.jobs import Reply, Row
from emmy.bench.protocol import PROCESSES, ROUNDS, ConfirmResult
from emmy.bench.records import Status
from emmy.errors import InputError

if TYPE_CHECKING:
    from emmy.store.store import Store

QUARTILE = 0.6744897501960817
"""Upper quartile of the standard normal distribution."""

_NEEDED = ("region", "knobs", "regime", "protocol", "plan_digest", "status", "median_us", "low_us", "high_us")
_KEPT = ("build_s", "wall_s", "registers", "spills", "smem_bytes", "rel_error", "abandoned", "sm_clock_mhz", "throttle")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A variant named by region key and complete knob map (JSON text), for a search that lowers nothing."""

    region: str
    knobs: str


What = Artefact | Leaf


@dataclass(slots=True)
class ReplayBench:
    """Answers like ``emmy.bench.protocol.Bench``, from the rows of ``recording`` (as ``export`` writes it).

    A reply depends on the variant, the regime, the protocol and ``seed`` alone, never on the order of the calls: its
    median is drawn from a log-normal with the recorded median and quartiles, as a repeated measurement would be.
    Raises InputError when the file is no recording.
    """

    recording: Path
    seed: int = 0
    _rows: dict[tuple[str, str, str, str], dict[str, Any]] = field(init=False, repr=False)
    _leaf_of: dict[str, tuple[str, str]] = field(init=False, repr=False)
    device: str = field(init=False)

    def __post_init__(self) -> None:
        frame = _read(self.recording)
        devices = frame["device"].unique().to_list()
        if len(devices) != 1:
            raise InputError(
                f"recording {self.recording}", found=f"{len(devices)} devices", expected="rows of one device"
            )
        self.device = devices[0]
        self._rows = {}
        self._leaf_of = {}
        for row in frame.iter_rows(named=True):
            self._rows[row["region"], row["knobs"], row["regime"], _protocol(row["protocol"])] = row
            self._leaf_of[row["plan_digest"]] = (row["region"], row["knobs"])

    def leaves(self, region: str | None = None) -> list[Leaf]:
        """The recorded variants, in the order of the recording."""
        pairs = dict.fromkeys((r, k) for r, k, _, _ in self._rows if region in (None, r))
        return [Leaf(r, k) for r, k in pairs]

    def __enter__(self) -> ReplayBench:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def qualify(self, what: What, reference_set: Any = None, regime: str = "O3", lane: str = "std") -> Reply:
        """How the recorded screening ended, with its latency as the rough one."""
        return replace(self.screen(what, regime=regime), median_us=None, low_us=None, high_us=None, samples=0)

    def screen(
        self,
        what: What,
        reference_set: Any = None,
        best_us: float | None = None,
        regime: str = "O3",
        lane: str = "std",
        cache: str = "cold",
    ) -> Reply:
        """The recorded screening of a variant with fresh noise; ``not_recorded`` for one that is not in the file."""
        return self._reply(what, regime, f"screen.{cache}")

    def build_ahead(self, rows: Sequence[Row], reference_set: Any = None) -> list[Reply]:
        """How the recorded screenings of the rows ended: there is nothing to build."""
        return [self.qualify(row.artefact, reference_set, row.regime, row.lane) for row in rows]

    def confirm(
        self,
        rows: Sequence[Row],
        reference_set: Any = None,
        sources: Sequence[Any] = (),
        processes: int = PROCESSES,
        rounds: int = ROUNDS,
        cache: str = "cold",
        seed: int = 0,
    ) -> ConfirmResult:
        """A comparison drawn from the recorded confirmations, else screenings; a ``Leaf`` may stand for an artefact.

        Half of a row's variance is common to a process, as between fresh processes. References are not recorded.
        """
        seconds: dict[str, tuple[tuple[float, ...], ...]] = {}
        replies = {source.label: Reply(Status.NOT_RECORDED, "references are not recorded") for source in sources}
        for row in rows:
            reply = self._reply(row.artefact, row.regime, f"confirm.{cache}", f"screen.{cache}")
            found = self._find(row.artefact, row.regime, f"confirm.{cache}", f"screen.{cache}")
            if found is None or not reply.ok:
                replies[row.label], seconds[row.label] = reply, ()
                continue
            series = tuple(self._rounds(found, row.label, seed * 1000 + number, rounds) for number in range(processes))
            low, median, high = np.quantile(np.concatenate(series) * 1e6, (0.25, 0.5, 0.75)).tolist()
            seconds[row.label] = series
            replies[row.label] = replace(reply, median_us=median, low_us=low, high_us=high, samples=processes * rounds)
        seconds |= {source.label: () for source in sources}
        return ConfirmResult(seconds, replies)

    def _rounds(self, row: dict[str, Any], label: str, process: int, rounds: int) -> tuple[float, ...]:
        noise = self._random(row, f"confirm {label} {process}").normal(size=rounds + 1) * math.sqrt(0.5) * _sigma(row)
        return tuple((row["median_us"] * 1e-6 * np.exp(noise[0] + noise[1:])).tolist())

    def _reply(self, what: What, regime: str, *protocols: str) -> Reply:
        row = self._find(what, regime, *protocols)
        if row is None:
            return Reply(Status.NOT_RECORDED, f"no {regime} measurement of this variant in {self.recording.name}")
        kept = {name: row[name] for name in _KEPT}
        kept["warnings"] = tuple(filter(None, row["warnings"].split("\n")))
        if row["status"] != Status.OK:
            return Reply(Status(row["status"]), row["error"], **kept)
        # The median of n samples wanders by about 1.25 sigma / sqrt(n).
        samples = max(1, row["samples"])
        shift = math.exp(1.2533 * _sigma(row) / math.sqrt(samples) * float(self._random(row, "reply").normal()))
        low, median, high = (row[name] * shift for name in ("low_us", "median_us", "high_us"))
        return Reply(Status.OK, "", median, low, high, samples, median, **kept)

    def _find(self, what: What, regime: str, *protocols: str) -> dict[str, Any] | None:
        leaf = (what.region, what.knobs) if isinstance(what, Leaf) else self._leaf_of.get(what.plan_digest)
        if leaf is None:
            return None
        found = (self._rows.get((*leaf, regime, protocol)) for protocol in protocols)
        return next((row for row in found if row is not None), None)

    def _random(self, row: dict[str, Any], purpose: str) -> np.random.Generator:
        text = "\x1f".join((row["region"], row["knobs"], row["regime"], row["protocol"], str(self.seed), purpose))
        return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little"))


def export(store: Store, sweep: str, path: Path) -> int:
    """Write the measurements of a sweep, in a fixed order, as a recording; returns their number.

    Raises InputError for a sweep without measurements. The file is written under another name and then renamed.
    """
    frame = store.measurements(sweep=sweep).drop("stamp").sort("region", "knobs", "regime", "protocol", "size")
    if frame.is_empty():
        known = store.sweeps()["sweep"].to_list()
        raise InputError("sweep to export", found=f"no measurements of {sweep}", expected=f"one of {known}")
    path.parent.mkdir(parents=True, exist_ok=True)
    unnamed = path.with_name(path.name + ".new")
    frame.write_parquet(unnamed)
    os.replace(unnamed, path)
    return frame.height


def _read(path: Path) -> pl.DataFrame:
    try:
        frame = pl.read_parquet(path)
    except FileNotFoundError:
        raise InputError("recording", found=f"no file {path}", expected="a Parquet of measurements") from None
    except pl.exceptions.PolarsError as error:
        raise InputError(
            f"recording {path}", found=str(error).splitlines()[0], expected="a Parquet of measurements"
        ) from error
    missing = [name for name in (*_NEEDED, *_KEPT) if name not in frame.columns]
    if missing:
        raise InputError(
            f"recording {path}", found=f"no column {', '.join(missing)}", expected="columns of a measurement"
        )
    return frame


def _sigma(row: dict[str, Any]) -> float:
    """Standard deviation of the log latency, from the recorded quartiles; 0 where there is no spread on record."""
    low, high = row["low_us"], row["high_us"]
    if not low or not high or high <= low:
        return 0.0
    return math.log(high / low) / (2 * QUARTILE)


def _protocol(label: str) -> str:
    """``screen.v1.cold`` → ``screen.cold``: a recording serves later versions of the protocol."""
    name, _, rest = label.partition(".")
    return f"{name}.{rest.partition('.')[2]}"
