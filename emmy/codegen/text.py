"""What the source printers have in common: statements in order, names, temporaries for shared subexpressions, helpers.

A printer decides nothing: each statement and each function has one text. A value of a 16-bit float type is held as a
float; only memory holds 16 bits.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from emmy.codegen.sharing import Numbering, number
from emmy.errors import EmmyError
from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Expr, Lane, Mem, Number, Pack, Reg, Splat, Var, walk
from emmy.ir.kernel import (
    THREAD_VARS,
    Atomic,
    Barrier,
    BufferParam,
    Comment,
    For,
    If,
    Kernel,
    Let,
    RegArray,
    RegSet,
    Shared,
    Stmt,
    Store,
    View,
    statements,
)


class CannotPrint(EmmyError):
    """A kernel holds something that the language has no text for: a legalising or expanding pass was not run."""


@dataclass(frozen=True, slots=True)
class Template:
    """Text of a function call. ``{0}``… operands, ``{f}`` the suffix of float32 functions, ``{h}`` the helper's name.

    floating, integer: text for float and for integer (and bool) operands; None where the function has no such form.
    vector: text for operands of several lanes, where it differs.
    helper: body of a function ``{h}`` that the text calls, over ``a, b, c`` of type ``{t}``; ``helper_int`` likewise
    for integers, ``helper_vector`` for vectors of floats (with ``{m}`` the mask type); without it a vector is done
    lane by lane. ``helper_double``: for float64, where it differs.
    double: text for float64, where it differs from that for float32.
    infix: the text needs parentheses inside another expression.
    """

    floating: str | None
    integer: str | None = None
    vector: str | None = None
    helper: str | None = None
    helper_int: str | None = None
    helper_vector: str | None = None
    helper_double: str | None = None
    double: str | None = None
    infix: bool = False


def infix(op: str, vector: str | None = None) -> Template:
    text = f"{{0}} {op} {{1}}"
    return Template(text, text, None if vector is None else f"{{0}} {vector} {{1}}", infix=True)


def function(name: str, integer: str | None = None) -> Template:
    return Template(f"{name}({{0}})", integer)


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a buffer name points: its address space (``global`` or ``shared``) and storage type."""

    space: str
    dtype: DType
    writable: bool


