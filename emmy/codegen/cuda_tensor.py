"""CUDA text of what is inline PTX: fragments, asynchronous copies, mbarriers, roles, warpgroup atoms, clusters.

A fragment of 16-bit elements is held as 32-bit registers of two elements each; one of float32 as one float an element.
"""

from __future__ import annotations

from emmy.codegen import ptx
from emmy.codegen.cuda import CudaPrinter
from emmy.codegen.text import CannotPrint, indices
from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, Pack, Reg
from emmy.ir.fragment import ATOMS, Fragments, LdMatrix, Mma
from emmy.ir.kernel import ClusterBarrier, Kernel, PeerStore, RegSet, Stmt, TensorMapParam
from emmy.ir.pipeline import (
    AsyncFence,
    BarrierArrive,
    BarrierExpect,
    BarrierFence,
    BarrierInit,
    BarrierStmt,
    BarrierWait,
    Copy,
    CopyCommit,
    CopyWait,
    Matrix,
    Roles,
    SetRegisters,
    TensorCopy,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)

_USES_SHARED = ("emmy_copy_async", "emmy_barrier_", "emmy_matrix")
_CLUSTER = {
    "arrive": ("barrier.cluster.arrive.relaxed.aligned;",),
    "wait": ("barrier.cluster.wait.acquire.aligned;",),
    "sync": ("barrier.cluster.arrive.release.aligned;", "barrier.cluster.wait.acquire.aligned;"),
}
_MODES = {0: 0, 128: 1, 64: 2, 32: 3}


