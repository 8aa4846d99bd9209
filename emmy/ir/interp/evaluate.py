"""Values of expressions for all threads of a strand at once. Each node is evaluated once a statement."""

from __future__ import annotations

from typing import Any

import numpy as np

from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Expr, Lane, Mem, Pack, Reg, Splat, Var, walk
from emmy.ir.interp.errors import Misuse, OutOfBounds, PoisonRead
from emmy.ir.interp.machine import Mask, Strand
from emmy.ir.interp.memory import INTERNAL, Array, rounded
from emmy.ir.scalar import FUNCTIONS

_NARROW = {DType.U8: np.uint8, DType.I8: np.int8, DType.I16: np.int16}


def begin(strand: Strand) -> None:
    """Forgets the values of the statement before."""
    strand.memo.clear()
    strand.keep.clear()


def evaluate(strand: Strand, expr: Expr) -> Any:
    """The value of ``expr``: a scalar, (threads,) or (threads, lanes), in the internal type."""
    if id(expr) not in strand.memo:
        if isinstance(expr, Const | Var):
            return _node(strand, expr)
        for node in walk(expr):
            if id(node) not in strand.memo:
                strand.keep.append(node)  # an id stays one object's while the memo lives
                strand.memo[id(node)] = _node(strand, node)
    return strand.memo[id(expr)]


def condition(strand: Strand, expr: Expr | None) -> Mask:
    """Active threads for which ``expr`` (a scalar bool, or None) holds."""
    if expr is None:
        return strand.mask
    return strand.mask & (strand.threadwise(evaluate(strand, expr)) != 0)


def _node(strand: Strand, node: Expr) -> Any:
    match node:
        case Const(value, dtype, lanes):
            one = INTERNAL[dtype](value)
            return one if lanes == 1 else strand.threadwise(one, lanes)
        case Var(name):
            if name not in strand.names:
                raise strand.fault(Misuse, f"unknown name {name}")
            return strand.names[name]
        case Call():
            return _call(strand, node)
        case Mem():
            return _load(strand, node)
        case Reg():
            return read_register(strand, node)
        case Lane(value, lane):
            return strand.threadwise(strand.memo[id(value)], value.lanes)[:, lane] if value.lanes > 1 else (
                strand.memo[id(value)])  # fmt: skip
        case Pack(values):
            return np.stack([strand.threadwise(strand.memo[id(value)]) for value in values], axis=1)
        case Splat(value, lanes):
            return strand.threadwise(strand.memo[id(value)], lanes)
    raise strand.fault(Misuse, f"{type(node).__name__} does not occur in a kernel")


def _call(strand: Strand, node: Call) -> Any:
    args = []
    for arg in node.args:
        value = strand.memo[id(arg)]
        if node.lanes > 1 and arg.lanes == 1 and np.ndim(value) == 1:
            value = value[:, None]
        args.append(value)
    with np.errstate(all="ignore"):
        if node.fn == "cast":
            return convert(args[0], node.dtype)
        result = FUNCTIONS[node.fn].evaluate(*_operands(node, args))
        if node.dtype.is_int and np.asarray(result).dtype.kind == "f":
            result = np.trunc(result)
        if node.dtype in _NARROW:
            result = np.asarray(result).astype(np.int64).astype(_NARROW[node.dtype])
        return np.asarray(result).astype(INTERNAL[node.dtype])


def _operands(node: Call, args: list[Any]) -> list[Any]:
    """Floats among the operands brought to the type they are computed in, as a widening in C does."""
    first = 1 if node.fn == "select" else 0
    dtypes = [arg.dtype for arg in node.args[first:]]
    if not any(dtype.is_float for dtype in dtypes) or all(d.compute == dtypes[0].compute for d in dtypes):
        return args
    wide = np.float64 if DType.F64 in dtypes else np.float32
    return [*args[:first], *(np.asarray(arg).astype(wide) for arg in args[first:])]


