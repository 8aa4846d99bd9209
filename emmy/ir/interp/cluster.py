"""Barriers of a cluster, and stores into the shared memory of another of its blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from emmy.ir.interp.errors import DataRace, Divergence, Misuse, OutOfBounds
from emmy.ir.interp.evaluate import check_offset, condition, evaluate
from emmy.ir.interp.execute import ENDINGS, HANDLERS, WAITING
from emmy.ir.interp.machine import Cluster, Strand
from emmy.ir.interp.memory import Array, Memory
from emmy.ir.kernel import ClusterBarrier, PeerStore

Waits = Iterator[str]


def _cluster(strand: Strand) -> Cluster:
    if strand.block.cluster is None:
        raise strand.fault(Misuse, "the kernel has no clusters")
    return strand.block.cluster


def _barrier(strand: Strand, stmt: ClusterBarrier) -> Waits:
    cluster, block = _cluster(strand), strand.block
    if not strand.mask.all():
        raise strand.fault(Divergence, f"a barrier of the cluster is reached by {int(strand.mask.sum())} of "
                           f"{block.threads} threads")  # fmt: skip
    if block.arrived != (stmt.phase == "wait"):
        raise strand.fault(Misuse, "barriers of the cluster pair an arrive with a wait")
    if stmt.phase != "wait":
        _arrive(strand, cluster, stmt.phase)
    block.arrived = stmt.phase == "arrive"
    if block.arrived:
        return
    while cluster.passed < block.arrivals:
        late = [other.rank for other in cluster.blocks if other.arrivals < block.arrivals]
        yield f"blocks {', '.join(map(str, late))} at the cluster's barrier {block.arrivals}"
    if stmt.phase == "sync" and block.clocks is not None:
        block.clocks.barrier(strand.active)
        for memory in block.shared.values():
            if memory.accesses is not None:
                memory.accesses.ordered_for_all()


def _arrive(strand: Strand, cluster: Cluster, phase: str) -> None:
    block = strand.block
    if block.arrivals == len(cluster.phases):
        cluster.phases.append(phase)
    elif cluster.phases[block.arrivals] != phase:
        raise strand.fault(Misuse, f"the cluster's barrier {block.arrivals + 1} is another one in other blocks",
                           found=phase, expected=cluster.phases[block.arrivals])  # fmt: skip
    block.arrivals += 1
    if phase == "sync" and cluster.passed == block.arrivals:
        cluster.epoch += 1


def _peer_store(strand: Strand, stmt: PeerStore) -> None:
    cluster, block = _cluster(strand), strand.block
    pointer = strand.pointer(stmt.buffer)
    if pointer.memory.space != "shared" or pointer.memory.dtype != stmt.dtype:
        raise strand.fault(Misuse, f"a store to a peer's {pointer.memory.name}",
                           expected=f"a shared array of {stmt.dtype.value}")  # fmt: skip
    if block.arrivals == int(block.arrived):
        raise strand.fault(Misuse, "a store to a peer that may not have started",
                           hint="wait at a barrier of the cluster first")  # fmt: skip
    mask, lanes = condition(strand, stmt.guard), stmt.value.lanes
    offset = evaluate(strand, stmt.offset)
    check_offset(strand, stmt.offset, offset, mask)
    tids, index = strand.element_index(pointer, offset, lanes, mask, stmt.aligned)
    values = strand.threadwise(evaluate(strand, stmt.value), lanes).reshape(block.threads, lanes)[tids]
    ranks = strand.threadwise(evaluate(strand, stmt.rank))[tids]
    outside = (ranks < 0) | (ranks >= len(cluster.blocks))
    if outside.any():
        raise strand.fault(OutOfBounds, f"thread {int(tids[outside][0])} stores to a block outside the cluster",
                           found=f"rank {int(ranks[outside][0])}",
                           expected=f"0 … {len(cluster.blocks) - 1}")  # fmt: skip
    for rank in np.unique(ranks):
        mine = ranks == rank
        memory = cluster.blocks[rank].shared[pointer.memory.name]
        if rank == block.rank:
            strand.write(memory, tids[mine], index[mine], values[mine])
        else:
            _write(strand, cluster, memory, tids[mine], index[mine], values[mine])
            cluster.stored = (cluster.epoch, strand, stmt)


def _write(strand: Strand, cluster: Cluster, memory: Memory, tids: Array, index: Array, values: Array) -> None:
    threads = strand.block.threads
    if memory.peers is not None:
        writers = np.repeat(tids, index.shape[1]) + strand.block.rank * threads
        found = memory.peers.store(cluster.epoch, index.reshape(-1), writers)
        if found is not None:
            element, writer, other = found
            by = "that block itself" if other < 0 else f"thread {other % threads} of block {other // threads}"
            raise strand.fault(DataRace, f"thread {writer % threads} writes element {element} of a peer's "
                               f"{memory.name}, touched by {by} with no sync of the cluster between")  # fmt: skip
    memory.values[index] = memory.stored(values)
    if memory.poison is not None:
        memory.poison[index] = False
    if memory.unfenced is not None:
        memory.unfenced[index] = True


def check_ended(cluster: Cluster) -> None:
    """All blocks have run to their end. Raises Misuse where a store may have come after the end of its target."""
    if cluster.stored is not None and cluster.stored[0] == cluster.epoch:
        _, strand, stmt = cluster.stored
        strand.stmt = stmt
        raise strand.fault(Misuse, "a store to a peer that may have ended", hint="a sync of the cluster must follow")


def _ended(strand: Strand) -> None:
    if strand.block.arrived and not strand.role:
        raise strand.fault(Misuse, "the kernel ends between an arrival at a barrier of the cluster and its wait")


ENDINGS.append(_ended)
HANDLERS[PeerStore] = _peer_store
WAITING[ClusterBarrier] = _barrier
