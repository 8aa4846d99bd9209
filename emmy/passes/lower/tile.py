"""What every tile kernel of a contraction has in common: plan, block order, splits, epilogue and its finalising kernel.

A subclass holds the leaf's parameters and emits the accumulation; where its accumulators lie is its own business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from emmy.ir.dtype import DType
from emmy.ir.expr import (
    Call,
    Const,
    Expr,
    Lane,
    Load,
    Mem,
    Splat,
    Var,
    add,
    call,
    cast,
    ceil_div,
    evaluate_int,
    i32,
    is_const,
    minimum,
    mul,
    sub,
    transform,
    walk,
)
from emmy.ir.kernel import BX, BZ, TX, BufferParam, For, If, Kernel, Let, RegArray, RegSet, ScalarParam, Stmt, Store
from emmy.ir.nest import Axis, Region, Tensor
from emmy.ir.plan import Launch, Memset, Plan, Step, Workspace
from emmy.passes.contraction import Contraction
from emmy.passes.lower.access import Memory, Point, affine, flat_offset, wide
from emmy.passes.lower.smooth import smooth


class TileLeaf(Protocol):
    """What the shared parts read of a leaf. k: elements of a k step. group: rows of blocks a group, 0: row-major.
    finished_elsewhere: the tile kernel leaves parts of sums, and has no epilogue.

    how: what joins the parts of a split: ``k`` a finalising kernel, ``a`` atomics, ``c`` the blocks of a cluster.
    """

    @property
    def block_m(self) -> int: ...
    @property
    def block_n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def split(self) -> int: ...
    @property
    def how(self) -> str: ...
    @property
    def group(self) -> int: ...
    @property
    def finished_elsewhere(self) -> bool: ...


class TileLowering:
    """One contraction lowered to a kernel whose blocks make tiles of the output."""

    def __init__(self, problem: Contraction, leaf: TileLeaf, name: str) -> None:
        self.p, self.tile, self.name = problem, leaf, name
        self.region: Region = problem.region
        self.memory = Memory.of(self.region)
        self.dtype = problem.comp.dtype.compute
        self.m, self.n, self.k = problem.m, problem.n, problem.k

    # ------------------------------------------------------------------------------------------------- plan

    def tile_kernel(self) -> Kernel:
        """The kernel that makes the tiles (of partial sums where the leaf is split)."""
        raise NotImplementedError

    def final_shape(self) -> tuple[int, int]:
        """(threads, lanes a thread) of the finalising kernel; N is a multiple of the lanes."""
        raise NotImplementedError

    def plan(self, knobs: str) -> Plan:
        region, leaf = self.region, self.tile
        batch, m, n, k = self.p.sizes
        flops = 2 * batch * m * n * k
        nbytes = sum(region_bytes(t, region) for t in (*region.inputs, *(o.tensor for o in region.outputs)))
        blocks_m, blocks_n = ceil_div(self.m.extent, leaf.block_m), ceil_div(self.n.extent, leaf.block_n)
        depth: Expr = i32(leaf.split)
        for axis in self.p.outer:
            depth = mul(depth, axis.extent)
        grid = (mul(blocks_m, blocks_n), i32(1), depth)
        steps: list[Step] = []
        workspaces: tuple[Workspace, ...] = ()
        kernel = self.tile_kernel()
        if leaf.split > 1 and leaf.how == "a":
            steps.append(Memset(region.outputs[0].tensor.name, 0))
            steps.append(Launch(kernel, grid, self.bind(kernel)))
        elif leaf.split > 1 and leaf.how == "k":
            partial = self.partial()
            workspaces = (Workspace(partial.name, self.dtype, partial.elements()),)
            final, final_grid = self.final_kernel(partial)
            steps += [Launch(kernel, grid, self.bind(kernel)), Launch(final, final_grid, self.bind(final))]
        else:
            steps.append(Launch(kernel, grid, self.bind(kernel)))
        return Plan(
            self.name, region.symbols, region.inputs, tuple(o.tensor for o in region.outputs), workspaces,
            tuple(steps), knobs, deterministic=not (leaf.split > 1 and leaf.how == "a"), flops=flops, bytes_min=nbytes,
        )  # fmt: skip

    def bind(self, kernel: Kernel) -> tuple[str, ...]:
        return tuple(p.name for p in kernel.params)

    def params(self, reads: tuple[str, ...], writes: tuple[str, ...]) -> tuple[BufferParam | ScalarParam, ...]:
        buffers = [BufferParam(t, self.memory.tensors[t].dtype) for t in reads]
        buffers += [BufferParam(t, self.memory.tensors[t].dtype, writable=True) for t in writes]
        return (*buffers, *(ScalarParam(s.name) for s in self.region.symbols))

    def operand_reads(self) -> list[str]:
        """Tensors that the factors read."""
        return [load.tensor for expr in (self.p.a, self.p.b) for load in loads_of(expr)]

    def epilogue_reads(self) -> list[str]:
        """Tensors that the epilogue reads, without the contraction's own result."""
        reads = [load.tensor for _, expr, _ in self.p.epilogue if expr is not None for load in loads_of(expr)]
        return [name for name in reads if name.split(".")[0] != self.p.comp.name]

    def partial(self) -> Tensor:
        """The workspace of a split: (split, outer…, m, n) partial sums."""
        shape = (i32(self.tile.split), *(a.extent for a in self.p.outer), self.m.extent, self.n.extent)
        tensor = Tensor("partial", shape, self.dtype)
        self.memory.tensors["partial"] = tensor
        return tensor

    def partial_offset(self, env: dict[str, Expr]) -> Expr:
        """Element of the workspace for part ``part`` at the axes' indices in ``env``."""
        axes = (*(a.name for a in self.p.outer), self.m.name, self.n.name)
        flat = flat_offset(self.memory.tensors["partial"], (Var("part"), *(env.get(a, i32(0)) for a in axes)))
        return wide(flat) if self.memory.big else flat

    # ------------------------------------------------------------------------------------------------ blocks

    def divides(self, axis: Axis, size: int) -> bool:
        return isinstance(axis.extent, Const) and axis.extent.value % size == 0

    def block_env(self, body: list[Stmt]) -> dict[str, Expr]:
        """Lets for the block's tile origin (m0, n0), outer indices and split; returns the outer axes' indices."""
        leaf = self.tile
        blocks_n = ceil_div(self.n.extent, leaf.block_n)
        blocks_m = ceil_div(self.m.extent, leaf.block_m)
        if leaf.group:
            # grouped order: `group` rows of blocks are walked column by column, so that they share b's columns
            span = Let("span", mul(i32(leaf.group), blocks_n))
            first = Let("first", mul(call("floordiv", BX, span.var), i32(leaf.group)))
            height = Let("height", minimum(i32(leaf.group), sub(blocks_m, first.var)))
            inside = Let("inside", call("mod", BX, span.var))
            body += [span, first, height, inside]
            tile_m = add(first.var, call("mod", inside.var, height.var))
            tile_n = call("floordiv", inside.var, height.var)
        else:
            tile_m, tile_n = call("floordiv", BX, blocks_n), call("mod", BX, blocks_n)
        body.append(Let("m0", mul(tile_m, i32(leaf.block_m))))
        body.append(Let("n0", mul(tile_n, i32(leaf.block_n))))
        rest: Expr = BZ
        if leaf.split > 1:
            body.append(Let("part", call("mod", rest, i32(leaf.split))))
            rest = call("floordiv", rest, i32(leaf.split))
        return self.outer_env(body, rest)

    def outer_env(self, body: list[Stmt], rest: Expr) -> dict[str, Expr]:
        """Lets for the outer axes' indices, of which ``rest`` is the linear number."""
        env: dict[str, Expr] = {}
        for axis in reversed(self.p.outer):
            let = Let(f"o_{axis.name}", call("mod", rest, axis.extent) if axis is not self.p.outer[0] else rest)
            body.append(let)
            env[axis.name] = let.var
            rest = call("floordiv", rest, axis.extent)
        return env

    def whole_steps(self) -> int | None:
        """Steps of every block's k range, where all are whole and their number is known; else None."""
        extent, step = self.k.extent, self.tile.k * self.tile.split
        return int(extent.value) // step if isinstance(extent, Const) and extent.value % step == 0 else None

    def k_range(self, body: list[Stmt]) -> tuple[Expr, Expr]:
        """First and one past the last k of this block; parts are multiples of the k step."""
        extent = self.k.extent
        if self.tile.split == 1:
            return i32(0), extent
        if (steps := self.whole_steps()) is not None:
            begin = Let("k_begin", mul(Var("part"), i32(steps * self.tile.k)))
            body.append(begin)
            return begin.var, add(begin.var, i32(steps * self.tile.k))
        share = mul(ceil_div(ceil_div(extent, self.tile.split), self.tile.k), i32(self.tile.k))
        start = Let("k_begin", minimum(mul(Var("part"), share), extent))
        stop = Let("k_end", minimum(add(start.var, share), extent))
        body += [start, stop]
        return start.var, stop.var

    # ---------------------------------------------------------------------------------------------- epilogue

    def read_ahead(self, load: Load, point: Point) -> Expr | None:
        """What the epilogue reads at ``point``, where the kernel holds it in registers by then."""
        return None

    def epilogue_value(self, expr: Expr | None, value: Expr, point: Point) -> Expr:
        """``expr`` (None: the identity) applied to the contraction's ``value`` at ``point``."""
        if expr is None:
            return value

        columns = [point.lane(lane).env[self.n.name] for lane in range(point.lanes)] if point.axis else []

        def read(load: Load, at: Point) -> Expr | None:
            if load.tensor.split(".")[0] != self.p.comp.name:
                return self.read_ahead(load, at)
            # a choice of reads that may lie outside is made lane by lane
            single = value.lanes > 1 and not at.axis and bool(columns)
            return Lane(value, columns.index(at.env[self.n.name])) if single else value

        return self.wide_reads(smooth(self.memory.value(expr, point, read)), expr, point)

    def write_cell(self, value: Expr, point: Point, guard: Expr | None) -> list[Stmt]:
        """Epilogue and store of one cell or vector of cells for every output."""
        out: list[Stmt] = []
        for output, expr, axes in self.p.epilogue:
            result = cast(self.epilogue_value(expr, value, point), output.tensor.dtype.compute)
            out += self.store(output.tensor, axes, result, point, guard)
        return out

    def store(self, tensor: Tensor, axes: tuple[str, ...], value: Expr, point: Point, guard: Expr | None) -> list[Stmt]:
        """Stores a vector along n: one wide store where the output's n stride is one, single lanes otherwise."""
        index = tuple(Var(axis) if axis else i32(0) for axis in axes)
        reference = Load(tensor.name, index, tensor.dtype)
        stride = self.memory.stride(reference, self.n.name)
        if value.lanes == 1 and point.lanes > 1:
            value = Splat(value, point.lanes)
        if point.lanes == 1 or (stride is not None and is_const(stride, 1)):
            whole = self.whole_vectors(reference, point)
            offset = self.memory.offset(tensor.name, index, point.env)
            return [Store(tensor.name, offset, value, tensor.dtype, guard, aligned=whole)]
        return [
            Store(
                tensor.name,
                self.memory.offset(tensor.name, index, point.lane(lane).env),
                Lane(value, lane),
                tensor.dtype,
                guard,
            )
            for lane in range(point.lanes)
        ]

    def whole_vectors(self, load: Load, point: Point) -> bool:
        """Whether a vector of the point's lanes along n is one aligned access of ``load``'s tensor."""
        return point.lanes > 1 and point.axis == self.n.name and vector_fits(self.memory, load, self.n, point.lanes)

    def wide_reads(self, value: Expr, source: Expr, point: Point) -> Expr:
        """``value``, made of ``source`` at a point that starts at a multiple of its lanes: aligned reads are marked."""
        whole: dict[str, bool] = {}
        for load in loads_of(source):
            if load.tensor in self.memory.tensors and is_const(self.memory.stride(load, point.axis) or i32(0), 1):
                whole[load.tensor] = whole.get(load.tensor, True) and self.whole_vectors(load, point)
        return (
            with_aligned(value, point.lanes, lambda buffer: whole.get(buffer, False)) if any(whole.values()) else value
        )

    # ------------------------------------------------------------------------------------------------ splits

    def final_kernel(self, partial: Tensor) -> tuple[Kernel, tuple[Expr, Expr, Expr]]:
        """Sums the partial results and applies the epilogue: one thread a vector of ``lanes`` columns of a row."""
        threads, lanes = self.final_shape()
        blocks_n = ceil_div(self.n.extent, threads * lanes)
        # rows and columns share x: y and z of a CUDA grid end at 65535
        body: list[Stmt] = [Let("m0", call("floordiv", BX, blocks_n))]
        column = mul(call("mod", BX, blocks_n), i32(threads))
        body.append(Let("n0", mul(add(column, TX) if threads > 1 else column, i32(lanes))))
        env = self.outer_env(body, BZ)
        env |= {self.m.name: Var("m0"), self.n.name: Var("n0")}
        total = RegArray("total", self.dtype, (1,), lanes, init=0)
        guard = None if self.divides(self.n, threads * lanes) else call("lt", Var("n0"), self.n.extent)
        # a 16-byte access: CUDA reads it whole, OpenCL has vectors of its own
        value = Mem("partial", self.partial_offset(env), self.dtype, lanes, aligned=lanes * self.dtype.nbytes == 16)
        total_at = total.at(0)
        inner: list[Stmt] = [total]
        inner.append(
            For("part", i32(0), i32(self.tile.split), i32(1), (RegSet(total_at, add(total_at, value)),), "hint")
        )
        self.memory.views.clear()
        point = Point(env, self.n.name if lanes > 1 else "", lanes)
        inner += self.write_cell(total_at, point, None)
        body += [If(guard, tuple(inner))] if guard is not None else inner
        params = self.params(
            tuple(dict.fromkeys(["partial", *self.epilogue_reads()])), tuple(o.tensor.name for o in self.region.outputs)
        )
        depth: Expr = i32(1)
        for axis in self.p.outer:
            depth = mul(depth, axis.extent)
        grid = (mul(blocks_n, self.m.extent), i32(1), depth)
        return Kernel(f"{self.name}_final", params, (threads, 1), tuple(body)), grid


