"""Prints kernel IR as CUDA C++. Arithmetic is scalar; a vector exists only between memory and registers.

The statements of the tensor tiers (fragments, rings, barriers in memory) are printed by emmy.codegen.cuda_tensor.
"""

from __future__ import annotations

from emmy.codegen import abi
from emmy.codegen.normal import horner
from emmy.codegen.text import CannotPrint, Pointer, Printer, Template, aligned_offsets, float_digits, function, infix
from emmy.codegen.text import operand_dtype as operand_dtype_of
from emmy.codegen.words import CUDA_WORDS
from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Expr, Mem, Number, Var
from emmy.ir.kernel import (
    Atomic,
    Barrier,
    BufferParam,
    Kernel,
    ScalarParam,
    ShuffleXor,
    Stmt,
    Store,
    View,
    statements,
)
from emmy.ir.pipeline import Copy
from emmy.ir.scalar import FUNCTIONS

VALUE_TYPES = {
    DType.BOOL: "bool", DType.U8: "unsigned char", DType.I8: "signed char", DType.I16: "short", DType.I32: "int",
    DType.I64: "long long", DType.F16: "float", DType.BF16: "float", DType.F32: "float", DType.F64: "double",
}  # fmt: skip
STORAGE_TYPES = VALUE_TYPES | {DType.BOOL: "unsigned char", DType.F16: "__half", DType.BF16: "__nv_bfloat16"}

_DIVIDE = "{t} q = a / b; return q - ((a % b != 0) & ((a < 0) != (b < 0)));"
_REMAINDER = "{t} r = a % b; return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;"
_FREMAINDER = "{t} r = fmod(a, b); return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;"
_NEAR_DIVIDE = 'float r; asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r;'
"""Eight instructions without a branch; the exact quotient has one, which keeps elements from overlapping."""
_FAST_EXP = 'float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a * 1.44269504f)); return r;'
_NORMCDF = (
    f'float t = fabsf(a), q; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(q) : "f"({horner("t")})); '
    "return a < 0.0f ? q : 1.0f - q;"
)
_POWER = (
    "{t} r = 1; if (b < 0) return a == 1 ? 1 : (~a == 0 ? ((b & 1) ? -1 : 1) : 0); "
    "for (; b > 0; b >>= 1) { if (b & 1) r *= a; a *= a; } return r;"
)


def _math(name: str, integer: str | None = None) -> Template:
    return function(f"{name}{{f}}", integer)


def _extremum(name: str, better: str) -> Template:
    """NaN wins: an instruction of its own for float32 (sm_80 and later), spelled out for float64."""
    single = f'float r; asm("{name}.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r;'
    double = f"return (a {better} b || a != a) ? a : b;"
    return Template("{h}({0}, {1})", f"{name}({{0}}, {{1}})", helper=single, helper_double=double)


