"""What a search reads from and writes to the store: rows by knobs, finished searches, one row an attempt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from emmy.bench.jobs import Reply
from emmy.bench.records import CONFIRM, SCREEN, Measurement, Status
from emmy.device.base import Capabilities
from emmy.ir.nest import Region, region_key, text
from emmy.schedule.knobs import KnobMap
from emmy.search.variant import Variant, knobs_text, measurement

if TYPE_CHECKING:
    from emmy.store.store import Store

Known = Mapping[tuple[str, str], Measurement]
"""Screened rows of a region in a sweep, by regime and knob text."""


@dataclass(frozen=True, slots=True)
class Recorder:
    """The rows of one sweep on one device. prior: name of the prior that ranks."""

    store: Store
    caps: Capabilities
    sweep: str
    prior: str

    def known(self, key: str) -> Known:
        """Screened rows of this region in this sweep; the newest of each.

        Without those of a regime in which nothing ran: what stopped it (a missing linker, a full disk) may be gone, and
        a retry is to try again.
        """
        from emmy.store.rows import from_mapping

        frame = self.store.measurements(key, self.caps.name, self.sweep, protocol=SCREEN.label)
        rows = [from_mapping("measurement", row) for row in frame.iter_rows(named=True)]
        mine = [row for row in rows if row.driver == self.caps.driver and row.compiler == self.caps.compiler]
        running = {row.regime for row in mine if row.ok}
        return {(row.regime, row.knobs): row for row in mine if row.regime in running}

    def finished(self, key: str, regime: str) -> int:
        """The patience of the widest screening of this region in ``regime`` that ended in this sweep; 0 for none."""
        frame = self.store.frame("decision", sweep=self.sweep, device=self.caps.name, region=key)
        rows = [(row["kind"], json.loads(row["payload"])) for row in frame.iter_rows(named=True)]
        ended = [facts for kind, facts in rows if kind in ("screened", "done")]
        return max([0, *(int(one["patience"]) for one in ended if one.get("regime", "O3") == regime)])

    def held(self, variant: Variant) -> Measurement | None:
        """The confirmation of a variant in this sweep, where it succeeded."""
        row = self.store.lookup(self.measured(variant, Reply(Status.OK), CONFIRM.label).key)
        return row if row is not None and row.ok else None

    def measured(
        self, variant: Variant, reply: Reply, protocol: str, shape: str = "", regime: str = "O3"
    ) -> Measurement:  # fmt: skip
        """The row of a reply, in this sweep."""
        return measurement(variant, reply, protocol=protocol, regime=regime, sweep=self.sweep, shape=shape, now=_now())

    def append(self, *rows: Measurement) -> None:
        """Keeps rows of leaves that the sweep has attempts of: contenders and confirmations."""
        self.store.append(*rows)

    def region(self, region: Region, shape: str) -> None:
        """What a person reads under a region's key."""
        from emmy.store.rows import RegionRow

        kind = next((name for comp in region.comps for name in comp.origin), "")
        hints = json.dumps(region.hints())
        self.store.append(RegionRow(region_key(region), region.name, kind, shape, text(region), hints))

    def attempt(
        self,
        region: Region,
        knobs: KnobMap,
        variant: Variant | None,
        reply: Reply,
        shape: str,
        origin: str,
        rank: int = 0,
        offered: int = 0,
        regime: str = "O3",
    ) -> None:
        """One leaf, screened in ``regime``; ``variant`` None: it did not lower. rank: its place among ``offered``, 0
        for a cut."""
        from emmy.store.rows import VariantRow

        key, stamped, caps = region_key(region), knobs_text(knobs), self.caps
        if variant is not None:
            row = self.measured(variant, reply, SCREEN.label, shape, regime)
        else:
            build = (caps.name, caps.driver, caps.compiler, region.name, stamped, knobs.lane, regime, SCREEN.label, "")
            row = Measurement(key, *build, self.sweep, reply.status, shape=shape, error=reply.error, measured_at=_now())
        prior = self.prior if origin in ("prior", "explore", "nearby") else ""
        self.store.append(
            row, VariantRow(key, caps.name, self.sweep, stamped, knobs.lane, origin, prior, None, rank, offered)
        )

    def screened(self, region: Region, shape: str, regime: str, patience: int) -> None:
        """The screening of a region has ended and contenders are measured next: a resumed run goes on with those."""
        from emmy.store.rows import Decision

        facts, name, key = json.dumps({"patience": patience, "regime": regime}), self.caps.name, region_key(region)
        self.store.append(
            Decision("screened", self.sweep, name, key, shape, source=self.prior, payload=facts, decided_at=_now())
        )

    def close(
        self, region: Region, shape: str, best: Measurement | None, reason: str, payload: Mapping[str, Any]
    ) -> None:
        """The search of a region has ended: with its confirmed best, why, and with which settings."""
        from emmy.store.rows import Decision

        lane, knobs, us = (best.lane, best.knobs, best.median_us) if best else ("std", "", None)
        key, name = region_key(region), self.caps.name
        self.store.append(
            Decision(
                "done", self.sweep, name, key, shape, lane, self.prior, knobs, us, reason, json.dumps(payload), _now()
            )
        )


def reply_of(row: Measurement) -> Reply:
    """The reply that a stored row came from."""
    return Reply(
        row.status,
        row.error,
        row.median_us,
        row.low_us,
        row.high_us,
        row.samples,
        rel_error=row.rel_error,
        build_s=row.build_s,
        wall_s=row.wall_s,
        abandoned=row.abandoned,
        registers=row.registers,
        spills=row.spills,
        smem_bytes=row.smem_bytes,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
