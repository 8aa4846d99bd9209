"""From a complete knob map to a variant, whole or cut."""

from __future__ import annotations

from emmy.device.base import Capabilities
from emmy.ir.nest import Region
from emmy.schedule import space
from emmy.schedule.knobs import OFF, Fuse, KnobMap
from emmy.search.structure import composed, cut_of, step_knobs
from emmy.search.variant import Variant


def realise(region: Region, caps: Capabilities, knobs: KnobMap) -> Variant:
    """The variant with exactly these knobs. Raises Refused with the rule where there is none."""
    fuse = knobs.get("FUSE", OFF)
    if isinstance(fuse, Fuse):
        cut = cut_of(region, fuse)
        picks = [
            realise(child, caps, step_knobs(knobs, step)) for step, child in zip(cut.steps, cut.children, strict=True)
        ]
        return composed(region, caps, cut, picks)
    return Variant(region, caps, knobs, space.lower(region, caps, knobs))
