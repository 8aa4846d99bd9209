"""Replays recorded measurements: the bench's answers from a Parquet of a real sweep, on any machine, deterministic."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from emmy.bench.artefact import Artefact
from emmy.bench.jobs import Reply
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


@dataclass(slots=True)
class ReplayBench:
    """Answers like a bench, from the rows of ``recording`` (as ``export`` writes it).

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
            self._rows[row["region"], row["knobs"], row["regime"], row["protocol"].split(".")[0]] = row
            self._leaf_of[row["plan_digest"]] = (row["region"], row["knobs"])

    def leaves(self, region: str | None = None) -> list[Leaf]:
        """The recorded variants, in the order of the recording."""
        pairs = dict.fromkeys((r, k) for r, k, _, _ in self._rows if region in (None, r))
        return [Leaf(r, k) for r, k in pairs]

    def screen(
        self, what: Artefact | Leaf, reference_set: Any = None, best_us: float | None = None, regime: str = "O3"
    ) -> Reply:
        """The recorded screening of a variant with fresh noise; ``not_recorded`` for one that is not in the file."""
        return self._reply(what, regime, "screen")

    def confirm(self, what: Artefact | Leaf, reference_set: Any = None, regime: str = "O3") -> Reply:
        """The recorded confirmation, else the screening; ``not_recorded`` for a variant that is not in the file."""
        return self._reply(what, regime, "confirm", "screen")

    def rounds(
        self, rows: Sequence[Artefact | Leaf], *, processes: int = 6, rounds: int = 8, regime: str = "O3"
    ) -> list[list[list[float]]]:
        """Microseconds per row, process and round of an interleaved comparison. Raises InputError for a row not OK."""
        return [[self._round_us(what, regime, process, rounds) for process in range(processes)] for what in rows]

    def _round_us(self, what: Artefact | Leaf, regime: str, process: int, rounds: int) -> list[float]:
        row = self._find(what, regime, "confirm", "screen")
        if row is None or row["status"] != Status.OK:
            raise InputError(
                "comparison", found=f"{what} is {row['status'] if row else 'not recorded'}", expected="ok rows"
            )
        noise = self._random(row, f"ab {process}").normal(size=rounds + 1)
        sigma = _sigma(row)
        # Half of the variance is common to a process, as one sees it between fresh processes.
        shared = math.sqrt(0.5) * sigma * noise[0]
        return [row["median_us"] * math.exp(shared + math.sqrt(0.5) * sigma * n) for n in noise[1:].tolist()]

    def _reply(self, what: Artefact | Leaf, regime: str, *protocols: str) -> Reply:
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

    def _find(self, what: Artefact | Leaf, regime: str, *protocols: str) -> dict[str, Any] | None:
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
