"""What the store holds: a frozen row class for each table, with the key under which a row is stored once."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from emmy.bench.records import Measurement, Status, digest


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One cold run on one device. ``started_ns`` orders the sweeps; ``settings`` is JSON, as is every payload here."""

    sweep: str
    device: str
    started_ns: int
    started_at: str
    settings: str = "{}"

    @property
    def key(self) -> str:
        return digest(["sweep", self.sweep])


@dataclass(frozen=True, slots=True)
class RegionRow:
    """A region under its key, with what a person reads: kernel name, kind, shape name, printed nest, symbol hints."""

    region: str
    kernel: str
    kind: str = ""
    shape: str = ""
    nest: str = ""
    symbols: str = "{}"

    @property
    def key(self) -> str:
        return digest(["region", self.region, self.shape])


@dataclass(frozen=True, slots=True)
class VariantRow:
    """A leaf that the search looked at in a sweep, measured or not.

    knobs: the complete map as JSON text. origin: ``prior``, ``explore``, ``nearby``, ``golden``, ``pin``.
    prior: name of the prior that ranked it; predicted_us: its prediction; rank: its place (1 best) among ``offered``.
    """

    region: str
    device: str
    sweep: str
    knobs: str
    lane: str
    origin: str = ""
    prior: str = ""
    predicted_us: float | None = None
    rank: int = 0
    offered: int = 0

    @property
    def key(self) -> str:
        return digest(["variant", self.region, self.device, self.sweep, self.knobs])


@dataclass(frozen=True, slots=True)
class AbRow:
    """One candidate in one process of an interleaved A/B run.

    run: id of the A/B run. label: ``greedy``, ``golden 0``, ``eager``.
    origin: ``greedy``, ``golden``, ``ab``, ``reference``.
    rounds: JSON list of microseconds, one a round, NaN-free; candidates of one (run, process) share the round index.
    """

    sweep: str
    run: str
    device: str
    region: str
    shape: str
    label: str
    origin: str
    lane: str
    knobs: str
    protocol: str
    process: int
    status: Status
    rounds: str = "[]"
    reason: str = ""
    measured_at: str = ""

    @property
    def key(self) -> str:
        return digest(["ab", self.sweep, self.run, self.device, self.region, self.shape, self.label, self.process])


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided, by what, and why: the latest row under a key stands.

    kind: ``greedy`` (what is deployed), ``prior_pick``, ``verdict``, ``screened`` (the part of a search in the cheap
    build ended), ``done`` (search of a region ended), …
    source: ``evidence``, ``online``, ``offline``; for a verdict, ``ab``. us: predicted or measured microseconds.
    payload: JSON with whatever the kind needs besides.
    """

    kind: str
    sweep: str
    device: str
    region: str
    shape: str = ""
    lane: str = "std"
    source: str = ""
    knobs: str = ""
    us: float | None = None
    reason: str = ""
    payload: str = "{}"
    decided_at: str = ""

    @property
    def key(self) -> str:
        return digest(["decision", self.kind, self.sweep, self.device, self.region, self.shape, self.lane, self.source])


Row = SweepRow | RegionRow | VariantRow | Measurement | AbRow | Decision

TABLES: dict[str, type[Any]] = {
    "sweep": SweepRow,
    "region": RegionRow,
    "variant": VariantRow,
    "measurement": Measurement,
    "ab": AbRow,
    "decision": Decision,
}
"""Table name → row class. Each table has the class's fields as columns, and ``key`` and ``stamp`` before them."""

TABLE_OF: dict[type[Any], str] = {cls: table for table, cls in TABLES.items()}

_POLARS: dict[Any, Any] = {str: pl.String, int: pl.Int64, float: pl.Float64, bool: pl.Boolean}


def schema_of(table: str) -> dict[str, Any]:
    """Columns of a table's frame: ``key``, ``stamp`` (nanoseconds, latest stands), then the row's fields."""
    hints = typing.get_type_hints(TABLES[table])
    fields = {field.name: _POLARS[_plain(hints[field.name])] for field in dataclasses.fields(TABLES[table])}
    return {"key": pl.String, "stamp": pl.Int64, **fields}


def from_mapping(table: str, values: Mapping[str, Any]) -> Any:
    """The row of ``values``; columns that the class does not have (``key``, ``stamp``) are ignored."""
    cls = TABLES[table]
    names = {field.name for field in dataclasses.fields(cls)}
    chosen = {name: value for name, value in values.items() if name in names}
    if "status" in chosen:
        chosen["status"] = Status(chosen["status"])
    return cls(**chosen)


def _plain(hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        hint = next(option for option in hint.__args__ if option is not type(None))
    return str if isinstance(hint, type) and issubclass(hint, enum.Enum) else hint
