"""What a search reads from and writes to the store: rows by knobs, finished searches, one row an attempt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class Recorder:
    """The rows of one sweep on one device. prior: name of the prior that ranks."""

    store: Store
    caps: Capabilities
    sweep: str
    prior: str

    def known(self, key: str) -> dict[str, Measurement]:
        """Screened rows of this region in this sweep, by knob text; the newest of each."""
        from emmy.store.rows import from_mapping

        frame = self.store.measurements(key, self.caps.name, self.sweep, "O3", SCREEN.label)
        rows = [from_mapping("measurement", row) for row in frame.iter_rows(named=True)]
        return {row.knobs: row for row in rows if row.driver == self.caps.driver and row.compiler == self.caps.compiler}

    def finished(self, key: str) -> int:
        """The patience of the widest search of this region that ended in this sweep, 0 for none."""
        frame = self.store.frame("decision", kind="done", sweep=self.sweep, device=self.caps.name, region=key)
        return max([0, *(int(json.loads(payload)["patience"]) for payload in frame["payload"])])

    def held(self, variant: Variant) -> Measurement | None:
        """The confirmation of a variant in this sweep, where it succeeded."""
        row = self.store.lookup(self.measured(variant, Reply(Status.OK), CONFIRM.label).key)
        return row if row is not None and row.ok else None

    def measured(self, variant: Variant, reply: Reply, protocol: str, shape: str = "") -> Measurement:
        """The row of a reply, in this sweep."""
        return measurement(variant, reply, protocol=protocol, regime="O3", sweep=self.sweep, shape=shape, now=_now())

    def confirmations(self, rows: Sequence[Measurement]) -> None:
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
    ) -> None:
        """One screened leaf; ``variant`` None: it did not lower. rank: its place among ``offered``, 0 for a cut."""
        from emmy.store.rows import VariantRow

        key, stamped, caps = region_key(region), knobs_text(knobs), self.caps
        if variant is not None:
            row = self.measured(variant, reply, SCREEN.label, shape)
        else:
            build = (caps.name, caps.driver, caps.compiler, region.name, stamped, knobs.lane, "O3", SCREEN.label, "")
            row = Measurement(key, *build, self.sweep, reply.status, shape=shape, error=reply.error, measured_at=_now())
        prior = self.prior if origin in ("prior", "explore") else ""
        self.store.append(
            row, VariantRow(key, caps.name, self.sweep, stamped, knobs.lane, origin, prior, None, rank, offered)
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
