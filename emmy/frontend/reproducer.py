"""Reproducers: a graph as a ``.torch.json`` file: operations, shapes, types, attributes, symbolic sizes; never code.

A symbolic size is spelled as nested lists, ``["add", ["mul", "seq_len", 2], 1]``, so that loading evaluates nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from emmy.errors import InputError, UnsupportedOp
from emmy.frontend.types import TORCH, dtype_of
from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Expr, Var, call, evaluate_int, i32
from emmy.ir.graph import Arg, Graph, Node, Ref, show_arg, verify
from emmy.ir.nest import Symbol, Tensor
from emmy.passes.ops import OPS
from emmy.passes.ops.core import short_name

VERSION = 1
_SIZE_FUNCTIONS = frozenset({"add", "sub", "mul", "neg", "floordiv", "mod", "min", "max"})
_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


# ------------------------------------------------------------------------------------------------------- saving


def save(graph: Graph, path: Path | str, note: str = "") -> None:
    """Write ``graph`` to ``path``. note: what a reader has to know about it; loading leaves it out."""
    Path(path).write_text(dumps(graph, note), encoding="utf-8")


def dumps(graph: Graph, note: str = "") -> str:
    """The text of the reproducer: one line an input, node or output."""

    def rows(items: list[Any]) -> str:
        return "[\n" + ",\n".join(f"  {json.dumps(item)}" for item in items) + "\n ]" if items else "[]"

    fields = {
        "version": json.dumps(VERSION),
        "name": json.dumps(graph.name),
        **({"note": json.dumps(note)} if note else {}),
        "symbols": json.dumps({symbol.name: _symbol_out(symbol) for symbol in graph.symbols}),
        "inputs": rows([_tensor_out(tensor) for tensor in graph.inputs]),
        "nodes": rows([_node_out(node) for node in graph.nodes]),
        "outputs": json.dumps(list(graph.outputs)),
    }
    return "{\n" + ",\n".join(f' "{name}": {value}' for name, value in fields.items()) + "\n}\n"


def _symbol_out(symbol: Symbol) -> Any:
    if symbol.least > 1:
        return [symbol.hint, symbol.most, symbol.least]
    return symbol.hint if symbol.most is None else [symbol.hint, symbol.most]


def _tensor_out(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "dtype": tensor.dtype.value, "shape": [_size_out(extent) for extent in tensor.shape]}


def _node_out(node: Node) -> dict[str, Any]:
    out: dict[str, Any] = {"op": node.op, "args": {name: _arg_out(arg) for name, arg in node.args},
                           "results": [_tensor_out(tensor) for tensor in node.results]}  # fmt: skip
    return out | ({"where": node.where} if node.where else {})


def _size_out(expr: Expr) -> Any:
    match expr:
        case Const(value):
            return int(value)
        case Var(name):
            return name
        case Call(fn, args) if fn in _SIZE_FUNCTIONS:
            return [fn, *(_size_out(arg) for arg in args)]
    raise TypeError(f"not a size: {expr!r}")


def _arg_out(arg: Arg) -> Any:
    match arg:
        case Ref(name):
            return {"ref": name}
        case DType():
            return {"dtype": arg.value}
        case Expr():
            return {"size": _size_out(arg)}
        case tuple():
            return [_arg_out(item) for item in arg]
        case float() if not math.isfinite(arg):
            return {"float": str(arg)}
    return arg


# ------------------------------------------------------------------------------------------------------ loading


def load(path: Path | str) -> Graph:
    """Read a reproducer.

    Raises InputError naming the file and the place of what is wrong, UnsupportedOp for an operation without a row.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}", found=error.strerror or error, expected="a readable .torch.json file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}", found=f"bytes that are not UTF-8 ({error.reason})", expected="JSON text") from None
    return loads(text, str(path))


def loads(text: str, file: str = "reproducer") -> Graph:
    """As ``load``, from text."""
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{file}", found=error, expected="JSON") from None
    return _Loader(file).graph(data)


