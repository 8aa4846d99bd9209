"""Expands rings: a ring loop runs ahead of itself, and its steps become barriers, cp.async groups or mbarrier phases.

Outside roles a loop over a ring of depth d runs d - 1 steps ahead: they are filled before the loop, and each iteration
fills the step d - 1 later right after its first wait, whose barrier also says that the slot is free. A step that reads
registers out of its slot right after the wait, and does something after the release, overlaps with the next one: that
one's wait and first reads move in front of what follows the release. Inside roles the producer's and the consumer's
loop meet at mbarriers only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from emmy.errors import EmmyError
from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Expr, Var, add, call, i32, is_const, lt, mod, select, sub, transform
from emmy.ir.kernel import (
    TID,
    Barrier,
    For,
    If,
    Kernel,
    Let,
    RegArray,
    RegSet,
    Shared,
    Stmt,
    TensorMapParam,
    rewrite,
    statements,
)
from emmy.ir.pipeline import (
    Acquire,
    BarrierArrive,
    BarrierExpect,
    BarrierFence,
    BarrierInit,
    BarrierWait,
    Commit,
    Copy,
    CopyCommit,
    CopyWait,
    Fill,
    Release,
    Ring,
    RingStmt,
    Role,
    Roles,
    SetRegisters,
    TensorCopy,
    Wait,
)
from emmy.passes.expand.needs import pruned, split_definitions, uses
from emmy.passes.expand.unroll import copied

Body = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class _Turn:
    """A step's parts: names, its wait, registers set by the first reads, what else reads the slot, and the rest."""

    names: Body
    wait: Wait
    first: Body
    middle: Body
    last: Body


REGISTERS_OF_SM = 65536


def expand_rings(kernel: Kernel) -> Kernel:
    """``kernel`` without rings. Raises EmmyError for a ring loop of a form that cannot run ahead."""
    rings = {stmt.name: stmt for stmt in statements(kernel.body) if isinstance(stmt, Ring)}
    if not rings and not any(isinstance(stmt, Roles) for stmt in statements(kernel.body)):
        return kernel
    expander = _Expander(kernel, rings)
    body = expander.body(kernel.body, _Place())
    barriers = tuple(
        Shared(name, DType.I64, ring.depth, 8)
        for ring in rings.values()
        if ring.transport == "tma"
        for name in (full(ring), empty(ring))
    )
    return replace(kernel, body=body, shared=(*kernel.shared, *barriers))


def full(ring: Ring) -> str:
    """Name of the mbarriers that say: the slot is filled."""
    return f"{ring.name}_full"


