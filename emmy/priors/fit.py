"""Fits the offline prior: ridge on ln(latency) with one constant a region, judged on regions left out of the fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from emmy.errors import InputError
from emmy.priors.metrics import pick_regret, spearman
from emmy.priors.offline import Provenance, WeightSet
from emmy.priors.terms import Term, by_tier, candidates, design, table_digest
from emmy.schedule import features as table

PENALTIES: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0, 100.0)
UPDATE_PENALTIES: tuple[float, ...] = (1.0, 10.0, 100.0)
"""Of the distance from weights to start from. Cross-validation sees measured leaves alone; what keeps the rest of a
space in place is the penalty. On one H200 (2026-11-30, 52 regions) the best leaf of a region left out of an update was
at rank 60 (float32) and 26 (float16) of its space before, at 35 and 9 with a penalty of 1, at 31 and 298 with 0.1."""

MIN_ROWS = 8
"""A region of fewer measured leaves says too little about how its leaves rank."""
MIN_REGIONS = 2
EMPHASIS = 3.0
"""A leaf twice as slow as its region's best counts an eighth: what ranks the fast leaves matters, the slow tail less.

With 1 (a half) the fastest leaves of a float32 shape left out of an update were at rank 11.4 of its space, geometric
mean of 19, and with 3 they are at 5.9; of float16 at 5.9 and 4.7 (one H200, 2026-11-30, penalty 1).
"""


@dataclass(frozen=True, slots=True)
class RegionData:
    """The measured leaves of one region on one device: (rows, features) in table order, and microseconds."""

    region: str
    shape: str
    device: str
    symbolic: bool
    features: NDArray[np.float32]
    latency_us: NDArray[np.float64]
    protocols: tuple[str, ...] = ()
    sweeps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RegionScore:
    """How well a region was ranked by a fit without it."""

    region: str
    shape: str
    rows: int
    spearman: float | None
    pick_regret: float


@dataclass(frozen=True, slots=True)
class Fit:
    """A weight set, and its cross-validation region by region."""

    weights: WeightSet
    scores: tuple[RegionScore, ...]


def fit(data: Sequence[RegionData], today: str | None = None, base: WeightSet | None = None) -> Fit:
    """Fits on regions with at least MIN_ROWS rows. Raises InputError where fewer than MIN_REGIONS are left.

    Terms (each feature and its square; or these and each feature a tier) and penalty are those whose
    leave-one-region-out pick regret (its mean logarithm) is least.

    base: weights to start from: the penalty is on the distance from them, not on size, and their terms stay. For rows
    that a search under ``base`` chose: they say which of its favourites are fast, and nothing of the leaves that it
    rightly left alone, which a fit from zero would rank anywhere. Cross-validation leaves a region out of the update
    alone: ``base`` may have seen it.
    """
    usable = [one for one in data if len(one.latency_us) >= MIN_ROWS]
    if len(usable) < MIN_REGIONS:
        raise InputError(
            "too few measurements to fit on",
            found=f"{len(usable)} regions of at least {MIN_ROWS} measured leaves",
            expected=f"at least {MIN_REGIONS}",
            hint="run emmy tune --dataset golden first",
        )
    names = _varying(usable)
    if base is not None:
        own = _ranking(usable, candidates(names) + by_tier(names))
        sets, penalties = [base.terms + tuple(term for term in own if term not in base.terms)], UPDATE_PENALTIES
    else:
        penalties = PENALTIES
        sets = [_ranking(usable, candidates(names)), _ranking(usable, candidates(names) + by_tier(names))]
    problems = [_Problem.of(usable, terms, base) for terms in sets]
    judged = {(number, p): problem.cross_validated(p) for number, problem in enumerate(problems) for p in penalties}
    chosen, penalty = min(judged, key=lambda choice: float(np.mean([np.log(s.pick_regret) for s in judged[choice]])))
    problem, scores = problems[chosen], judged[chosen, penalty]
    terms, weights = problem.terms, problem.solved(np.ones(len(usable), dtype=bool), penalty)
    ranked = [s.spearman for s in scores if s.spearman is not None]
    before = base.provenance if base is not None else None
    provenance = Provenance(
        date=today or datetime.now(UTC).date().isoformat(),
        devices=_joined(before.devices if before else (), {one.device for one in usable}),
        protocols=_joined(before.protocols if before else (), {p for one in usable for p in one.protocols}),
        sweeps=_joined(before.sweeps if before else (), {s for one in usable for s in one.sweeps}),
        rows=sum(len(one.latency_us) for one in usable) + (before.rows if before else 0),
        regions=len(usable) + (before.regions if before else 0),
        shapes=_joined(before.shapes if before else (), {one.shape for one in usable if one.shape}),
        spearman=round(float(np.median(ranked)), 4) if ranked else None,
        pick_regret=round(float(np.median([s.pick_regret for s in scores])), 4),
        penalty=penalty,
    )
    digest = table_digest(name for term in terms for name in term)
    kept = WeightSet(terms, _rounded(weights), _rounded(problem.means), _rounded(problem.scales), digest, provenance)
    return Fit(kept, scores)


def _joined(before: tuple[str, ...], now: set[str]) -> tuple[str, ...]:
    return tuple(sorted({*before, *now}))


def _rounded(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values)


def _varying(data: Sequence[RegionData]) -> tuple[str, ...]:
    """Features that vary within at least one region: the others cannot rank a leaf."""
    varies = np.zeros(len(table.NAMES), dtype=bool)
    for one in data:
        varies |= np.ptp(one.features, axis=0) > 0
    kinds = {name for name in table.NAMES if name.startswith("tier_")}
    present = np.any([one.features.any(axis=0) for one in data], axis=0)
    return tuple(
        name
        for name, some, there in zip(table.NAMES, varies, present, strict=True)
        if some or (name in kinds and there)
    )


def _ranking(data: Sequence[RegionData], terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """The terms that vary within at least one region."""
    spread = np.max([np.ptp(design(one.features, terms), axis=0) for one in data], axis=0)
    return tuple(term for term, some in zip(terms, spread, strict=True) if some > 0)


def _standard(
    data: Sequence[RegionData], terms: tuple[Term, ...], base: WeightSet | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean of each term, its root mean square deviation from the region's own mean, and the weight to start from.

    ``terms`` begins with those of ``base``, which keep its own. A feature whose slope is known starts from that.
    """
    blocks = [design(one.features, terms) for one in data]
    means = np.mean([block.mean(axis=0) for block in blocks], axis=0)
    squares = np.mean([block.var(axis=0) for block in blocks], axis=0)
    scales = np.where(squares > 0, np.sqrt(squares), 1.0)
    start = scales * [table.FEATURES[term[0]].slope if len(term) == 1 else 0.0 for term in terms]
    if base is not None:
        known = slice(len(base.terms))
        means[known], scales[known], start[known] = base.means, base.scales, base.weights
    return means, scales, start


