"""What the tasks of one process share: the workspace, the workers and the tuner, opened when the first task needs them.

A run in which every task is cached opens none of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from emmy.bench.protocol import ROUNDS
from emmy.bench.stats import Thresholds
from emmy.pipeline import Job, Workspace, open_job
from emmy.search.screening import Progress
from emmy.target import Target, TargetKind
from tasks.progress import Reporter, reporter

if TYPE_CHECKING:
    from emmy.bench.protocol import Bench
    from emmy.evaluate.ab import AbResult
    from emmy.goldens.entry import GoldenConfig
    from emmy.schedule.knobs import KnobMap
    from emmy.search.tuner import Tuner


@dataclass
class Session:
    """One sweep in one process. rounds: of an A/B, a process."""

    work: Workspace
    thresholds: Thresholds
    reporter: Reporter
    rounds: int = ROUNDS
    sweep: str = ""
    executed: set[tuple[str, str]] = field(default_factory=set)
    _stack: ExitStack = field(default_factory=ExitStack)
    _bench: Bench | None = None
    _tuner: Tuner | None = None
    _jobs: dict[str, Job] = field(default_factory=dict)

    def start(self, step: str, shape: str) -> None:
        """A task's body begins: its result was not known. Raises Stopped."""
        self.executed.add((step, shape))
        self.reporter.begin(step, shape)

    def job(self, shape: str) -> Job:
        """The traced shape. Raises InputError, UnsupportedOp."""
        if shape not in self._jobs:
            self._jobs[shape] = open_job(Target(TargetKind.GOLDEN, shape))
        return self._jobs[shape]

    def bench(self) -> Bench:
        if self._bench is None:
            self._bench = self._stack.enter_context(self.work.bench(self.sweep))
        return self._bench

    def tuner(self) -> Tuner:
        """One tuner for all shapes, so that equal kernels are searched once."""
        if self._tuner is None:
            self._tuner = self.work.tuner(self.bench(), self.sweep, self._attempt)
        return self._tuner

    def ab(
        self, shape: str, goldens: Sequence[GoldenConfig], lane: str, greedy: KnobMap, number: int = 0
    ) -> AbResult:  # fmt: skip
        """The A/B of a shape; ``number`` counts the runs that repeat it, 0 for the first."""
        from emmy.evaluate.ab import ab_shape

        return ab_shape(
            self.job(shape), self.work, self.bench(), self.sweep, goldens, lane, greedy, thresholds=self.thresholds,
            looks=1 if number else None, rounds=self.rounds, seed=number,
        )  # fmt: skip

    def fresh_processes(self) -> None:
        """Ends the workers; the next task starts new ones."""
        self._stack.close()
        self._bench = self._tuner = None

    def close(self) -> None:
        self.fresh_processes()

    def _attempt(self, progress: Progress) -> None:
        self.reporter.attempt(progress)


_current: list[Session] = []


@contextmanager
def open_session(work: Workspace, thresholds: Thresholds, rounds: int = ROUNDS) -> Iterator[Session]:
    """A session for this process's tasks until the block ends; then what was measured is folded into the store."""
    opened = Session(work, thresholds, reporter(), rounds)
    _current.append(opened)
    try:
        yield opened
    finally:
        _current.remove(opened)
        opened.close()
        work.store.fold()


def current() -> Session:
    """The session of this process. Raises RuntimeError outside of a flow."""
    if not _current:
        raise RuntimeError("no sweep is open in this process: tasks run inside a flow")
    return _current[-1]
