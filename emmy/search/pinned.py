"""Pins: a variant with exactly the pinned knobs, or why there is none. A pin never turns into something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from emmy.errors import Refused
from emmy.ir.nest import Region
from emmy.schedule.knobs import OFF, Fuse, KnobMap
from emmy.schedule.pins import nearest_offered
from emmy.search.pick import Pick, Picker
from emmy.search.realise import realise
from emmy.search.structure import cut_of, cuts, joined

_BASES = 64
"""Leaves, best of the prior first, whose other families are tried with a pin that the enumeration does not offer."""


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A pin that cannot be realised: the rule that refused it, where it stands, and what is offered near it."""

    pin: KnobMap
    rule: str
    where: str
    reason: str
    nearest: tuple[str, ...] = ()

    def __str__(self) -> str:
        near = f"; nearest offered: {', '.join(self.nearest)}" if self.nearest else ""
        return f"unreproducible pin {self.pin}: refused by {self.rule} ({self.where}): {self.reason}{near}"


def pinned(picker: Picker, region: Region, pin: KnobMap) -> Pick | Unmatched:
    """The variant that meets a pin; the families it does not name are the prior's choice.

    The enumeration does not bound it: a gate that is closed and values beyond the grid are realised too, as long as the
    tier's rules allow them.
    """
    if not pin:
        return picker.greedy(region)
    if pin.lane == "fm":
        picker = replace(picker, fast_math=True)
    refusals: list[Refused] = []
    for knobs in _attempts(picker, region, pin, refusals):
        try:
            variant = realise(region, picker.caps, knobs)
        except Refused as refused:
            refusals.append(refused)
            continue
        if not variant.knobs.unmet(pin):
            return Pick(variant, "pin", None, f"pinned {pin}")
    return _unmatched(picker, region, pin, refusals)


def _attempts(picker: Picker, region: Region, pin: KnobMap, refusals: list[Refused]) -> Iterator[KnobMap]:
    """Complete maps that may meet the pin, most likely first."""
    if isinstance(pin.get("FUSE", OFF), Fuse):
        yield from _cut_attempts(picker, region, pin, refusals)
        return
    space = picker.space(region)
    whole = [space.knobs(int(start)) for start, part in zip(space.starts, space.parts, strict=False) if len(part)]
    strangers = set(pin.steps).difference(*(knobs.steps for knobs in whole))
    if strangers:
        named = (*(step for cut in cuts(region) for step in cut.steps), *(step for one in whole for step in one.steps))
        known = tuple(dict.fromkeys(named))
        if unknown := strangers.difference(known):
            refusals.append(Refused("no_such_step", found=f"@{min(unknown)}", expected=", ".join(known) or "no step",
                                    nearest=known))  # fmt: skip
            return
        if "FUSE" not in pin:
            yield from _cut_attempts(picker, region, pin, refusals)
        return
    if "FUSE" in pin and pin.steps:
        # Steps of a kernel that stays whole (attention's two products): a record names every family of each.
        yield pin
    if len(space):
        order = np.argsort(picker.prior.scores(space), kind="stable")
        offered = (space.knobs(int(leaf)) for leaf in order)
        bases: list[KnobMap] = []
        for knobs in offered:
            if not knobs.unmet(pin):
                yield knobs
                return
            if len(bases) < _BASES:
                bases.append(knobs)
        yield from dict.fromkeys(knobs.merge(pin) for knobs in bases)
    if pin.steps and "FUSE" not in pin:
        yield from _cut_attempts(picker, region, pin, refusals)
    # Nothing offered comes near: the pin itself, whatever it leaves open decided off.
    yield KnobMap.parse({"FUSE": OFF}).merge(KnobMap.parse(pin.record()))


def _cut_attempts(picker: Picker, region: Region, pin: KnobMap, refusals: list[Refused]) -> Iterator[KnobMap]:
    fuse = pin.get("FUSE", OFF)
    try:
        chosen = (cut_of(region, fuse),) if isinstance(fuse, Fuse) else cuts(region)
    except Refused as refused:
        refusals.append(refused)
        return
    for cut in chosen:
        strangers = set(pin.steps) - set(cut.steps)
        if strangers:
            refusals.append(
                Refused("no_such_step", found=f"@{min(strangers)}", expected=", ".join(cut.steps), nearest=cut.steps)
            )
            continue
        maps: list[KnobMap] = []
        for step, child in zip(cut.steps, cut.children, strict=True):
            wanted = KnobMap(tuple(item for item in pin.at(step).items_ if item[0].family != "FUSE"))
            found = pinned(picker, child, wanted)
            if isinstance(found, Unmatched):
                refusals.append(
                    Refused(found.rule, found.where, found=f"{found.pin} at step {step}", nearest=found.nearest)
                )
                break
            maps.append(found.variant.knobs)
        else:
            yield joined(cut, maps)


def _unmatched(picker: Picker, region: Region, pin: KnobMap, refusals: list[Refused]) -> Unmatched:
    space = picker.space(region)
    near: list[str] = []
    for family, value in pin.items():
        offered = space.values(family) if len(space) and "@" not in family and len(space) <= 20_000 else []
        if offered and str(value) not in offered:
            near += [f"{family}={text}" if text else f"{family}=''" for text in nearest_offered(value, offered)]
    if not refusals:
        return Unmatched(pin, "no_leaf", "emmy/search/pinned.py", "no complete schedule holds all of it", tuple(near))
    worst = refusals[-1] if isinstance(pin.get("FUSE", OFF), Fuse) else refusals[0]
    facts = ", ".join(
        f"{name} {value}" for name, value in (("found", worst.found), ("expected", worst.expected)) if value
    )
    nearest = tuple(near) or tuple(str(value) for value in worst.nearest)
    return Unmatched(pin, worst.rule, worst.where, facts or "not allowed", nearest)
