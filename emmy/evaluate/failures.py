"""``emmy eval failures``: failed rows clustered by kernel and error, with the knobs that all of a cluster share."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from emmy.evaluate.scope import chosen_rows
from emmy.store import Store
from emmy.store.views import knob_text

_VARYING = re.compile(r"0x[0-9a-fA-F]+|\b\d+(?:\.\d+)?(?:[eE][-+]?\d+)?\b")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Failed rows of one kernel with one error; errors that differ in numbers alone are one.

    shared: assignments that every failing row has. ok: OK rows of the kernel in the regimes of the failing ones.
    telling: shared assignments that none of those has. example: the first row's error and complete knobs.
    """

    kernel: str
    device: str
    shapes: tuple[str, ...]
    status: str
    regimes: tuple[str, ...]
    count: int
    ok: int
    shared: dict[str, str]
    telling: dict[str, str]
    error: str
    example_knobs: str


@dataclass(frozen=True, slots=True)
class Failures:
    """ok, failed: rows of the view; one variant has a row for each regime and protocol."""

    ok: int
    failed: int
    clusters: tuple[Cluster, ...]


def failures(store: Store, kernel: str | None = None, sweep: str | None = None) -> Failures:
    """The failures of a sweep (default: each device's newest), largest cluster first. Raises InputError."""
    rows = chosen_rows(store, kernel, sweep)
    bad = rows.filter(pl.col("status") != "ok").with_columns(
        pl.col("error").map_elements(signature, return_dtype=pl.String).alias("signature")
    )
    ok = rows.filter(pl.col("status") == "ok")
    clusters = [
        _cluster(
            group,
            ok.filter(
                pl.col("region").is_in(group["region"].unique().to_list()),
                pl.col("regime").is_in(group["regime"].unique().to_list()),
                pl.col("device") == device,
            ),
        )
        for (_, device, _, _), group in bad.group_by("kernel", "device", "status", "signature", maintain_order=True)
    ]
    clusters.sort(key=lambda cluster: (-cluster.count, cluster.kernel, cluster.status, cluster.error))
    return Failures(ok.height, bad.height, tuple(clusters))


def signature(error: str) -> str:
    """The first line of an error with its numbers and addresses left out."""
    return _VARYING.sub("#", error.strip().split("\n", 1)[0])


def _cluster(rows: pl.DataFrame, ok: pl.DataFrame) -> Cluster:
    first = rows.row(0, named=True)
    shared = _shared(rows["knobs"].to_list())
    telling = {
        name: value
        for name, value in shared.items()
        if not any(_knobs(text).get(name) == value for text in ok["knobs"])
    }
    return Cluster(first["kernel"], first["device"], tuple(sorted({name for name in rows["shape"] if name})),
                   first["status"], tuple(sorted(set(rows["regime"]))), rows.height, ok.height, shared,
                   telling if ok.height else {}, first["error"], first["knobs"])  # fmt: skip


def _shared(texts: Sequence[str]) -> dict[str, str]:
    common = _knobs(texts[0])
    for text in texts[1:]:
        other = _knobs(text)
        common = {name: value for name, value in common.items() if other.get(name) == value}
    return common


def _knobs(text: str) -> dict[str, str]:
    return {name: knob_text(value) for name, value in json.loads(text).items()} if text else {}


def text(found: Failures) -> str:
    """Counts, then a paragraph a cluster."""
    total = f"{found.ok} ok, {found.failed} failed"
    if not found.clusters:
        return f"{total}: no failures"
    return "\n\n".join(
        [f"{total}, {len(found.clusters)} clusters", *(_cluster_text(cluster) for cluster in found.clusters)]
    )


def _cluster_text(cluster: Cluster) -> str:
    names = f" ({', '.join(cluster.shapes)})" if cluster.shapes else ""
    regimes = " ".join(cluster.regimes)
    lines = [
        f"{cluster.kernel}{names} on {cluster.device}: {cluster.count} {cluster.status} ({regimes}), {cluster.ok} ok",
        f"  error   {cluster.error.strip().splitlines()[0] if cluster.error.strip() else '(no text)'}",
    ]
    if cluster.count > 1:
        lines.append(f"  shared  {_assignments(cluster.shared)}")
    if cluster.count > 1 and cluster.telling:
        lines.append(f"  only in failing rows  {_assignments(cluster.telling)}")
    return "\n".join([*lines, f"  example {cluster.example_knobs}"])


def _assignments(knobs: dict[str, str]) -> str:
    return " ".join(f"{name}={value or repr('')}" for name, value in knobs.items()) or "nothing"


def to_json(found: Failures) -> dict[str, Any]:
    """Plain values: the fields of ``Failures``."""
    return asdict(found)
