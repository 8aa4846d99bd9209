"""Rings, roles, asynchronous copies and mbarriers.

Copies in flight poison what they will write, and their data appear only when the proper wait is passed. A released slot
is poisoned. A strand that has to wait yields; when every role waits, that is a deadlock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emmy.ir.dtype import DType
from emmy.ir.expr import Expr
from emmy.ir.interp.errors import Deadlock, Divergence, Misuse, OutOfBounds
from emmy.ir.interp.evaluate import condition, evaluate
from emmy.ir.interp.execute import ENDINGS, HANDLERS, WAITING, run_body, run_strand
from emmy.ir.interp.machine import Strand
from emmy.ir.interp.memory import Array, Memory
from emmy.ir.pipeline import (
    Acquire,
    BarrierArrive,
    BarrierExpect,
    BarrierFence,
    BarrierInit,
    BarrierStmt,
    BarrierWait,
    Commit,
    Copy,
    CopyCommit,
    CopyWait,
    Fill,
    Release,
    Ring,
    RingStmt,
    Roles,
    SetRegisters,
    TensorCopy,
    Wait,
)

Waits = Iterator[str]


@dataclass(slots=True)
class Delivery:
    """A copy that was issued and whose data have not appeared yet."""

    memory: Memory
    tids: Array
    index: Array
    values: Array

    def appear(self, strand: Strand, writer: int | None = None) -> None:
        """The data are there now. ``writer``: the copy engine; None: the threads that issued the copy."""
        strand.touch(self.memory, self.tids, self.index, "has copied")
        self.memory.values[self.index] = self.memory.stored(self.values)
        if self.memory.poison is not None:
            self.memory.poison[self.index] = False
        if self.memory.unfenced is not None:
            self.memory.unfenced[self.index] = writer is None
        accesses, clocks = self.memory.accesses, strand.block.clocks
        if accesses is not None and clocks is not None and writer is None:
            accesses.clock[self.index] = clocks.own(self.tids)[:, None]


def launch(strand: Strand, memory: Memory, tids: Array, index: Array, values: Array) -> Delivery:
    """Begins a copy into ``index`` (threads, lanes): from now on the elements hold nothing."""
    strand.note_write(memory, tids, index)
    if memory.poison is not None:
        memory.poison[index] = True
    return Delivery(memory, tids, index, values)


def uniform(strand: Strand, expr: Expr, what: str) -> int:
    """The value of ``expr``, the same for all active threads. Raises Divergence."""
    values = strand.threadwise(evaluate(strand, expr))[strand.mask]
    if (values != values[0]).any():
        raise strand.fault(Divergence, f"{what} differs among threads")
    return int(values[0])


# ------------------------------------------------------------------------------------------------------- rings


@dataclass(slots=True)
class Slot:
    """A ring's slot: the step it holds, copies on their way, and how many consumers have released it."""

    step: int | None = None
    committed: bool = False
    delivered: bool = False
    released: int = 0
    pending: list[Delivery] = field(default_factory=list)
    filled_clock: Any = None
    free_clock: Any = None


@dataclass(slots=True)
class RingState:
    ring: Ring
    slots: list[Slot]


def _ring(strand: Strand, stmt: Ring) -> None:
    for name in stmt.buffers:
        memory = strand.pointer(name).memory
        if memory.values.size % stmt.depth:
            raise strand.fault(Misuse, f"{name} does not divide into {stmt.depth} slots")
    strand.block.state[stmt.name] = RingState(stmt, [Slot() for _ in range(stmt.depth)])


def _state(strand: Strand, stmt: RingStmt) -> tuple[RingState, Slot, int]:
    state = strand.block.state.get(stmt.ring)
    if not isinstance(state, RingState):
        raise strand.fault(Misuse, f"no ring {stmt.ring}")
    step = uniform(strand, stmt.step, "the step of a ring")
    return state, state.slots[step % state.ring.depth], step


def _acquire(strand: Strand, stmt: Acquire) -> Waits:
    _, slot, step = _state(strand, stmt)
    while slot.step is not None:
        yield f"slot of step {slot.step} of ring {stmt.ring} to be released"
    slot.step, slot.committed, slot.delivered, slot.released = step, False, False, 0
    clocks = strand.block.clocks
    if clocks is not None and slot.free_clock is not None:
        clocks.learn(strand.active, slot.free_clock)


