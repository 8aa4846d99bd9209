"""Screens the space of a region: which leaf next and in which build, what compiles meanwhile, every row as it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from emmy.bench.jobs import ReferenceSet, Reply, Row
from emmy.bench.records import SCREEN, Measurement, Status
from emmy.bench.regimes import LIMIT
from emmy.device.base import Capabilities
from emmy.errors import CompileFailed, EmmyError, KnobError
from emmy.ir.nest import Region, region_key
from emmy.priors.base import Prior
from emmy.schedule.knobs import KnobMap
from emmy.schedule.space import Space
from emmy.search.policy import Search
from emmy.search.recorder import Known, Recorder, reply_of
from emmy.search.standings import Standings, regimes_of
from emmy.search.variant import Variant, knobs_text, read_knobs

if TYPE_CHECKING:
    from emmy.bench.artefact import Artefact
    from emmy.bench.jobs import TorchSource
    from emmy.bench.protocol import ConfirmResult
    from emmy.search.ahead import Preparer, Ticket

FINALISTS = 4
BATCH_PER_UNIT = 2
"""Leaves drawn at a time for each core: they compile side by side, and are timed one after the other."""

QUEUED = 2
"""Leaves behind those that the processes work on, so that one that is done has its next."""

COMPILE_DEADLINE_S = 60.0
"""How long a leaf that is prepared ahead may be worked on."""


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
    """patience: live attempts without a new best. o3_tol: share above the best within which a leaf is a finalist, and
    above the fastest O1 row within which one is a contender. o1: screen in O1 where device and tier allow it."""

    patience: int = 50
    o3_tol: float = 0.15
    fast_math: bool = False
    o1: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """One attempt, as it ended. best_us: the region's best so far in the same ``regime``; ``attempt`` counts live and
    known ones. origin: ``prior``, ``explore``, ``nearby``, ``cut``; ``contender``: an O1 leaf measured again in O3."""

    region: str
    attempt: int
    offered: int
    label: str
    reply: Reply
    live: bool
    origin: str
    best_us: float | None
    since_best: int
    regime: str = "O3"


@dataclass(frozen=True, slots=True)
class Drawn:
    """A leaf on its way to the bench. row: its known row; reply: known, or why it does not lower."""

    leaf: int
    knobs: KnobMap
    variant: Variant | None
    row: Measurement | None
    reply: Reply | None


@dataclass
class Screened:
    """How far the search of a region's space is. variants: leaves that were lowered; again: contenders measured now."""

    search: Search
    standings: Standings
    variants: dict[int, Variant] = field(default_factory=dict)
    again: int = 0

    @property
    def statuses(self) -> Counter[str]:
        """How many leaves ended how, each once."""
        return Counter(str(status) for status in self.standings.ended.values())

    @property
    def best_us(self) -> float | None:
        """The fastest row of the deployable build."""
        return self.standings.best_us("O3")

    def variant(self, leaf: int) -> Variant:
        """A leaf, lowered. Raises Refused."""
        if leaf not in self.variants:
            space = self.standings.space
            self.variants[leaf] = Variant(space.region, space.caps, space.knobs(leaf), space.lower(leaf))
        return self.variants[leaf]

    def finalists(self, tolerance: float) -> list[Variant]:
        """What is worth a confirmation, fastest first; rows of the deployable build alone."""
        return [self.variant(leaf) for leaf in self.standings.leaders(tolerance, FINALISTS)]