class Printer(ABC):
    """Prints one kernel. Subclasses hold the language's types, templates and memory accesses."""

    templates: dict[str, Template]
    value_types: dict[DType, str]
    thread_vars: dict[str, str]
    reserved: frozenset[str]

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self.depth = 1
        self.helpers: dict[str, str] = {}
        self.pointers: dict[str, Pointer] = {}
        self.taken = _names(kernel)
        self.fresh_count = 0
        self.numbering: Numbering | None = None
        self.temporaries: dict[int, str] = {}
        for param in kernel.params:
            if isinstance(param, BufferParam):
                self.pointers[param.name] = Pointer("global", param.dtype, param.writable)
        for array in kernel.shared:
            self.pointers[array.name] = Pointer("shared", array.dtype, True)

    # ------------------------------------------------------------------------------------------- whole kernel

    def emit(self) -> str:
        self.open_shared()
        used = {node.name for stmt in statements(self.kernel.body) for expr in stmt.exprs for node in walk(expr)
                if isinstance(node, Var)}  # fmt: skip
        for name in sorted(used & THREAD_VARS):
            text = self.thread_vars["tx" if name == "tid" and self.kernel.block[1] == 1 else name]
            self.line(f"const int {name} = {text.format(x=self.kernel.block[0])};")
        self.body(self.kernel.body)
        signature = self.signature()  # may need a helper type
        whole = [*self.prelude(), *self.helpers.values(), signature + " {", *self.lines, "}"]
        return "\n".join(whole) + "\n"

    @abstractmethod
    def prelude(self) -> list[str]: ...

    @abstractmethod
    def signature(self) -> str: ...

    @abstractmethod
    def open_shared(self) -> None: ...

    # --------------------------------------------------------------------------------------------- statements

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def body(self, stmts: tuple[Stmt, ...]) -> None:
        for stmt in stmts:
            self.stmt(stmt)

    def nested(self, stmts: tuple[Stmt, ...]) -> None:
        self.depth += 1
        self.body(stmts)
        self.depth -= 1

    def stmt(self, stmt: Stmt) -> None:
        match stmt:
            case Comment(text):
                self.line(f"// {text}")
            case View():
                self.share(stmt.base)
                self.view(stmt)
            case Let(name, value):
                self.share(value)
                self.line(f"const {self.type_of(value)} {self.name(name)} = {self.text(value)};")
            case RegArray():
                self.registers(stmt)
            case RegSet(target, value):
                self.share(value)
                self.line(f"{self.slot(target)} = {self.text(value)};")
            case For():
                self.loop(stmt)
            case If(cond, then, orelse):
                self.share(cond)
                self.line(f"if ({self.text(cond)}) {{")
                self.nested(then)
                if orelse:
                    self.line("} else {")
                    self.nested(orelse)
                self.line("}")
            case Store():
                self.share(*stmt.exprs)
                self.guarded(stmt.guard, self.store(stmt))
            case Atomic():
                self.share(*stmt.exprs)
                self.guarded(stmt.guard, self.atomic(stmt))
            case Barrier():
                self.line(self.barrier(stmt))
            case _:
                self.special(stmt)

    def special(self, stmt: Stmt) -> None:
        """Statements that only one language has. Raises CannotPrint for any other."""
        raise CannotPrint(
            f"{self.kernel.name}: no text for the statement {type(stmt).__name__}",
            hint="run emmy.passes.expand and emmy.passes.legalize first",
        )

    def guarded(self, guard: Expr | None, text: str) -> None:
        self.line(f"if ({self.text(guard)}) {text}" if guard is not None else text)

    def loop(self, stmt: For) -> None:
        if stmt.unroll == "full":
            raise CannotPrint(f"{self.kernel.name}: the loop over {stmt.var} is to be unrolled by expansion")
        self.share(stmt.start, stmt.stop, stmt.step)
        stop = self.once(stmt.stop)
        step = self.once(stmt.step)
        var = self.name(stmt.var)
        start = self.text(stmt.start)
        kind = self.value_types[stmt.start.dtype]
        if stmt.unroll == "hint":
            self.line("#pragma unroll")
        self.line(f"for ({kind} {var} = {start}; {var} < {stop}; {var} += {step}) {{")
        self.nested(stmt.body)
        self.line("}")

    def once(self, expr: Expr) -> str:
        """Text of a loop bound; one that needs computing is computed before the loop."""
        if isinstance(expr, Const | Var):
            return self.text(expr)
        name = self.fresh()
        self.line(f"const {self.type_of(expr)} {name} = {self.text(expr)};")
        return name

    def registers(self, stmt: RegArray) -> None:
        kind = self.value_type(stmt.dtype, stmt.lanes)
        fill = "" if stmt.init is None else f" = {self.constant(stmt.init, stmt.dtype, stmt.lanes)}"
        names = [self.slot_name(stmt.name, index) + fill for index in indices(stmt.shape)]
        for first in range(0, len(names), 8):
            self.line(f"{kind} {', '.join(names[first : first + 8])};")

    def slot(self, reg: Reg) -> str:
        index = []
        for expr in reg.index:
            if not isinstance(expr, Const):
                raise CannotPrint(f"{self.kernel.name}: register array {reg.name} has an index that is not constant")
            index.append(int(expr.value))
        return self.slot_name(reg.name, tuple(index))

    def slot_name(self, name: str, index: tuple[int, ...]) -> str:
        return self.name("_".join([name, *map(str, index)]))

    @abstractmethod
    def view(self, stmt: View) -> None: ...

    @abstractmethod
    def store(self, stmt: Store) -> str: ...

    @abstractmethod
    def atomic(self, stmt: Atomic) -> str: ...

    @abstractmethod
    def barrier(self, stmt: Barrier) -> str: ...

    # ---------------------------------------------------------------------------------------------- expressions

    def share(self, *exprs: Expr) -> None:
        """Prints temporaries for what occurs more than once in ``exprs``; ``text`` then refers to them."""
        self.numbering = number(exprs)
        self.temporaries = {}
        for k, node in enumerate(self.numbering.nodes):
            repeated = self.numbering.uses[k] > 1 and isinstance(node, Call | Mem | Pack)
            if repeated or self.must_name(node):
                name = self.fresh()
                self.define(name, node)
                self.temporaries[k] = name

    def must_name(self, node: Expr) -> bool:
        """Whether the language can only give ``node`` a value by a statement of its own."""
        return False

    def define(self, name: str, node: Expr) -> None:
        self.line(f"const {self.type_of(node)} {name} = {self.text(node)};")

    def text(self, node: Expr) -> str:
        """Text of ``node`` where no parentheses are needed around it."""
        return self.expr(node, True)

    def expr(self, node: Expr, outer: bool = False) -> str:
        if self.numbering is not None and (name := self.temporaries.get(self.numbering.number.get(id(node), -1))):
            return name
        match node:
            case Const(value, dtype, lanes):
                return self.constant(value, dtype, lanes)
            case Var(name):
                return self.name(name)
            case Reg():
                return self.slot(node)
            case Mem():
                return self.load(node)
            case Lane(value, lane):
                return self.lane(value, lane)
            case Pack(values):
                return self.pack(values)
            case Splat(value, lanes):
                return self.splat(value, lanes)
            case Call():
                text, parenthesise = self.call(node)
                return f"({text})" if parenthesise and not outer else text
        raise CannotPrint(f"{self.kernel.name}: no text for the expression {type(node).__name__}")

    @abstractmethod
    def call(self, node: Call) -> tuple[str, bool]:
        """Text of a call and whether it needs parentheses inside another expression."""

    @abstractmethod
    def constant(self, value: Number, dtype: DType, lanes: int) -> str: ...

    @abstractmethod
    def load(self, node: Mem) -> str: ...

    @abstractmethod
    def lane(self, value: Expr, lane: int) -> str: ...

    @abstractmethod
    def pack(self, values: tuple[Expr, ...]) -> str: ...

    @abstractmethod
    def splat(self, value: Expr, lanes: int) -> str: ...

    @abstractmethod
    def value_type(self, dtype: DType, lanes: int) -> str: ...

    def type_of(self, expr: Expr) -> str:
        return self.value_type(expr.dtype, expr.lanes)

    def template(self, node: Call) -> tuple[str, Template, str]:
        """The text pattern for ``node``, its template, and the kind (``floating`` or ``integer``) of its operands.

        Raises CannotPrint where the function has no form for these operands.
        """
        row = self.templates[node.fn]
        dtype = operand_dtype(node)
        kind = "floating" if dtype.is_float else "integer"
        text = row.floating if kind == "floating" else row.integer
        if dtype == DType.F64 and row.double is not None:
            text = row.double
        if node.lanes > 1 and row.vector is not None:
            text = row.vector
        if text is None:
            raise CannotPrint(f"{self.kernel.name}: {node.fn} has no form for {dtype.value} operands")
        return text, row, kind

    def pointer(self, buffer: str) -> Pointer:
        if buffer not in self.pointers:
            raise CannotPrint(f"{self.kernel.name}: unknown buffer {buffer}")
        return self.pointers[buffer]

    # ---------------------------------------------------------------------------------------------------- names

    def name(self, name: str) -> str:
        return f"{name}_" if name in self.reserved else name

    def fresh(self) -> str:
        while True:
            name = f"t{self.fresh_count}"
            self.fresh_count += 1
            if name not in self.taken:
                return name

    def helper(self, name: str, make: Callable[[], str]) -> str:
        """Adds a helper function's definition once."""
        if name not in self.helpers:
            self.helpers[name] = ""  # keeps the place if ``make`` asks for helpers of its own
            self.helpers[name] = make()
        return name


