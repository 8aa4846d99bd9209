"""A variant: a region, a complete knob map, the plan it lowers to, and the artefact the bench gets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from emmy.bench.artefact import Artefact, build_artefact
from emmy.bench.jobs import Reply
from emmy.bench.records import Measurement
from emmy.bench.reference import check_sizes
from emmy.device.base import Capabilities
from emmy.ir.nest import Region, region_key
from emmy.ir.plan import Plan
from emmy.schedule.knobs import KnobMap


def record_knobs(knobs: KnobMap) -> dict[str, str | int | float | bool]:
    """Every family stamped, off included, per step where the map names steps: what is stored and recorded."""
    return knobs.record(knobs.steps)


def knobs_text(knobs: KnobMap) -> str:
    """``record_knobs`` as the JSON text that a measurement holds."""
    return json.dumps(record_knobs(knobs), separators=(",", ":"))


def read_knobs(text: str) -> KnobMap:
    """Inverse of ``knobs_text``."""
    return KnobMap.parse(json.loads(text))


@dataclass(frozen=True)
class Variant:
    """``region`` scheduled by ``knobs`` on ``caps``. Printing is put off until the artefact is asked for.

    lowered: the plan, where it is at hand; None: lowered when it is asked for, as for a leaf that another process has
    printed, whose plan would take longer to hand over than to time.
    """

    region: Region
    caps: Capabilities
    knobs: KnobMap
    lowered: Plan | None
    children: Mapping[str, Variant] = field(default_factory=dict)

    @property
    def lane(self) -> str:
        return self.knobs.lane

    @cached_property
    def text(self) -> str:
        return knobs_text(self.knobs)

    @cached_property
    def plan(self) -> Plan:
        if self.lowered is not None:
            return self.lowered
        from emmy.search.realise import realise

        return realise(self.region, self.caps, self.knobs).plan

    @cached_property
    def artefact(self) -> Artefact:
        return build_artefact(self.plan, self.caps.language, extra_sizes=checked_sizes(self.region))

    @cached_property
    def digest(self) -> str:
        return self.artefact.plan_digest


def checked_sizes(region: Region) -> tuple[dict[str, int], ...]:
    """Values of the region's symbols, beside the hints, at which a plan is checked."""
    return check_sizes(region.symbols)


def measurement(
    variant: Variant, reply: Reply, *, protocol: str, regime: str, sweep: str, shape: str = "", now: str = ""
) -> Measurement:
    """The row of a bench reply."""
    caps, hints = variant.caps, variant.region.hints()
    return Measurement(
        region=region_key(variant.region),
        device=caps.name,
        driver=caps.driver,
        compiler=caps.compiler,
        kernel=variant.region.name,
        knobs=variant.text,
        lane=variant.lane,
        regime=regime,
        protocol=protocol,
        plan_digest=variant.digest,
        sweep=sweep,
        status=reply.status,
        size=size_text(hints),
        shape=shape,
        median_us=reply.median_us,
        low_us=reply.low_us,
        high_us=reply.high_us,
        samples=reply.samples,
        rel_error=reply.rel_error,
        build_s=reply.build_s,
        wall_s=reply.wall_s,
        error=reply.error,
        abandoned=reply.abandoned,
        registers=reply.registers,
        spills=reply.spills,
        smem_bytes=reply.smem_bytes,
        sm_clock_mhz=reply.sm_clock_mhz,
        throttle=reply.throttle,
        warnings="\n".join(reply.warnings),
        measured_at=now,
    )


def size_text(values: Mapping[str, int]) -> str:
    """``seq_len=512``; empty for a static region."""
    return ",".join(f"{name}={value}" for name, value in sorted(values.items()))


def label_of(knobs: KnobMap, families: Sequence[str] = ()) -> str:
    """The decisions that are not off, as ``TILE=… STAGE=…``: short enough for a progress line."""
    return " ".join(
        f"{name}={value}" for name, value in knobs.items() if str(value) and (not families or name in families)
    )