def _fill(strand: Strand, stmt: Fill) -> Waits:
    state, slot, step = _state(strand, stmt)
    if slot.step != step or slot.committed:
        raise strand.fault(Misuse, f"step {step} of ring {stmt.ring} is filled without being acquired")
    outer = strand.mask
    if state.ring.transport == "tma":
        strand.mask = np.zeros_like(outer)
        strand.mask[np.argmax(outer)] = True
    strand.filling = slot.pending
    yield from run_body(strand, stmt.body)
    strand.filling = None
    strand.mask = outer


def _commit(strand: Strand, stmt: Commit) -> None:
    _, slot, step = _state(strand, stmt)
    if slot.step != step:
        raise strand.fault(Misuse, f"step {step} of ring {stmt.ring} is committed without being acquired")
    slot.committed = True
    clocks = strand.block.clocks
    if clocks is not None:
        slot.filled_clock = clocks.joined(strand.active)
        clocks.tick(strand.active)
    strand.block.progress()


def _wait(strand: Strand, stmt: Wait) -> Waits:
    _, slot, step = _state(strand, stmt)
    while slot.step != step or not slot.committed:
        yield f"step {step} of ring {stmt.ring} to be filled"
    if not slot.delivered:
        for delivery in slot.pending:
            delivery.appear(strand, strand.block.threads)
        slot.pending.clear()
        slot.delivered = True
    if strand.block.clocks is not None:
        strand.block.clocks.learn(strand.active, slot.filled_clock)


def _release(strand: Strand, stmt: Release) -> None:
    state, slot, step = _state(strand, stmt)
    if slot.step != step or not slot.delivered:
        raise strand.fault(Misuse, f"step {step} of ring {stmt.ring} is released without having been waited for")
    slot.released += int(strand.mask.sum())
    clocks = strand.block.clocks
    if clocks is not None:
        known = clocks.joined(strand.active)
        slot.free_clock = known if slot.free_clock is None else np.maximum(slot.free_clock, known)
        clocks.tick(strand.active)
    if slot.released > state.ring.consumers:
        raise strand.fault(Misuse, f"ring {stmt.ring} is released by {slot.released} threads",
                           expected=state.ring.consumers)  # fmt: skip
    if slot.released == state.ring.consumers:
        slot.step = None
        number = step % state.ring.depth
        for name in state.ring.buffers:
            memory = strand.pointer(name).memory
            size = memory.values.size // state.ring.depth
            if memory.poison is not None:
                memory.poison[number * size : (number + 1) * size] = True
    strand.block.progress()


# ------------------------------------------------------------------------------------------------------ copies


def _copy(strand: Strand, stmt: Copy) -> None:
    to, start = strand.pointer(stmt.buffer), strand.pointer(stmt.source)
    if to.memory.dtype != stmt.dtype or start.memory.dtype != stmt.dtype:
        found = f"{start.memory.dtype.value} to {to.memory.dtype.value}"
        raise strand.fault(Misuse, "a copy between types", found=found, expected=stmt.dtype.value)
    if stmt.transport == "async" and stmt.nbytes not in (4, 8, 16):
        raise strand.fault(Misuse, f"an asynchronous copy of {stmt.nbytes} bytes", expected="4, 8 or 16")
    tids, index = strand.element_index(to, evaluate(strand, stmt.offset), stmt.lanes, strand.mask, True)
    values = np.zeros((strand.block.threads, stmt.lanes), dtype=np.float64 if stmt.dtype == DType.F64 else np.float32)
    if stmt.dtype.is_int or stmt.dtype == DType.BOOL:
        values = values.astype(np.int64)
    mask = condition(strand, stmt.guard)
    readers, source = strand.element_index(start, evaluate(strand, stmt.source_offset), stmt.lanes, mask, True)
    values[readers] = strand.read(start.memory, readers, source)
    if strand.filling is not None:
        strand.filling.append(launch(strand, to.memory, tids, index, values[tids]))
    elif stmt.transport == "async":
        strand.copies.append(launch(strand, to.memory, tids, index, values[tids]))
    else:
        strand.write(to.memory, tids, index, values[tids])


def _copy_commit(strand: Strand, stmt: CopyCommit) -> None:
    if (strand.mask != strand.members).any():
        raise strand.fault(Divergence, "a copy group is committed by a part of the threads")
    strand.copy_groups.append(strand.copies)
    strand.copies = []


