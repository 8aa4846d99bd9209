"""Fits vector widths to a language: OpenCL has vectors up to a width, CUDA only 128-bit accesses to memory.

A value too wide is split into parts of the width that the language computes with. On CUDA that width is one, and an
aligned access of up to 16 bytes stays one access: it is read into a name of its own, whose lanes are then used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from emmy.ir.expr import Call, Const, Expr, Lane, Mem, Pack, Reg, Splat, Var, call, i32, rebuild
from emmy.ir.fragment import Fragments, LdMatrix, Mma
from emmy.ir.kernel import If, Kernel, Let, PeerStore, RegArray, RegSet, ShuffleXor, Stmt, Store, rewrite
from emmy.ir.pipeline import Wgmma
from emmy.passes.division import plain_divisions


@dataclass(frozen=True, slots=True)
class Widths:
    """``arithmetic``: most lanes of a computed value. ``access_bytes``: widest aligned access kept whole."""

    arithmetic: int
    access_bytes: int


WIDTHS = {"opencl": Widths(16, 0), "cuda": Widths(1, 16)}


def legalize(kernel: Kernel, language: str, vector_width: int | None = None) -> Kernel:
    """``kernel`` in the vector widths of ``language``. ``vector_width`` narrows what the language allows.

    Raises KeyError for a language that has no row in WIDTHS.
    """
    widths = WIDTHS[language]
    if vector_width is not None:
        widths = Widths(min(widths.arithmetic, vector_width), widths.access_bytes)
    kernel = plain_divisions(kernel)
    body = _Splitter(widths).body(kernel.body)
    return replace(kernel, body=body)


class _Splitter:
    def __init__(self, widths: Widths) -> None:
        self.width = widths.arithmetic
        self.access_bytes = widths.access_bytes
        self.vectors: dict[str, tuple[Expr, ...]] = {}
        self.before: list[Stmt] = []
        self.memo: dict[int, tuple[Expr, ...]] = {}
        self.keep: list[Expr] = []
        self.count = 0
        self.packed: set[str] = set()
        """Fragments whose registers hold two elements each."""

    # ------------------------------------------------------------------------------------------------- statements

    def body(self, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in stmts:
            self.memo, self.keep = {}, []
            made = self.stmt(stmt)
            out += self.before
            self.before = []
            out += made
        return tuple(out)

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        match stmt:
            case Let(name, value) if self.wide(value):
                self.vectors[name] = tuple(self.named(name, self.parts(value)))
                return []
            case RegArray(name, dtype, shape, lanes, init) if lanes > self.width:
                return [RegArray(name, dtype, (*shape, lanes // self.width), self.width, init)]
            case Fragments(name, _, _, shape, init):
                if stmt.packed:
                    self.packed.add(name)
                    return [stmt]
                return [RegArray(name, stmt.dtype, (*shape, stmt.layout.registers), 1, init)]
            case Mma() | Wgmma() | LdMatrix():
                # tiles of registers stay whole: the instruction names all of them
                return [rewrite(stmt, lambda e: e if isinstance(e, Reg) else self.whole(e), lambda body: body)]
            case RegSet(target, value) if target.name in self.packed:
                return [RegSet(target, Pack(self.parts(value)))]
            case RegSet(target, value) if self.wide(target):
                parts = self.parts(value)
                if _reads_lanes_of(value, target.name):
                    parts = tuple(self.named(self.fresh(target.name), parts))
                return [RegSet(_slot(to, k, self.width), part) for k, (to, part) in
                        enumerate(zip([target] * len(parts), parts, strict=True))]  # fmt: skip
            case ShuffleXor(name, value, mask) if self.wide(value):
                made = [ShuffleXor(f"{name}_{k}", part, mask) for k, part in enumerate(self.parts(value))]
                self.vectors[name] = tuple(shuffle.var for shuffle in made)
                return list(made)
            case Store() | PeerStore() if self.wide(stmt.value):
                return self.store(stmt)
        return [self.rewritten(stmt)]

    def rewritten(self, stmt: Stmt) -> Stmt:
        if not stmt.bodies:
            return rewrite(stmt, self.whole, lambda body: body)
        # what the statement's own expressions need stands before it; its bodies look after themselves
        new = rewrite(stmt, self.whole, lambda body: body)
        needed, self.before = self.before, []
        new = rewrite(new, lambda e: e, self.body)
        self.before = needed
        return new

    def store(self, stmt: Store | PeerStore) -> list[Stmt]:
        if isinstance(stmt, PeerStore):
            stmt = replace(stmt, rank=self.whole(stmt.rank))
        parts = self.parts(stmt.value)
        size = self.chunk(stmt.dtype.nbytes, stmt.value.lanes, stmt.aligned)
        step = size // self.width
        offset = self.whole(stmt.offset)
        guard = None if stmt.guard is None else self.whole(stmt.guard)
        out: list[Stmt] = []
        for first in range(0, len(parts), step):
            value = _joined(parts[first : first + step], stmt.dtype)
            out.append(replace(stmt, offset=offset + first * self.width, value=value, guard=None))
        if guard is None:
            return out
        return [If(guard, tuple(out))]

    # ------------------------------------------------------------------------------------------------ expressions

    def wide(self, expr: Expr) -> bool:
        return expr.lanes > self.width

    def chunk(self, nbytes: int, lanes: int, aligned: bool) -> int:
        """Lanes that one access takes."""
        if not aligned or not self.access_bytes:
            return self.width
        return max(self.width, min(lanes, self.access_bytes // nbytes))

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}_v{self.count}"

    def named(self, name: str, parts: tuple[Expr, ...]) -> list[Expr]:
        """Each part bound to a name, unless it is a lane of one already."""
        out: list[Expr] = []
        for k, part in enumerate(parts):
            if isinstance(part, Lane) and isinstance(part.value, Var):
                out.append(part)
                continue
            let = Let(f"{name}_{k}", part)
            self.before.append(let)
            out.append(let.var)
        return out

    def whole(self, expr: Expr) -> Expr:
        """``expr`` (no wider than the width) with wide subexpressions split away."""
        if self.wide(expr):
            raise TypeError(f"a vector of {expr.lanes} lanes stands where a part is needed")
        return self.parts(expr)[0]

    def parts(self, expr: Expr) -> tuple[Expr, ...]:
        if id(expr) not in self.memo:
            self.keep.append(expr)
            self.memo[id(expr)] = self.split(expr) if self.wide(expr) else (self.narrow(expr),)
        return self.memo[id(expr)]

    def narrow(self, expr: Expr) -> Expr:
        if isinstance(expr, Lane) and isinstance(expr.value, Reg) and expr.value.name in self.packed:
            return expr
        if isinstance(expr, Lane) and self.wide(expr.value):
            part = self.parts(expr.value)[expr.lane // self.width]
            return part if self.width == 1 else Lane(part, expr.lane % self.width)
        old = expr.children
        new = tuple(self.parts(child)[0] for child in old)
        return expr if all(a is b for a, b in zip(old, new, strict=True)) else rebuild(expr, new)

    def split(self, expr: Expr) -> tuple[Expr, ...]:
        width = self.width
        count = expr.lanes // width
        match expr:
            case Const(value, dtype):
                return (Const(value, dtype, width),) * count
            case Var(name, dtype):
                return self.vectors.get(name, tuple(Var(f"{name}_{k}", dtype, width) for k in range(count)))
            case Reg(name) if name in self.packed:
                return tuple(Lane(expr, k) for k in range(count))
            case Reg():
                return tuple(_slot(expr, k, width) for k in range(count))
            case Splat(value):
                one = self.whole(value)
                return (one if width == 1 else Splat(one, width),) * count
            case Pack(values):
                flat = [self.whole(value) for value in values]
                return tuple(_pack(flat[k * width : (k + 1) * width]) for k in range(count))
            case Call(fn, args, dtype):
                columns = [self.parts(arg) if self.wide(arg) else (self.whole(arg),) * count for arg in args]
                given = dtype if fn == "cast" else None
                return tuple(call(fn, *(column[k] for column in columns), dtype=given) for k in range(count))
            case Mem():
                return self.read(expr)
        raise TypeError(f"cannot split {type(expr).__name__}")

    def read(self, expr: Mem) -> tuple[Expr, ...]:
        size = self.chunk(expr.dtype.nbytes, expr.lanes, expr.aligned)
        offset = self.whole(expr.offset)
        guard = None if expr.guard is None else self.whole(expr.guard)
        out: list[Expr] = []
        for first in range(0, expr.lanes, size):
            access = replace(expr, offset=offset + first, lanes=size, guard=guard)
            let = Let(self.fresh(expr.buffer), access)
            self.before.append(let)
            if size == self.width:
                out.append(let.var)
            else:
                out += [Lane(let.var, k) for k in range(size)]
        return tuple(out)


def _slot(reg: Reg, k: int, width: int) -> Reg:
    return Reg(reg.name, (*reg.index, i32(k)), reg.dtype, width)


def _pack(values: list[Expr]) -> Expr:
    return values[0] if len(values) == 1 else Pack(tuple(values))


def _joined(parts: tuple[Expr, ...], dtype: object) -> Expr:
    """One vector of scalar parts: the name they are the lanes of, if they are all of its lanes, in order."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    if not (isinstance(first, Lane) and first.value.dtype == dtype and first.value.lanes == len(parts)):
        return Pack(parts)
    in_order = all(isinstance(p, Lane) and p.value == first.value and p.lane == k for k, p in enumerate(parts))
    return first.value if in_order else Pack(parts)


def _reads_lanes_of(value: Expr, name: str) -> bool:
    from emmy.ir.expr import walk

    return any(isinstance(node, Lane) and isinstance(node.value, Reg) and node.value.name == name
               for node in walk(value))  # fmt: skip
