"""A knob map: the schedule of a region, whole (a leaf) or in part (a pin), in canonical order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from emmy.errors import KnobError
from emmy.schedule.knobs.grammar import FAMILY_NAMES, GATES, family_of, parse_value
from emmy.schedule.knobs.legacy import LEGACY_NAMES, is_legacy, translate
from emmy.schedule.knobs.values import OFF, AtomTile, Gate, KnobValue, RawKnob, is_fast_math_atom

Lane = Literal["std", "fm"]

_KEY = re.compile(r"(?P<family>[A-Za-z_][A-Za-z0-9_]*)(?:@(?P<step>[A-Za-z_][A-Za-z0-9_.]*))?")
_PAIR = re.compile(
    r"""\s*['"]?(?P<key>[A-Za-z_][\w@.]*)['"]?\s*:\s*"""
    r"""(?:'(?P<single>[^']*)'|"(?P<double>[^"]*)"|(?P<bare>[^,'"]*?))\s*(?:,|$)"""
)
_ORDER = {name: place for place, name in enumerate(FAMILY_NAMES)}


@dataclass(frozen=True, slots=True, order=True)
class KnobKey:
    """``FAMILY`` (every step without a key of its own) or ``FAMILY@step``.  Sorts in canonical order."""

    place: int
    family: str
    step: str = ""

    @staticmethod
    def parse(text: str) -> KnobKey:
        found = _KEY.fullmatch(text)
        if found is None:
            raise KnobError(
                "not a knob name", found=repr(text), expected="FAMILY or FAMILY@step, such as TILE or TILE@qk"
            )
        return KnobKey(_ORDER.get(found["family"], len(_ORDER)), found["family"], found["step"] or "")

    def __str__(self) -> str:
        return f"{self.family}@{self.step}" if self.step else self.family


@dataclass(frozen=True, slots=True)
class KnobMap(Mapping[str, KnobValue]):
    """An immutable mapping ``FAMILY`` or ``FAMILY@step`` → value: FUSE, TILE, REDUCE, STAGE, WSPEC, RASTER, gates.

    Equal maps have equal text.  ``OFF`` (spelled ``''``) is a decision; a family that is not in the map is undecided.
    """

    items_: tuple[tuple[KnobKey, KnobValue], ...] = ()
    _index: dict[str, KnobValue] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.items_, key=lambda item: item[0]))
        index = {str(key): value for key, value in ordered}
        if len(index) != len(ordered):
            raise KnobError("a knob is given twice", found=", ".join(str(key) for key, _ in ordered))
        object.__setattr__(self, "items_", ordered)
        object.__setattr__(self, "_index", index)

    @staticmethod
    def parse(
        source: str | Mapping[str, str | int | float | bool | KnobValue] | KnobMap, *, keep_unknown: bool = False
    ) -> KnobMap:
        """Read a map from ``TILE=n16x8/f2x4,STAGE=d2/sync`` (commas, semicolons or blanks between), a dict or its text.

        The older spelling is translated.  With ``keep_unknown`` a family or value that the grammar does not know is
        kept as a RawKnob (other cards' files must load); without, it raises KnobError.
        """
        if isinstance(source, KnobMap):
            return source
        pairs = _split(source) if isinstance(source, str) else dict(source)
        if is_legacy(pairs):
            pairs = translate(pairs)
        return KnobMap(tuple(_read(name, value, keep_unknown) for name, value in pairs.items()))

    def __getitem__(self, name: str) -> KnobValue:
        return self._index[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def __hash__(self) -> int:
        return hash(self.items_)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, KnobMap):
            return self.items_ == other.items_
        return NotImplemented

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self._index.items())

    def to_dict(self) -> dict[str, str | int | float | bool]:
        """Plain values in canonical order, as a YAML or JSON file holds them (an open gate is ``True``)."""
        return {name: _plain(value) for name, value in self._index.items()}

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that the keys name, sorted."""
        return tuple(sorted({key.step for key, _ in self.items_ if key.step}))

    @property
    def raw(self) -> tuple[str, ...]:
        """The names whose values the grammar does not know."""
        return tuple(name for name, value in self._index.items() if isinstance(value, RawKnob))

    @property
    def lane(self) -> Lane:
        """``fm`` where precision is traded: an atom with float16 accumulation or tf32 inputs, or an open gate."""
        return "fm" if any(_trades_precision(key, value) for key, value in self.items_) else "std"

    def at(self, step: str) -> KnobMap:
        """What this map decides for one step, under bare families: the step's own keys, else the bare ones."""
        chosen = {key.family: (key, value) for key, value in self.items_ if not key.step}
        own = ((KnobKey(key.place, key.family), value) for key, value in self.items_ if key.step == step)
        chosen |= {key.family: (key, value) for key, value in own}
        return KnobMap(tuple(chosen.values()))

    def merge(self, pin: KnobMap) -> KnobMap:
        """This map with the pin's decisions in place of its own.  A bare pin decides its family in every step."""
        whole = {key.family for key, _ in pin.items_ if not key.step}
        pinned = {key for key, _ in pin.items_}
        kept = tuple(item for item in self.items_ if item[0].family not in whole and item[0] not in pinned)
        return KnobMap(kept + pin.items_)

    def record(self, steps: Sequence[str] | Mapping[str, Sequence[str]] = ()) -> dict[str, str | int | float | bool]:
        """Every family stamped, ``''`` included, under the shortest unambiguous keys.

        ``steps`` names the plan's steps, or per family the steps it schedules.  A family whose steps all agree (or that
        schedules one step) is stored bare; where they differ each step has its key.  A family that the map does not
        mention is stamped off.
        """
        stamped: dict[str, KnobValue] = {}
        for family in (*FAMILY_NAMES, *dict.fromkeys(k.family for k, _ in self.items_ if k.family not in _ORDER)):
            own = {key.step: value for key, value in self.items_ if key.family == family}
            named = tuple(steps.get(family, ()) if isinstance(steps, Mapping) else steps)
            bare = own.pop("", None)
            if named and all(step in own or bare is not None for step in named) and set(own) <= set(named):
                own = {step: own.get(step, bare) for step in named}  # type: ignore[misc]
                bare = None
                if len(set(own.values())) == 1:
                    bare, own = next(iter(own.values())), {}
            if bare is None and not own:
                bare = OFF
            if bare is not None:
                stamped[family] = bare
            stamped |= {f"{family}@{step}": value for step, value in own.items() if value != bare}
        return KnobMap(tuple((KnobKey.parse(name), value) for name, value in stamped.items())).to_dict()

    def differences(self, other: KnobMap) -> tuple[tuple[str, KnobValue | None, KnobValue | None], ...]:
        """(name, mine, theirs) of each key on which two maps differ; None: undecided there."""
        names = dict.fromkeys((*self, *other))
        return tuple((n, self.get(n), other.get(n)) for n in names if self.get(n) != other.get(n))

    def unmet(self, pin: KnobMap) -> tuple[tuple[str, KnobValue, KnobValue | None], ...]:
        """(name, pinned, realised) of each of the pin's decisions that this realised map does not hold.

        A bare pin must hold in every step that the pin does not name; a step's pin is met by that step's own key or
        the bare one.
        """
        missed: list[tuple[str, KnobValue, KnobValue | None]] = []
        for key, wanted in pin.items_:
            mine = {mine.step: value for mine, value in self.items_ if mine.family == key.family}
            realised: list[KnobValue | None] = [mine.get(key.step, mine.get(""))]
            if not key.step:
                realised = [value for step, value in mine.items() if f"{key.family}@{step}" not in pin] or [None]
            missed += [(str(key), wanted, value) for value in realised if value != wanted][:1]
        return tuple(missed)


