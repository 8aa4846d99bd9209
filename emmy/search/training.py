"""What the offline prior is fitted on: stored measurements joined with features computed by today's code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emmy.device.base import Capabilities
from emmy.errors import KnobError
from emmy.ir.nest import Region, region_key
from emmy.priors.fit import RegionData
from emmy.schedule.knobs import OFF, Fuse, KnobMap
from emmy.schedule.space import Space, enumerate_space
from emmy.search.structure import cuts
from emmy.search.variant import read_knobs

if TYPE_CHECKING:
    from emmy.store.store import Store


@dataclass(frozen=True, slots=True)
class Training:
    """Rows by region. used: measurements behind them. unread: rows that could not be used, by reason."""

    data: tuple[RegionData, ...]
    used: int
    unread: Mapping[str, int]


def with_children(regions: Iterable[tuple[str, Region]]) -> Iterator[tuple[str, Region]]:
    """The named regions, and those of their cuts, which are tuned under the same name."""
    for name, region in regions:
        yield name, region
        for cut in cuts(region):
            yield from with_children((name, child) for child in cut.children)


def training_rows(store: Store, caps: Capabilities, regions: Iterable[tuple[str, Region]]) -> Training:
    """The O3 rows of every sweep on this device whose regions are among the named ones.

    A leaf's confirmation stands for it where it has one, else its screening; of several sweeps the median. Abandoned
    rows count: what was given up as too slow is slow. Leaves beyond today's enumeration and cut plans are left out.
    A region that was screened in O1 brings its contenders alone.
    """
    import polars as pl

    known = {region_key(region): (name, region) for name, region in with_children(regions)}
    frame = store.measurements(device=caps.name, regime="O3").filter(
        pl.col("status") == "ok", pl.col("median_us").is_not_null(), pl.col("protocol").str.ends_with(".cold")
    )
    unread: dict[str, int] = {}
    data: list[RegionData] = []
    used = 0
    for (key,), rows in frame.group_by("region", maintain_order=True):
        if key not in known:
            _count(unread, "region of no golden shape", rows.height)
            continue
        name, region = known[str(key)]
        space = enumerate_space(region, caps, fast_math=True)
        leaves: list[int] = []
        latency: list[float] = []
        for (text,), own in rows.group_by("knobs", maintain_order=True):
            leaf = _leaf(space, str(text), unread)
            if leaf is None:
                continue
            confirmed = own.filter(pl.col("protocol").str.starts_with("confirm."))
            best = confirmed if not confirmed.is_empty() else own
            leaves.append(leaf)
            latency.append(float(np.median(best["median_us"].to_numpy())))
            used += own.height
        if leaves:
            data.append(
                RegionData(
                    str(key),
                    name,
                    caps.name,
                    bool(region.symbols),
                    space.features[leaves],
                    np.array(latency),
                    tuple(sorted(set(rows["protocol"]))),
                    tuple(sorted(set(rows["sweep"]))),
                )
            )
    return Training(tuple(data), used, unread)


def _leaf(space: Space, text: str, unread: dict[str, int]) -> int | None:
    try:
        knobs: KnobMap = read_knobs(text)
    except (KnobError, ValueError):
        _count(unread, "knobs of another grammar", 1)
        return None
    if isinstance(knobs.get("FUSE", OFF), Fuse):
        _count(unread, "cut plan", 1)
        return None
    leaf = space.find(knobs)
    if leaf is None:
        _count(unread, "beyond today's enumeration", 1)
    return leaf


def _count(where: dict[str, int], reason: str, rows: int) -> None:
    where[reason] = where.get(reason, 0) + rows
