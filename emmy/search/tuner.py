"""Tunes a region: search its space by screening, confirm the finalists, and record every row as it is measured."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

import numpy as np

from emmy.bench.jobs import ReferenceSet, Reply, Row, TorchSource
from emmy.bench.records import CONFIRM, Measurement, Status
from emmy.device.base import Capabilities
from emmy.errors import CompileFailed, EmmyError, Refused
from emmy.ir.nest import Region, region_key
from emmy.priors.base import Prior
from emmy.schedule.knobs import KnobMap
from emmy.schedule.space import Space, enumerate_space
from emmy.search.policy import Search
from emmy.search.realise import realise
from emmy.search.recorder import Recorder, reply_of
from emmy.search.structure import Cut, composed, cuts
from emmy.search.variant import Variant, knobs_text

if TYPE_CHECKING:
    from emmy.bench.artefact import Artefact
    from emmy.bench.protocol import ConfirmResult
    from emmy.search.ahead import Preparer, Ticket
    from emmy.store.store import Store

FINALISTS = 4
CONFIRM_PROCESSES = 2
CONFIRM_ROUNDS = 3
BATCH_PER_UNIT = 2
"""Leaves drawn at a time for each core: they compile side by side, and are timed one after the other."""

COMPILE_DEADLINE_S = 60.0
"""Of a leaf that is prepared ahead, from when the search asks for it."""

CUT_SLACK = 2.0
"""A cut whose children's prior picks together take longer than this times the best whole plan is not tuned further."""


