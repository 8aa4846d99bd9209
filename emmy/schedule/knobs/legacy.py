"""The older spelling of a scalar schedule (BN BM FM FN FK BK SPLITK BR STAGE RING), translated by one table.

A legacy entry keeps its own knobs in its file; the translation serves matching and replay.  Each rule takes the legacy
knobs it understands *completely* and yields modern ones; what no rule understands stays under its legacy name as a
RawKnob, which loads, prints and matches nothing, so that a schedule is never replayed as something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from emmy.schedule.knobs.values import OFF, Cooperative, KnobValue, RawKnob, Reduce, ScalarTile, Split, Stage

LEGACY_NAMES = frozenset({"BN", "BM", "FM", "FN", "FK", "BK", "SPLITK", "BR", "RING"})

Numbers = dict[str, int]
RawValue = str | int | float | bool


def _tile(old: Numbers) -> KnobValue | None:
    if old.get("FK", 1) != 1:
        return None  # a fragment along the reduce axis has no modern spelling
    return ScalarTile(old["BN"], old["BM"], old["FN"], old["FM"], old.get("BK"))


def _reduce(old: Numbers) -> KnobValue | None:
    parts, threads = old.get("SPLITK", 1), old.get("BR", 1)
    split = Split(parts, "k") if parts > 1 else None
    cooperative = Cooperative(threads) if threads > 1 else None
    return Reduce(split, cooperative) if split or cooperative else OFF


def _stage(old: Numbers) -> KnobValue | None:
    # STAGE is a bit an operand: only "both" and "neither" have a modern spelling.  A ring deeper than one buffer was
    # filled by asynchronous copies; one buffer is filled between two barriers.
    ring = old.get("RING", 1)
    mask = f"{old['STAGE']:02d}"
    if mask == "11":
        return Stage(ring, "async" if ring > 1 else "sync")
    return OFF if mask == "00" else None


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table: ``family`` is decided by ``takes`` when all of ``needs`` are there."""

    family: str
    needs: tuple[str, ...]
    takes: tuple[str, ...]
    read: Callable[[Numbers], KnobValue | None]


TABLE: tuple[Rule, ...] = (
    Rule("TILE", ("BN", "BM", "FN", "FM"), ("BN", "BM", "FN", "FM", "FK", "BK"), _tile),
    Rule("REDUCE", (), ("SPLITK", "BR"), _reduce),
    Rule("STAGE", ("STAGE",), ("STAGE", "RING"), _stage),
)


def is_legacy(knobs: Mapping[str, object]) -> bool:
    """Whether this map is in the older spelling: it names a legacy knob, or its STAGE is a bit mask."""
    return not LEGACY_NAMES.isdisjoint(knobs) or _is_mask(knobs.get("STAGE"))


def _is_mask(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool) and str(value) in ("00", "01", "10", "11")


def _numbers(knobs: Mapping[str, object]) -> Numbers:
    found = {}
    for name, value in knobs.items():
        if name == "STAGE" and not _is_mask(value):
            continue
        if isinstance(value, (int, str)) and not isinstance(value, bool) and re.fullmatch(r"\d+", str(value)):
            found[name] = int(value)
    return found


def translate(knobs: Mapping[str, RawValue | KnobValue]) -> dict[str, RawValue | KnobValue]:
    """The modern map of a legacy one; modern knobs in it pass through and win.

    A map that names a whole legacy tile was a complete schedule of a compiler without FUSE, WSPEC, RASTER or gates, so
    these are decided off; a partial legacy map (a pin) leaves them open.
    """
    numbers = _numbers(knobs)
    modern: dict[str, RawValue | KnobValue] = {}
    rest = dict(knobs)
    for rule in TABLE:
        taken = [name for name in rule.takes if name in rest]
        if not taken or not all(name in numbers for name in (*rule.needs, *taken)):
            continue
        try:
            value = rule.read({name: numbers[name] for name in taken})
        except ValueError:  # a zero or other size that no value has
            continue
        if value is None or (rule.family in rest and rule.family not in taken):
            continue
        modern[rule.family] = value
        for name in taken:
            del rest[name]
    if isinstance(modern.get("TILE"), ScalarTile):
        for family in ("FUSE", "REDUCE", "STAGE", "WSPEC", "RASTER", "FAST_EXP"):
            if family not in rest:
                modern.setdefault(family, OFF)
    for name, old in rest.items():
        bare = name in LEGACY_NAMES or (name == "STAGE" and _is_mask(old))
        modern[name] = RawKnob(old) if bare and isinstance(old, (str, int, float)) else old
    return modern