def operand_dtype(node: Call) -> DType:
    """The type that the operands of ``node`` are brought to before it is applied."""
    if node.fn == "select":
        return node.dtype
    if node.fn in ("and", "or", "not"):
        return DType.BOOL
    if node.fn in _COMPARISONS:
        from emmy.ir.scalar import _wider

        return _wider(tuple(arg.dtype for arg in node.args)).compute
    return node.dtype.compute


_COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne", "isnan", "isinf"))


def float_digits(value: float) -> str:
    """Shortest decimal text of a finite float, with a point or an exponent."""
    text = repr(float(value))
    return text if math.isfinite(value) else "nan"


def indices(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every index of an array of ``shape``, in row-major order."""
    out: list[tuple[int, ...]] = [()]
    for extent in shape:
        out = [(*index, k) for index in out for k in range(extent)]
    return out


def _names(kernel: Kernel) -> set[str]:
    names = {param.name for param in kernel.params} | {array.name for array in kernel.shared}
    for stmt in statements(kernel.body):
        match stmt:
            case View(name) | Let(name) | For(name):
                names.add(name)
            case RegArray(name, _, shape):
                names |= {"_".join([name, *map(str, index)]) for index in indices(shape)}
            case _:
                names |= set(getattr(stmt, "defines", ()))
    return names


def aligned_offsets(shared: tuple[Shared, ...]) -> list[int]:
    """Byte offset of each shared array when they lie one after the other, each at its alignment."""
    out, at = [], 0
    for array in shared:
        at = -(-at // array.align) * array.align
        out.append(at)
        at += array.nbytes
    return out
