"""Checks kernel IR: names and scopes, types, register indices, ring protocols, roles, resources."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from emmy.errors import EmmyError
from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Expr, Lane, Load, Mem, Reg, Var, free_vars, walk
from emmy.ir.fragment import ATOMS, Fragments, LdMatrix, Mma
from emmy.ir.kernel import (
    THREAD_VARS,
    Atomic,
    Barrier,
    BufferParam,
    ClusterBarrier,
    Combine,
    For,
    If,
    Kernel,
    Let,
    PeerStore,
    RegArray,
    RegSet,
    ScalarParam,
    Shared,
    ShuffleXor,
    Stmt,
    Store,
    TensorMapParam,
    View,
    statements,
)
from emmy.ir.kernel_print import head
from emmy.ir.monoid import MONOIDS
from emmy.ir.pipeline import (
    TRANSPORTS,
    BarrierStmt,
    Copy,
    Matrix,
    Ring,
    RingStmt,
    Role,
    Roles,
    TensorCopy,
    Wgmma,
)
from emmy.ir.scalar import FUNCTIONS

MAX_THREADS, REGISTERS_OF_SM, MAX_LANES = 1024, 65536, 16
CLUSTERS = (1, 2, 4, 8)
"""Sizes of clusters that a launch needs no attribute for."""


class MalformedKernel(EmmyError):
    """A kernel breaks a rule of kernel IR. The message names the kernel, the statement and the rule."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is known at a place. Inner scopes see outer ones; their own definitions end with them."""

    values: dict[str, tuple[DType, int]] = field(default_factory=dict)
    buffers: dict[str, tuple[DType, str]] = field(default_factory=dict)
    arrays: dict[str, tuple[DType, int, tuple[int, ...]]] = field(default_factory=dict)
    rings: dict[str, Ring] = field(default_factory=dict)
    unrolled: frozenset[str] = frozenset()
    role: str = ""

    def inner(self) -> _Scope:
        return _Scope(
            dict(self.values), dict(self.buffers), dict(self.arrays), dict(self.rings), self.unrolled, self.role
        )


def verify(kernel: Kernel) -> None:
    """Raises MalformedKernel naming the first statement that breaks a rule."""
    _Verifier(kernel).run()


