"""Prints kernel IR as OpenCL C. Vectors are the language's own ``floatN``; a vector of booleans is an int mask (-1, 0).

16-bit floats need no extension: half goes through vload_half and vstore_half, bfloat16 through shifts of ushort.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from emmy.codegen import opencl_math
from emmy.codegen.normal import horner
from emmy.codegen.text import CannotPrint, Pointer, Printer, Template, float_digits, function, infix, operand_dtype
from emmy.codegen.words import OPENCL_WORDS
from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Expr, Mem, Number
from emmy.ir.kernel import Atomic, Barrier, BufferParam, Kernel, ScalarParam, Store, View
from emmy.ir.scalar import FUNCTIONS

VALUE_TYPES = {
    DType.BOOL: "bool", DType.U8: "uchar", DType.I8: "char", DType.I16: "short", DType.I32: "int", DType.I64: "long",
    DType.F16: "float", DType.BF16: "float", DType.F32: "float", DType.F64: "double",
}  # fmt: skip
STORAGE_TYPES = VALUE_TYPES | {DType.BOOL: "uchar", DType.F16: "half", DType.BF16: "ushort"}
_OF_MASKS = {"max": "min", "min": "max", "fmax": "fmin", "fmin": "fmax", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
"""What orders masks as the function orders booleans: true is -1."""
_NARROW = (DType.U8, DType.I8, DType.I16)
MASK_TYPES = {1: "char", 2: "short", 4: "int", 8: "long"}

_DIVIDE = "{t} q = a / b; return q - ((a % b != 0) & ((a < 0) != (b < 0)));"
_REMAINDER = "{t} r = a % b; return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;"
_FREMAINDER = "{t} r = fmod(a, b); return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;"
_TANH = "return fabs(a) > 9.02f ? copysign(({t})(1.0f), a) : tanh(a);"
"""PoCL's own ends in ±0.99999994; beyond 9.02 the nearest float is ±1, and the library is not relied on there."""
_NORMCDF = f"float t = fabs(a), q = exp({horner('t', math.log(2))}); return a < 0.0f ? q : 1.0f - q;"
_POWER = (
    "{t} r = 1; if (b < 0) return a == 1 ? 1 : (~a == 0 ? ((b & 1) ? -1 : 1) : 0); "
    "for (; b > 0; b >>= 1) { if (b & 1) r *= a; a *= a; } return r;"
)


def _near_zero(name: str, series: str) -> Template:
    """A function of which PoCL's vector form is wrong by as much as its argument where |x| < 2^-7.

    It is where another lane is beyond 39000: then all lanes take the reduction for large arguments (PoCL 3.0, AMD EPYC,
    2026-11-30: sin of 1e-30 beside 1e10 is 0.0099). ``series`` has a relative error of at most 1e-9 there.
    """
    text = f"return fabs(a) < 0.0078125f ? {series} : {name}(a);"
    return Template("{h}({0})", helper=f"return {name}(a);", helper_vector=text, double=f"{name}({{0}})")