@dataclass(frozen=True, slots=True)
class _Problem:
    """A weighted ridge around ``start``, region by region: each has the same total weight and is centred on its
    weighted mean. blocks: standardised terms of a region's rows. gram, moment: its part of the normal equations.

    What leaves regions out adds up the others' parts, so that a cross-validation costs as many solutions as regions.
    """

    data: Sequence[RegionData]
    terms: tuple[Term, ...]
    means: NDArray[np.float64]
    scales: NDArray[np.float64]
    start: NDArray[np.float64]
    blocks: list[NDArray[np.float64]]
    gram: NDArray[np.float64]
    moment: NDArray[np.float64]

    @classmethod
    def of(cls, data: Sequence[RegionData], terms: tuple[Term, ...], base: WeightSet | None) -> _Problem:
        means, scales, start = _standard(data, terms, base)
        blocks = [(design(one.features, terms) - means) / scales for one in data]
        gram, moment = np.zeros((len(data), len(terms), len(terms))), np.zeros((len(data), len(terms)))
        for number, (one, block) in enumerate(zip(data, blocks, strict=True)):
            ln_us = np.log(one.latency_us)
            weight = np.exp(-EMPHASIS * (ln_us - ln_us.min()))
            weight /= weight.sum()
            x = block - weight @ block
            y = ln_us - weight @ ln_us - x @ start
            gram[number] = (x * weight[:, None]).T @ x
            moment[number] = (x * weight[:, None]).T @ y
        return cls(data, terms, means, scales, start, blocks, gram, moment)

    def solved(self, kept: NDArray[np.bool_], penalty: float) -> NDArray[np.float64]:
        """The weights of the regions that are ``kept``."""
        ridge = self.gram[kept].mean(axis=0) + 1e-2 * penalty * np.eye(len(self.terms))
        return np.asarray(self.start + np.linalg.solve(ridge, self.moment[kept].mean(axis=0)))

    def cross_validated(self, penalty: float) -> tuple[RegionScore, ...]:
        """Each region judged by a fit without it, nor without any of the same shape (other devices, cuts)."""
        out = []
        for one, block in zip(self.data, self.blocks, strict=True):
            kept = np.array([o.region != one.region and (not one.shape or o.shape != one.shape) for o in self.data])
            if not kept.any():
                continue
            scores = block @ self.solved(kept, penalty)
            out.append(
                RegionScore(
                    one.region,
                    one.shape,
                    len(scores),
                    spearman(scores, one.latency_us),
                    pick_regret(scores, one.latency_us),
                )
            )
        return tuple(out)