TEMPLATES: dict[str, Template] = {
    "add": infix("+"),
    "sub": infix("-"),
    "mul": infix("*"),
    "div": infix("/"),
    "near_div": Template("{h}({0}, {1})", helper=_NEAR_DIVIDE, helper_double="return a / b;"),
    "floordiv": Template("floor{f}({0} / {1})", "{h}({0}, {1})", helper_int=_DIVIDE),
    "mod": Template("{h}({0}, {1})", "{h}({0}, {1})", helper=_FREMAINDER, helper_int=_REMAINDER),
    "quot": Template("trunc{f}({0} / {1})", "{0} / {1}", infix=True),
    "rem": Template("fmod{f}({0}, {1})", "{0} % {1}", infix=True),
    "fmod": Template("fmod{f}({0}, {1})", "{0} % {1}", infix=True),
    "max": _extremum("max", ">"),
    "min": _extremum("min", "<"),
    "fmax": Template("fmax{f}({0}, {1})", "max({0}, {1})"),
    "fmin": Template("fmin{f}({0}, {1})", "min({0}, {1})"),
    "pow": Template("pow{f}({0}, {1})", "{h}({0}, {1})", helper_int=_POWER),
    "atan2": Template("atan2{f}({0}, {1})"),
    "neg": Template("-{0}", "-{0}", infix=True),
    "abs": Template("fabs{f}({0})", "{h}({0})", helper_int="return a < 0 ? -a : a;"),
    "sign": Template("{h}({0})", "{h}({0})", helper="return ({t})(a > 0) - ({t})(a < 0);",
                     helper_int="return (a > 0) - (a < 0);"),
    "floor": _math("floor", "{0}"),
    "ceil": _math("ceil", "{0}"),
    "trunc": _math("trunc", "{0}"),
    "round": _math("rint", "{0}"),
    "exp": _math("exp"),
    "fast_exp": Template("{h}({0})", helper=_FAST_EXP, helper_double="return exp(a);"),
    "exp2": _math("exp2"),
    "expm1": _math("expm1"),
    "log": _math("log"),
    "log2": _math("log2"),
    "log10": _math("log10"),
    "log1p": _math("log1p"),
    "sqrt": _math("sqrt"),
    "rsqrt": _math("rsqrt"),
    "sin": _math("sin"),
    "cos": _math("cos"),
    "tan": _math("tan"),
    "asin": _math("asin"),
    "acos": _math("acos"),
    "atan": _math("atan"),
    "sinh": _math("sinh"),
    "cosh": _math("cosh"),
    "tanh": _math("tanh"),
    "erf": _math("erf"),
    "erfc": _math("erfc"),
    "normcdf": Template("{h}({0})", helper=_NORMCDF, helper_double="return normcdf(a);"),
    "isnan": function("isnan"),
    "isinf": function("isinf"),
    "lt": infix("<"),
    "le": infix("<="),
    "gt": infix(">"),
    "ge": infix(">="),
    "eq": infix("=="),
    "ne": infix("!="),
    "and": infix("&&"),
    "or": infix("||"),
    "not": Template("!{0}", "!{0}", infix=True),
    "bitand": infix("&"),
    "bitor": infix("|"),
    "bitxor": infix("^"),
    "shl": infix("<<"),
    "shr": infix(">>"),
    "select": Template("{0} ? {1} : {2}", "{0} ? {1} : {2}", infix=True),
    "fma": Template("fma{f}({0}, {1}, {2})", "{0} * {1} + {2}", infix=True),
}  # fmt: skip

_VEC = """template <typename T, int N>
struct alignas(sizeof(T) * N) vec {
    T v[N];
};"""


_LOAD_IF = """template <typename V>
static __device__ __forceinline__ V emmy_load_if(bool guard, const void* from) {
    struct alignas(sizeof(V)) words {
        unsigned w[sizeof(V) / 4];
    } r = {};
    if (guard) r = *static_cast<const words*>(from);
    V v;
    memcpy(&v, &r, sizeof(V));
    return v;
}"""
"""A vector or zeros. In words: the compiler takes a choice between vectors of 16-bit elements apart into elements."""


_LOAD_CONST = """template <typename V>
static __device__ __forceinline__ V emmy_load_const(const void* from) {
    V v;
    if constexpr (sizeof(V) == 16) {
        const uint4 r = __ldg(static_cast<const uint4*>(from));
        memcpy(&v, &r, 16);
    } else if constexpr (sizeof(V) == 8) {
        const uint2 r = __ldg(static_cast<const uint2*>(from));
        memcpy(&v, &r, 8);
    } else if constexpr (sizeof(V) == 4) {
        const unsigned r = __ldg(static_cast<const unsigned*>(from));
        memcpy(&v, &r, 4);
    } else {
        v = *static_cast<const V*>(from);
    }
    return v;
}
template <typename V>
static __device__ __forceinline__ V emmy_load_const_if(bool guard, const void* from) {
    struct alignas(sizeof(V)) words {
        unsigned w[sizeof(V) / 4];
    } r = {};
    if (guard) r = emmy_load_const<words>(from);
    V v;
    memcpy(&v, &r, sizeof(V));
    return v;
}"""
"""A vector of what no thread writes. The compiler sees that by itself, and moves such reads over barriers, unless the
buffer's address has gone into an instruction that it does not look into."""


_LOAD_EARLY = """template <typename V>
static __device__ __forceinline__ V emmy_load_early(const void* from) {
    V v;
    if constexpr (sizeof(V) == 16) {
        uint4 r;
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(from));
        memcpy(&v, &r, 16);
    } else if constexpr (sizeof(V) == 8) {
        uint2 r;
        asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(r.x), "=r"(r.y) : "l"(from));
        memcpy(&v, &r, 8);
    } else if constexpr (sizeof(V) == 4) {
        unsigned r;
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(r) : "l"(from));
        memcpy(&v, &r, 4);
    } else {
        v = *static_cast<const V*>(from);
    }
    return v;
}"""
"""A vector by the ordinary path, which keeps its place before a barrier."""


