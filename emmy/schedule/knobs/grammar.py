"""Reading a knob value: one table of families, each with its reader, its forms and examples."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from emmy.errors import KnobError
from emmy.schedule.knobs.values import (
    OFF,
    AtomTile,
    Cooperative,
    Fuse,
    Gate,
    KnobValue,
    Off,
    Raster,
    RawKnob,
    Reduce,
    RowTile,
    ScalarTile,
    Split,
    Stage,
    WarpSpec,
)

_INT = r"[1-9]\d{0,3}"
"""Four digits: beyond that no tile, split or ring makes sense, and products of them stay small numbers."""
_NAME = r"[A-Za-z_][A-Za-z0-9_.]*"

_FUSE = re.compile(rf"cut(?:@(?P<at>{_NAME}))?")
_SCALAR = re.compile(rf"n(?P<n>{_INT})x(?P<m>{_INT})/f(?P<fn>{_INT})x(?P<fm>{_INT})(?:/k(?P<k>{_INT}))?")
_ATOM = re.compile(
    rf"a:(?P<atom>[a-z0-9_]+)/w(?P<wm>{_INT})x(?P<wn>{_INT})(?:/f(?P<fm>{_INT})x(?P<fn>{_INT}))?/k(?P<k>{_INT})"
)
_ROW = re.compile(rf"r(?P<rows>{_INT})/v(?P<vec>{_INT})/(?P<residency>reg|smem|reread)")
_REDUCE = re.compile(rf"(?:g(?P<parts>{_INT})(?P<how>[kac]))?(?P<slash>/)?(?:c(?P<threads>{_INT}))?")
_STAGE = re.compile(rf"d(?P<depth>{_INT})/(?P<transport>sync|async|tma)")
_WSPEC = re.compile(rf"p(?P<producers>{_INT})c(?P<consumers>{_INT})(?P<pingpong>/pp)?")
_RASTER = re.compile(rf"(?P<p>p/)?(?P<order>(?:h|g{_INT})/)?(?:c(?P<cm>{_INT})x(?P<cn>{_INT})/)?")

# The field's ring aliases name no depth; they mean the shallowest ring in which that transport overlaps copies and math
# as the table of families spells it: a leaf must decide the depth, so an alias decides it too.
STAGE_ALIASES = {"tma/ring": Stage(4, "tma"), "cp/ring": Stage(3, "async")}


def _ints(found: re.Match[str], *names: str) -> dict[str, int]:
    return {name: int(found[name]) for name in names}


def _read_fuse(text: str) -> KnobValue | None:
    found = _FUSE.fullmatch(text)
    return Fuse(found["at"] or "") if found else None


def _read_tile(text: str) -> KnobValue | None:
    if found := _SCALAR.fullmatch(text):
        return ScalarTile(**_ints(found, "n", "m", "fn", "fm"), k=int(found["k"]) if found["k"] else None)
    if found := _ATOM.fullmatch(text):
        if found["fm"] is None and not found["atom"].startswith("wgmma_"):
            return None
        return AtomTile(
            found["atom"],
            int(found["wm"]),
            int(found["wn"]),
            int(found["fm"] or 1),
            int(found["fn"] or 1),
            int(found["k"]),
        )
    if found := _ROW.fullmatch(text):
        return RowTile(int(found["rows"]), int(found["vec"]), found["residency"])  # type: ignore[arg-type]
    return None


def _read_reduce(text: str) -> KnobValue | None:
    found = _REDUCE.fullmatch(text)
    if not found or bool(found["slash"]) != bool(found["parts"] and found["threads"]):
        return None
    split = Split(int(found["parts"]), found["how"]) if found["parts"] else None  # type: ignore[arg-type]
    return Reduce(split, Cooperative(int(found["threads"])) if found["threads"] else None)


def _read_stage(text: str) -> KnobValue | None:
    if text in STAGE_ALIASES:
        return STAGE_ALIASES[text]
    found = _STAGE.fullmatch(text)
    return Stage(int(found["depth"]), found["transport"]) if found else None  # type: ignore[arg-type]


def _read_wspec(text: str) -> KnobValue | None:
    found = _WSPEC.fullmatch(text)
    return WarpSpec(int(found["producers"]), int(found["consumers"]), bool(found["pingpong"])) if found else None


def _read_raster(text: str) -> KnobValue | None:
    found = _RASTER.fullmatch(f"{text}/")
    if not found:
        return None
    cluster = (int(found["cm"]), int(found["cn"])) if found["cm"] else None
    return Raster((found["order"] or "").rstrip("/"), cluster, bool(found["p"]))


def _read_gate(text: str) -> KnobValue | None:
    if text.lower() in ("true", "1"):
        return Gate()
    return OFF if text.lower() in ("false", "0") else None


@dataclass(frozen=True, slots=True)
class Family:
    """A knob family: its reader, the types of its values, the forms an error shows, and valid examples."""

    name: str
    read: Callable[[str], KnobValue | None]
    types: tuple[type, ...]
    form: str
    examples: tuple[str, ...]

    @property
    def expected(self) -> str:
        """The forms and an example, for an error."""
        return f"{self.form}, for example {self.examples[0]}, or '' for off"


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("FUSE", _read_fuse, (Fuse,), "cut or cut@STEP", ("cut", "cut@softmax")),
        Family(
            "TILE",
            _read_tile,
            (ScalarTile, AtomTile, RowTile),
            "nNxM/fNxM[/kK], a:ATOM/wMxN/fMxN/kK or rROWS/vVEC/reg|smem|reread",
            (
                "n16x8/f2x4",
                "n16x8/f2x4/k64",
                "a:mma_m16n8k16_f16_f32/w2x4/f4x2/k2",
                "a:wgmma_m64n256k16_f16_f32/w2x1/k4",
                "r4/v4/reg",
            ),
        ),
        Family(
            "REDUCE",
            _read_reduce,
            (Reduce,),
            "gPARTSk|a|c, cTHREADS or both",
            ("g2k", "g4a", "g2c", "c256", "g2k/c256"),
        ),
        Family(
            "STAGE",
            _read_stage,
            (Stage,),
            "dDEPTH/sync|async|tma",
            ("d2/sync", "d3/async", "d4/tma", *STAGE_ALIASES),
        ),
        Family("WSPEC", _read_wspec, (WarpSpec,), "pPRODUCERScCONSUMERS[/pp]", ("p1c2", "p1c2/pp")),
        Family("RASTER", _read_raster, (Raster,), "[p/][gROWS|h][/cMxN]", ("g8", "h", "g8/c2x1", "p/g8/c2x1")),
        Family("FAST_EXP", _read_gate, (Gate,), "true or false", ("true", "false")),
    )
}
FAMILY_NAMES: tuple[str, ...] = tuple(FAMILIES)
GATES: tuple[str, ...] = tuple(name for name, family in FAMILIES.items() if family.types == (Gate,))


def family_of(name: str) -> Family:
    """The family of this name.  Raises KnobError with the nearest names."""
    if name in FAMILIES:
        return FAMILIES[name]
    near = difflib.get_close_matches(name.upper(), FAMILY_NAMES, n=1, cutoff=0.5)
    raise KnobError(
        "unknown knob family",
        found=repr(name),
        expected=f"one of {', '.join(FAMILY_NAMES)}",
        hint=f"did you mean {near[0]}?" if near else None,
    )


def parse_value(family: str, value: str | bool | KnobValue | Split | Cooperative) -> KnobValue:
    """Read one value of ``family``.  ``''`` (and False of a gate) is OFF.

    Raises KnobError, which says the family, the text, the expected form with an example and the nearest valid spelling.
    """
    entry = family_of(family)
    if isinstance(value, (Split, Cooperative)):
        value = Reduce(split=value) if isinstance(value, Split) else Reduce(cooperative=value)
    if isinstance(value, (Off, *entry.types)):
        return value  # type: ignore[return-value]
    if isinstance(value, RawKnob):
        value = str(value)
    if isinstance(value, bool):
        value = str(value).lower()
    if not isinstance(value, str):
        raise KnobError(family, found=repr(value), expected=entry.expected)
    return _parse_text(family, value)


@lru_cache(maxsize=65536)
def _parse_text(family: str, text: str) -> KnobValue:
    if text == "":
        return OFF
    entry = FAMILIES[family]
    try:
        value = entry.read(text)
    except ValueError as error:
        raise KnobError(family, found=f"{text!r} ({error})", expected=entry.expected) from None
    if value is not None:
        return value
    near = _repair(entry, text) or _nearest_example(entry, text)
    raise KnobError(family, found=repr(text), expected=entry.expected, hint=f"nearest valid spelling: {near}")


def _nearest_example(entry: Family, text: str) -> str:
    return difflib.get_close_matches(text, entry.examples, n=1, cutoff=0.0)[0]


def _repair(entry: Family, text: str) -> str | None:
    """The canonical spelling of what ``text`` most likely meant: usual slips undone, a part swapped or dropped."""
    plain = re.sub(r"[*×]", "x", re.sub(r"\s+", "", text.lower())).replace("\\", "/").replace("//", "/").strip("/")
    parts = plain.split("/")
    candidates = [plain, "/".join(reversed(parts)), f"a:{plain}", re.sub(r"([a-z])0+(?=\d)", r"\1", plain)]
    candidates += ["/".join(parts[:cut] + parts[cut + 1 :]) for cut in reversed(range(len(parts)))]
    if entry.name == "STAGE":
        candidates += [f"{plain}/sync", plain.replace("cp", "async")]
    for candidate in candidates:
        try:
            value = entry.read(candidate) if candidate else None
        except ValueError:
            continue
        if value is not None:
            return str(value)
    return None
