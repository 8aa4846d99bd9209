"""Why the search did not reach a golden: knobs, rank under the offline prior, and what was measured this sweep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from emmy.errors import EmmyError
from emmy.evaluate.verdict import Category
from emmy.ir.nest import Region, region_key
from emmy.priors.metrics import rank_of
from emmy.schedule.knobs import KnobMap
from emmy.schedule.space import refusal
from emmy.search.variant import knobs_text
from emmy.store import views

if TYPE_CHECKING:
    from emmy.evaluate.ab import AbResult
    from emmy.pipeline import Workspace

SHALLOW = 4
"""A golden that ranks within this many times the patience is one that more patience would have reached."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about a golden that the greedy pick is slower than.

    knobs: (name, found, golden) where the two differ. rank, offered: the golden's place among the leaves under the
    offline prior (None: not a leaf of the enumeration, ``missing`` says why). about: what the prior was fitted on.
    measured: how the search's attempts at the golden's configuration ended this sweep (protocol, status, µs), those of
    the cheap build under ``O1 <protocol>`` and last. pick_place, measured_count: place of the deployed pick among the
    variants that the sweep screened in O3.
    """

    golden: str
    knobs: tuple[tuple[str, str, str], ...]
    rank: int | None
    offered: int
    prior: str
    about: str
    missing: str
    measured: tuple[tuple[str, str, float | None], ...]
    pick_place: int | None
    measured_count: int
    priority: str
    recommendation: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def gather(work: Workspace, region: Region, sweep: str, result: AbResult, category: Category) -> Evidence:
    """The evidence on the golden that ``category`` compares with. Raises KeyError where it names none."""
    row = next(one for one in result.pinned if one.label == category.against)
    golden, found = KnobMap.parse(row.knobs), KnobMap.parse(result.greedy.knobs)
    differing = tuple((name, _text(mine), _text(theirs)) for name, mine, theirs in found.differences(golden))
    space = work.picker(sweep).space(region)
    leaf = space.find(golden) if len(space) else None
    rank = rank_of(work.prior.scores(space), leaf) if leaf is not None else None
    missing = "" if leaf is not None else _missing(work, region, golden)
    every = work.store.measurements(region_key(region), work.caps.name, sweep)
    measured = tuple(
        (f"O1 {one['protocol']}" if one["regime"] == "O1" else one["protocol"], one["status"], one["median_us"])
        for one in every.sort("regime", descending=True, maintain_order=True).iter_rows(named=True)
        if one["knobs"] == knobs_text(golden) and one["protocol"].startswith("screen.")
    )
    frame = every.filter(every["regime"] == "O3")
    usable = views.usable(frame).filter(views.usable(frame)["protocol"].str.starts_with("screen."))
    order = [one["knobs"] for one in usable.sort("median_us").iter_rows(named=True)]
    mine = knobs_text(found)
    priority, advice = recommend(rank, len(space), work.settings.patience, measured, missing, work.prior.name)
    return Evidence(
        row.label, differing, rank, len(space), work.prior.name, work.prior.about, missing, measured,
        order.index(mine) + 1 if mine in order else None, len(order), priority, advice,
    )  # fmt: skip


def recommend(
    rank: int | None, offered: int, patience: int, measured: tuple[tuple[str, str, float | None], ...], missing: str,
    prior: str,
) -> tuple[str, str]:  # fmt: skip
    """(priority, what to do) for a golden that the search did not deploy."""
    ended = [status for protocol, status, _ in measured if not protocol.startswith("O1")]
    if missing:
        return "high", f"the enumeration does not offer the golden: {missing}"
    if "ok" in ended:
        return (
            "medium",
            "the search measured the golden and deployed another: screening ranked them the other way round; look at "
            "both with `emmy eval variants`, and widen EMMY_O3_TOL if the golden was no finalist",
        )
    if ended:
        return "high", f"the golden's configuration was tried and ended as {ended[0]}: see `emmy eval failures`"
    cheap = [status for protocol, status, _ in measured if protocol.startswith("O1")]
    if "ok" in cheap:
        return (
            "medium",
            "the search measured the golden in the cheap build alone (O1) and no more in O3: look at it with "
            "`emmy eval variants`, screen with EMMY_O1=0, or widen EMMY_O3_TOL",
        )
    if cheap:
        return "high", f"the golden's configuration was tried in O1 and ended as {cheap[0]}: see `emmy eval failures`"
    if prior == "uninformed":
        return "high", "no offline prior fits this device and the order was a shuffle: fit one with `emmy fit`"
    if rank is not None and rank <= SHALLOW * patience:
        return "medium", f"the golden ranks {rank} of {offered}, within reach: raise --patience beyond {patience}"
    return "high", f"the offline prior misprices this shape (rank {rank} of {offered}): fit it again with `emmy fit`"


def _missing(work: Workspace, region: Region, golden: KnobMap) -> str:
    if golden.steps or str(golden.get("FUSE", "")):
        return ""
    try:
        reason = refusal(region, work.caps, golden)
    except EmmyError as error:
        reason = error  # type: ignore[assignment]
    return str(reason) if reason is not None else "it is legal, but no grid of a tier holds its values"


def _text(value: object) -> str:
    text = "" if value is None else str(value)
    return text or "off"


def knob_line(knobs: Mapping[str, Any]) -> str:
    """``TILE=n16x8 STAGE=d2/sync``: what is decided to something else than off."""
    shown = {name: json.dumps(value) if isinstance(value, bool) else str(value) for name, value in knobs.items()}
    return " ".join(f"{name}={value}" for name, value in shown.items() if value not in ("", "false")) or "all off"