class _Loader:
    def __init__(self, file: str) -> None:
        self.file = file

    def fail(self, place: str, found: object, expected: str) -> InputError:
        return InputError(f"{self.file}: {place}", found=_brief(found), expected=expected)

    def fields(
        self, place: str, data: Any, required: Mapping[str, Any], optional: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise self.fail(place, data, "an object")
        missing, extra = set(required) - set(data), set(data) - set(required) - set(optional)
        if missing or extra:
            raise self.fail(place, sorted(data), f"the fields {', '.join(required)}")
        for name, kind in required.items():
            if not isinstance(data[name], kind) or isinstance(data[name], bool):
                raise self.fail(f"{place}.{name}", data[name], "a " + getattr(kind, "__name__", str(kind)))
        return data

    def graph(self, data: Any) -> Graph:
        if isinstance(data, dict) and data.get("version", VERSION) != VERSION:
            raise self.fail("version", data["version"], f"{VERSION}")
        kinds = {"version": int, "name": str, "symbols": dict, "inputs": list, "nodes": list, "outputs": list}
        top = self.fields("file", data, kinds, ("note",))
        if not isinstance(top.get("note", ""), str):
            raise self.fail("note", top["note"], "text")
        symbols = tuple(self.symbol(name, sizes) for name, sizes in top["symbols"].items())
        known = {symbol.name for symbol in symbols}
        inputs = tuple(self.tensor(f"inputs[{n}]", item, known) for n, item in enumerate(top["inputs"]))
        nodes = tuple(self.node(f"nodes[{n}]", item, known) for n, item in enumerate(top["nodes"]))
        if not top["outputs"] or not all(isinstance(name, str) for name in top["outputs"]):
            raise self.fail("outputs", top["outputs"], "names of values")
        graph = Graph(top["name"], symbols, inputs, nodes, tuple(top["outputs"]))
        try:
            verify(graph)
        except ValueError as error:
            raise InputError(f"{self.file}: {error}") from None
        self.schemas(graph)
        return graph

    def schemas(self, graph: Graph) -> None:
        """Checks every node against its operator: arguments by the schema, results by what torch would make.

        On tensors without memory, at the hints. Raises InputError naming the node.
        """
        sizes = graph.hints()
        values = {tensor.name: self.meta(f"inputs, {tensor.name}", tensor, sizes) for tensor in graph.inputs}
        for n, node in enumerate(graph.nodes):
            place = f"nodes[{n}] ({node.name} = {node.op})"
            overload = _overload(node)
            known = {argument.name: argument for argument in overload._schema.arguments}
            for name, arg in node.args:
                if name not in known:
                    raise self.fail(f"{place}.args", name, f"arguments of {', '.join(known)}")
                wanted = str(known[name].real_type)
                # x * 0.5 is traced as mul.Tensor with a number in the tensor's place
                number = OPS[node.op].kind == "pointwise" and name != "self" and type(arg) in (int, float, bool)
                if not (_fits(arg, wanted) or (wanted == "Tensor" and number)):
                    raise self.fail(f"{place}.args.{name}", show_arg(arg), f"a value of type {wanted}")
            given = {name for name, _ in node.args}
            missing = [name for name, one in known.items() if name not in given and not one.has_default_value()]
            if missing:
                raise self.fail(f"{place}.args", sorted(given), f"{', '.join(missing)} as well")
            read = [values[name] for name in node.refs()]
            # these two torch checks only where there are data
            dim = dict(node.args).get("dim")
            rank = max(read[0].dim(), 1) if read else 0
            if short_name(node.op) == "softmax" and isinstance(dim, int) and not -rank <= dim < rank:
                raise self.fail(f"{place}.args.dim", dim, f"an axis of {_typed(read[0])}")
            if OPS[node.op].kind == "contraction" and len({tensor.dtype for tensor in read}) > 1:
                raise self.fail(f"{place}.args", ", ".join(map(_typed, read)), "tensors of one dtype")
            try:
                made = _call(node, values, sizes, {"device": "meta"} if "device" in known else {})
            except NotImplementedError:
                made = tuple(self.meta(place, tensor, sizes) for tensor in node.results)  # known only from data
            except Exception as error:
                said = str(error).strip().splitlines() or [type(error).__name__]
                raise InputError(f"{self.file}: {place}: torch refuses its arguments", found=said[0]) from None
            if len(node.results) > len(made):
                raise self.fail(f"{place}.results", len(node.results), f"{len(made)} at most")
            for tensor, result in zip(node.results, made, strict=False):
                own = self.meta(f"{place}.results, {tensor.name}", tensor, sizes)
                if (own.shape, own.dtype) != (result.shape, result.dtype):
                    raise self.fail(f"{place}.results, {tensor.name}", _typed(own), _typed(result))
                values[tensor.name] = result

    def meta(self, place: str, tensor: Tensor, sizes: Mapping[str, int]) -> torch.Tensor:
        """A tensor of that shape and dtype at the hints, without memory."""
        shape = [evaluate_int(extent, sizes) for extent in tensor.shape]
        if any(size < 0 for size in shape):
            raise self.fail(f"{place}.shape", shape, "sizes of at least 0")
        return torch.empty(shape, dtype=TORCH[tensor.dtype], device="meta")

    def symbol(self, name: str, data: Any) -> Symbol:
        sizes = data if isinstance(data, list) else [data]
        given = sizes[:1] + sizes[2:] if len(sizes) == 3 and sizes[1] is None else sizes
        if not name.isidentifier() or len(sizes) not in (1, 2, 3) or any(type(n) is not int or n < 1 for n in given):
            expected = (
                "an identifier, and its hint, [hint, largest size] or [hint, largest size or null, smallest size]"
            )
            raise self.fail(f"symbols.{name}", data, expected)
        return Symbol(name, *sizes)

    def tensor(self, place: str, data: Any, symbols: set[str]) -> Tensor:
        fields = self.fields(place, data, {"name": str, "dtype": str, "shape": list})
        if not fields["name"].isidentifier():
            raise self.fail(f"{place}.name", fields["name"], "an identifier")
        shape = tuple(self.size(f"{place}.shape", item, symbols) for item in fields["shape"])
        return Tensor(fields["name"], shape, self.dtype(f"{place}.dtype", fields["dtype"]))

    def dtype(self, place: str, name: Any) -> DType:
        try:
            return DType(name)
        except ValueError:
            raise self.fail(place, name, ", ".join(DType)) from None

    def size(self, place: str, data: Any, symbols: set[str]) -> Expr:
        if type(data) is int:
            return i32(data)
        if isinstance(data, str) and data in symbols:
            return Var(data)
        if (
            isinstance(data, list)
            and data
            and data[0] in _SIZE_FUNCTIONS
            and len(data) == (2 if data[0] == "neg" else 3)
        ):
            return call(data[0], *(self.size(place, item, symbols) for item in data[1:]))
        raise self.fail(place, data, "a number, a symbol, or [function, size, size]")

    def node(self, place: str, data: Any, symbols: set[str]) -> Node:
        fields = self.fields(place, data, {"op": str, "args": dict, "results": list}, ("where",))
        where = fields.get("where")
        if where is not None and not isinstance(where, str):
            raise self.fail(f"{place}.where", where, "text")
        if fields["op"] not in OPS:
            raise UnsupportedOp(fields["op"], where or f"{self.file}: {place}")
        args = tuple((name, self.arg(f"{place}.args.{name}", arg, symbols)) for name, arg in fields["args"].items())
        results = tuple(self.tensor(f"{place}.results[{n}]", item, symbols) for n, item in enumerate(fields["results"]))
        return Node(fields["op"], args, results, where)

    def arg(self, place: str, data: Any, symbols: set[str]) -> Arg:
        if isinstance(data, list):
            return tuple(self.arg(place, item, symbols) for item in data)
        if not isinstance(data, dict):
            return data
        match data:
            case {"ref": str(name), **rest} if not rest:
                return Ref(name)
            case {"dtype": name, **rest} if not rest:
                return self.dtype(place, name)
            case {"size": size, **rest} if not rest:
                return self.size(place, size, symbols)
            case {"float": ("inf" | "-inf" | "nan") as name, **rest} if not rest:
                return _SPECIAL[name]
        raise self.fail(place, data, "a value, or an object with one of ref, dtype, size, float")


def _brief(found: object) -> str:
    text = json.dumps(found) if isinstance(found, dict | list | str | int | float | None) else str(found)
    return text if len(text) <= 80 else text[:77] + "..."


# -------------------------------------------------------------------------------------------------------- eager


def run_eager(graph: Graph, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The graph in eager torch, operation by operation; symbolic sizes are read off the inputs.

    Only operations of the table are looked up. Raises UnsupportedOp for any other, ValueError for inputs that do
    not fit.
    """
    sizes = symbol_sizes(graph, {name: tuple(tensor.shape) for name, tensor in inputs.items()})
    values: dict[str, torch.Tensor] = dict(inputs)
    with torch.no_grad():
        for node in graph.nodes:
            made = _call(node, values, sizes, {})
            values.update(zip((tensor.name for tensor in node.results), made, strict=False))
    return tuple(values[name] for name in graph.outputs)


def symbol_sizes(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Values of the symbols from the shapes of the inputs; the hint for one that no input shows."""
    sizes = dict(graph.hints())
    for tensor in graph.inputs:
        for extent, size in zip(tensor.shape, shapes[tensor.name], strict=True):
            if isinstance(extent, Var):
                sizes[extent.name] = size
    for tensor in graph.inputs:
        expected = tuple(evaluate_int(extent, sizes) for extent in tensor.shape)
        if expected != tuple(shapes[tensor.name]):
            raise ValueError(f"input {tensor.name}: found shape {shapes[tensor.name]}, expected {expected}")
    return sizes


def _call(
    node: Node, values: Mapping[str, torch.Tensor], sizes: Mapping[str, int], more: Mapping[str, Any]
) -> tuple[torch.Tensor, ...]:
    args = {name: _eager_arg(arg, values, sizes) for name, arg in node.args}
    if node.op in ("aten.view.default", "aten._unsafe_view.default"):
        args["self"] = args["self"].contiguous()  # a reproducer has no strides: what was a view may be none here
    result = _overload(node)(**args, **more)
    return (result,) if isinstance(result, torch.Tensor) else tuple(one for one in result if one is not None)


def _typed(tensor: torch.Tensor) -> str:
    return f"{dtype_of(tensor.dtype).value}{list(tensor.shape)}"


def _fits(arg: Arg, wanted: str) -> bool:
    """Whether an argument is of a schema's type. torch itself reads a flag for a number, and a number for a tensor."""
    if wanted.startswith("Optional["):
        return arg is None or _fits(arg, wanted[len("Optional[") : -1])
    if wanted.startswith("List["):
        inner = wanted[len("List[") : -1]
        if not isinstance(arg, tuple):
            return inner in ("int", "SymInt") and _fits(arg, inner)
        return all(_fits(item, inner) for item in arg)
    kind = type(arg)
    return {
        "Tensor": kind is Ref,
        "int": kind is int or isinstance(arg, Expr),
        "SymInt": kind is int or isinstance(arg, Expr),
        "ScalarType": isinstance(arg, DType),
        "float": kind in (int, float) or isinstance(arg, Expr),
        "number": kind in (int, float, bool) or isinstance(arg, Expr),
        "bool": kind is bool,
        "str": kind is str,
    }.get(wanted, True)


def _overload(node: Node) -> Any:
    if node.op not in OPS:
        raise UnsupportedOp(node.op, node.where)
    _, name, overload = node.op.split(".")
    packet = getattr(torch.ops.aten, name)
    return getattr(packet, overload)


def _eager_arg(arg: Arg, values: Mapping[str, torch.Tensor], sizes: Mapping[str, int]) -> Any:
    match arg:
        case Ref(name):
            return values[name]
        case DType():
            return TORCH[arg]
        case Expr():
            return evaluate_int(arg, sizes)
        case tuple():
            return [_eager_arg(item, values, sizes) for item in arg]
    return arg