TEMPLATES: dict[str, Template] = {
    "add": infix("+"),
    "sub": infix("-"),
    "mul": infix("*"),
    "div": infix("/"),
    "near_div": Template("{0} / {1}", infix=True),
    "floordiv": Template("floor({0} / {1})", "{h}({0}, {1})", helper_int=_DIVIDE),
    "mod": Template("{h}({0}, {1})", "{h}({0}, {1})", helper=_FREMAINDER, helper_int=_REMAINDER),
    "quot": Template("trunc({0} / {1})", "{0} / {1}", infix=True),
    "rem": Template("fmod({0}, {1})", "{0} % {1}", infix=True),
    "fmod": Template("fmod({0}, {1})", "{0} % {1}", infix=True),
    "max": Template(
        "{h}({0}, {1})", "max({0}, {1})", helper="return (a > b || a != a) ? a : b;",
        helper_vector="return ((a > b) | (a != a)) ? a : b;",
    ),
    "min": Template(
        "{h}({0}, {1})", "min({0}, {1})", helper="return (a < b || a != a) ? a : b;",
        helper_vector="return ((a < b) | (a != a)) ? a : b;",
    ),
    "fmax": Template("fmax({0}, {1})", "max({0}, {1})"),
    "fmin": Template("fmin({0}, {1})", "min({0}, {1})"),
    "pow": Template("pow({0}, {1})", "{h}({0}, {1})", helper_int=_POWER),
    "atan2": Template("atan2({0}, {1})"),
    "neg": Template("-{0}", "-{0}", infix=True),
    "abs": Template("fabs({0})", "{h}({0})", helper_int="return a < 0 ? -a : a;"),
    "sign": Template("sign({0})", "{h}({0})", helper_int="return (a > 0) - (a < 0);"),
    "floor": function("floor", "{0}"),
    "ceil": function("ceil", "{0}"),
    "trunc": function("trunc", "{0}"),
    "round": function("rint", "{0}"),
    "exp": function("exp"),
    "fast_exp": Template("native_exp({0})", double="exp({0})"),
    "exp2": function("exp2"),
    "expm1": function("expm1"),
    "log": function("log"),
    "log2": function("log2"),
    "log10": function("log10"),
    "log1p": function("log1p"),
    "sqrt": function("sqrt"),
    "rsqrt": function("rsqrt"),
    "sin": _near_zero("sin", "a - a * a * a * 0.16666667f"),
    "cos": _near_zero("cos", "1.0f - a * a * 0.5f"),
    "tan": _near_zero("tan", "a + a * a * a * 0.33333333f"),
    "asin": function("asin"),
    "acos": function("acos"),
    "atan": function("atan"),
    "sinh": function("sinh"),
    "cosh": function("cosh"),
    "tanh": Template("{h}({0})", helper=_TANH, helper_vector=_TANH, double="tanh({0})"),
    "erf": function("erf"),
    "erfc": function("erfc"),
    "normcdf": Template("{h}({0})", helper=_NORMCDF, double="(0.5 * erfc({0} * -0.70710678118654752))"),
    "isnan": Template("{0} != {0}", infix=True),
    "isinf": function("isinf"),
    "lt": infix("<"),
    "le": infix("<="),
    "gt": infix(">"),
    "ge": infix(">="),
    "eq": infix("=="),
    "ne": infix("!="),
    "and": infix("&&", "&"),
    "or": infix("||", "|"),
    "not": Template("!{0}", "!{0}", "~{0}", infix=True),
    "bitand": infix("&"),
    "bitor": infix("|"),
    "bitxor": infix("^"),
    "shl": infix("<<"),
    "shr": infix(">>"),
    "select": Template("{0} ? {1} : {2}", "{0} ? {1} : {2}", infix=True),
    "fma": Template("{0} * {1} + {2}", "{0} * {1} + {2}", infix=True),  # r += a * b beats fma() on CPUs
}  # fmt: skip

_SPACES = {"global": "__global", "shared": "__local"}