def loads_of(expr: Expr) -> list[Load]:
    return [node for node in walk(expr) if isinstance(node, Load)]


def region_bytes(tensor: Tensor, region: Region) -> int:
    """Bytes of a tensor at the hints."""
    return evaluate_int(tensor.elements(), region.hints()) * tensor.dtype.nbytes


def with_aligned(value: Expr, lanes: int, whole: Callable[[str], bool]) -> Expr:
    """``value`` with its reads of ``lanes`` elements marked aligned where ``whole(buffer)`` says they are."""

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Mem) and node.lanes == lanes and lanes > 1 and whole(node.buffer):
            return Mem(node.buffer, node.offset, node.dtype, lanes, node.guard, node.fill, True)
        return None

    return transform(value, rule)


def multiple(expr: Expr, of: int) -> bool:
    """Whether an index expression is provably a multiple of ``of``."""
    match expr:
        case Const(value):
            return value % of == 0
        case Call("mul", (a, b)):
            return multiple(a, of) or multiple(b, of)
        case Call("add" | "sub", (a, b)):
            return multiple(a, of) and multiple(b, of)
        case Call("cast", (a,), dtype) if dtype in (DType.I32, DType.I64):
            return multiple(a, of)
    return of == 1


def vector_fits(memory: Memory, load: Load, along: Axis, lanes: int) -> bool:
    """Whether every vector of ``lanes`` elements along ``along`` from a multiple of ``lanes`` is aligned and inside.

    So it is where the axis runs with stride one and divides into such vectors, and every other stride is a multiple.
    """
    if lanes == 1:
        return True
    if not isinstance(along.extent, Const) or along.extent.value % lanes:
        return False
    names = frozenset(memory.extents)
    parts = affine(flat_offset(memory.tensors[load.tensor], load.index), names)
    if parts is None or not multiple(parts[0], lanes) or not is_const(parts[1].get(along.name, i32(0)), 1):
        return False
    return all(multiple(step, lanes) for name, step in parts[1].items() if name != along.name)