class CudaPrinter(Printer):
    templates = TEMPLATES
    value_types = VALUE_TYPES
    thread_vars = {  # noqa: RUF012 - a table, never changed
        "tx": "threadIdx.x", "ty": "threadIdx.y", "bx": "blockIdx.x", "by": "blockIdx.y", "bz": "blockIdx.z",
        "tid": "threadIdx.x + threadIdx.y * {x}",
    }  # fmt: skip
    reserved = CUDA_WORDS

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.includes: dict[str, None] = {}
        self.hidden = {s.source for s in statements(kernel.body) if isinstance(s, Copy) and s.transport == "async"}
        """Buffers of which the compiler does not see that nobody writes them."""
        for pointer in self.pointers.values():
            self.include_for(pointer.dtype)

    # -------------------------------------------------------------------------------------------- whole kernel

    def include_for(self, dtype: DType) -> None:
        if dtype == DType.F16:
            self.includes["cuda_fp16.h"] = None
        elif dtype == DType.BF16:
            self.includes["cuda_bf16.h"] = None

    def prelude(self) -> list[str]:
        return [f"#include <{name}>" for name in self.includes]

    def parameter(self, param: object) -> str:
        match param:
            case BufferParam(label, dtype, writable):
                const = "" if writable else "const "
                return f"{const}{STORAGE_TYPES[dtype]}* __restrict__ {self.name(label)}"
            case ScalarParam(label, dtype):
                return f"const {VALUE_TYPES[dtype]} {self.name(label)}"
        raise CannotPrint(f"{self.kernel.name}: CUDA has no parameter of type {type(param).__name__}")

    def signature(self) -> str:
        bounds = str(self.kernel.threads) + (f", {self.kernel.min_blocks}" if self.kernel.min_blocks else "")
        cluster = f"__cluster_dims__(1, 1, {self.kernel.cluster}) " if self.kernel.cluster > 1 else ""
        head = f'extern "C" __global__ void {cluster}__launch_bounds__({bounds}) {self.kernel.name}(\n    '
        return head + ",\n    ".join(self.parameter(p) for p in self.kernel.params) + ")"

    def open_shared(self) -> None:
        arrays = self.kernel.shared
        if not abi.dynamic_shared_bytes(self.kernel):
            for array in arrays:
                kind = STORAGE_TYPES[array.dtype]
                self.line(f"__shared__ __align__({array.align}) {kind} {self.name(array.name)}[{array.elements}];")
            return
        align = max(array.align for array in arrays)
        self.line(f"extern __shared__ __align__({align}) unsigned char smem[];")
        for array, offset in zip(arrays, aligned_offsets(arrays), strict=True):
            kind = STORAGE_TYPES[array.dtype]
            self.line(f"{kind}* const {self.name(array.name)} = reinterpret_cast<{kind}*>(smem + {offset});")

    # ------------------------------------------------------------------------------------------------ statements

    def special(self, stmt: Stmt) -> None:
        match stmt:
            case ShuffleXor(name, value, mask):
                self.share(value)
                kind = self.type_of(value)
                self.line(f"const {kind} {self.name(name)} = __shfl_xor_sync(0xffffffffu, {self.text(value)}, {mask});")
            case _:
                super().special(stmt)

    def view(self, stmt: View) -> None:
        base = self.pointer(stmt.buffer)
        self.include_for(stmt.dtype)
        pointer = Pointer(base.space, stmt.dtype, base.writable)
        self.pointers[stmt.name] = pointer
        kind = f"{'' if pointer.writable else 'const '}{STORAGE_TYPES[stmt.dtype]}*"
        address = self.address(stmt.buffer, stmt.base)
        if base.dtype != stmt.dtype:
            address = f"reinterpret_cast<{kind}>({address})"
        self.line(f"{kind} const {self.name(stmt.name)} = {address};")

    def address(self, buffer: str, offset: Expr) -> str:
        text = self.expr(offset)
        return self.name(buffer) if text == "0" else f"{self.name(buffer)} + {text}"

    def store(self, stmt: Store) -> str:
        self.pointer(stmt.buffer)
        if stmt.value.lanes == 1:
            return f"{self.name(stmt.buffer)}[{self.text(stmt.offset)}] = {self.stored(stmt.value, stmt.dtype)};"
        kind = self.vec_type(stmt.dtype, stmt.value.lanes)
        target = f"*reinterpret_cast<{kind}*>({self.address(stmt.buffer, stmt.offset)})"
        return f"{target} = {self.vector_value(stmt.value, stmt.dtype)};"

    def vector_value(self, value: Expr, dtype: DType) -> str:
        """``value`` as a ``vec`` of the storage type."""
        from emmy.ir.expr import Pack

        kind = self.vec_type(dtype, value.lanes)
        match value:
            case Pack(values):
                return f"{kind}{{{{{', '.join(self.stored(v, dtype) for v in values)}}}}}"
            case Var() | Mem() if value.dtype == dtype:
                return self.text(value)
        raise CannotPrint(f"{self.kernel.name}: CUDA has no arithmetic on vectors; run emmy.passes.legalize")

    def stored(self, value: Expr, dtype: DType) -> str:
        """``value`` converted to the storage type."""
        text = self.converted(value, dtype.compute)
        match dtype:
            case DType.F16:
                return f"__float2half_rn({text})"
            case DType.BF16:
                return f"__float2bfloat16_rn({text})"
        return text

    def atomic(self, stmt: Atomic) -> str:
        self.pointer(stmt.buffer)
        address = self.address(stmt.buffer, stmt.offset)
        value = self.stored(stmt.value, stmt.dtype)
        if stmt.op == "add" and stmt.dtype in (DType.F32, DType.F64, DType.F16, DType.BF16, DType.I32):
            return f"atomicAdd({address}, {value});"
        if stmt.dtype in (DType.I32, DType.I64) and stmt.op in ("max", "min"):
            return f"atomic{stmt.op.capitalize()}({address}, {value});"
        if stmt.dtype == DType.F32 and stmt.op in ("max", "min"):
            return f"{self.float_atomic(stmt.op)}({address}, {value});"
        raise CannotPrint(f"{self.kernel.name}: CUDA has no atomic {stmt.op} on {stmt.dtype.value}")

    def float_atomic(self, op: str) -> str:
        """Helper: atomic extremum of floats by compare and swap."""
        name = f"emmy_atomic_{op}"
        return self.helper(
            name,
            lambda: (
                f"""static __device__ __forceinline__ void {name}(float* p, float x) {{
    unsigned* bits = reinterpret_cast<unsigned*>(p);
    unsigned seen = *bits, expected;
    do {{
        expected = seen;
        seen = atomicCAS(bits, expected, __float_as_uint(f{op}f(__uint_as_float(expected), x)));
    }} while (seen != expected);
}}"""
            ),
        )

    def barrier(self, stmt: Barrier) -> str:
        if stmt.scope == "named":
            return f'asm volatile("bar.sync {stmt.id}, {stmt.threads};" ::: "memory");'
        return {"block": "__syncthreads();", "warp": "__syncwarp();"}[stmt.scope]

    # ------------------------------------------------------------------------------------------------ expressions

    def vec_type(self, dtype: DType, lanes: int) -> str:
        self.helper("vec", lambda: _VEC)
        return f"vec<{STORAGE_TYPES[dtype]}, {lanes}>"

    def value_type(self, dtype: DType, lanes: int) -> str:
        return VALUE_TYPES[dtype] if lanes == 1 else self.vec_type(dtype, lanes)

    def constant(self, value: Number, dtype: DType, lanes: int) -> str:
        text = scalar_constant(value, dtype)
        if lanes == 1:
            return text
        return self.filled(value, dtype, lanes)

    def filled(self, value: Number, dtype: DType, lanes: int) -> str:
        """A ``vec`` of the storage type with every lane ``value``."""
        from emmy.ir.expr import Const

        one = self.stored(Const(value, dtype), dtype)
        return f"{self.vec_type(dtype, lanes)}{{{{{', '.join([one] * lanes)}}}}}"

    def load(self, node: Mem) -> str:
        self.pointer(node.buffer)
        if node.lanes == 1:
            text = self.loaded(f"{self.name(node.buffer)}[{self.text(node.offset)}]", node.dtype)
        else:
            kind = self.vec_type(node.dtype, node.lanes)
            text = f"*reinterpret_cast<const {kind}*>({self.address(node.buffer, node.offset)})"
        if node.guard is None and node.lanes > 1 and node.early:
            self.helper("emmy_load_early", lambda: _LOAD_EARLY)
            return f"emmy_load_early<{kind}>({self.address(node.buffer, node.offset)})"
        whole = node.lanes > 1 and node.lanes * node.dtype.nbytes % 4 == 0
        const = whole and node.buffer in self.hidden and not self.pointer(node.buffer).writable
        if const:
            self.helper("emmy_load_const", lambda: _LOAD_CONST)
        if node.guard is None:
            return f"emmy_load_const<{kind}>({self.address(node.buffer, node.offset)})" if const else text
        if whole and node.fill == 0:
            name = "emmy_load_const_if" if const else "emmy_load_if"
            if not const:
                self.helper("emmy_load_if", lambda: _LOAD_IF)
            return f"{name}<{kind}>({self.expr(node.guard)}, {self.address(node.buffer, node.offset)})"
        return f"({self.expr(node.guard)} ? {text} : {self.constant(node.fill, node.dtype, node.lanes)})"

    def loaded(self, text: str, dtype: DType) -> str:
        """A stored element as a value."""
        match dtype:
            case DType.F16:
                return f"__half2float({text})"
            case DType.BF16:
                return f"__bfloat162float({text})"
            case DType.BOOL:
                return f"({text} != 0)"
        return text

    def lane(self, value: Expr, lane: int) -> str:
        if not isinstance(value, Var | Mem):
            raise CannotPrint(f"{self.kernel.name}: CUDA has no arithmetic on vectors; run emmy.passes.legalize")
        return self.loaded(f"{self.expr(value)}.v[{lane}]", value.dtype)

    def pack(self, values: tuple[Expr, ...]) -> str:
        raise CannotPrint(f"{self.kernel.name}: CUDA packs lanes only into a store; run emmy.passes.legalize")

    def splat(self, value: Expr, lanes: int) -> str:
        raise CannotPrint(f"{self.kernel.name}: CUDA has no arithmetic on vectors; run emmy.passes.legalize")

    def converted(self, value: Expr, dtype: DType) -> str:
        text = self.expr(value)
        if value.dtype.compute == dtype.compute:
            return text
        return f"({text} != 0)" if dtype == DType.BOOL else f"({VALUE_TYPES[dtype]}){text}"

    def call(self, node: Call) -> tuple[str, bool]:
        if node.lanes > 1:
            raise CannotPrint(f"{self.kernel.name}: CUDA has no arithmetic on vectors; run emmy.passes.legalize")
        if node.fn == "cast":
            return self.cast(node), False
        pattern, row, kind = self.template(node)
        dtype = operand_dtype_of(node)
        args = [self.converted(arg, dtype) for arg in node.args]
        if node.fn == "select":
            args[0] = self.expr(node.args[0])
        helper = self.function_helper(node.fn, row, kind, dtype) if "{h}" in pattern else ""
        text = pattern.format(*args, f="" if dtype == DType.F64 else "f", h=helper)
        if node.dtype in (DType.U8, DType.I8, DType.I16):
            return f"({VALUE_TYPES[node.dtype]})({text})", False  # C computes narrow integers as int
        return text, row.infix

    def cast(self, node: Call) -> str:
        (value,) = node.args
        match node.dtype:
            case DType.F16 | DType.BF16:
                self.include_for(node.dtype)
                return self.loaded(self.stored(value, node.dtype), node.dtype)
        return self.converted(value, node.dtype)

    def function_helper(self, fn: str, row: Template, kind: str, dtype: DType) -> str:
        name = f"emmy_{fn}_{dtype.compute.value}"
        t = VALUE_TYPES[dtype.compute]
        body = (row.helper if kind == "floating" else row.helper_int) or ""
        if dtype == DType.F64 and row.helper_double is not None:
            body = row.helper_double
        params = ", ".join(f"{t} {c}" for c in "abc"[: FUNCTIONS[fn].arity])
        definition = f"static __device__ __forceinline__ {t} {name}({params}) {{ {body.replace('{t}', t)} }}"
        return self.helper(name, lambda: definition)


def scalar_constant(value: Number, dtype: DType) -> str:
    """A scalar literal of ``dtype``."""
    if dtype == DType.BOOL:
        return "true" if value else "false"
    if dtype == DType.F64:
        value = float(value)
        special = {"nan": "0x7ff8000000000000LL", "inf": "0x7ff0000000000000LL", "-inf": "0xfff0000000000000LL"}
        bits = special.get(repr(value))
        text = f"__longlong_as_double({bits})" if bits else float_digits(value)
    elif dtype.is_float:
        value = float(value)
        bits = {"nan": "0x7fc00000", "inf": "0x7f800000", "-inf": "0xff800000"}.get(repr(value))
        text = f"__int_as_float({bits})" if bits else float_digits(value) + "f"
    else:
        value, suffix = int(value), "LL" if dtype == DType.I64 else ""
        lowest = {DType.I32: -(2**31), DType.I64: -(2**63)}.get(dtype)
        text = f"{value + 1}{suffix} - 1" if value == lowest else f"{value}{suffix}"
    return f"({text})" if text.startswith("-") else text
