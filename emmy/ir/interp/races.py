"""Vector clocks: which accesses of a block's threads are ordered by barriers.

Every thread has a clock for every thread (and one for the asynchronous copy engine). A barrier joins the clocks of
those who take part. An access races when the last access of another thread to the same element is not in the clock of
the thread that makes it. The scheme is that of Flanagan and Freund, FastTrack (PLDI 2009), with reads kept in a log
that the next write to an element empties.

Between the blocks of a cluster only the cluster's barriers order memory, all of it and for all. They are counted: two
accesses of different blocks to an element race when they fall between the same two.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Clocks:
    """The clocks of ``threads`` threads; column ``threads`` belongs to the copy engine."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.engine = threads
        self.vc = np.zeros((threads, threads + 1), dtype=np.int64)
        self.vc[np.arange(threads), np.arange(threads)] = 1
        self.engine_clock = 0

    def own(self, tids: Ints) -> Ints:
        return self.vc[tids, tids]

    def tick(self, tids: Ints) -> None:
        self.vc[tids, tids] += 1

    def joined(self, tids: Ints) -> Ints:
        """The common knowledge of ``tids``."""
        return self.vc[tids].max(axis=0)

    def barrier(self, tids: Ints) -> None:
        self.vc[tids] = self.joined(tids)
        self.tick(tids)

    def learn(self, tids: Ints, clock: Ints) -> None:
        """``tids`` learn what ``clock`` knows."""
        self.vc[tids] = np.maximum(self.vc[tids], clock)


class Accesses:
    """The accesses to one shared array since they were last ordered for everyone."""

    def __init__(self, elements: int) -> None:
        self.writer = np.full(elements, -1, dtype=np.int64)
        self.clock = np.zeros(elements, dtype=np.int64)
        self.atomic = np.zeros(elements, dtype=bool)
        self.reads: list[tuple[Ints, Ints, Ints]] = []

    def read(self, clocks: Clocks, index: Ints, tids: Ints) -> tuple[int, int, int] | None:
        """Logs a read. Returns (element, reader, writer) of a race, or None."""
        race = self._unordered(clocks, index, tids)
        self.reads.append((index, tids, clocks.own(tids)))
        return race

    def write(self, clocks: Clocks, index: Ints, tids: Ints, *, atomic: bool = False) -> tuple[int, int, int] | None:
        """Records a write. Returns (element, writer, other thread) of a race, or None."""
        race = _twice(index, tids) if not atomic else None
        race = race or self._unordered(clocks, index, tids, atomic=atomic) or self._unread(clocks, index, tids)
        self.writer[index] = tids
        self.clock[index] = clocks.own(tids)
        self.atomic[index] = atomic
        return race

    def ordered_for_all(self) -> None:
        """A barrier of the whole block: earlier reads can race with nothing any more."""
        self.reads.clear()

    def _unordered(
        self, clocks: Clocks, index: Ints, tids: Ints, *, atomic: bool = False
    ) -> tuple[int, int, int] | None:
        writer = self.writer[index]
        known = clocks.vc[tids, writer]
        bad = (writer >= 0) & (writer != tids) & (known < self.clock[index])
        if atomic:
            bad &= ~self.atomic[index]
        return _first(bad, index, tids, writer)

    def _unread(self, clocks: Clocks, index: Ints, tids: Ints) -> tuple[int, int, int] | None:
        if not self.reads:
            return None
        where, readers, when = (np.concatenate(column) for column in zip(*self.reads, strict=True))
        writer_of = np.full(len(self.writer), -1, dtype=np.int64)
        writer_of[index] = tids
        writer = writer_of[where]
        hit = writer >= 0
        bad = hit & (writer != readers) & (clocks.vc[np.maximum(writer, 0), readers] < when)
        keep = ~hit
        self.reads = [(where[keep], readers[keep], when[keep])]
        return _first(bad, where, writer, readers)


class PeerAccesses:
    """When one shared array was touched by its own block and by its peers, in barriers of the cluster passed before."""

    def __init__(self, elements: int) -> None:
        self.own = np.full(elements, -1, dtype=np.int64)
        self.peers = np.full(elements, -1, dtype=np.int64)
        self.writer = np.full(elements, -1, dtype=np.int64)

    def touch(self, epoch: int, index: Ints, tids: Ints) -> tuple[int, int, int] | None:
        """An access by threads of the own block. Returns (element, thread, writer) of a race, or None."""
        race = _first(self.peers[index] == epoch, index, tids, self.writer[index])
        self.own[index] = epoch
        return race

    def store(self, epoch: int, index: Ints, writers: Ints) -> tuple[int, int, int] | None:
        """A write by ``writers``, threads of other blocks numbered across the cluster.

        Returns (element, writer, other) of a race, or None; other is -1 for the own block.
        """
        before = np.where(self.own[index] == epoch, -1, self.writer[index])
        bad = (self.own[index] == epoch) | ((self.peers[index] == epoch) & (before != writers))
        race = _twice(index, writers) or _first(bad, index, writers, before)
        self.peers[index] = epoch
        self.writer[index] = writers
        return race


def _twice(index: Ints, tids: Ints) -> tuple[int, int, int] | None:
    """(element, thread, other thread) of an element that two threads write at once, or None."""
    order = np.argsort(index, kind="stable")
    same = (index[order][1:] == index[order][:-1]) & (tids[order][1:] != tids[order][:-1])
    return _first(same, index[order][1:], tids[order][1:], tids[order][:-1])


def _first(bad: NDArray[np.bool_], index: Ints, one: Ints, other: Ints) -> tuple[int, int, int] | None:
    if not bad.any():
        return None
    k = int(np.argmax(bad))
    return int(index[k]), int(one[k]), int(other[k])