class _Verifier:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.shared = {array.name: array for array in kernel.shared}
        self.maps = {p.name: p for p in kernel.params if isinstance(p, TensorMapParam)}
        self.stmt: Stmt | None = None

    def require(self, condition: object, rule: str, *, found: object = None, expected: object = None) -> None:
        if not condition:
            where = f" in `{head(self.stmt)}`" if self.stmt is not None else ""
            raise MalformedKernel(f"{self.kernel.name}: {rule}{where}", found=found, expected=expected)

    def run(self) -> None:
        kernel, scope = self.kernel, _Scope()
        names = [p.name for p in kernel.params] + [array.name for array in kernel.shared]
        twice = {name for name in names if names.count(name) > 1}
        self.require(not twice, f"two parameters or arrays are named {', '.join(sorted(twice))}")
        self.require(
            0 < kernel.threads <= MAX_THREADS, "block size", found=kernel.threads, expected=f"1 … {MAX_THREADS}"
        )
        self.require(kernel.cluster in CLUSTERS, "cluster size", found=kernel.cluster, expected=CLUSTERS)
        for param in kernel.params:
            match param:
                case BufferParam(name, dtype):
                    scope.buffers[name] = (dtype, "global" if param.writable else "const")
                case ScalarParam(name, dtype):
                    scope.values[name] = (dtype, 1)
        for array in kernel.shared:
            self.require(array.elements > 0 and array.align % array.dtype.nbytes == 0, f"shared array {array.name}")
            scope.buffers[array.name] = (array.dtype, "shared")
        scope.values.update(dict.fromkeys(THREAD_VARS, (DType.I32, 1)))
        self.body(kernel.body, scope)

    def body(self, stmts: tuple[Stmt, ...], scope: _Scope) -> None:
        for stmt in stmts:
            self.stmt = stmt
            self.check(stmt, scope)
        self.cluster_barriers(stmts)

    # -------------------------------------------------------------------------------------------------- statements

    def check(self, stmt: Stmt, scope: _Scope) -> None:
        for expr in stmt.exprs:
            self.expr(expr, scope)
        match stmt:
            case View(name, buffer, base, dtype):
                self.buffer(buffer, scope)
                self.scalar_int(base, "base")
                self.define(name, scope)
                scope.buffers[name] = (dtype, scope.buffers[buffer][1])
            case Let(name, value) | ShuffleXor(name, value):
                self.define(name, scope)
                scope.values[name] = (value.dtype, value.lanes)
            case RegArray(name, dtype, shape, lanes):
                self.define(name, scope)
                self.require(all(n > 0 for n in shape), "an empty register array")
                self.lanes(lanes)
                scope.arrays[name] = (dtype, lanes, shape)
            case Fragments(name, atom, role, shape):
                self.define(name, scope)
                self.require(atom in ATOMS, f"no atom {atom}")
                scope.arrays[name] = (ATOMS[atom].dtype(role), stmt.layout.registers, shape)
            case RegSet(target, value):
                self.expr(target, scope)
                self.require(value.lanes in (1, target.lanes), "lanes", found=value.lanes, expected=target.lanes)
            case For():
                self.loop(stmt, scope)
            case If(cond, then, orelse):
                self.boolean(cond, "condition")
                self.body(then, scope.inner())
                self.body(orelse, scope.inner())
            case Store(buffer, offset, value, dtype, guard):
                self.access(buffer, dtype, offset, value.lanes, guard, scope)
                self.require(scope.buffers[buffer][1] != "const", f"{buffer} is read-only")
            case Atomic(op, buffer, offset, value, dtype, guard):
                self.access(buffer, dtype, offset, value.lanes, guard, scope)
                self.require(value.lanes == 1 and op in ("add", "max", "min"), "an atomic is a scalar add, max or min")
            case Barrier(kind):
                self.require(kind in ("block", "warp", "named"), f"no barrier of scope {kind}")
                self.require(kind != "block" or not scope.role, "a barrier of the block inside a role")
            case ClusterBarrier(phase):
                self.require(phase in ("arrive", "wait", "sync"), f"no phase {phase} of a barrier of the cluster")
                self.require(self.kernel.cluster > 1, "a barrier of the cluster in a kernel without clusters")
                self.require(not scope.role, "a barrier of the cluster inside a role")
            case PeerStore(buffer, offset, rank, value, dtype, guard):
                self.require(self.kernel.cluster > 1, "a store to a peer in a kernel without clusters")
                self.access(buffer, dtype, offset, value.lanes, guard, scope)
                self.buffer(buffer, scope, "shared")
                self.scalar_int(rank, "rank")
                whole = dtype == value.dtype == DType.F32 and value.lanes in (1, 2, 4)
                self.require(whole, "a store to a peer is of 1, 2 or 4 float32", found=(value.dtype.value, value.lanes))
            case Combine():
                self.combine(stmt, scope)
            case LdMatrix() | Mma() | Wgmma():
                self.atom(stmt, scope)
            case Ring() | RingStmt() | Copy() | TensorCopy() | BarrierStmt():
                self.pipeline(stmt, scope)
            case Roles(roles):
                self.roles(roles, scope)

    def cluster_barriers(self, stmts: tuple[Stmt, ...]) -> None:
        """An arrive and its wait stand in one list of statements, with no other barrier of the cluster between."""
        arrived = False
        for stmt in stmts:
            if not isinstance(stmt, ClusterBarrier):
                inside = any(isinstance(inner, ClusterBarrier) for body in stmt.bodies for inner in statements(body))
                self.stmt = stmt
                self.require(not (arrived and inside), "a barrier of the cluster between an arrive and its wait")
                continue
            self.stmt = stmt
            self.require(arrived == (stmt.phase == "wait"), "barriers of the cluster pair an arrive with a wait")
            arrived = stmt.phase == "arrive"
        self.require(not arrived, "an arrival at a barrier of the cluster that is not waited for")

    def define(self, name: str, scope: _Scope) -> None:
        known = name in scope.values or name in scope.buffers or name in scope.arrays
        self.require(not known, f"{name} is defined twice")

    def loop(self, stmt: For, scope: _Scope) -> None:
        for bound in (stmt.start, stmt.stop, stmt.step):
            self.scalar_int(bound, "loop bound")
        self.require(stmt.unroll in ("", "full", "hint"), f"unroll {stmt.unroll!r}")
        self.define(stmt.var, scope)
        inner = scope.inner()
        inner.values[stmt.var] = (stmt.start.dtype, 1)
        if stmt.unroll == "full":
            used = free_vars(stmt.start) | free_vars(stmt.stop) | free_vars(stmt.step)
            self.require(used <= scope.unrolled, "an unrolled loop has bounds that are not constant")
            inner = replace(inner, unrolled=inner.unrolled | {stmt.var})
        self.body(stmt.body, inner)

    def combine(self, stmt: Combine, scope: _Scope) -> None:
        group = stmt.group
        self.require(stmt.monoid in MONOIDS, f"no monoid {stmt.monoid}")
        self.require(len(stmt.regs) == MONOIDS[stmt.monoid].arity, "as many registers as the monoid has components")
        self.require(group > 0 and not group & (group - 1) and self.kernel.threads % group == 0,
                     "a group is a power of two that divides the block", found=group)  # fmt: skip
        self.require(all(reg.lanes == 1 for reg in stmt.regs), "a combine is of scalars")
        self.require(
            len(stmt.scratch) == len(stmt.regs) or (not stmt.scratch and group <= 32), "scratch for each register"
        )
        for name, reg in zip(stmt.scratch, stmt.regs, strict=False):
            array = self.shared.get(name)
            self.require(array is not None and array.dtype == reg.dtype and array.elements >= self.kernel.threads,
                         f"scratch {name} holds one {reg.dtype.value} a thread")  # fmt: skip

    # ----------------------------------------------------------------------------------------------------- tensors

    def atom(self, stmt: LdMatrix | Mma | Wgmma, scope: _Scope) -> None:
        if isinstance(stmt, LdMatrix):
            self.buffer(stmt.buffer, scope, "shared")
            for target in stmt.targets:
                self.expr(target, scope)
            self.require(stmt.matrices in (1, 2, 4), "ldmatrix loads 1, 2 or 4 matrices", found=stmt.matrices)
            return
        self.require(stmt.atom in ATOMS, f"no atom {stmt.atom}")
        atom = ATOMS[stmt.atom]
        self.require(atom.is_wgmma == isinstance(stmt, Wgmma), f"{atom.name} is not an instruction of this kind")
        for role, operand in (("c", stmt.c), ("a", stmt.a), ("b", stmt.b)):
            if isinstance(operand, Matrix):
                self.matrix(operand, scope)
            else:
                expected = (atom.dtype(role), atom.layout(role).registers)
                self.require((operand.dtype, operand.lanes) == expected, f"operand {role} of {atom.name}",
                             found=(operand.dtype.value, operand.lanes), expected=expected)  # fmt: skip

    def matrix(self, matrix: Matrix, scope: _Scope) -> None:
        self.buffer(matrix.buffer, scope, "shared")
        self.require(matrix.span_bytes in (32, 64, 128) and matrix.major in ("k", "mn"), "operand in shared memory")
        array = self.shared.get(matrix.buffer)
        needed = 8 * matrix.span_bytes
        self.require(array is not None and array.align % needed == 0, f"{matrix.buffer} is aligned to {needed} bytes")

    def pipeline(self, stmt: Stmt, scope: _Scope) -> None:
        match stmt:
            case Ring(name, buffers, depth, transport):
                self.require(name not in scope.rings, f"ring {name} is defined twice")
                self.require(transport in TRANSPORTS and depth > 0, f"transport {transport}, depth {depth}")
                for buffer in buffers:
                    array = self.shared.get(buffer)
                    self.require(isinstance(array, Shared) and array.elements % depth == 0,
                                 f"{buffer} is a shared array of {depth} slots")  # fmt: skip
                scope.rings[name] = stmt
            case RingStmt():
                self.require(stmt.ring in scope.rings, f"no ring {stmt.ring}")
                self.scalar_int(stmt.step, "step")
                for body in stmt.bodies:
                    self.body(body, scope.inner())
            case Copy(buffer, offset, source, source_offset, lanes, dtype, guard):
                self.access(buffer, dtype, offset, lanes, None, scope)
                self.access(source, dtype, source_offset, lanes, guard, scope)
                self.require(scope.buffers[buffer][1] == "shared", "a copy goes to shared memory")
                if stmt.transport == "async":
                    self.require(
                        stmt.nbytes in (4, 8, 16), "an asynchronous copy of 4, 8 or 16 bytes", found=stmt.nbytes
                    )
            case TensorCopy(buffer, _, name, coords):
                self.buffer(buffer, scope, "shared")
                self.require(name in self.maps, f"no tensor map {name}")
                self.require(len(coords) == len(self.maps[name].box), f"coordinates of {name}", found=len(coords),
                             expected=len(self.maps[name].box))  # fmt: skip
                self.require(scope.buffers[buffer][0] == self.maps[name].dtype, f"{name} is of another type")
            case BarrierStmt():
                self.require(
                    scope.buffers.get(stmt.barrier) == (DType.I64, "shared"), f"{stmt.barrier} holds mbarriers"
                )

    def roles(self, roles: tuple[Role, ...], scope: _Scope) -> None:
        self.require(not scope.role, "roles inside a role")
        warps = sorted(warp for role in roles for warp in range(role.first, role.first + role.warps))
        self.require(warps == list(range(self.kernel.threads // 32)), "roles partition the block")
        budget = sum(role.registers * len(role.threads) for role in roles)
        self.require(budget <= REGISTERS_OF_SM, "registers of all roles", found=budget, expected=REGISTERS_OF_SM)
        for role in roles:
            self.require(not role.registers or (role.warps % 4 == 0 and role.first % 4 == 0),
                         f"role {role.name} sets registers and is not made of warpgroups")  # fmt: skip
            self.body(role.body, replace(scope.inner(), role=role.name))

    # ------------------------------------------------------------------------------------------------ expressions

    def expr(self, root: Expr, scope: _Scope) -> None:
        for node in walk(root):
            match node:
                case Var(name, dtype, lanes):
                    self.require(name in scope.values, f"unknown name {name}")
                    self.require(scope.values[name] == (dtype, lanes), f"{name} is of another type",
                                 found=(dtype.value, lanes), expected=scope.values[name])  # fmt: skip
                case Mem(buffer, offset, dtype, lanes, guard):
                    self.access(buffer, dtype, offset, lanes, guard, scope)
                case Reg(name, index, dtype, lanes):
                    self.slot(name, index, dtype, lanes, scope)
                case Call(fn, args):
                    self.require(fn in FUNCTIONS and len(args) == FUNCTIONS[fn].arity, f"{fn} of {len(args)} operands")
                    self.require({arg.lanes for arg in args} <= {1, node.lanes}, f"lanes of the operands of {fn}")
                case Lane(value, lane):
                    self.require(0 <= lane < value.lanes, f"lane {lane} of {value.lanes}")
                case Load():
                    self.require(False, "a load by coordinates belongs to nests")

    def slot(self, name: str, index: tuple[Expr, ...], dtype: DType, lanes: int, scope: _Scope) -> None:
        self.require(name in scope.arrays, f"unknown register array {name}")
        has_dtype, has_lanes, shape = scope.arrays[name]
        self.require((dtype, lanes) == (has_dtype, has_lanes), f"{name} is of another type", found=(dtype.value, lanes),
                     expected=(has_dtype.value, has_lanes))  # fmt: skip
        self.require(len(index) == len(shape), f"{name} has {len(shape)} axes", found=len(index))
        for at, extent in zip(index, shape, strict=True):
            if isinstance(at, Const):
                self.require(0 <= at.value < extent, f"{name} has {extent} slots", found=at.value)
            else:
                self.require(free_vars(at) <= scope.unrolled, f"{name} is indexed by what is not constant")

    def access(self, buffer: str, dtype: DType, offset: Expr, lanes: int, guard: Expr | None, scope: _Scope) -> None:
        self.buffer(buffer, scope)
        has = scope.buffers[buffer][0]
        self.require(has == dtype, f"{buffer} is of another type", found=dtype.value, expected=has.value)
        self.scalar_int(offset, "offset")
        self.lanes(lanes)
        if guard is not None:
            self.boolean(guard, "guard")

    def buffer(self, name: str, scope: _Scope, space: str = "") -> None:
        self.require(name in scope.buffers, f"unknown buffer {name}")
        self.require(not space or scope.buffers[name][1] == space, f"{name} is not in {space} memory")

    def lanes(self, lanes: int) -> None:
        self.require(0 < lanes <= MAX_LANES and not lanes & (lanes - 1), "lanes", found=lanes,
                     expected=f"a power of two up to {MAX_LANES}")  # fmt: skip

    def scalar_int(self, expr: Expr, what: str) -> None:
        self.require(expr.dtype in (DType.I32, DType.I64) and expr.lanes == 1, f"a {what} is a scalar integer")

    def boolean(self, expr: Expr, what: str) -> None:
        self.require(expr.dtype == DType.BOOL and expr.lanes == 1, f"a {what} is a scalar boolean")
