"""Which rows an eval view looks at, and what it says where there are none."""

from __future__ import annotations

import polars as pl

from emmy.errors import InputError
from emmy.store import Store


def need_store(store: Store) -> None:
    """Raises InputError where nothing was ever stored."""
    if not store.exists:
        raise InputError(
            "tune store", found=f"nothing at {store.path}", expected="the store that a sweep writes",
            hint="run emmy tune first, or set EMMY_TUNE_DB",
        )  # fmt: skip


def chosen_rows(store: Store, kernel: str | None, sweep: str | None) -> pl.DataFrame:
    """Measurements of the sweep (default: each device's newest) whose kernel or shape name has ``kernel`` in it.

    Raises InputError for a sweep that does not exist.
    """
    sweeps = store.sweeps()
    if sweep is not None and sweep not in set(sweeps["sweep"]):
        raise InputError(
            "sweep", found=sweep, expected=f"one of {', '.join(sweeps['sweep']) or 'none: no sweep was run'}"
        )
    chosen = [sweep] if sweep is not None else sweeps.group_by("device").agg(pl.col("sweep").last())["sweep"].to_list()
    rows = store.measurements().filter(pl.col("sweep").is_in(chosen))
    if kernel is None:
        return rows
    regions = rows.filter(
        pl.col("kernel").str.contains(kernel, literal=True) | pl.col("shape").str.contains(kernel, literal=True)
    )["region"].unique()
    return rows.filter(pl.col("region").is_in(regions.to_list()))


def nothing(store: Store, kernel: str | None, sweep: str | None) -> str:
    """Why a view is empty, and what to run."""
    rows = chosen_rows(store, None, sweep)
    if rows.is_empty():
        older = store.measurements()["sweep"].unique().sort().to_list()
        hint = f"; older sweeps have rows, see --sweep {older[-1]}" if older else ""
        return f"nothing measured{f' in sweep {sweep}' if sweep else ' in the newest sweep'}: run emmy tune{hint}"
    names = sorted(set(rows["kernel"]) | {name for name in rows["shape"] if name})
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return f"nothing measured whose kernel or shape has {kernel!r} in its name; there are {shown}"