def convert(value: Any, dtype: DType) -> Any:
    """``value`` cast to ``dtype`` (rounded to it for the 16-bit floats), in the internal type."""
    if dtype in (DType.F32, DType.F64, DType.I64):
        array = np.asarray(value)
        if dtype == DType.I64 and array.dtype.kind == "f":
            array = np.trunc(array)
        return array.astype(INTERNAL[dtype])
    return rounded(value, dtype).astype(INTERNAL[dtype])


def _load(strand: Strand, node: Mem) -> Array:
    pointer = strand.pointer(node.buffer)
    memory = pointer.memory
    if memory.dtype != node.dtype:
        raise strand.fault(Misuse, f"{memory.name} is read as another type", found=node.dtype.value,
                           expected=memory.dtype.value)  # fmt: skip
    offset = strand.memo[id(node.offset)]
    mask = strand.mask
    if node.guard is not None:
        mask = mask & (strand.threadwise(strand.memo[id(node.guard)]) != 0)
    check_offset(strand, node.offset, offset, mask)
    tids, index = strand.element_index(pointer, offset, node.lanes, mask, node.aligned)
    out: Array = np.full((strand.block.threads, node.lanes), node.fill, dtype=INTERNAL[node.dtype])
    out[tids] = strand.read(memory, tids, index)
    return out if node.lanes > 1 else out[:, 0]


def check_offset(strand: Strand, expr: Expr, value: Any, mask: Mask) -> None:
    """Raises OutOfBounds for an int32 offset that does not fit one."""
    if expr.dtype != DType.I32 or isinstance(expr, Const):
        return
    offsets = strand.threadwise(value)[mask]
    if offsets.size and (np.abs(offsets) >= 2**31).any():
        raise strand.fault(OutOfBounds, "an int32 offset overflows", found=int(offsets[np.abs(offsets).argmax()]))


def register_index(strand: Strand, reg: Reg) -> tuple[int, ...]:
    """The index of a register slot, the same for all threads. Raises Misuse outside the array's shape."""
    slots = strand.slots(reg.name)
    index = []
    for k, expr in enumerate(reg.index):
        value = evaluate(strand, expr)
        if np.ndim(value):
            value = value[strand.mask]
            if (value != value[0]).any():
                raise strand.fault(Misuse, f"register array {reg.name} is indexed by the thread")
            value = value[0]
        at = int(value)
        if not 0 <= at < slots.values.shape[1 + k]:
            raise strand.fault(Misuse, f"register array {reg.name} has no slot {at} on axis {k}")
        index.append(at)
    if len(index) not in (slots.values.ndim - 2, slots.values.ndim - 3 if slots.values.shape[-1] == 1 else -1):
        raise strand.fault(Misuse, f"register array {reg.name} is indexed by {len(index)} of {slots.values.ndim - 2}")
    return tuple(index)


def slot(strand: Strand, reg: Reg) -> tuple[Array, Mask]:
    """(values, poison) of a slot, (threads, lanes), by reference.

    A tile of a fragment that legalising made scalars is the last axis of its array.
    """
    slots = strand.slots(reg.name)
    index: Any = (slice(None), *register_index(strand, reg))
    values, poison = slots.values[index], slots.poison[index]
    return (values[..., 0], poison[..., 0]) if values.ndim == 3 else (values, poison)


def read_register(strand: Strand, reg: Reg) -> Array:
    values, poison = slot(strand, reg)
    bad = poison.any(axis=1) & strand.mask
    if bad.any():
        raise strand.fault(PoisonRead, f"thread {int(np.argmax(bad))} reads {reg.name}, which holds nothing")
    return values if reg.lanes > 1 else values[:, 0]


def write_register(strand: Strand, reg: Reg, value: Any) -> None:
    """Sets a slot for the active threads, in the internal type."""
    values, poison = slot(strand, reg)
    lanes = values.shape[-1]
    new = strand.threadwise(value, lanes) if lanes > 1 else strand.threadwise(value)[:, None]
    values[strand.mask] = new[strand.mask]
    poison[strand.mask] = False
    strand.touched.add(reg.name)