class OpenCLPrinter(Printer):
    templates = TEMPLATES
    value_types = VALUE_TYPES
    thread_vars = {  # noqa: RUF012 - a table, never changed
        "tx": "get_local_id(0)", "ty": "get_local_id(1)",
        "bx": "get_group_id(0)", "by": "get_group_id(1)", "bz": "get_group_id(2)",
        "tid": "get_local_id(0) + get_local_id(1) * {x}",
    }  # fmt: skip
    reserved = OPENCL_WORDS

    # -------------------------------------------------------------------------------------------- whole kernel

    def prelude(self) -> list[str]:
        types = {p.dtype for p in self.pointers.values()}
        return ["#pragma OPENCL EXTENSION cl_khr_fp64 : enable"] if DType.F64 in types else []

    def signature(self) -> str:
        parts = []
        for param in self.kernel.params:
            match param:
                case BufferParam(label, dtype, writable):
                    const = "" if writable else "const "
                    parts.append(f"__global {const}{STORAGE_TYPES[dtype]}* restrict {self.name(label)}")
                case ScalarParam(label, dtype):
                    parts.append(f"const {VALUE_TYPES[dtype]} {self.name(label)}")
                case _:
                    raise CannotPrint(f"{self.kernel.name}: OpenCL has no parameter of type {type(param).__name__}")
        x, y = self.kernel.block
        head = f"__attribute__((reqd_work_group_size({x}, {y}, 1)))\n__kernel void {self.kernel.name}(\n    "
        return head + ",\n    ".join(parts) + ")"

    def open_shared(self) -> None:
        for array in self.kernel.shared:
            # without cl_khr_fp16 only pointers to half exist
            kind = "ushort" if array.dtype == DType.F16 else STORAGE_TYPES[array.dtype]
            name = self.name(array.name)
            if array.dtype == DType.F16:
                self.line(f"__local {kind} {name}_bits[{array.elements}] __attribute__((aligned({array.align})));")
                self.line(f"__local half* const {name} = (__local half*){name}_bits;")
            else:
                self.line(f"__local {kind} {name}[{array.elements}] __attribute__((aligned({array.align})));")

    # ------------------------------------------------------------------------------------------------ statements

    def pointer_type(self, pointer: Pointer) -> str:
        const = "" if pointer.writable else "const "
        return f"{_SPACES[pointer.space]} {const}{STORAGE_TYPES[pointer.dtype]}*"

    def view(self, stmt: View) -> None:
        base = self.pointer(stmt.buffer)
        pointer = Pointer(base.space, stmt.dtype, base.writable)
        self.pointers[stmt.name] = pointer
        address = f"{self.name(stmt.buffer)} + {self.expr(stmt.base)}"
        if base.dtype != stmt.dtype:
            address = f"({self.pointer_type(pointer)})({address})"
        self.line(f"{self.pointer_type(pointer)} const {self.name(stmt.name)} = {address};")

    def address(self, buffer: str, offset: Expr) -> str:
        text = self.expr(offset)
        return self.name(buffer) if text == "0" else f"{self.name(buffer)} + {text}"

    def bits(self, buffer: str, dtype: DType, offset: Expr, *, write: bool) -> str:
        """Address of ``offset`` as a pointer to the integer of the same width, to move elements unconverted."""
        space = _SPACES[self.pointer(buffer).space]
        if dtype != DType.F16:
            return self.address(buffer, offset)
        return f"({space} {'' if write else 'const '}ushort*)({self.address(buffer, offset)})"

    def store(self, stmt: Store) -> str:
        buffer, value, dtype = self.name(stmt.buffer), stmt.value, stmt.dtype
        self.pointer(stmt.buffer)
        lanes = value.lanes
        if isinstance(value, Mem) and value.dtype == dtype and value.guard is None and lanes > 1:
            source = self.wide(value.buffer, dtype, lanes, self.bits(value.buffer, dtype, value.offset, write=False))
            target = self.wide(stmt.buffer, dtype, lanes, self.bits(stmt.buffer, dtype, stmt.offset, write=True))
            return f"{target} = {source};"
        text = self.converted(value, dtype.compute)
        if lanes == 1:
            offset = self.text(stmt.offset)
            if dtype == DType.F16:
                return f"vstore_half({text}, {offset}, {buffer});"
            if dtype == DType.BF16:
                text = f"{self.bf16_bits(1)}({text})"
            return f"{buffer}[{offset}] = {text};"
        address = self.address(stmt.buffer, stmt.offset)
        if dtype == DType.F16:
            return f"vstore_half{lanes}({text}, 0, {address});"
        if dtype == DType.BF16:
            text = f"{self.bf16_bits(lanes)}({text})"
        if dtype == DType.BOOL:
            text = f"convert_uchar{lanes}({text} & 1)"
        return f"{self.wide(stmt.buffer, dtype, lanes, address)} = {text};"

    def wide(self, buffer: str, dtype: DType, lanes: int, address: str) -> str:
        """``lanes`` elements at ``address`` as one vector lvalue that is aligned like an element.

        Not vloadN and vstoreN: where PoCL compiles for an older processor than its built-in library was compiled for,
        they stay calls, and every register is saved around each (AMD EPYC 9004, PoCL 3.0, 2026-11-30: a 256³ matmul
        takes three times as long).
        """
        kind = "ushort" if dtype == DType.F16 else STORAGE_TYPES[dtype]
        name = f"{kind}{lanes}_at"
        definition = f"typedef {kind} {name} __attribute__((ext_vector_type({lanes}), aligned({dtype.nbytes})));"
        self.helper(name, lambda: definition)
        space = _SPACES[self.pointer(buffer).space]
        const = "" if self.pointer(buffer).writable else "const "
        return f"*({space} {const}{name}*)({address})"

    def bf16_bits(self, lanes: int) -> str:
        """Helper: float to the nearest bfloat16 (ties to even) as ushort; a NaN keeps its quiet bit."""
        n = "" if lanes == 1 else str(lanes)
        rounded = "(u + 0x7FFF + ((u >> 16) & 1)) >> 16"
        quiet = "(u >> 16) | 0x40"
        pick = f"isnan(x) ? {quiet} : {rounded}" if lanes == 1 else f"select({rounded}, {quiet}, isnan(x))"
        return self.helper(
            f"emmy_bf16{n and 'x'}{n}",
            lambda: (
                f"static inline ushort{n} emmy_bf16{n and 'x'}{n}(float{n} x) "
                f"{{ uint{n} u = as_uint{n}(x); return convert_ushort{n}({pick}); }}"
            ),
        )

    def atomic(self, stmt: Atomic) -> str:
        self.pointer(stmt.buffer)
        address = self.address(stmt.buffer, stmt.offset)
        value = self.converted(stmt.value, stmt.dtype.compute)
        if stmt.dtype == DType.I32:
            return f"atomic_{stmt.op}({address}, {value});"
        if stmt.dtype != DType.F32:
            raise CannotPrint(f"{self.kernel.name}: OpenCL has no atomic {stmt.op} on {stmt.dtype.value}")
        space = _SPACES[self.pointer(stmt.buffer).space]
        merged = {"add": "old + x", "max": "fmax(old, x)", "min": "fmin(old, x)"}[stmt.op]
        name = self.helper(
            f"emmy_atomic_{stmt.op}_{self.pointer(stmt.buffer).space}",
            lambda: (
                f"static inline void emmy_atomic_{stmt.op}_{self.pointer(stmt.buffer).space}"
                f"(volatile {space} float* p, float x) {{\n"
                f"    volatile {space} uint* bits = (volatile {space} uint*)p;\n"
                f"    uint seen = *bits, expected;\n"
                f"    do {{ expected = seen; float old = as_float(expected); "
                f"seen = atomic_cmpxchg(bits, expected, as_uint({merged})); }} while (seen != expected);\n}}"
            ),
        )
        return f"{name}({address}, {value});"

    def barrier(self, stmt: Barrier) -> str:
        if stmt.scope != "block":
            raise CannotPrint(f"{self.kernel.name}: OpenCL has no barrier of scope {stmt.scope}")
        return "barrier(CLK_LOCAL_MEM_FENCE);"

    # ------------------------------------------------------------------------------------------------ expressions

    def value_type(self, dtype: DType, lanes: int) -> str:
        if lanes == 1:
            return VALUE_TYPES[dtype]
        return f"{'int' if dtype == DType.BOOL else VALUE_TYPES[dtype]}{lanes}"

    def constant(self, value: Number, dtype: DType, lanes: int) -> str:
        if lanes > 1 and dtype == DType.BOOL:
            return f"(int{lanes})({-1 if value else 0})"
        text = scalar_constant(value, dtype)
        return text if lanes == 1 else f"({self.value_type(dtype, lanes)})({text})"

    def must_name(self, node: Expr) -> bool:
        # a ternary on vectors evaluates both sides: a guarded vector is loaded by an if
        return isinstance(node, Mem) and node.guard is not None and node.lanes > 1

    def define(self, name: str, node: Expr) -> None:
        if isinstance(node, Mem) and node.guard is not None and node.lanes > 1:
            self.line(f"{self.type_of(node)} {name} = {self.constant(node.fill, node.dtype, node.lanes)};")
            self.line(f"if ({self.text(node.guard)}) {name} = {self.access(node)};")
        else:
            super().define(name, node)

    def load(self, node: Mem) -> str:
        text = self.access(node)
        if node.guard is None:
            return text
        return f"({self.expr(node.guard)} ? {text} : {self.constant(node.fill, node.dtype, 1)})"

    def access(self, node: Mem) -> str:
        buffer, dtype, n = self.name(node.buffer), node.dtype, node.lanes
        self.pointer(node.buffer)
        if n == 1:
            offset = self.text(node.offset)
            match dtype:
                case DType.F16:
                    return f"vload_half({offset}, {buffer})"
                case DType.BF16:
                    return f"as_float((uint){buffer}[{offset}] << 16)"
                case DType.BOOL:
                    return f"({buffer}[{offset}] != 0)"
            return f"{buffer}[{offset}]"
        address = self.address(node.buffer, node.offset)
        match dtype:
            case DType.F16:
                return f"vload_half{n}(0, {address})"
            case DType.BF16:
                return f"as_float{n}(convert_uint{n}({self.wide(node.buffer, dtype, n, address)}) << 16)"
            case DType.BOOL:
                return f"(convert_int{n}({self.wide(node.buffer, dtype, n, address)}) != 0)"
        return self.wide(node.buffer, dtype, n, address)

    def lane(self, value: Expr, lane: int) -> str:
        text = f"{self.expr(value)}.s{lane:x}"
        return f"({text} != 0)" if value.dtype == DType.BOOL else text

    def pack(self, values: tuple[Expr, ...]) -> str:
        kind = self.value_type(values[0].dtype, len(values))
        parts = [f"-{self.expr(v)}" if v.dtype == DType.BOOL else self.text(v) for v in values]
        return f"({kind})({', '.join(parts)})"

    def splat(self, value: Expr, lanes: int) -> str:
        if value.dtype == DType.BOOL:
            return f"(int{lanes})(-{self.expr(value)})"
        return f"({self.value_type(value.dtype, lanes)})({self.text(value)})"

    def widened(self, value: Expr, lanes: int) -> str:
        """``value`` with as many lanes as the call it is an operand of."""
        return self.splat(value, lanes) if value.lanes < lanes else self.expr(value)

    def converted(self, value: Expr, dtype: DType, lanes: int | None = None) -> str:
        """``value`` as an operand of type ``dtype``: vectors and narrowing need it said."""
        lanes = value.lanes if lanes is None else lanes
        text = self.widened(value, lanes)
        if value.dtype.compute == dtype.compute:
            return text
        if lanes == 1:
            if dtype == DType.BOOL:
                return f"({text} != 0)"
            return f"({VALUE_TYPES[dtype]}){text}"
        if value.dtype == DType.BOOL:
            return f"convert_{self.value_type(dtype, lanes)}({text} & 1)"
        if dtype == DType.BOOL:
            return self.as_mask(f"({text} != {self.constant(0, value.dtype, lanes)})", value.dtype, lanes)
        return f"convert_{self.value_type(dtype, lanes)}({text})"

    def as_mask(self, text: str, operand: DType, lanes: int) -> str:
        """A comparison of vectors yields integers as wide as its operands; masks are kept as int."""
        width = 4 if operand == DType.BOOL else operand.compute.nbytes
        return text if width == 4 else f"convert_int{lanes}({text})"

    def call(self, node: Call) -> tuple[str, bool]:
        if node.fn == "cast":
            return self.cast(node), False
        dtype, n = operand_dtype(node), node.lanes
        if n > 1 and dtype == DType.BOOL:
            node = replace(node, fn=_OF_MASKS.get(node.fn, node.fn))
        if node.fn in opencl_math.FUNCTIONS and n > 1 and dtype.compute == DType.F32:
            for fn in opencl_math.FUNCTIONS[node.fn]:
                self.helper(opencl_math.name_of(fn, n), partial(opencl_math.definition, fn, n))
            return f"{opencl_math.name_of(node.fn, n)}({self.converted(node.args[0], dtype, n)})", False
        pattern, row, kind = self.template(node)
        args = [self.converted(arg, dtype, n) for arg in node.args]
        if node.fn == "select":
            args[0] = self.condition(node.args[0], dtype, n)
        elif n == 1 and dtype in _NARROW and not row.infix:
            # literals and choices are int in C, and no overload takes an int beside a narrower integer
            args = [f"({VALUE_TYPES[dtype]}){arg}" for arg in args]
        helper = ""
        if "{h}" in pattern:
            helper = self.function_helper(node.fn, row, kind, dtype, n)
        text = pattern.format(*args, h=helper)
        parenthesise = row.infix
        if n > 1 and node.dtype == DType.BOOL and node.fn not in ("and", "or", "not", "select"):
            text, parenthesise = self.as_mask(f"({text})", dtype, n), False
        if n == 1 and node.dtype in _NARROW:
            text, parenthesise = f"({VALUE_TYPES[node.dtype]})({text})", False  # C computes narrow integers as int
        return text, parenthesise

    def condition(self, cond: Expr, dtype: DType, lanes: int) -> str:
        """The first operand of a select between values of ``dtype``: a mask of their width for vectors."""
        text = self.widened(cond, lanes)
        width = 4 if dtype == DType.BOOL else dtype.compute.nbytes
        return text if lanes == 1 or width == 4 else f"convert_{MASK_TYPES[width]}{lanes}({text})"

    def cast(self, node: Call) -> str:
        (value,) = node.args
        n = node.lanes
        if node.dtype in (DType.F16, DType.BF16):
            return self.rounded(self.converted(value, DType.F32), node.dtype, n)
        return self.converted(value, node.dtype)

    def rounded(self, text: str, dtype: DType, lanes: int) -> str:
        """A float rounded to a 16-bit type and held as float again."""
        n = "" if lanes == 1 else str(lanes)
        name = f"emmy_round_{dtype.value}{n and 'x'}{n}"
        if dtype == DType.BF16:
            bits = self.bf16_bits(lanes)
            body = f"return as_float{n}(convert_uint{n}({bits}(x)) << 16);"
        else:
            body = f"half h[{lanes}]; vstore_half{n}(x, 0, h); return vload_half{n}(0, h);"
            body = body.replace(f"half h[{lanes}];", f"ushort u[{lanes}]; half* h = (half*)u;")
        definition = f"static inline float{n} {name}(float{n} x) {{ {body} }}"
        return f"{self.helper(name, lambda: definition)}({text})"

    def function_helper(self, fn: str, row: Template, kind: str, dtype: DType, lanes: int) -> str:
        """Name of the helper function for ``fn``; vectors without a text of their own go lane by lane."""
        letters = "abc"[: FUNCTIONS[fn].arity]
        suffix = dtype.compute.value + ("" if lanes == 1 else f"x{lanes}")
        name = f"emmy_{fn}_{suffix}"
        kind_text = self.value_type(dtype.compute, lanes)
        scalar = row.helper if kind == "floating" else row.helper_int

        def make() -> str:
            head = f"static inline {kind_text} {name}({', '.join(f'{kind_text} {c}' for c in letters)})"
            if lanes == 1:
                body = scalar or ""
            elif kind == "floating" and row.helper_vector is not None:
                body = row.helper_vector
            else:
                one = self.function_helper(fn, row, kind, dtype, 1)
                parts = [f"{one}({', '.join(f'{c}.s{k:x}' for c in letters)})" for k in range(lanes)]
                body = f"return ({kind_text})({', '.join(parts)});"
            return f"{head} {{ {body.replace('{t}', kind_text)} }}"

        if lanes > 1 and not (kind == "floating" and row.helper_vector is not None):
            self.function_helper(fn, row, kind, dtype, 1)  # defined before the vector form that calls it
        return self.helper(name, make)


def scalar_constant(value: Number, dtype: DType) -> str:
    """A scalar literal of ``dtype``."""
    if dtype == DType.BOOL:
        return "true" if value else "false"
    if dtype.is_float:
        value, suffix = float(value), "" if dtype == DType.F64 else "f"
        if math.isnan(value):
            text = "NAN"
        elif math.isinf(value):
            text = "INFINITY" if value > 0 else "-INFINITY"
        else:
            text = float_digits(value) + suffix
    else:
        value, suffix = int(value), "L" if dtype == DType.I64 else ""
        lowest = {DType.I32: -(2**31), DType.I64: -(2**63)}.get(dtype)
        text = f"{value + 1}{suffix} - 1" if value == lowest else f"{value}{suffix}"
    return f"({text})" if text.startswith("-") else text


def emit(kernel: Kernel) -> str:
    """OpenCL C text of an expanded and legalised kernel. Raises CannotPrint for what passes should have removed."""
    if kernel.cluster > 1:
        raise CannotPrint(f"{kernel.name}: OpenCL has no clusters of blocks", found=kernel.cluster)
    return OpenCLPrinter(kernel).emit()
