"""Pins: the knobs that a user fixes by variables and flags, as one map, and what is offered near a refused one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

from emmy.config import Settings
from emmy.errors import KnobError
from emmy.schedule.knobs import KnobMap, parse_value


def parse_pin(text: str, source: str = "pin") -> KnobMap:
    """The pin of one text in the EMMY_KNOBS grammar, whole or partial.

    ``source`` is the flag or variable that holds the text; a KnobError names it.
    """
    try:
        return KnobMap.parse(text)
    except KnobError as error:
        raise _named(error, source) from None


def environment_pin(settings: Settings) -> KnobMap:
    """What EMMY_KNOBS and the EMMY_<FAMILY> variables pin; a family's own variable wins over EMMY_KNOBS."""
    pin = parse_pin(settings.knobs, "EMMY_KNOBS")
    for family, text in settings.family_pins:
        try:
            value = parse_value(family, text.strip())
        except KnobError as error:
            raise _named(error, f"EMMY_{family}") from None
        pin = pin.merge(KnobMap.parse({family: value}))
    return pin


def flag_pins(texts: Sequence[str], settings: Settings) -> tuple[tuple[str, KnobMap], ...]:
    """(label, pin) of each ``--ab KNOBS``: its own knobs over those of the variables.  The label is the text given.

    Raises KnobError for a text that pins nothing.
    """
    base = environment_pin(settings)
    pins = []
    for text in texts:
        pin = parse_pin(text, "--ab")
        if not pin:
            raise KnobError("--ab", found=repr(text), expected="at least one FAMILY=VALUE, such as TILE=n16x8/f2x4")
        pins.append((text.strip(), base.merge(pin)))
    return tuple(pins)


def nearest_offered(wanted: object, offered: Iterable[object], count: int = 3) -> tuple[str, ...]:
    """The ``count`` offered values closest to a refused one, closest first.

    Values of the same form (``n·x·/f·x·``) come before others; among them the ones whose numbers are nearest, as the
    sum of |log2| of the ratios: a tile of twice the size is as far as one of half the size.
    """
    target = str(wanted)
    skeleton, numbers = _skeleton(target)
    likeness: dict[str, float] = {}

    def distance(text: str) -> tuple[float, float, str]:
        form, sizes = _skeleton(text)
        if form not in likeness:
            likeness[form] = SequenceMatcher(None, skeleton, form, autojunk=False).ratio()
        apart = sum(abs(math.log2(max(a, 1) / max(b, 1))) for a, b in zip(numbers, sizes, strict=False))
        return -likeness[form], apart, text

    return tuple(sorted({str(value) for value in offered}, key=distance)[:count])


def _skeleton(text: str) -> tuple[str, list[int]]:
    return re.sub(r"\d+", "#", text), [int(digits) for digits in re.findall(r"\d+", text)]


def _named(error: KnobError, source: str) -> KnobError:
    return KnobError(f"{source}: {error.message}", found=error.found, expected=error.expected, hint=error.hint)