class TensorPrinter(CudaPrinter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.fragments: dict[str, Fragments] = {}

    def use(self, name: str) -> str:
        if name.startswith(_USES_SHARED):
            self.use("emmy_shared")
        return self.helper(name, lambda: ptx.HELPERS[name])

    def parameter(self, param: object) -> str:
        if isinstance(param, TensorMapParam):
            return f"const __grid_constant__ {self.use('TensorMap')} {self.name(param.name)}"
        return super().parameter(param)

    # -------------------------------------------------------------------------------------------------- statements

    def stmt(self, stmt: Stmt) -> None:
        if isinstance(stmt, RegSet) and stmt.target.name in self.fragments:
            self.set_fragment(stmt)
        else:
            super().stmt(stmt)

    def special(self, stmt: Stmt) -> None:
        match stmt:
            case Fragments():
                self.declare(stmt)
            case LdMatrix():
                self.ldmatrix(stmt)
            case Mma():
                self.mma(stmt)
            case Copy():
                self.copy(stmt)
            case CopyCommit():
                self.line('asm volatile("cp.async.commit_group;" ::: "memory");')
            case CopyWait(pending):
                self.line(f'asm volatile("cp.async.wait_group {pending};" ::: "memory");')
            case TensorCopy():
                self.tensor_copy(stmt)
            case BarrierStmt():
                self.barrier_stmt(stmt)
            case BarrierFence():
                self.line('asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");')
                self.line('asm volatile("fence.proxy.async;" ::: "memory");')
            case AsyncFence():
                self.line('asm volatile("fence.proxy.async.shared::cta;" ::: "memory");')
            case WgmmaFence():
                self.line('asm volatile("wgmma.fence.sync.aligned;" ::: "memory");')
            case WgmmaCommit():
                self.line('asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");')
            case WgmmaWait(pending):
                self.line(f'asm volatile("wgmma.wait_group.sync.aligned {pending};" ::: "memory");')
            case Wgmma():
                self.wgmma(stmt)
            case ClusterBarrier(phase):
                for instruction in _CLUSTER[phase]:
                    self.line(f'asm volatile("{instruction}" ::: "memory");')
            case PeerStore():
                self.peer_store(stmt)
            case SetRegisters(count, up):
                self.line(f'asm volatile("setmaxnreg.{"inc" if up else "dec"}.sync.aligned.u32 {count};");')
            case Roles():
                self.roles(stmt)
            case _:
                super().special(stmt)

    def roles(self, stmt: Roles) -> None:
        warp = self.fresh()
        self.line(f"const int {warp} = __shfl_sync(0xffffffffu, {self.thread_text()} / 32, 0);")
        for k, role in enumerate(stmt.roles):
            opening = "if" if k == 0 else "} else if"
            self.line(f"{opening} ({warp} >= {role.first} && {warp} < {role.first + role.warps}) {{  // {role.name}")
            self.nested(role.body)
        self.line("}")

    def thread_text(self) -> str:
        """Linear thread index as text."""
        key = "tx" if self.kernel.block[1] == 1 else "tid"
        text = self.thread_vars[key].format(x=self.kernel.block[0])
        return text if key == "tx" else f"({text})"

    # --------------------------------------------------------------------------------------------------- fragments

    def declare(self, stmt: Fragments) -> None:
        if not stmt.packed:
            raise CannotPrint(f"{self.kernel.name}: fragments {stmt.name} were not made registers by legalising")
        self.fragments[stmt.name] = stmt
        self.include_for(stmt.dtype)
        fill = ""
        if stmt.init is not None:
            one = self.pack_text(
                stmt.dtype, self.constant(stmt.init, DType.F32, 1), self.constant(stmt.init, DType.F32, 1)
            )
            fill = f" = {one}"
        names = [name + fill for index in indices(stmt.shape) for name in self.pair_names(stmt, index)]
        for first in range(0, len(names), 8):
            self.line(f"unsigned {', '.join(names[first : first + 8])};")

    def pair_names(self, stmt: Fragments, index: tuple[int, ...]) -> list[str]:
        base = self.slot_name(stmt.name, index)
        return [f"{base}_p{k}" for k in range(stmt.layout.registers // 2)]

    def registers_of(self, reg: Reg) -> list[str]:
        """The C++ variables that hold the tile ``reg``."""
        base = self.slot(reg)
        if reg.name in self.fragments:
            return [f"{base}_p{k}" for k in range(reg.lanes // 2)]
        return [f"{base}_{k}" for k in range(reg.lanes)]

    def pack_text(self, dtype: DType, low: str, high: str) -> str:
        return f"{self.use(f'emmy_pack_{dtype.value}')}({low}, {high})"

    def set_fragment(self, stmt: RegSet) -> None:
        values = stmt.value.values if isinstance(stmt.value, Pack) else ()
        if len(values) != stmt.target.lanes:
            raise CannotPrint(f"{self.kernel.name}: fragment {stmt.target.name} is set from something that is no pack")
        self.share(*values)
        pairs = [self.pack_text(stmt.target.dtype, self.text(values[k]), self.text(values[k + 1]))
                 for k in range(0, len(values), 2)]  # fmt: skip
        for name, pair in zip(self.registers_of(stmt.target), pairs, strict=True):
            self.line(f"{name} = {pair};")

    def lane(self, value: Expr, lane: int) -> str:
        if isinstance(value, Reg) and value.name in self.fragments:
            pair = self.registers_of(value)[lane // 2]
            which = "emmy_half_of" if value.dtype == DType.F16 else "emmy_bfloat_of"
            return self.loaded(f"{self.use(which)}({pair}, {lane % 2})", value.dtype)
        return super().lane(value, lane)

    def ldmatrix(self, stmt: LdMatrix) -> None:
        self.share(stmt.offset)
        names = [name for target in stmt.targets for name in self.registers_of(target)]
        count = len(names)
        trans = ".trans" if stmt.trans else ""
        helper = f"emmy_ldmatrix_x{count}{trans.replace('.', '_')}"
        self.use("emmy_shared")
        self.helper(helper, lambda: ptx.ldmatrix(helper, count, trans))
        self.line(f"{helper}({', '.join(names)}, {self.shared_address(stmt.buffer, stmt.offset)});")

    def shared_address(self, buffer: str, offset: Expr) -> str:
        """A 32-bit shared-memory address: the buffer's, which a compiler takes out of loops, and bytes from there.

        Of a generic pointer's elements it makes two multiplications an access.
        """
        start, text = f"{self.use('emmy_shared')}({self.name(buffer)})", self.expr(offset)
        return start if text == "0" else f"{start} + {text} * {self.pointer(buffer).dtype.nbytes}u"

    def mma(self, stmt: Mma) -> None:
        atom = ATOMS[stmt.atom]
        names = [name for reg in (stmt.c, stmt.a, stmt.b) for name in self.registers_of(reg)]
        helper = f"emmy_{atom.name}"
        self.helper(helper, lambda: ptx.mma(helper, atom))
        self.line(f"{helper}({', '.join(names)});")

    # ------------------------------------------------------------------------------------------------------ copies

    def copy(self, stmt: Copy) -> None:
        self.share(*stmt.exprs)
        start = self.address(stmt.source, stmt.source_offset)
        if stmt.transport == "async":
            to = self.shared_address(stmt.buffer, stmt.offset)
            guard = "true" if stmt.guard is None else self.text(stmt.guard)
            self.line(f"{self.use('emmy_copy_async')}<{stmt.nbytes}>({to}, {start}, {guard});")
            return
        to = self.address(stmt.buffer, stmt.offset)
        kind = self.vec_type(stmt.dtype, stmt.lanes)
        value = f"*reinterpret_cast<const {kind}*>({start})"
        if stmt.guard is not None:
            value = f"{self.expr(stmt.guard)} ? {value} : {self.filled(0, stmt.dtype, stmt.lanes)}"
        self.line(f"*reinterpret_cast<{kind}*>({to}) = {value};")

    def tensor_copy(self, stmt: TensorCopy) -> None:
        self.share(*stmt.exprs)
        rank = len(stmt.coords)
        helper = f"emmy_tensor_copy_{rank}d"
        self.use("emmy_shared")
        self.use("TensorMap")
        self.helper(helper, lambda: ptx.tensor_copy(helper, rank))
        coords = ", ".join(self.text(c) for c in reversed(stmt.coords))  # PTX wants the innermost first
        barrier = self.address(stmt.barrier, stmt.index)
        self.line(f"{helper}({self.address(stmt.buffer, stmt.offset)}, {self.name(stmt.map)}, {barrier}, {coords});")

    def barrier_stmt(self, stmt: BarrierStmt) -> None:
        self.share(*stmt.exprs)
        at = self.address(stmt.barrier, stmt.index)
        match stmt:
            case BarrierInit(_, _, count):
                self.line(f"{self.use('emmy_barrier_init')}({at}, {count});")
            case BarrierExpect(_, _, nbytes):
                self.line(f"{self.use('emmy_barrier_expect')}({at}, {nbytes});")
            case BarrierArrive():
                self.line(f"{self.use('emmy_barrier_arrive')}({at});")
            case BarrierWait(_, _, parity):
                self.line(f"{self.use('emmy_barrier_wait')}({at}, {self.text(parity)});")

    def peer_store(self, stmt: PeerStore) -> None:
        self.share(*stmt.exprs)
        lanes = stmt.value.lanes
        match stmt.value:
            case Pack(values):
                parts = [self.stored(value, stmt.dtype) for value in values]
            case value if lanes == 1:
                parts = [self.stored(value, stmt.dtype)]
            case value:
                parts = [self.lane(value, k) for k in range(lanes)]
        self.use("emmy_shared")
        helper = f"emmy_peer_store_x{lanes}"
        self.helper(helper, lambda: ptx.peer_store(helper, lanes))
        operands = [self.address(stmt.buffer, stmt.offset), self.text(stmt.rank), *parts]
        self.guarded(stmt.guard, f"{helper}({', '.join(operands)});")

    # --------------------------------------------------------------------------------------------------- warpgroup

    def matrix(self, matrix: Matrix) -> str:
        start = self.address(matrix.buffer, matrix.offset)
        return (f"{self.use('emmy_matrix')}({start}, {matrix.panel_bytes}, {matrix.group_bytes}, "
                f"{_MODES[matrix.span_bytes]})")  # fmt: skip

    def wgmma(self, stmt: Wgmma) -> None:
        atom = ATOMS[stmt.atom]
        self.share(*([] if isinstance(stmt.a, Reg) else [stmt.a.offset]), stmt.b.offset, stmt.accumulate)
        registers = isinstance(stmt.a, Reg)
        a = self.registers_of(stmt.a) if isinstance(stmt.a, Reg) else [self.matrix(stmt.a)]
        majors = ("k" if isinstance(stmt.a, Reg) else stmt.a.major, stmt.b.major)
        helper = f"emmy_{atom.name}" + ("_r" if registers else "") + "".join(f"_{m}" for m in majors if m != "k")
        self.helper(helper, lambda: ptx.wgmma(helper, atom, registers, majors))
        operands = [*self.registers_of(stmt.c), *a, self.matrix(stmt.b), self.text(stmt.accumulate)]
        self.line(f"{helper}({', '.join(operands)});")


def emit(kernel: Kernel) -> str:
    """CUDA C++ text of an expanded and legalised kernel. Raises CannotPrint for what passes should have removed."""
    return TensorPrinter(kernel).emit()
