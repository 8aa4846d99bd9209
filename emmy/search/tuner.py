"""Tunes a region: search its space by screening, confirm the finalists, and record every row as it is measured."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from emmy.bench.jobs import ReferenceSet, Reply, Row, TorchSource
from emmy.bench.records import CONFIRM, SCREEN, Measurement, Status
from emmy.device.base import Capabilities
from emmy.errors import EmmyError, Refused
from emmy.ir.nest import Region, region_key, text
from emmy.priors.base import Prior
from emmy.schedule.knobs import KnobMap
from emmy.schedule.space import Space, enumerate_space
from emmy.search.policy import Search
from emmy.search.structure import Cut, composed, cuts
from emmy.search.variant import Variant, knobs_text, measurement

if TYPE_CHECKING:
    from emmy.bench.artefact import Artefact
    from emmy.bench.protocol import ConfirmResult
    from emmy.store.store import Store

FINALISTS = 4
CONFIRM_PROCESSES = 2
CONFIRM_ROUNDS = 3
BATCH_PER_UNIT = 2
"""Leaves drawn at a time for each core: they compile side by side, and are timed one after the other."""

CUT_SLACK = 2.0
"""A cut whose children's prior picks together take longer than this times the best whole plan is not tuned further."""


class Bencher(Protocol):
    """What the tuner needs of a bench (``emmy.bench.protocol.Bench``)."""

    def screen(
        self, artefact: Artefact, reference_set: ReferenceSet, best_us: float | None = None, regime: str = "O3",
        lane: str = "std",
    ) -> Reply: ...  # fmt: skip

    def build_ahead(self, rows: Sequence[Row], reference_set: ReferenceSet) -> list[Reply]: ...

    def confirm(
        self, rows: Sequence[Row], reference_set: ReferenceSet, sources: Sequence[TorchSource] = (),
        processes: int = 6, rounds: int = 6, cache: str = "cold", seed: int = 0,
    ) -> ConfirmResult: ...  # fmt: skip


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """patience: live attempts without a new best. o3_tol: share above the best within which a leaf is a finalist."""

    patience: int = 50
    o3_tol: float = 0.15
    fast_math: bool = False


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A leaf on its way to the bench. row: its known row; reply: known, or why it does not lower."""

    leaf: int
    knobs: KnobMap
    variant: Variant | None
    row: Measurement | None
    reply: Reply | None


@dataclass(frozen=True, slots=True)
class Progress:
    """One attempt, as it ended. best_us: the best of the region so far; ``attempt`` counts live and known ones."""

    region: str
    attempt: int
    offered: int
    label: str
    reply: Reply
    live: bool
    origin: str
    best_us: float | None
    since_best: int


@dataclass(frozen=True, slots=True)
class Tuned:
    """How the search of a region ended.

    best: the confirmed best, None where nothing ran. confirmed: its row. live, known: attempts. statuses: of all of them.
    children: of the cuts that were tuned. skipped: why nothing was searched, where that is so.
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

    references: the data and expected outputs of a region. on_progress: called after every attempt.
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
    ) -> None:
        self.bench = bench
        self.store = store
        self.caps = caps
        self.prior = prior
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
            return replace(self.done[key], shape=shape, live=0, statuses={}, children=(), skipped="an equal kernel was tuned")
        started = perf_counter()
        self._record_region(region, shape)
        space = enumerate_space(region, self.caps, self.options.fast_math)
        known = self._known(key)
        finished = self._finished(key)
        search, variants = self._search(region, space, shape, known, finished)
        if finished and not self._still_holds(search, variants, known):
            search, variants = self._search(region, space, shape, {}, 0)
        best_us = search.best_us if search.best is not None else None
        contenders = [variants[leaf] for leaf in search.finalists(self.options.o3_tol, FINALISTS)]
        statuses: Counter[str] = Counter(attempt.status for attempt in search.attempts)
        live, children = search.live, []
        for cut in cuts(region):
            variant, tuned, replies = self._cut(region, cut, shape, best_us, known)
            children += tuned
            live += len(replies)
            statuses.update(reply.status for reply in replies)
            if variant is not None:
                contenders.append(variant)
        best, confirmed = self._confirm(region, contenders, shape)
        self._close(region, shape, search, best, confirmed)
        tuned_region = Tuned(
            region, shape, best, confirmed, live, len(search.attempts) - search.live, len(space), dict(statuses),
            sum(search.pruned.values()), self.prior.name, perf_counter() - started, tuple(children),
            "" if len(space) or best else "; ".join(f"{n}: {r}" for n, r in space.declined.items()),
        )  # fmt: skip
        self.done[key] = tuned_region
        return tuned_region

    def _search(
        self, region: Region, space: Space, shape: str, known: Mapping[str, Measurement], finished: int
    ) -> tuple[Search, dict[int, Variant]]:
        scores = self.prior.scores(space) if len(space) else np.zeros(0)
        places = np.argsort(np.argsort(scores, kind="stable"), kind="stable") + 1
        search = Search(space.labels, space.features, scores, self.options.patience)
        variants: dict[int, Variant] = {}
        while leaves := search.ask(BATCH_PER_UNIT * self.caps.units):
            if finished >= self.options.patience:
                # A search of at least this patience ended in this sweep; what it did not measure it did not need. Its
                # rows are taken as they are, and the finalists alone are lowered again.
                drawn = [_Drawn(leaf, k, None, r, _reply_of(r)) for leaf in leaves
                         if (r := known.get(knobs_text(k := space.knobs(leaf)))) is not None]  # fmt: skip
            else:
                drawn = [self._draw(region, space, leaf, known) for leaf in leaves]
            built = self._build_ahead(region, [one for one in drawn if one.reply is None])
            for one in drawn:
                reply, live = one.reply, one.row is None or one.reply is None
                if reply is None and one.variant is not None:
                    best_us = search.best_us if search.best is not None else None
                    reply = built.get(one.leaf) or self._screen(region, one.variant, best_us)
                assert reply is not None
                if one.variant is not None and reply.ok:
                    variants[one.leaf] = one.variant
                origin = search.origin(one.leaf)
                if live:
                    rank = int(places[one.leaf])
                    self._record(region, one.knobs, one.variant, reply, shape, origin, rank, len(space))
                search.tell(one.leaf, reply.status, reply.median_us if reply.ok else None, live)
                self._tell(region, search, len(space), str(one.knobs), reply, live, origin)
            if len(drawn) < len(leaves):
                break
        for leaf in search.finalists(self.options.o3_tol, FINALISTS):
            if leaf not in variants:
                variants[leaf] = Variant(region, self.caps, space.knobs(leaf), space.lower(leaf))
        return search, variants

    def _still_holds(self, search: Search, variants: Mapping[int, Variant], known: Mapping[str, Measurement]) -> bool:
        """Whether the finalists of a search that was not lowered again are still of the code that was measured."""
        finalists = [variants[leaf] for leaf in search.finalists(self.options.o3_tol, FINALISTS)]
        return all(v.text not in known or known[v.text].plan_digest == v.digest for v in finalists)

    def _draw(self, region: Region, space: Space, leaf: int, known: Mapping[str, Measurement]) -> _Drawn:
        """A leaf, lowered and printed; with the reply it already has where its row in this sweep is of the same code."""
        knobs = space.knobs(leaf)
        row = known.get(knobs_text(knobs))
        try:
            variant = Variant(region, self.caps, knobs, space.lower(leaf))
            same = row is not None and row.plan_digest == variant.digest
        except Exception as error:
            # A leaf that does not lower is a row like any other: the search goes on, the fault stays on record.
            return _Drawn(leaf, knobs, None, row, Reply(Status.INVALID, _one_line(error)))
        return _Drawn(leaf, knobs, variant, row if same else None, _reply_of(row) if same and row else None)

    def _build_ahead(self, region: Region, drawn: Sequence[_Drawn]) -> dict[int, Reply]:
        """Compiles what is to be screened on all cores; the replies of those that failed, which are not tried again."""
        if len(drawn) < 2:
            return {}
        rows = [Row(str(one.leaf), one.variant.artefact, one.variant.lane, "O3") for one in drawn if one.variant]
        replies = self.bench.build_ahead(rows, self.references(region))
        return {int(row.label): reply for row, reply in zip(rows, replies, strict=True) if not reply.ok}

    def _screen(self, region: Region, variant: Variant, best_us: float | None) -> Reply:
        return self.bench.screen(variant.artefact, self.references(region), best_us, "O3", variant.lane)

    def _tell(
        self, region: Region, search: Search, offered: int, label: str, reply: Reply, live: bool, origin: str
    ) -> None:
        best = search.best_us if search.best is not None else None
        count = len(search.attempts)
        self.on_progress(Progress(region.name, count, offered, label, reply, live, origin, best, search.live_since_best))

    # ---------------------------------------------------------------------------------------------------- a cut

    def _cut(
        self, region: Region, cut: Cut, shape: str, best_us: float | None, known: Mapping[str, Measurement]
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
        self, region: Region, variant: Variant, shape: str, best_us: float | None, known: Mapping[str, Measurement],
        replies: list[Reply],
    ) -> Reply:  # fmt: skip
        row = known.get(variant.text)
        if row is not None and row.plan_digest == variant.digest:
            return _reply_of(row)
        reply = self._screen(region, variant, best_us)
        self._record(region, variant.knobs, variant, reply, shape, "cut", 0, 0)
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
        held = [self._held(region, variant) for variant in distinct]
        if all(held):
            rows = [row for row in held if row is not None]
        else:
            labels = [f"finalist {place}" for place in range(len(distinct))]
            jobs = [Row(label, v.artefact, v.lane, "O3") for label, v in zip(labels, distinct, strict=True)]
            result = self.bench.confirm(
                jobs, self.references(region), processes=CONFIRM_PROCESSES, rounds=CONFIRM_ROUNDS
            )
            rows = [
                measurement(v, result.replies[label], protocol=CONFIRM.label, regime="O3", sweep=self.sweep, shape=shape,
                            now=_now())
                for label, v in zip(labels, distinct, strict=True)
            ]  # fmt: skip
            self.store.append(*rows)
        pairs = [(r.median_us, place) for place, r in enumerate(rows) if r.ok and r.median_us is not None]
        if not pairs:
            return None, None
        place = min(pairs)[1]
        return distinct[place], rows[place]

    def _held(self, region: Region, variant: Variant) -> Measurement | None:
        probe = measurement(variant, Reply(Status.OK), protocol=CONFIRM.label, regime="O3", sweep=self.sweep)
        row = self.store.lookup(probe.key)
        return row if row is not None and row.ok else None

    # ---------------------------------------------------------------------------------------------------- the store

    def _known(self, key: str) -> dict[str, Measurement]:
        """Screened rows of this region in this sweep, by knob text; the newest of each."""
        from emmy.store.rows import from_mapping

        frame = self.store.measurements(key, self.caps.name, self.sweep, "O3", SCREEN.label)
        rows = [from_mapping("measurement", row) for row in frame.iter_rows(named=True)]
        return {row.knobs: row for row in rows if row.driver == self.caps.driver and row.compiler == self.caps.compiler}

    def _finished(self, key: str) -> int:
        """The patience of the widest search of this region that ended in this sweep, 0 for none."""
        frame = self.store.frame("decision", kind="done", sweep=self.sweep, device=self.caps.name, region=key)
        return max([0, *(int(json.loads(payload)["patience"]) for payload in frame["payload"])])

    def _record_region(self, region: Region, shape: str) -> None:
        from emmy.store.rows import RegionRow

        origins = [name for comp in region.comps for name in comp.origin]
        self.store.append(RegionRow(region_key(region), region.name, origins[0] if origins else "", shape, text(region),
                                    json.dumps(region.hints())))  # fmt: skip

    def _record(
        self, region: Region, knobs: Any, variant: Variant | None, reply: Reply, shape: str, origin: str, rank: int,
        offered: int,
    ) -> None:  # fmt: skip
        from emmy.store.rows import VariantRow

        key, stamped = region_key(region), knobs_text(knobs)
        if variant is not None:
            row = measurement(variant, reply, protocol=SCREEN.label, regime="O3", sweep=self.sweep, shape=shape, now=_now())
        else:
            row = Measurement(key, self.caps.name, self.caps.driver, self.caps.compiler, region.name, stamped, knobs.lane,
                              "O3", SCREEN.label, "", self.sweep, reply.status, shape=shape, error=reply.error,
                              measured_at=_now())  # fmt: skip
        prior = self.prior.name if origin in ("prior", "explore") else ""
        self.store.append(row, VariantRow(key, self.caps.name, self.sweep, stamped, knobs.lane, origin, prior, None, rank,
                                          offered))  # fmt: skip

    def _close(
        self, region: Region, shape: str, search: Search, best: Variant | None, confirmed: Measurement | None
    ) -> None:
        from emmy.store.rows import Decision

        payload = {"patience": self.options.patience, "attempts": len(search.attempts), "pruned": search.pruned}
        self.store.append(
            Decision("done", self.sweep, self.caps.name, region_key(region), shape, best.lane if best else "std",
                     self.prior.name, best.text if best else "", confirmed.median_us if confirmed else None,
                     "patience" if search.live_since_best >= self.options.patience else "space exhausted",
                     json.dumps(payload), _now())
        )  # fmt: skip


def _reply_of(row: Measurement) -> Reply:
    return Reply(
        row.status, row.error, row.median_us, row.low_us, row.high_us, row.samples, row.median_us, row.rel_error, row.build_s,
        row.wall_s, row.abandoned, row.registers, row.spills, row.smem_bytes,
    )  # fmt: skip


def _one_line(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else ""
    return text if isinstance(error, EmmyError) else f"{type(error).__name__}: {text}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
