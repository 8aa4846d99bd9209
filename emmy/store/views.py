"""Views of measurement frames: the search tree as a minimum over variants, knob maps as columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import polars as pl

from emmy.config import FAMILIES

_PLACE = {family: place for place, family in enumerate(FAMILIES)}


def usable(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows with a latency that may be compared: OK, not abandoned half-way."""
    return frame.filter(pl.col("status") == "ok", ~pl.col("abandoned"), pl.col("median_us").is_not_null())


def knob_names(frame: pl.DataFrame) -> tuple[str, ...]:
    """Every knob key that occurs (``TILE``, ``TILE@qk``), in fork order, a family's bare key first."""
    names = {name for text in frame["knobs"].unique() for name in _knobs(text)}
    return tuple(sorted(names, key=_order))


def with_knobs(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """``frame`` with a text column for each knob key; null where the map lacks it. An open gate reads ``true``."""
    texts = frame["knobs"].unique().to_list()
    maps = [_knobs(text) for text in texts]
    table = {"knobs": texts} | {name: [knobs.get(name) for knobs in maps] for name in names}
    columns = pl.DataFrame(table, schema=dict.fromkeys(("knobs", *names), pl.String))
    return frame.join(columns, on="knobs", how="left", maintain_order="left")


def node_best(frame: pl.DataFrame, prefix: Mapping[str, object]) -> float | None:
    """Best latency, µs, of the usable rows whose knobs hold every pair of ``prefix``; None where there is none."""
    wanted = {name: knob_text(value) for name, value in prefix.items()}
    rows = with_knobs(usable(frame), tuple(wanted))
    if wanted:
        rows = rows.filter([pl.col(name) == value for name, value in wanted.items()])
    found = rows["median_us"].min()
    return None if found is None else float(found)  # type: ignore[arg-type]


def nodes(frame: pl.DataFrame) -> pl.DataFrame:
    """Every node of the measured search tree, rows of one region, regime and protocol given.

    Columns: depth (knobs decided), family (the last one), the knob columns (null: undecided), best_us, variants.
    """
    names = knob_names(frame)
    rows = with_knobs(usable(frame), names)
    levels = [
        rows.group_by(names[:depth])
        .agg(pl.col("median_us").min().alias("best_us"), pl.len().cast(pl.Int64).alias("variants"))
        .with_columns(pl.lit(depth).alias("depth"), pl.lit(names[depth - 1]).alias("family"))
        for depth in range(1, len(names) + 1)
    ]
    if not levels:
        return pl.DataFrame(
            schema={"depth": pl.Int32, "family": pl.String, "best_us": pl.Float64, "variants": pl.Int64}
        )
    columns = ["depth", "family", *names, "best_us", "variants"]
    return pl.concat(levels, how="diagonal").select(columns).sort("depth", *names)


def knob_text(value: object) -> str:
    """A knob's value as the columns of ``with_knobs`` spell it."""
    return (
        value if isinstance(value, str) else json.dumps(value) if isinstance(value, bool | int | float) else str(value)
    )


def _knobs(text: str) -> dict[str, str]:
    return {name: knob_text(value) for name, value in json.loads(text).items()} if text else {}


def _order(name: str) -> tuple[int, str, str]:
    family, _, step = name.partition("@")
    return _PLACE.get(family, len(_PLACE)), family, step
