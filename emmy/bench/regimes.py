"""Two builds of a search: the cheap one ranks, the deployable one decides. Pure, no device here.

Rows of a tier whose cheap build ranks like the deployable one are screened in ``O1``; the others in ``O3`` from the
start. A latency in O1 is never compared with one in O3: O1 rows are ranked among themselves, and the best of them are
measured again in O3, one after the other, until the next one cannot be expected to matter.
"""

from __future__ import annotations

from collections.abc import Mapping

LIMIT = 8
"""Leaves of a region that are built and measured a second time at most."""


def screening_regime(o1_valid: bool, offered: tuple[str, ...]) -> str:
    """The regime in which a tier's leaves are screened on a device that builds in the regimes ``offered``."""
    return "O1" if o1_valid and "O1" in offered else "O3"


def next_contender(
    cheap: Mapping[int, float], deployed: Mapping[int, float | None], tolerance: float, limit: int = LIMIT
) -> int | None:
    """The leaf to measure in O3 next, or None when the O1 ranking has nothing more to say.

    cheap: O1 latencies by leaf, of rows that ended well and were not abandoned. deployed: O3 latencies of every leaf
    that has one, those of tiers without O1 included; None for a leaf that failed in O3. tolerance: share above the
    fastest within which a leaf may be the true best (EMMY_O3_TOL).

    Contenders are the O1 rows within ``tolerance`` of the fastest O1 row, fastest first. The first is always measured,
    so that a search never ends without a number of the deployable build. From then on one whose O1 latency times the
    best ratio O3/O1 seen so far lies beyond ``tolerance`` of the fastest O3 row is not worth its build, nor is any
    after it.
    """
    if not cheap:
        return None
    fastest = min(cheap.values())
    again = [leaf for leaf in cheap if leaf in deployed]
    waiting = [leaf for leaf in cheap if leaf not in deployed and cheap[leaf] <= fastest * (1 + tolerance)]
    if not waiting or len(again) >= limit:
        return None
    leaf = min(waiting, key=lambda one: (cheap[one], one))
    ratios = [us / cheap[one] for one in again if (us := deployed[one]) is not None]
    best = min((us for us in deployed.values() if us is not None), default=None)
    if ratios and best is not None and cheap[leaf] * min(ratios) > best * (1 + tolerance):
        return None
    return leaf