def _copy_wait(strand: Strand, stmt: CopyWait) -> None:
    if (strand.mask != strand.members).any():
        raise strand.fault(Divergence, "copy groups are waited for by a part of the threads")
    done = strand.copy_groups[: max(0, len(strand.copy_groups) - stmt.pending)]
    strand.copy_groups = strand.copy_groups[len(done) :]
    for group in done:
        for delivery in group:
            delivery.appear(strand)


def _tensor_copy(strand: Strand, stmt: TensorCopy) -> None:
    tids = strand.active
    if len(tids) != 1:
        raise strand.fault(Divergence, f"a tensor copy is issued by {len(tids)} threads", expected=1)
    to = strand.pointer(stmt.buffer)
    source = strand.names[stmt.map]
    nbytes = to.memory.dtype.nbytes
    start = int(strand.threadwise(evaluate(strand, stmt.offset))[tids[0]] + strand.threadwise(to.base)[tids[0]])
    if start * nbytes % 128:
        raise strand.fault(OutOfBounds, f"a tensor copy to byte {start * nbytes} of {to.memory.name}",
                           expected="a multiple of 128")  # fmt: skip
    coords = tuple(int(strand.threadwise(evaluate(strand, c))[tids[0]]) for c in stmt.coords)
    values = source.read(coords).reshape(1, -1)
    index = source.elements(start, nbytes)[None, :]
    if (index >= to.memory.values.size).any():
        raise strand.fault(OutOfBounds, f"a tensor copy runs past the end of {to.memory.name}")
    delivery = launch(strand, to.memory, tids, index, values)
    accesses, clocks = to.memory.accesses, strand.block.clocks
    if strand.filling is not None:
        strand.filling.append(delivery)
        return
    if accesses is not None and clocks is not None:
        clocks.engine_clock += 1
        accesses.writer[index] = clocks.engine
        accesses.clock[index] = clocks.engine_clock
    barrier = _mbarrier(strand, stmt.barrier, uniform(strand, stmt.index, "an mbarrier"))
    barrier.deliveries.append((delivery, values.size * nbytes, clocks.engine_clock if clocks else 0))


# -------------------------------------------------------------------------------------------------- mbarriers


@dataclass(slots=True)
class Mbarrier:
    """An mbarrier: phases completed, arrivals and bytes still expected in this one, and what its waiters learn."""

    count: int
    pending: int
    tx_bytes: int = 0
    phase: int = 0
    deliveries: list[tuple[Delivery, int, int]] = field(default_factory=list)
    clock: Any = None
    completed_clock: Any = None


def _mbarrier(strand: Strand, name: str, index: int) -> Mbarrier:
    barrier = strand.block.state.get((name, index))
    if not isinstance(barrier, Mbarrier):
        raise strand.fault(Misuse, f"mbarrier {name}[{index}] is used before it is set up")
    memory = strand.pointer(name).memory
    if memory.accesses is not None and strand.block.clocks is not None:
        tids = strand.active
        at = np.full(len(tids), index, dtype=np.int64)
        strand.race(memory, memory.accesses.read(strand.block.clocks, at, tids), "uses")
        memory.accesses.reads.clear()
    return barrier


def _learn(strand: Strand, barrier: Mbarrier, clock: Any) -> None:
    barrier.clock = clock if barrier.clock is None else np.maximum(barrier.clock, clock)


def _complete(strand: Strand, barrier: Mbarrier) -> None:
    if barrier.pending == 0 and barrier.tx_bytes == 0:
        barrier.phase += 1
        barrier.pending = barrier.count
        barrier.completed_clock, barrier.clock = barrier.clock, None
        strand.block.progress()


def _barrier_init(strand: Strand, stmt: BarrierInit) -> None:
    index = uniform(strand, stmt.index, "an mbarrier")
    memory = strand.pointer(stmt.barrier).memory
    if not 0 <= index < memory.values.size:
        raise strand.fault(OutOfBounds, f"mbarrier {index} of {memory.name}")
    strand.note_write(memory, strand.active, np.full((len(strand.active), 1), index))
    strand.block.state[(stmt.barrier, index)] = Mbarrier(stmt.count, stmt.count)


def _arrive(strand: Strand, stmt: BarrierStmt, nbytes: int) -> None:
    barrier = _mbarrier(strand, stmt.barrier, uniform(strand, stmt.index, "an mbarrier"))
    arrivals = int(strand.mask.sum())
    if arrivals > barrier.pending:
        raise strand.fault(Misuse, f"mbarrier {stmt.barrier}: {arrivals} arrivals where {barrier.pending} are missing")
    barrier.pending -= arrivals
    barrier.tx_bytes += nbytes
    clocks = strand.block.clocks
    if clocks is not None:
        _learn(strand, barrier, clocks.joined(strand.active))
        clocks.tick(strand.active)
    strand.block.progress()
    _complete(strand, barrier)