def empty(ring: Ring) -> str:
    """Name of the mbarriers that say: the slot is free."""
    return f"{ring.name}_empty"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a statement stands: in which role, in a loop or not; ``pending``: copy groups in flight at a wait."""

    role: Role | None = None
    looped: bool = False
    pending: tuple[tuple[str, int], ...] = ()
    free: frozenset[str] = frozenset()
    """Rings whose slots are known to be free: an acquire needs no barrier."""


class _Expander:
    def __init__(self, kernel: Kernel, rings: dict[str, Ring]) -> None:
        self.kernel = kernel
        self.rings = rings
        self.taken = {name for stmt in statements(kernel.body) for name in stmt.defines}
        self.boxes = {p.name: p for p in kernel.params if isinstance(p, TensorMapParam)}

    def body(self, stmts: Body, place: _Place) -> Body:
        out: list[Stmt] = []
        for stmt in stmts:
            out += self.stmt(stmt, place)
        return _merged(tuple(out))

    def stmt(self, stmt: Stmt, place: _Place) -> list[Stmt]:
        match stmt:
            case Ring():
                return self.init(stmt)
            case For():
                return self.loop(stmt, place)
            case RingStmt():
                return list(self.step(stmt, self.rings[stmt.ring], place))
            case Role():
                inner = replace(place, role=stmt)
                return [replace(stmt, body=(*self.registers(stmt), *self.body(stmt.body, inner)), registers=0)]
        return [rewrite(stmt, lambda e: e, lambda inner: self.body(inner, place))]

    def registers(self, role: Role) -> list[Stmt]:
        if not role.registers:
            return []
        granted = REGISTERS_OF_SM // self.kernel.threads // 8 * 8
        return [SetRegisters(role.registers, role.registers > granted)]

    # -------------------------------------------------------------------------------------------------------- steps

    def init(self, ring: Ring) -> list[Stmt]:
        if ring.transport != "tma":
            return []
        setup: list[Stmt] = []
        for slot in range(ring.depth):
            setup.append(BarrierInit(full(ring), i32(slot), 1))
            setup.append(BarrierInit(empty(ring), i32(slot), ring.consumers // 32))
        return [If(call("eq", TID, i32(0)), (*setup, BarrierFence())), Barrier()]

    def step(self, stmt: RingStmt, ring: Ring, place: _Place) -> Iterator[Stmt]:
        if ring.transport == "tma":
            yield from self.tma(stmt, ring, place)
            return
        if place.role is not None:
            raise EmmyError(f"{self.kernel.name}: ring {ring.name} crosses roles", found=ring.transport, expected="tma")
        match stmt:
            case Acquire():
                if ring.name not in place.free:
                    yield Barrier()
            case Fill(_, _, body):
                yield from (replace(s, transport=ring.transport) if isinstance(s, Copy) else s
                            for s in self.body(body, place))  # fmt: skip
            case Commit():
                if ring.transport == "async":
                    yield CopyCommit()
            case Wait():
                if ring.transport == "async":
                    yield CopyWait(dict(place.pending).get(ring.name, 0))
                yield Barrier()

    def tma(self, stmt: RingStmt, ring: Ring, place: _Place) -> Iterator[Stmt]:
        slot = ring.slot(stmt.step)
        parity = stmt.step // ring.depth % 2
        leader = call("eq", TID, i32(place.role.threads[0] if place.role else 0))
        match stmt:
            case Acquire():
                yield If(leader, (BarrierWait(empty(ring), slot, call("bitxor", parity, i32(1))),))
            case Fill(_, _, body):
                copies = [replace(c, barrier=full(ring), index=slot) if isinstance(c, TensorCopy) else c for c in body]
                nbytes = sum(self.box_bytes(c) for c in copies if isinstance(c, TensorCopy))
                yield If(leader, (BarrierExpect(full(ring), slot, nbytes), *copies))
            case Wait():
                yield BarrierWait(full(ring), slot, parity)
            case Release():
                yield Barrier("warp")
                yield If(call("eq", TID % 32, i32(0)), (BarrierArrive(empty(ring), slot),))

    def box_bytes(self, copy: TensorCopy) -> int:
        box = self.boxes[copy.map]
        total = box.dtype.nbytes
        for extent in box.box:
            total *= extent
        return total

    # -------------------------------------------------------------------------------------------------------- loops

    def loop(self, stmt: For, place: _Place) -> list[Stmt]:
        inner = replace(place, looped=True)
        filled = [s.ring for s in statements_here(stmt.body) if isinstance(s, Acquire)]
        waited = [s.ring for s in statements_here(stmt.body) if isinstance(s, Wait)]
        ahead = {name: self.rings[name].depth - 1 for name in filled if name in waited}
        if place.role is not None or not any(ahead.values()):
            return [replace(stmt, body=self.body(stmt.body, inner))]
        return self.pipelined(stmt, {name: n for name, n in ahead.items() if n}, place)

    def pipelined(self, stmt: For, ahead: dict[str, int], place: _Place) -> list[Stmt]:
        """The loop with the producers of the rings in ``ahead`` that many iterations early."""
        producers, consumer = split_definitions(stmt.body, frozenset(ahead))
        pending = tuple(_pending(consumer, ahead).items())
        out: list[Stmt] = [Barrier()] if place.looped else []
        early = replace(place, free=place.free | frozenset(ahead))
        for count in range(max(ahead.values())):
            for name, statements_of in producers.items():
                if count < ahead[name]:
                    at = _later(stmt.start, stmt.step, count)
                    out += self.guarded(statements_of, stmt, at, early, f"{name}{count}")
        inside = replace(place, looped=True, pending=pending, free=early.free)
        turned = _turn(consumer, ahead)
        if turned is not None and not uses(turned.last) & {*self.rings[turned.wait.ring].buffers}:
            return [*out, *self.overlapped(stmt, ahead, turned, producers, inside)]
        body: list[Stmt] = []
        for inner in consumer:
            body += self.stmt(inner, inside)
            if isinstance(inner, Wait) and inner.ring in ahead:
                at = _later(_var(stmt), stmt.step, ahead[inner.ring])
                body += self.guarded(producers[inner.ring], stmt, at, inside, f"{inner.ring}_next")
        return [*out, *self.turning(replace(stmt, body=_merged(tuple(body))), ahead)]

    def overlapped(
        self, loop: For, ahead: dict[str, int], turn: _Turn, producers: dict[str, Body], place: _Place
    ) -> list[Stmt]:
        """The loop in which a step's wait and first reads stand before the end of the step before, which covers them.

        The first step's stand before the loop; behind the last one a slot is read that nothing uses.
        """
        ring = turn.wait.ring

        def entry(at: Expr, tag: str) -> list[Stmt]:
            begun = copied((*turn.names, turn.wait, *turn.first), {loop.var: at}, tag, self.taken)
            later = _later(at, loop.step, ahead[ring])
            return [*self.body(begun, place), *self.guarded(producers[ring], loop, later, place, f"{ring}_{tag}")]

        before = entry(loop.start, "first")
        onward = entry(_later(_var(loop), loop.step, 1), "next")
        body = self.body((*turn.names, *turn.middle), place) + tuple(onward) + self.body(turn.last, place)
        return [*before, *self.turning(replace(loop, body=_merged(body)), ahead)]

    def turning(self, loop: For, ahead: dict[str, int]) -> list[Stmt]:
        """``loop`` with the slots it reads and fills carried from step to step.

        A remainder is a division by a constant, some seven instructions, and several of them a step. One by a power of
        two is a mask, out of which the compiler makes an addition and a shift for every access to the slot.
        """
        out: list[Stmt] = []
        for depth in sorted({n + 1 for n in ahead.values()}):
            if not (is_const(loop.start, 0) and is_const(loop.step, 1)):
                continue
            name = next(n for n in (f"turn{depth}", *(f"turn{depth}_{i}" for i in range(99))) if n not in self.taken)
            self.taken |= {name, f"{name}_next", f"{name}_before"}
            slot, last = RegArray(name, DType.I32, (1,), init=0), i32(depth - 1)
            at = slot.at(0)
            after = Let(f"{name}_next", select(call("eq", at, last), i32(0), add(at, i32(1))))
            before = Let(f"{name}_before", select(call("eq", at, i32(0)), last, sub(at, i32(1))))
            at_distance = {0: at, depth - 1: before.var, 1: after.var, depth: at}
            known = {mod(_later(_var(loop), loop.step, n), i32(depth)): value for n, value in at_distance.items()}
            body = _replaced(loop.body, known)
            if body == loop.body:
                continue
            loop = replace(loop, body=pruned((after, before, *body, RegSet(at, after.var))))
            out.append(slot)
        return [*out, loop]

    def guarded(self, producer: Body, loop: For, at: Expr, place: _Place, tag: str) -> list[Stmt]:
        """The producer's statements for iteration ``at``, if there is such an iteration; commits always."""
        moved = copied(producer, {loop.var: at}, tag, self.taken)
        guard = lt(at, loop.stop)
        commits = tuple(s for s in moved if isinstance(s, Commit))
        rest = tuple(s for s in moved if not isinstance(s, Commit))
        inner = self.body(rest, place)
        out: list[Stmt] = []
        if isinstance(guard, Const):
            out += inner if guard.value else ()
        else:
            out.append(If(guard, inner))
        return out + list(self.body(commits, place))