class Bencher(Protocol):
    """What the tuner needs of a bench (``emmy.bench.protocol.Bench``)."""

    def screen(
        self,
        artefact: Artefact,
        reference_set: ReferenceSet,
        best_us: float | None = None,
        regime: str = "O3",
        lane: str = "std",
    ) -> Reply: ...

    def build_ahead(self, rows: Sequence[Row], reference_set: ReferenceSet) -> list[Reply]: ...

    def confirm(
        self,
        rows: Sequence[Row],
        reference_set: ReferenceSet,
        sources: Sequence[TorchSource] = (),
        processes: int = 6,
        rounds: int = 6,
        cache: str = "cold",
        seed: int = 0,
    ) -> ConfirmResult: ...


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

    best: the confirmed best, None where nothing ran. confirmed: its row. live, known: attempts; statuses: of them all.
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
        finished = self.recorder.finished(key)
        if not any(row.ok for row in known.values()):
            # Nothing ran: what stopped it (a missing linker, a full disk) may be gone, and a retry is to try again.
            known, finished = {}, 0
        search, variants = self._search(region, space, shape, known, finished)
        if finished and not self._still_holds(search, variants, known):
            search, variants = self._search(region, space, shape, known, 0)
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
        reason = "patience" if search.live_since_best >= self.options.patience else "space exhausted"
        settings = {"patience": self.options.patience, "attempts": len(search.attempts), "pruned": search.pruned}
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
            pruned=0,
            seconds=0.0,
            skipped="an equal kernel was tuned",
        )

    def _search(
        self, region: Region, space: Space, shape: str, known: Mapping[str, Measurement], finished: int
    ) -> tuple[Search, dict[int, Variant]]:
        scores = self.prior.scores(space) if len(space) else np.zeros(0)
        places = np.argsort(np.argsort(scores, kind="stable"), kind="stable") + 1
        search = Search(space.labels, space.features, scores, self.options.patience)
        variants: dict[int, Variant] = {}
        for one, built in self._leaves(region, space, search, known, finished):
            reply, live = one.reply, one.row is None or one.reply is None
            if reply is None and one.variant is not None:
                best_us = search.best_us if search.best is not None else None
                reply = built or self._screen(region, one.variant, best_us)
            assert reply is not None
            if one.variant is not None and reply.ok:
                variants[one.leaf] = one.variant
            origin = search.origin(one.leaf)
            if live:
                rank = int(places[one.leaf])
                self.recorder.attempt(region, one.knobs, one.variant, reply, shape, origin, rank, len(space))
            search.tell(one.leaf, reply.status, reply.median_us if reply.ok else None, live)
            self._tell(region, search, len(space), str(one.knobs), reply, live, origin)
        for leaf in search.finalists(self.options.o3_tol, FINALISTS):
            if leaf not in variants:
                variants[leaf] = Variant(region, self.caps, space.knobs(leaf), space.lower(leaf))
        return search, variants

    def _leaves(
        self, region: Region, space: Space, search: Search, known: Mapping[str, Measurement], finished: int
    ) -> Iterator[tuple[_Drawn, Reply | None]]:
        """The leaves to measure next, and for one that does not compile its reply; ended by the search itself."""
        if self.preparer is not None and finished < self.options.patience:
            yield from self._streamed(region, space, search, known, self.preparer)
            return
        while leaves := search.ask(BATCH_PER_UNIT * self.caps.units):
            if finished >= self.options.patience:
                # A search of at least this patience ended in this sweep; what it did not measure it did not need. Its
                # rows are taken as they are, and the finalists alone are lowered again.
                drawn = [
                    _Drawn(leaf, k, None, r, reply_of(r))
                    for leaf in leaves
                    if (r := known.get(knobs_text(k := space.knobs(leaf)))) is not None
                ]
            else:
                drawn = [self._draw(region, space, leaf, known) for leaf in leaves]
            built = self._build_ahead(region, [one for one in drawn if one.reply is None])
            for one in drawn:
                yield one, built.get(one.leaf)
            if len(drawn) < len(leaves):
                return

    def _streamed(
        self, region: Region, space: Space, search: Search, known: Mapping[str, Measurement], preparer: Preparer
    ) -> Iterator[tuple[_Drawn, Reply | None]]:
        """As many leaves under way as there are processes, so that the device waits for none of them."""
        window: deque[tuple[int, KnobMap, Ticket]] = deque()
        while True:
            for leaf in search.ask(preparer.processes - len(window)):
                knobs = space.knobs(leaf)
                window.append((leaf, knobs, preparer.submit(region, knobs)))
            if not window:
                return
            leaf, knobs, ticket = window.popleft()
            row = known.get(knobs_text(knobs))
            try:
                prepared = preparer.result(ticket, COMPILE_DEADLINE_S)
            except CompileFailed as error:
                yield _Drawn(leaf, knobs, None, None, Reply(Status.COMPILE_FAILED, _one_line(error))), None
                continue
            variant = prepared.variant(region, self.caps, knobs)
            if variant is None:
                yield _Drawn(leaf, knobs, None, row, Reply(Status.INVALID, prepared.error)), None
                continue
            held = row if row is not None and row.plan_digest == variant.digest else None
            yield _Drawn(leaf, knobs, variant, held, reply_of(held) if held is not None else None), None

    def _still_holds(self, search: Search, variants: Mapping[int, Variant], known: Mapping[str, Measurement]) -> bool:
        """Whether a search that was not lowered again came as far as it did, with finalists of the measured code.

        Another prior asks in another order, and another space may lack the leaves that were measured.
        """
        reached = min((row.median_us for row in known.values() if row.ok and row.median_us is not None), default=None)
        if search.best is None or (reached is not None and search.best_us > reached):
            return False
        finalists = [variants[leaf] for leaf in search.finalists(self.options.o3_tol, FINALISTS)]
        return all(v.text not in known or known[v.text].plan_digest == v.digest for v in finalists)

    def _draw(self, region: Region, space: Space, leaf: int, known: Mapping[str, Measurement]) -> _Drawn:
        """A leaf, lowered and printed; with a reply where it has a row of the same code in this sweep."""
        knobs = space.knobs(leaf)
        row = known.get(knobs_text(knobs))
        try:
            variant = Variant(region, self.caps, knobs, space.lower(leaf))
            digest = variant.digest  # prints the kernels: whatever is wrong with them shows here
            same = row is not None and row.plan_digest == digest
        except Exception as error:
            # A leaf that does not lower is a row like any other: the search goes on, the fault stays on record.
            return _Drawn(leaf, knobs, None, row, Reply(Status.INVALID, _one_line(error)))
        return _Drawn(leaf, knobs, variant, row if same else None, reply_of(row) if same and row else None)

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
        self.on_progress(
            Progress(region.name, count, offered, label, reply, live, origin, best, search.live_since_best)
        )

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
        self,
        region: Region,
        variant: Variant,
        shape: str,
        best_us: float | None,
        known: Mapping[str, Measurement],
        replies: list[Reply],
    ) -> Reply:
        row = known.get(variant.text)
        if row is not None and row.plan_digest == variant.digest:
            return reply_of(row)
        reply = self._screen(region, variant, best_us)
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
            self.recorder.confirmations(rows)
        pairs = [(r.median_us, place) for place, r in enumerate(rows) if r.ok and r.median_us is not None]
        if not pairs:
            return None, None
        place = min(pairs)[1]
        return distinct[place], rows[place]


def _one_line(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else ""
    return text if isinstance(error, EmmyError) else f"{type(error).__name__}: {text}"