def _barrier_expect(strand: Strand, stmt: BarrierExpect) -> None:
    _arrive(strand, stmt, stmt.nbytes)


def _barrier_arrive(strand: Strand, stmt: BarrierArrive) -> None:
    _arrive(strand, stmt, 0)


def _barrier_wait(strand: Strand, stmt: BarrierWait) -> Waits:
    index = uniform(strand, stmt.index, "an mbarrier")
    parity = uniform(strand, stmt.parity, "a parity")
    barrier = _mbarrier(strand, stmt.barrier, index)
    while barrier.phase % 2 == parity:
        if barrier.deliveries:
            _deliver(strand, barrier)
            continue
        yield f"phase {barrier.phase} of mbarrier {stmt.barrier}[{index}]"
    clocks = strand.block.clocks
    if clocks is not None and barrier.completed_clock is not None:
        clocks.learn(strand.active, barrier.completed_clock)


def _deliver(strand: Strand, barrier: Mbarrier) -> None:
    """Someone waits: the copies that this mbarrier counts arrive now, no earlier."""
    arrived, barrier.deliveries = barrier.deliveries, []
    for delivery, nbytes, clock in arrived:
        delivery.appear(strand, strand.block.threads)
        barrier.tx_bytes -= nbytes
        if strand.block.clocks is not None:
            row = np.zeros(strand.block.threads + 1, dtype=np.int64)
            row[-1] = clock
            _learn(strand, barrier, row)
    _complete(strand, barrier)


# ------------------------------------------------------------------------------------------------------- roles


def _roles(strand: Strand, stmt: Roles) -> Waits:
    threads = strand.block.threads
    covered = np.zeros(threads, dtype=int)
    running: list[tuple[Strand, Waits]] = []
    for role in stmt.roles:
        members = np.zeros(threads, dtype=bool)
        members[role.threads.start : role.threads.stop] = True
        covered += members
        inner = strand.fork(members & strand.mask, role.name)
        running.append((inner, run_strand(inner, role.body)))
    if (covered != 1).any():
        raise strand.fault(Misuse, "roles do not partition the block")
    while running:
        before, waits = strand.block.version, []
        left = []
        for inner, steps in running:
            what = next(steps, None)
            if what is not None:
                left.append((inner, steps))
                waits.append(f"{inner.role} waits for {what}")
        if len(left) == len(running) and strand.block.version == before:
            raise strand.fault(Deadlock, "; ".join(waits))
        running = left
    yield from ()


def _set_registers(strand: Strand, stmt: SetRegisters) -> None:
    strand.together(128, "setmaxnreg")
    if stmt.count % 8 or not 24 <= stmt.count <= 256:
        raise strand.fault(Misuse, f"setmaxnreg {stmt.count}", expected="a multiple of 8 from 24 to 256")


def _nothing(strand: Strand, stmt: BarrierFence) -> None:
    pass


def _ended(strand: Strand) -> None:
    if strand.copies or any(strand.copy_groups):
        raise strand.fault(Misuse, "the kernel ends while asynchronous copies are in flight")
    if strand.role:
        return
    for name, state in strand.block.state.items():
        if isinstance(state, RingState):
            for slot in state.slots:
                if slot.step is not None:
                    raise strand.fault(Misuse, f"step {slot.step} of ring {name} was never released")
        elif isinstance(state, Mbarrier) and state.deliveries:
            raise strand.fault(Misuse, f"the kernel ends while copies counted by mbarrier {name} are in flight")


ENDINGS.append(_ended)
HANDLERS.update({
    Ring: _ring, Commit: _commit, Release: _release, Copy: _copy, CopyCommit: _copy_commit, CopyWait: _copy_wait,
    TensorCopy: _tensor_copy, BarrierInit: _barrier_init, BarrierExpect: _barrier_expect,
    BarrierArrive: _barrier_arrive, BarrierFence: _nothing, SetRegisters: _set_registers,
})  # fmt: skip
WAITING.update({Acquire: _acquire, Fill: _fill, Wait: _wait, BarrierWait: _barrier_wait, Roles: _roles})