def statements_here(body: Body) -> Iterator[Stmt]:
    """Statements of ``body``, looking into conditions but not into loops or roles."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, If):
            yield from statements_here(stmt.then)
            yield from statements_here(stmt.orelse)


def _var(loop: For) -> Expr:
    return Var(loop.var, loop.start.dtype)


def _later(value: Expr, step: Expr, count: int) -> Expr:
    return value + step * count if count else value


def _pending(consumer: Body, ahead: dict[str, int]) -> dict[str, int]:
    """Copy groups that may still be in flight at each ring's wait: those committed after the one waited for.

    The order of commits is played through; in the steady state it repeats with every iteration.
    """
    order: list[tuple[str, int]] = []
    for count in range(max(ahead.values())):
        order += [(name, count) for name, n in ahead.items() if count < n]
    out: dict[str, int] = {}
    for iteration in range(max(ahead.values()) + 2):
        for stmt in consumer:
            if isinstance(stmt, Wait) and stmt.ring in ahead:
                after = len(order) - 1 - order.index((stmt.ring, iteration))
                out[stmt.ring] = min(after, out.get(stmt.ring, after))
                order.append((stmt.ring, iteration + ahead[stmt.ring]))
    return out


def _turn(consumer: Body, ahead: dict[str, int]) -> _Turn | None:
    """The parts of a step whose end needs neither its slot nor the registers that the next step's first reads set."""
    waits = [n for n, s in enumerate(consumer) if isinstance(s, Wait)]
    releases = [n for n, s in enumerate(consumer) if isinstance(s, Release)]
    if len(ahead) != 1 or len(waits) != 1 or len(releases) != 1:
        return None
    (at,), (end,) = waits, releases
    wait = consumer[at]
    run = next((n for n in range(at + 1, end) if not isinstance(consumer[n], Let | RegSet)), end)
    start = max((n + 1 for n in range(at + 1, run) if isinstance(consumer[n], RegSet)), default=at + 1)
    names, first, middle, last = consumer[:at], consumer[at + 1 : start], consumer[start:end], consumer[end + 1 :]
    if not (isinstance(wait, Wait) and wait.ring in ahead and first and last):
        return None
    early = {stmt.target.name for stmt in first if isinstance(stmt, RegSet)}
    defined = {name for stmt in first for name in stmt.defines}
    if not all(isinstance(stmt, Let) for stmt in names) or uses(last) & early or uses((*middle, *last)) & defined:
        return None
    return _Turn(names, wait, first, middle, last)


def _replaced(body: Body, known: dict[Expr, Expr]) -> Body:
    """``body`` with the expressions of ``known`` replaced."""

    def inner(stmts: Body) -> Body:
        return tuple(rewrite(stmt, changed, inner) for stmt in stmts)

    def changed(root: Expr) -> Expr:
        stack = [root]
        while stack:  # few expressions hold any, and looking is cheaper than rewriting
            node = stack.pop()
            if isinstance(node, Call) and node.fn == "mod" and node in known:
                return transform(root, known.get)
            stack += node.children
        return root

    return inner(body)


def _merged(body: Body) -> Body:
    """Neighbouring conditions that are the same become one."""
    out: list[Stmt] = []
    for stmt in body:
        last = out[-1] if out else None
        if (
            isinstance(stmt, If)
            and isinstance(last, If)
            and last.cond == stmt.cond
            and not (last.orelse or stmt.orelse)
        ):
            out[-1] = If(last.cond, (*last.then, *stmt.then))
        else:
            out.append(stmt)
    return tuple(out)
