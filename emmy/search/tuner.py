"""Tunes a region: search its space by screening, confirm the finalists, and record every row as it is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from emmy.bench.jobs import ReferenceSet, Reply, Row
from emmy.bench.records import CONFIRM, Measurement, Status
from emmy.device.base import Capabilities
from emmy.errors import Refused
from emmy.ir.nest import Region, region_key
from emmy.priors.base import Prior
from emmy.schedule.space import enumerate_space
from emmy.search.realise import realise
from emmy.search.recorder import Known, Recorder, reply_of
from emmy.search.screening import Bencher, Progress, Screener, TuneOptions
from emmy.search.structure import Cut, composed, cuts
from emmy.search.variant import Variant

if TYPE_CHECKING:
    from emmy.search.ahead import Preparer
    from emmy.store.store import Store

CONFIRM_PROCESSES = 2
CONFIRM_ROUNDS = 3
CUT_SLACK = 2.0
"""A cut whose children's prior picks together take longer than this times the best whole plan is not tuned further."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """How the search of a region ended.

    best: the confirmed best, None where nothing ran. confirmed: its row. live, known: attempts; again: leaves measured
    in O3 after O1. statuses: how each leaf ended, in O3 where it was measured in both. children: of the cuts that were
    tuned. skipped: why nothing was searched, where that is so.
    """

    region: Region
    shape: str
    best: Variant | None = None
    confirmed: Measurement | None = None
    live: int = 0
    known: int = 0
    offered: int = 0
    statuses: Mapping[str, int] = field(default_factory=dict)
    pruned: int = 0
    prior: str = ""
    seconds: float = 0.0
    children: tuple[Tuned, ...] = ()
    again: int = 0
    skipped: str = ""

    @property
    def ok(self) -> int:
        return sum(n for s, n in self.statuses.items() if s == Status.OK) + sum(c.ok for c in self.children)

    @property
    def failed(self) -> int:
        return sum(n for s, n in self.statuses.items() if s != Status.OK) + sum(c.failed for c in self.children)

    @property
    def us(self) -> float | None:
        return None if self.confirmed is None else self.confirmed.median_us


class Tuner:
    """Tunes regions of one device into one sweep of the store.

    references: the data and expected outputs of a region. on_progress: called after every attempt. preparer: processes
    that lower and compile leaves ahead; without one that is done here.
    """

    def __init__(
        self,
        bench: Bencher,
        store: Store,
        caps: Capabilities,
        prior: Prior,
        references: Callable[[Region], ReferenceSet],
        sweep: str,
        options: TuneOptions,
        on_progress: Callable[[Progress], None] = lambda _: None,
        preparer: Preparer | None = None,
    ) -> None:
        self.preparer = preparer
        self.bench = bench
        self.store = store
        self.caps = caps
        self.prior = prior
        self.recorder = Recorder(store, caps, sweep, prior.name)
        self.sweep = sweep
        self.options = options
        self.on_progress = on_progress
        self._references = references
        self._refs: dict[tuple[str, ...], ReferenceSet] = {}
        self.done: dict[str, Tuned] = {}

    def references(self, region: Region) -> ReferenceSet:
        """Data and expected outputs, made when a region is first measured."""
        names = (region_key(region), *(t.name for t in region.inputs), *(o.tensor.name for o in region.outputs))
        if names not in self._refs:
            self._refs[names] = self._references(region)
        return self._refs[names]

    # ---------------------------------------------------------------------------------------------------- a region

    def tune(self, region: Region, shape: str = "") -> Tuned:
        """Searches the region, and its cuts, to the end of patience. Equal regions are searched once."""
        key = region_key(region)
        if key in self.done:
            return self._twin(region, self.done[key], shape)
        started = perf_counter()
        self.recorder.region(region, shape)
        space = enumerate_space(region, self.caps, self.options.fast_math)
        known = self.recorder.known(key)
        screened = self._screener().run(region, space, shape, known)
        best_us, contenders = screened.best_us, screened.finalists(self.options.o3_tol)
        search, statuses = screened.search, screened.statuses
        live, children = search.live, []
        for cut in cuts(region):
            variant, tuned, replies = self._cut(region, cut, shape, best_us, known)
            children += tuned
            live += len(replies)
            statuses.update(reply.status for reply in replies)
            if variant is not None:
                contenders.append(variant)
        best, confirmed = self._confirm(region, contenders, shape)
        reason = "patience" if search.live_since_best >= self.options.patience else "space exhausted"
        settings = {
            "patience": self.options.patience,
            "attempts": len(search.attempts),
            "pruned": search.pruned,
            "regime": screened.standings.regime,
        }
        self.recorder.close(region, shape, confirmed, reason, settings)
        tuned_region = Tuned(
            region,
            shape,
            best,
            confirmed,
            live,
            len(search.attempts) - search.live,
            len(space),
            dict(statuses),
            sum(search.pruned.values()),
            self.prior.name,
            perf_counter() - started,
            tuple(children),
            screened.again,
            "" if len(space) or best else "; ".join(f"{n}: {r}" for n, r in space.declined.items()),
        )
        self.done[key] = tuned_region
        return tuned_region

    def _twin(self, region: Region, tuned: Tuned, shape: str) -> Tuned:
        """The outcome of an equal region, lowered under this one's names."""
        best = realise(region, self.caps, tuned.best.knobs) if tuned.best is not None else None
        empty: dict[str, int] = {}
        return replace(
            tuned,
            region=region,
            shape=shape,
            best=best,
            live=0,
            known=0,
            statuses=empty,
            children=(),
            again=0,
            pruned=0,
            seconds=0.0,
            skipped="an equal kernel was tuned",
        )

    def _screener(self) -> Screener:
        return Screener(
            self.bench,
            self.caps,
            self.prior,
            self.recorder,
            self.options,
            self.references,
            self.on_progress,
            self.preparer,
        )

    # ---------------------------------------------------------------------------------------------------- a cut

    def _cut(
        self, region: Region, cut: Cut, shape: str, best_us: float | None, known: Known
    ) -> tuple[Variant | None, list[Tuned], list[Reply]]:
        """The cut plan of tuned children, where its first guess comes near the best whole plan."""
        first = self._guess(region, cut)
        replies: list[Reply] = []
        if first is not None:
            reply = self._timed(region, first, shape, best_us, known, replies)
            if best_us is not None and not (reply.ok and reply.median_us and reply.median_us <= CUT_SLACK * best_us):
                return None, [], replies
        elif best_us is not None:
            return None, [], replies
        tuned = [self.tune(child, shape) for child in cut.children]
        if any(child.best is None for child in tuned):
            return None, tuned, replies
        variant = composed(region, self.caps, cut, [child.best for child in tuned if child.best is not None])
        if first is not None and variant.text == first.text:
            return first, tuned, replies
        reply = self._timed(region, variant, shape, best_us, known, replies)
        return (variant if reply.ok else None), tuned, replies

    def _guess(self, region: Region, cut: Cut) -> Variant | None:
        """The cut plan of the children's prior picks; None where a child has no leaf or does not lower."""
        picks = []
        for child in cut.children:
            space = enumerate_space(child, self.caps, self.options.fast_math)
            if not len(space):
                return None
            leaf = int(np.argmin(self.prior.scores(space)))
            try:
                picks.append(Variant(child, self.caps, space.knobs(leaf), space.lower(leaf)))
            except Refused:
                return None
        return composed(region, self.caps, cut, picks)

    def _timed(
        self,
        region: Region,
        variant: Variant,
        shape: str,
        best_us: float | None,
        known: Known,
        replies: list[Reply],
    ) -> Reply:
        row = known.get(("O3", variant.text))
        if row is not None and row.plan_digest == variant.digest:
            return reply_of(row)
        reply = self._screener().screen(region, variant, best_us)
        self.recorder.attempt(region, variant.knobs, variant, reply, shape, "cut")
        replies.append(reply)
        label = str(variant.knobs)
        self.on_progress(Progress(region.name, len(replies), 0, label, reply, True, "cut", best_us, 0))
        return reply

    # ---------------------------------------------------------------------------------------------------- confirming

    def _confirm(
        self, region: Region, contenders: Sequence[Variant], shape: str
    ) -> tuple[Variant | None, Measurement | None]:
        """The contenders measured again, isolated and interleaved; the fastest of them and its row."""
        distinct = list({variant.digest: variant for variant in contenders}.values())
        if not distinct:
            return None, None
        held = [self.recorder.held(variant) for variant in distinct]
        if all(held):
            rows = [row for row in held if row is not None]
        else:
            labels = [f"finalist {place}" for place in range(len(distinct))]
            jobs = [Row(label, v.artefact, v.lane, "O3") for label, v in zip(labels, distinct, strict=True)]
            result = self.bench.confirm(
                jobs, self.references(region), processes=CONFIRM_PROCESSES, rounds=CONFIRM_ROUNDS
            )
            rows = [
                self.recorder.measured(v, result.replies[label], CONFIRM.label, shape)
                for label, v in zip(labels, distinct, strict=True)
            ]
            self.recorder.append(*rows)
        pairs = [(r.median_us, place) for place, r in enumerate(rows) if r.ok and r.median_us is not None]
        if not pairs:
            return None, None
        place = min(pairs)[1]
        return distinct[place], rows[place]