def _plain(value: KnobValue) -> str | int | float | bool:
    if isinstance(value, Gate):
        return True
    return value.value if isinstance(value, RawKnob) else str(value)


def _trades_precision(key: KnobKey, value: KnobValue) -> bool:
    if isinstance(value, AtomTile):
        return is_fast_math_atom(value.atom)
    if isinstance(value, RawKnob):
        atom = re.match(r"a:([^/]+)", str(value))
        return key.family in GATES or bool(atom and is_fast_math_atom(atom[1]))
    return isinstance(value, Gate)


def _read(name: str, value: str | int | float | bool | KnobValue, keep_unknown: bool) -> tuple[KnobKey, KnobValue]:
    key = KnobKey.parse(name)
    if isinstance(value, RawKnob) and (keep_unknown or key.family in LEGACY_NAMES or key.family == "STAGE"):
        return key, value
    try:
        family_of(key.family)
        plain = bool(value) if key.family in GATES and value in (0, 1) else value
        return key, parse_value(key.family, plain)  # type: ignore[arg-type]
    except KnobError:
        if not keep_unknown:
            raise
        return key, RawKnob(value if isinstance(value, (str, int, float, bool)) else str(value))


def _split(text: str) -> dict[str, str | int | float | bool]:
    """The pairs of a map's text, in either form.  Raises KnobError at the first piece that is not a pair."""
    body = text.strip()
    if body.startswith("{"):
        return _split_braces(body)
    pairs: dict[str, str | int | float | bool] = {}
    for piece in re.split(r"[,;\s]+", body):
        if not piece:
            continue
        name, equals, value = piece.partition("=")
        if not equals:
            raise KnobError(
                f"not a knob in {text!r}", found=repr(piece), expected="FAMILY=VALUE, such as TILE=n16x8/f2x4"
            )
        if name in pairs:
            raise KnobError(f"{name} is given twice", found=repr(text), hint="keep one of them")
        pairs[name] = value
    return pairs


def _split_braces(body: str) -> dict[str, str | int | float | bool]:
    try:
        found = json.loads(body)
        if isinstance(found, dict) and all(isinstance(value, (str, int, float, bool)) for value in found.values()):
            return found
    except json.JSONDecodeError:
        pass
    inner = body[1:-1].strip() if body.endswith("}") else None
    pairs: dict[str, str | int | float | bool] = {}
    place = 0
    while inner and place < len(inner):
        found = _PAIR.match(inner, place)
        if found is None or found.end() == place:
            inner = None
            break
        if found["key"] in pairs:
            raise KnobError(f"{found['key']} is given twice", found=repr(body), hint="keep one of them")
        pairs[found["key"]] = next(filter(None, found.group("single", "double", "bare")), "")
        place = found.end()
    if inner is None:
        raise KnobError("not a knob map", found=repr(body), expected="{TILE: n16x8/f2x4, STAGE: d2/sync} or the like")
    return pairs
