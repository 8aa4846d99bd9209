"""Runs a kernel block after block, the blocks of a cluster side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

import emmy.ir.interp.pipeline
import emmy.ir.interp.tensor  # noqa: F401 - both add the statements they execute
from emmy.ir.interp.cluster import check_ended
from emmy.ir.interp.errors import Deadlock, Misuse
from emmy.ir.interp.execute import run_strand
from emmy.ir.interp.machine import Block, Cluster, Pointer, Strand
from emmy.ir.interp.memory import INTERNAL, Memory, global_memory, shared_memory
from emmy.ir.interp.races import PeerAccesses
from emmy.ir.kernel import BufferParam, Kernel, ScalarParam


def run_kernel(
    kernel: Kernel,
    grid: tuple[int, ...],
    args: Mapping[str, Any],
    *,
    blocks: Iterable[tuple[int, int, int]] | None = None,
    races: bool = True,
) -> None:
    """Executes ``kernel`` on ``grid`` blocks (x, y, z; missing ones are 1), writing into the arrays of ``args``.

    args: by parameter name: contiguous arrays of the storage type (bfloat16 as float32, see numpy_dtype), numbers, and
    emmy.ir.interp.tensor_map.TensorMap values.
    blocks: run only these blocks (a sample), and those of their clusters; all by default.
    races: look for accesses to shared memory that no barrier orders.

    Raises a KernelFault: OutOfBounds, PoisonRead, DataRace, Divergence, Deadlock, Misuse.
    """
    memories: dict[str, Memory] = {}
    names: dict[str, Any] = {}
    for param in kernel.params:
        if param.name not in args:
            raise Misuse(f"{kernel.name}: no argument {param.name}", found=", ".join(args))
        match param:
            case BufferParam(name, dtype, writable):
                memories[name] = global_memory(name, dtype, args[name], writable)
            case ScalarParam(name, dtype):
                names[name] = INTERNAL[dtype](args[name])
            case _:
                names[param.name] = args[param.name]
    whole = (*grid, 1, 1, 1)[:3]
    if whole[2] % kernel.cluster:
        raise Misuse(f"{kernel.name}: a grid of whole clusters", found=whole[2], expected=f"z of {kernel.cluster} * n")
    if blocks is None:
        blocks = ((x, y, z) for z in range(whole[2]) for y in range(whole[1]) for x in range(whole[0]))
    done = set()
    for x, y, z in blocks:
        first = (x, y, z - z % kernel.cluster)
        if kernel.cluster == 1 or first not in done:
            run_cluster(kernel, first, memories, names, races)
            done.add(first)


def run_cluster(
    kernel: Kernel, first: tuple[int, int, int], memories: dict[str, Memory], names: dict[str, Any], races: bool
) -> None:
    """Runs the cluster of block ``first``: each block until it has to wait, and again, until all have ended."""
    x, y, z = first
    strands = [start_block(kernel, (x, y, z + rank), memories, names, races) for rank in range(kernel.cluster)]
    cluster = Cluster([strand.block for strand in strands])
    if kernel.cluster > 1:
        for rank, block in enumerate(cluster.blocks):
            block.cluster, block.rank = cluster, rank
            for memory in block.shared.values():
                memory.peers = PeerAccesses(memory.values.size) if races else None
    running = [(strand, run_strand(strand, kernel.body)) for strand in strands]
    while running:
        arrivals, waits, left = [block.arrivals for block in cluster.blocks], [], []
        for strand, steps in running:
            what = next(steps, None)
            if what is not None:
                left.append((strand, steps))
                waits.append(what)
        if len(left) == len(running) and arrivals == [block.arrivals for block in cluster.blocks]:
            raise left[0][0].fault(Deadlock, f"nothing can end the wait for {'; '.join(dict.fromkeys(waits))}")
        running = left
    check_ended(cluster)


def start_block(
    kernel: Kernel, index: tuple[int, int, int], memories: dict[str, Memory], names: dict[str, Any], races: bool
) -> Strand:
    """The strand of all threads of a block that has executed nothing yet."""
    block = Block(kernel, index, races)
    width = kernel.block[0]
    indices: dict[str, Any] = {"tid": block.tid, "tx": block.tid % width, "ty": block.tid // width}
    indices |= {name: np.int64(at) for name, at in zip(("bx", "by", "bz"), index, strict=True)}
    for array in kernel.shared:
        block.shared[array.name] = shared_memory(array.name, array.dtype, array.elements, races)
    pointers = {name: Pointer(memory, np.int64(0)) for name, memory in (memories | block.shared).items()}
    everyone = np.ones(block.threads, dtype=bool)
    return Strand(block, everyone, everyone.copy(), {**names, **indices}, pointers, {})