@dataclass
class Screener:
    """Screens regions of one device into one sweep. on_progress: called after every attempt. preparer: processes that
    lower and compile leaves ahead; without one that is done here."""

    bench: Bencher
    caps: Capabilities
    prior: Prior
    recorder: Recorder
    options: TuneOptions
    references: Callable[[Region], ReferenceSet]
    on_progress: Callable[[Progress], None]
    preparer: Preparer | None = None

    def run(self, region: Region, space: Space, shape: str, known: Known) -> Screened:
        """Searches the space to the end of patience, then measures the contenders of the cheap build in O3."""
        regimes = regimes_of(space, self.caps.regimes if self.options.o1 else ("O3",))
        finished = self.recorder.finished(region_key(region), Standings(space, regimes).regime) if known else 0
        screened = self._screened(region, Standings(space, regimes), shape, known, finished)
        if finished >= self.options.patience and not self._still_holds(screened, known):
            screened = self._screened(region, Standings(space, regimes), shape, known, 0)
        if screened.standings.cheap:
            self.recorder.screened(region, shape, screened.standings.regime, max(self.options.patience, finished))
            self._deploy(region, screened, shape, known)
        return screened

    def screen(self, region: Region, variant: Variant, best_us: float | None, regime: str = "O3") -> Reply:
        """One screening. best_us: of the same regime, beyond which it is given up."""
        return self.bench.screen(variant.artefact, self.references(region), best_us, regime, variant.lane)

    # ------------------------------------------------------------------------------------------------ the search

    def _screened(self, region: Region, standings: Standings, shape: str, known: Known, finished: int) -> Screened:
        space = standings.space
        scores = self.prior.scores(space) if len(space) else np.zeros(0)
        places = np.argsort(np.argsort(scores, kind="stable"), kind="stable") + 1
        search = Search(space.labels, space.features, scores, self.options.patience)
        screened = Screened(search, standings)
        for one, built in self._leaves(region, screened, known, finished):
            regime = standings.of(one.leaf)
            reply, live = one.reply, one.row is None or one.reply is None
            if reply is None and one.variant is not None:
                reply = built or self.screen(region, one.variant, standings.best_us(regime), regime)
            assert reply is not None
            if one.variant is not None and reply.ok:
                screened.variants[one.leaf] = one.variant
            origin = search.origin(one.leaf)
            if live:
                rank = int(places[one.leaf])
                self.recorder.attempt(region, one.knobs, one.variant, reply, shape, origin, rank, len(space), regime)
            search.tell(one.leaf, reply.status, standings.add(one.leaf, regime, reply), live)
            self._tell(region, screened, one.knobs, reply, live, origin, regime)
        return screened

    def _leaves(
        self, region: Region, screened: Screened, known: Known, finished: int
    ) -> Iterator[tuple[Drawn, Reply | None]]:
        """The leaves to measure next, and for one that does not compile its reply; ended by the search itself."""
        space, standings = screened.standings.space, screened.standings
        if finished >= self.options.patience:
            # A search of at least this patience ended in this sweep; what it did not measure it did not need. Its rows
            # are taken as they are, in whatever order it asked for them; contenders and finalists are lowered again.
            for (regime, text), row in known.items():
                leaf = _leaf(space, text)
                if leaf is not None and standings.of(leaf) == regime:
                    yield Drawn(leaf, space.knobs(leaf), None, row, reply_of(row)), None
            return
        if self.preparer is not None:
            yield from self._streamed(region, screened, known, self.preparer)
            return
        while leaves := screened.search.ask(BATCH_PER_UNIT * self.caps.units):
            drawn = [self._draw(region, space, leaf, standings.of(leaf), known) for leaf in leaves]
            waiting = {one.leaf: one.variant for one in drawn if one.reply is None and one.variant is not None}
            built = self._build_ahead(region, waiting, standings.of)
            for one in drawn:
                yield one, built.get(one.leaf)

    def _streamed(
        self, region: Region, screened: Screened, known: Known, preparer: Preparer
    ) -> Iterator[tuple[Drawn, Reply | None]]:
        """Leaves under way for all processes, and the next ones behind them. The first that is done is measured next:
        neither the device nor a process waits for a leaf that takes long to compile."""
        window: list[tuple[int, KnobMap, Ticket]] = []
        standings = screened.standings
        while True:
            for leaf in screened.search.ask(preparer.processes + QUEUED - len(window)):
                knobs = standings.space.knobs(leaf)
                window.append((leaf, knobs, preparer.submit(region, knobs, standings.of(leaf))))
            if not window:
                return
            place = preparer.ready([ticket for _, _, ticket in window], COMPILE_DEADLINE_S)
            leaf, knobs, ticket = window.pop(place)
            row = known.get((ticket.regime, knobs_text(knobs)))
            try:
                prepared = preparer.result(ticket, COMPILE_DEADLINE_S)
            except CompileFailed as error:
                yield Drawn(leaf, knobs, None, None, Reply(Status(error.status), _one_line(error))), None
                continue
            variant = prepared.variant(region, self.caps, knobs)
            if variant is None:
                yield Drawn(leaf, knobs, None, row, Reply(Status.INVALID, prepared.error)), None
                continue
            held = row if row is not None and row.plan_digest == variant.digest else None
            yield Drawn(leaf, knobs, variant, held, reply_of(held) if held is not None else None), None

    def _still_holds(self, screened: Screened, known: Known) -> bool:
        """Whether a search that was not lowered again came as far as it did, with leaders of the measured code.

        Another prior asks in another order, and another space may lack the leaves that were measured.
        """
        standings, tolerance = screened.standings, self.options.o3_tol
        own = [row for (regime, _), row in known.items() if regime == standings.regime]
        reached = min((row.median_us for row in own if row.ok and row.median_us is not None), default=None)
        search = screened.search
        if search.best is None or (reached is not None and search.best_us > reached):
            return False
        leaders = standings.leaders(tolerance, LIMIT, "O1") + standings.leaders(tolerance, FINALISTS)
        rows = [(screened.variant(leaf), standings.of(leaf)) for leaf in leaders]
        found = [(v, known.get((regime, v.text))) for v, regime in rows]
        return all(row is None or row.plan_digest == v.digest for v, row in found)

    def _draw(self, region: Region, space: Space, leaf: int, regime: str, known: Known) -> Drawn:
        """A leaf, lowered and printed; with a reply where it has a row of the same code in this sweep."""
        knobs = space.knobs(leaf)
        row = known.get((regime, knobs_text(knobs)))
        try:
            variant = Variant(region, self.caps, knobs, space.lower(leaf))
            same = _same(row, variant)  # prints the kernels: whatever is wrong with them shows here
        except Exception as error:
            # A leaf that does not lower is a row like any other: the search goes on, the fault stays on record.
            return Drawn(leaf, knobs, None, row, Reply(Status.INVALID, _one_line(error)))
        return Drawn(leaf, knobs, variant, same, reply_of(same) if same else None)

    def _build_ahead(
        self, region: Region, waiting: Mapping[int, Variant], regime_of: Callable[[int], str]
    ) -> dict[int, Reply]:
        """Compiles what is to be screened on all cores; the replies of those that failed, which are not tried again."""
        if len(waiting) < 2:
            return {}
        rows = [Row(str(leaf), v.artefact, v.lane, regime_of(leaf)) for leaf, v in waiting.items()]
        replies = self.bench.build_ahead(rows, self.references(region))
        return {int(row.label): reply for row, reply in zip(rows, replies, strict=True) if not reply.ok}

    # -------------------------------------------------------------------------------------------- contenders in O3

    def _deploy(self, region: Region, screened: Screened, shape: str, known: Known) -> None:
        """Measures the best of the O1 rows in O3 until no other can matter; a known row of the same code stands."""
        standings, tolerance = screened.standings, self.options.o3_tol
        held: dict[int, Measurement] = {}
        waiting: dict[int, Variant] = {}
        for leaf in standings.leaders(tolerance, LIMIT, "O1"):
            variant = screened.variant(leaf)
            row = _same(known.get(("O3", variant.text)), variant)
            if row is not None:
                held[leaf] = row
            else:
                waiting[leaf] = variant
        built = self._built(region, waiting)
        while (place := standings.contender(tolerance)) is not None:
            leaf = place
            variant, live = screened.variant(leaf), leaf not in held
            if live:
                reply = built(leaf) or self.screen(region, variant, standings.best_us("O3"), "O3")
                self.recorder.append(self.recorder.measured(variant, reply, SCREEN.label, shape))
                screened.again += 1
            else:
                reply = reply_of(held[leaf])
            standings.add(leaf, "O3", reply)
            self._tell(region, screened, variant.knobs, reply, live, "contender", "O3")

    def _built(self, region: Region, waiting: Mapping[int, Variant]) -> Callable[[int], Reply | None]:
        """Starts the O3 builds of leaves side by side; called with one of them, its reply where it did not compile."""
        preparer = self.preparer
        if preparer is None:
            return self._build_ahead(region, waiting, lambda leaf: "O3").get
        tickets = {leaf: preparer.submit(region, variant.knobs, "O3") for leaf, variant in waiting.items()}

        def wait(leaf: int) -> Reply | None:
            try:
                preparer.result(tickets[leaf], COMPILE_DEADLINE_S)
            except CompileFailed as error:
                return Reply(Status(error.status), _one_line(error))
            return None

        return wait

    def _tell(
        self, region: Region, screened: Screened, knobs: KnobMap, reply: Reply, live: bool, origin: str, regime: str
    ) -> None:
        search, best = screened.search, screened.standings.best_us(regime)
        count = len(search.attempts)
        offered = len(screened.standings.space)
        self.on_progress(
            Progress(region.name, count, offered, str(knobs), reply, live, origin, best, search.live_since_best, regime)
        )


def _leaf(space: Space, text: str) -> int | None:
    """The leaf of a row's knobs; None where the space of today does not hold it."""
    try:
        return space.find(read_knobs(text))
    except (KnobError, ValueError):
        return None


def _same(row: Measurement | None, variant: Variant) -> Measurement | None:
    """The row, where it is of the variant's code."""
    return row if row is not None and row.plan_digest == variant.digest else None


def _one_line(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else ""
    return text if isinstance(error, EmmyError) else f"{type(error).__name__}: {text}"
