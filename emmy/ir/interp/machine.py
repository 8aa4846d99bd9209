"""The state of a cluster's blocks while they run: memories, clocks, strands of execution with their masks and names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emmy.ir.dtype import DType
from emmy.ir.interp.errors import DataRace, Divergence, KernelFault, Misuse, OutOfBounds, PoisonRead
from emmy.ir.interp.memory import INTERNAL, Array, Memory
from emmy.ir.interp.races import Clocks
from emmy.ir.kernel import Kernel, Stmt
from emmy.ir.kernel_print import head

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Pointer:
    """A view: the array it points into and the element (a thread each, or common) it starts at."""

    memory: Memory
    base: Any


@dataclass(slots=True)
class Registers:
    """A register array: values and poison, (threads, *shape, lanes)."""

    dtype: DType
    values: Array
    poison: Mask


class Block:
    """What all strands of a block share."""

    def __init__(self, kernel: Kernel, index: tuple[int, int, int], races: bool) -> None:
        self.kernel = kernel
        self.index = index
        self.threads = kernel.threads
        self.tid = np.arange(self.threads, dtype=np.int64)
        self.clocks = Clocks(self.threads) if races else None
        self.shared: dict[str, Memory] = {}
        self.version = 0
        """Rises with everything that may let a waiting strand go on."""
        self.state: dict[Any, Any] = {}
        """Rings by name, mbarriers by (array, index)."""
        self.cluster: Cluster | None = None
        self.rank = 0
        """In the cluster."""
        self.arrivals = 0
        """At barriers of the cluster."""
        self.arrived = False
        """At a barrier of the cluster that it has not waited for."""

    def progress(self) -> None:
        self.version += 1


@dataclass(slots=True)
class Cluster:
    """Blocks, by rank, that run at the same time and write into each other's shared memory."""

    blocks: list[Block]
    phases: list[str] = field(default_factory=list)
    """Of the barriers that some block has arrived at: ``arrive`` or ``sync``."""
    epoch: int = 0
    """Barriers so far that ordered memory."""
    stored: tuple[int, Strand, Stmt] | None = None
    """The last store to a peer, and the epoch it fell into."""

    @property
    def passed(self) -> int:
        """Barriers that every block has arrived at."""
        return min(block.arrivals for block in self.blocks)


@dataclass(slots=True)
class Strand:
    """One stream of control: threads that execute the same statements under a mask."""

    block: Block
    members: Mask
    mask: Mask
    names: dict[str, Any]
    pointers: dict[str, Pointer]
    registers: dict[str, Registers]
    role: str = ""
    stmt: Stmt | None = None
    memo: dict[int, Any] = field(default_factory=dict)
    keep: list[Any] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    """Registers written since the last wgmma fence."""
    filling: list[Any] | None = None
    """Copies of the ring step that is being filled; None outside a fill."""
    copies: list[Any] = field(default_factory=list)
    """Asynchronous copies since the last commit."""
    copy_groups: list[list[Any]] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    """Atoms in flight."""

    def fork(self, members: Mask, role: str) -> Strand:
        """A strand of some of the threads, with names of its own from here on; registers are shared."""
        return Strand(self.block, members, members.copy(), dict(self.names), dict(self.pointers), dict(self.registers),
                      role, touched=set(self.touched))  # fmt: skip

    # ------------------------------------------------------------------------------------------------- failing

    def fault(self, kind: type[KernelFault], message: str, **facts: Any) -> KernelFault:
        """An error that names this block, role and statement."""
        where = f"{self.block.kernel.name}, block {self.block.index}"
        where += f", role {self.role}" if self.role else ""
        statement = head(self.stmt) if self.stmt is not None else "?"
        return kind(f"{message}, in `{statement}` ({where})", **facts)

    @property
    def active(self) -> NDArray[np.int64]:
        """Linear indices of the threads that execute now."""
        return np.flatnonzero(self.mask)

    def together(self, group: int, what: str) -> None:
        """Raises Divergence unless groups of ``group`` consecutive threads are wholly active or wholly idle."""
        counts = self.mask.reshape(-1, group).sum(axis=1)
        if ((counts != 0) & (counts != group)).any():
            raise self.fault(Divergence, f"{what} by a part of {group} threads")

    # -------------------------------------------------------------------------------------------------- values

    def threadwise(self, value: Any, lanes: int = 1) -> Array:
        """``value`` with a thread axis, and a lane axis for vectors."""
        shape = (self.block.threads,) if lanes == 1 else (self.block.threads, lanes)
        array = np.asarray(value)
        if lanes > 1 and array.ndim == 1:
            array = array[:, None]
        return np.broadcast_to(array, shape)

    def pointer(self, buffer: str) -> Pointer:
        if buffer not in self.pointers:
            raise self.fault(Misuse, f"unknown buffer {buffer}")
        return self.pointers[buffer]

    def slots(self, name: str) -> Registers:
        if name not in self.registers:
            raise self.fault(Misuse, f"unknown register array {name}")
        return self.registers[name]

    # -------------------------------------------------------------------------------------------------- memory

    def element_index(
        self, pointer: Pointer, offset: Any, lanes: int, mask: Mask, aligned: bool
    ) -> tuple[Array, Array]:
        """(threads that access, element indices (threads, lanes)). Raises OutOfBounds."""
        memory = pointer.memory
        first = self.threadwise(offset) + self.threadwise(pointer.base)
        tids = np.flatnonzero(mask)
        first = first[tids]
        if aligned and lanes > 1 and (first % lanes).any():
            raise self.fault(OutOfBounds, f"{memory.name}: an aligned access of {lanes} elements",
                             found=f"offset {int(first[(first % lanes) != 0][0])}",
                             expected=f"a multiple of {lanes}")  # fmt: skip
        index = first[:, None] + np.arange(lanes)
        bad = (index < 0) | (index >= memory.values.size)
        if bad.any():
            thread, lane = np.argwhere(bad)[0]
            raise self.fault(OutOfBounds, f"thread {int(tids[thread])} is outside {memory.name}",
                             found=f"element {int(index[thread, lane])}",
                             expected=f"0 … {memory.values.size - 1}")  # fmt: skip
        return tids, index

    def read(self, memory: Memory, tids: Array, index: Array) -> Array:
        """Elements ``index`` (threads, lanes) in the internal type. Raises PoisonRead, DataRace."""
        if memory.poison is not None and (poison := memory.poison[index]).any():
            thread, lane = np.argwhere(poison)[0]
            raise self.fault(PoisonRead, f"thread {int(tids[thread])} reads element {int(index[thread, lane])} of "
                             f"{memory.name}, which holds nothing (yet or any more)")  # fmt: skip
        self.note_read(memory, tids, index)
        return memory.values[index].astype(INTERNAL[memory.dtype])

    def touch(self, memory: Memory, tids: Array, index: Array, verb: str) -> None:
        """An access that races with what peers have written since the cluster's last sync. Raises DataRace."""
        cluster = self.block.cluster
        if memory.peers is None or cluster is None:
            return
        spread = np.repeat(tids, index.shape[1])
        found = memory.peers.touch(cluster.epoch, index.reshape(-1), spread)
        if found is not None:
            element, thread, writer = found
            by = f"written by block {writer // self.block.threads} of the cluster"
            raise self.fault(DataRace, f"thread {thread} {verb} element {element} of {memory.name}, {by} with no sync "
                             f"of the cluster between")  # fmt: skip

    def note_read(self, memory: Memory, tids: Array, index: Array) -> None:
        self.touch(memory, tids, index, "reads")
        if memory.accesses is not None and self.block.clocks is not None:
            spread = np.repeat(tids, index.shape[1])
            self.race(memory, memory.accesses.read(self.block.clocks, index.reshape(-1), spread), "reads")

    def note_write(self, memory: Memory, tids: Array, index: Array, *, atomic: bool = False) -> None:
        self.touch(memory, tids, index, "writes")
        if memory.accesses is not None and self.block.clocks is not None:
            spread = np.repeat(tids, index.shape[1])
            found = memory.accesses.write(self.block.clocks, index.reshape(-1), spread, atomic=atomic)
            self.race(memory, found, "writes")

    def race(self, memory: Memory, found: tuple[int, int, int] | None, verb: str) -> None:
        if found is not None:
            element, thread, other = found
            by = "an asynchronous copy" if other == self.block.threads else f"thread {other}"
            raise self.fault(DataRace, f"thread {thread} {verb} element {element} of {memory.name}, touched by {by} "
                             f"with no barrier between")  # fmt: skip

    def write(self, memory: Memory, tids: Array, index: Array, values: Array) -> None:
        if not memory.writable:
            raise self.fault(Misuse, f"{memory.name} is not writable")
        self.note_write(memory, tids, index)
        memory.values[index] = memory.stored(values)
        if memory.poison is not None:
            memory.poison[index] = False
        if memory.unfenced is not None:
            memory.unfenced[index] = True


Handler = Callable[[Strand, Any], Any]
