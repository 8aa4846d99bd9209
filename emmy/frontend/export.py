"""torch.export → Graph IR.

Decompositions are torch's own core-ATen table, minus the operations that have a row in emmy's table: those stay whole,
so that a graph reads like the program and a kernel is named after what was called.
"""

from __future__ import annotations

import logging
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from emmy.config import SEQ_HINT, debug_requested
from emmy.errors import EmmyError, InputError, UnsupportedOp
from emmy.frontend.types import dtype_of, size_expr
from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, i32
from emmy.ir.graph import Arg, Graph, Node, Ref, verify
from emmy.ir.nest import Symbol, Tensor
from emmy.ir.simplify import Simplifier
from emmy.passes.decompose import LEFT_OUT
from emmy.passes.ops import OPS
from emmy.passes.ops.core import short_name
from emmy.target import DynamicSpec

Locate = Callable[[str, int], str]
"""(file, line) of a frame → the text that names the call site."""

_DROPPED = frozenset({"device", "layout", "pin_memory", "memory_format", "non_blocking", "generator", "copy"})


@dataclass(frozen=True, slots=True)
class Exported:
    """A traced function.

    constants: parameters, buffers and literal tensors by name; they are inputs of the graph, after the function's own.
    module: the function as a module. targets: dotted names in it of those constants that are parameters or buffers.
    """

    graph: Graph
    constants: dict[str, torch.Tensor]
    module: torch.nn.Module
    targets: dict[str, str]


class _Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any], modules: Mapping[str, torch.nn.Module]) -> None:
        super().__init__()
        self._function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *args: Any) -> Any:
        return self._function(*args)


def export_graph(
    name: str,
    function: Callable[..., Any],
    inputs: Mapping[str, torch.Tensor],
    dynamic: Sequence[DynamicSpec] = (),
    modules: Mapping[str, torch.nn.Module] | None = None,
    locate: Locate | None = None,
) -> Exported:
    """Trace ``function(*inputs)``.

    modules: every nn.Module that the function calls, by name. dynamic: symbolic axes of the inputs. Raises InputError
    (an axis that is not there, a symbol that the program fixes, a function that mutates its inputs), UnsupportedOp, and
    whatever the function itself raises.
    """
    place = locate or (lambda file, line: f"{file}:{line}")
    dims = _dynamic_shapes(inputs, dynamic)
    module = _Function(function, modules or {})
    with _quiet(), torch.no_grad():
        try:
            program = _exported(module, inputs, dims)
            if not _in_table(program):
                table = torch.export.default_decompositions()
                for op in [op for op in list(table) if str(op) in OPS]:
                    table.pop(op)
                program = program.run_decompositions(table)
        except EmmyError:
            raise
        except Exception as error:
            raise _explained(error, dynamic, place) from error
    return _Reader(name, program, inputs, dynamic, place).read(module)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's warnings and the tracebacks that it logs on its own: what goes wrong is raised as well."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.disabled
    logger.disabled = before or not debug_requested()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = before


_HARMLESS = re.compile(r"!= [01]$|^\d+ <= .* <= (IntInfinity\(\)|\d+)$")
"""Guards that say no more than that a size (or one made of it) is neither 0 nor 1, or that it has limits."""


def _exported(
    module: torch.nn.Module, inputs: Mapping[str, torch.Tensor], dims: Mapping[str, dict[int, Any] | None]
) -> Any:
    args = tuple(inputs.values())
    try:
        return torch.export.export(module, args, dynamic_shapes=(tuple(dims.values()),), strict=False)
    except torch._dynamo.exc.UserError as error:
        guards = re.findall(r"satisfy the generated guard (.*?)\.?$", str(error), re.MULTILINE)
        if not guards or not all(_HARMLESS.search(guard) for guard in guards):
            raise
    except AssertionError as error:
        if "Expected op to be" not in str(error):  # torch 2.9 cannot say a limit that is a fraction, 4 * size >= 13
            raise
    # torch sets sizes 0 and 1 apart (a slice may be empty or broadcast); an index expression is right for these as
    # well, and limits are kept with the symbol
    auto = {name: axes and dict.fromkeys(axes, torch.export.Dim.AUTO) for name, axes in dims.items()}
    return torch.export.export(module, args, dynamic_shapes=(tuple(auto.values()),), strict=False)


def _in_table(program: Any) -> bool:
    """Whether every operation has a row already: then there is nothing to decompose, which takes most of the time."""
    calls = (node.target for node in program.graph.nodes if node.op == "call_function")
    return all(not isinstance(target, torch._ops.OperatorBase) or str(target) in OPS for target in calls)


_AXIS = re.compile(r"[ikc]\d+")


def _dynamic_shapes(
    inputs: Mapping[str, torch.Tensor], dynamic: Sequence[DynamicSpec]
) -> dict[str, dict[int, Any] | None]:
    symbols = {spec.name: torch.export.Dim(spec.name) for spec in dynamic}
    shapes: dict[str, dict[int, Any] | None] = dict.fromkeys(inputs)
    sizes: dict[str, tuple[int, DynamicSpec]] = {}
    for spec in dynamic:
        if spec.name in inputs or _AXIS.fullmatch(spec.name):
            raise InputError(f"--dynamic {spec}", found=f"the name {spec.name}",
                             expected="one that is neither an input's nor a loop's (i0, k0)")  # fmt: skip
        if spec.input not in inputs:
            raise InputError(
                f"--dynamic {spec}", found=f"no input {spec.input}", expected=f"one of {', '.join(inputs)}"
            )
        tensor = inputs[spec.input]
        if spec.axis >= tensor.dim():
            raise InputError(
                f"--dynamic {spec}", found=f"{spec.input} has {tensor.dim()} axes", expected="an axis below that"
            )
        size = tensor.shape[spec.axis]
        other_size, other = sizes.setdefault(spec.name, (size, spec))
        if other_size != size:
            raise InputError(
                f"--dynamic {spec}", found=f"size {size}", expected=f"{other_size}, as at {other.input}:{other.axis}"
            )
        if size < 2:
            raise InputError(
                f"--dynamic {spec}",
                found=f"an example size of {size}",
                expected="2 or more",
                hint="a size of 0 or 1 cannot be traced as symbolic; the compiled kernel does run at 1",
            )
        axes = shapes[spec.input] or {}
        axes[spec.axis] = symbols[spec.name]
        shapes[spec.input] = axes
    return shapes


_SPECIALIZED = re.compile(
    r"specialized it to be a constant|is not symbolic|were violated|Constraints violated|specializ", re.I
)


def _explained(error: Exception, dynamic: Sequence[DynamicSpec], locate: Locate) -> Exception:
    """An export failure that is the request's own fault, in the request's words."""
    text = str(error)
    if type(error).__name__ == "GuardOnDataDependentSymNode" or "data-dependent" in text.lower():
        where = _place(text, locate)
        return UnsupportedOp("control flow or a shape that depends on data", where, hint="compute it outside")
    if dynamic and _SPECIALIZED.search(text):
        for spec in dynamic:
            if re.search(rf"\b{re.escape(spec.name)}\b", text):
                reason = next(
                    (line.strip(" -") for line in text.splitlines() if spec.name in line and "violated" not in line), ""
                )
                return InputError(f"--dynamic {spec}", found="a program that fixes this size",
                                  expected="one that works at any size", hint=reason[:300] or None)  # fmt: skip
    return error


class _Reader:
    """Reads an exported program node by node."""

    def __init__(
        self,
        name: str,
        program: Any,
        inputs: Mapping[str, torch.Tensor],
        dynamic: Sequence[DynamicSpec],
        locate: Locate,
    ) -> None:
        self.name = name
        self.program = program
        self.given = inputs
        self.dynamic = dynamic
        self.locate = locate
        self.symbols: dict[Any, str] = {}
        self.most: dict[str, int] = {}
        self.least: dict[str, int] = {}
        self.called: dict[str, str] = {}  # placeholder → the input's own name
        self.values: dict[Any, Any] = {}  # fx node → Ref, index expression, or tuple of them
        self.taken: set[str] = set()
        self.inputs: list[Tensor] = []
        self.nodes: list[Node] = []
        self.constants: dict[str, torch.Tensor] = {}
        self.targets: dict[str, str] = {}

    def read(self, module: torch.nn.Module) -> Exported:
        self._placeholders()
        for node in self.program.graph.nodes:
            if node.op == "call_function":
                self._call(node)
            elif node.op == "get_attr":
                raise UnsupportedOp(f"a nested graph ({node.target})", self._where(node))
        outputs = self._outputs()
        names = dict.fromkeys(spec.name for spec in self.dynamic)
        symbols = tuple(Symbol(name, SEQ_HINT, self.most.get(name), self.least.get(name, 0)) for name in names)
        graph = Graph(self.name, symbols, tuple(self.inputs), tuple(self.nodes), outputs)
        verify(graph)
        return Exported(graph, self.constants, module, self.targets)

    def _placeholders(self) -> None:
        specs = self.program.graph_signature.input_specs
        nodes = [node for node in self.program.graph.nodes if node.op == "placeholder"]
        users = [node for node, spec in zip(nodes, specs, strict=True) if spec.kind.name == "USER_INPUT"]
        own = dict(zip(users, self.given, strict=True))
        self.called = {node.name: name for node, name in own.items()}
        self._name_symbols(own)
        self.taken.update(self.given)
        for node in users:
            self._input(node, own[node])
        for node, spec in zip(nodes, specs, strict=True):
            if node in own:
                continue
            value = self.program.state_dict.get(spec.target)
            if value is None:
                value = self.program.constants[spec.target]
            if spec.kind.name == "CONSTANT_TENSOR" and value.numel() == 1:
                self._literal(node, value)
            else:
                name = self._fresh(re.sub(r"\W", "_", spec.target))
                self._input(node, name)
                self.constants[name] = value.detach()
                if spec.kind.name in ("PARAMETER", "BUFFER"):
                    self.targets[name] = spec.target

    def _name_symbols(self, own: Mapping[Any, str]) -> None:
        placeholders = {name: node for node, name in own.items()}
        for spec in self.dynamic:
            size = placeholders[spec.input].meta["val"].shape[spec.axis]
            if isinstance(size, int):
                raise InputError(f"--dynamic {spec}", found=f"a program that fixes this size to {size}",
                                 expected="one that works at any size")  # fmt: skip
            self.symbols[size.node.expr] = spec.name
            limit = self.program.range_constraints.get(size.node.expr)
            if limit is not None and limit.upper.is_Integer:
                self.most[spec.name] = min(int(limit.upper), self.most.get(spec.name, int(limit.upper)))
            if self.most.get(spec.name, SEQ_HINT) < SEQ_HINT:
                found = f"a program that is right up to size {self.most[spec.name]}"
                raise InputError(f"--dynamic {spec}", found=found, expected=f"{SEQ_HINT}, the size it is tuned at")

            if limit is not None and limit.lower.is_Integer:
                self.least[spec.name] = _least(self.program, size.node.expr, int(limit.lower))
            if self.least.get(spec.name, 0) > SEQ_HINT:
                found = f"a program that is right from size {self.least[spec.name]} on"
                raise InputError(f"--dynamic {spec}", found=found, expected=f"{SEQ_HINT}, the size it is tuned at",
                                 hint="make the slice, window or index that needs so many shorter")  # fmt: skip

    def _input(self, node: Any, name: str) -> None:
        self.inputs.append(self._tensor(name, node.meta["val"], "input", None))
        self.values[node] = Ref(name)

    def _literal(self, node: Any, value: torch.Tensor) -> None:
        name = self._fresh("constant")
        tensor = self._tensor(name, value, "constant", None)
        args: tuple[tuple[str, Arg], ...] = (
            ("size", tuple(i.value for i in tensor.shape if hasattr(i, "value"))),
            ("fill_value", value.item()),
            ("dtype", tensor.dtype),
        )
        self.nodes.append(Node("aten.full.default", args, (tensor,)))
        self.values[node] = Ref(name)

    def _call(self, node: Any) -> None:
        value = node.meta.get("val")
        if node.target is operator.getitem:
            self.values[node] = self.values[node.args[0]][node.args[1]]
            return
        if value is None:
            return  # assertions and range constraints: export's own bookkeeping
        if isinstance(value, int | float | bool | torch.SymInt):
            self.values[node] = self._size(value, str(node.target), node)
            return
        if not isinstance(node.target, torch._ops.OpOverload):
            raise UnsupportedOp(str(node.target), self._where(node))
        op, where = str(node.target), self._where(node)
        results: tuple[Tensor, ...]
        if isinstance(value, torch.Tensor):
            results = (self._tensor(self._fresh(self._called(node)), value, op, node),)
            self.values[node] = Ref(results[0].name)
        else:
            results = tuple(
                self._tensor(self._fresh(f"{self._called(node)}_{n}"), v, op, node)
                for n, v in enumerate(value)
                if v is not None
            )
            self.values[node] = tuple(Ref(tensor.name) for tensor in results)
        self.nodes.append(Node(op, self._bind(node), results, where))

    def _bind(self, node: Any) -> tuple[tuple[str, Arg], ...]:
        bound: list[tuple[str, Arg]] = []
        given = dict(node.kwargs)
        for n, argument in enumerate(node.target._schema.arguments):
            raw = node.args[n] if n < len(node.args) else given.get(argument.name, argument.default_value)
            if argument.name in _DROPPED:
                continue
            if argument.has_default_value() and _same(raw, argument.default_value):
                continue
            bound.append((argument.name, self._arg(raw, node)))
        return tuple(bound)

    def _arg(self, raw: Any, node: Any) -> Arg:
        if isinstance(raw, torch.fx.Node):
            value = self.values[raw]
            return value.value if isinstance(value, Expr) and hasattr(value, "value") else value
        if isinstance(raw, list | tuple):
            return tuple(self._arg(item, node) for item in raw)
        if isinstance(raw, torch.dtype):
            return dtype_of(raw)
        if raw is None or isinstance(raw, bool | int | float | str):
            return raw
        raise UnsupportedOp(str(node.target), self._where(node), hint=f"an argument of type {type(raw).__name__}")

    def _tensor(self, name: str, value: Any, op: str, node: Any) -> Tensor:
        if not isinstance(value, torch.Tensor):
            raise UnsupportedOp(op, self._where(node), hint=f"a result of type {type(value).__name__}")
        shape = tuple(self._size(size, op, node) for size in value.shape)
        return Tensor(name, shape, self._dtype(value.dtype, op, node))

    def _dtype(self, dtype: torch.dtype, op: str, node: Any) -> DType:
        try:
            return dtype_of(dtype)
        except InputError as error:
            if node is None:
                raise
            raise UnsupportedOp(op, self._where(node), hint=f"{error}") from error

    def _size(self, size: Any, op: str, node: Any) -> Expr:
        if isinstance(size, bool | float):
            return i32(int(size))
        try:
            return Simplifier({}).index(size_expr(size, self.symbols))
        except KeyError as error:
            hint = (
                LEFT_OUT.get(short_name(op), "data-dependent shape")
                if op.startswith("aten.")
                else "data-dependent shape"
            )
            raise UnsupportedOp(op, self._where(node), hint=hint) from error

    def _outputs(self) -> tuple[str, ...]:
        specs = self.program.graph_signature.output_specs
        for spec in specs:
            if spec.kind.name != "USER_OUTPUT":
                written = self.called.get(spec.target, spec.target or spec.arg.name)
                raise InputError("the program writes to its input or buffer", found=written, expected="a copy")
        output = next(node for node in self.program.graph.nodes if node.op == "output")
        names = []
        for value in output.args[0]:
            ref = self.values.get(value) if isinstance(value, torch.fx.Node) else None
            if value is None:
                continue
            if not isinstance(ref, Ref):
                raise InputError("the result", found=f"{value!r}", expected="a tensor, or a tuple or list of tensors")
            names.append(ref.name)
        if not names:
            raise InputError("the result", found="nothing", expected="at least one tensor")
        return tuple(names)

    @staticmethod
    def _called(node: Any) -> str:
        return str(node.name).lstrip("_").replace("scaled_dot_product_attention", "sdpa")

    def _fresh(self, name: str) -> str:
        candidate, count = name, 1
        while candidate in self.taken:
            count += 1
            candidate = f"{name}_{count}"
        self.taken.add(candidate)
        return candidate

    def _where(self, node: Any) -> str | None:
        """The innermost frame outside torch."""
        return _place(node.meta.get("stack_trace") or "", self.locate) if node is not None else None


def _least(program: Any, symbol: Any, lower: int) -> int:
    """The smallest size that the program is right for: torch's ``lower``, unless that only sets 0 and 1 apart.

    That is so up to 3 (a size less one or two), where every operation has the shape that was traced at less as well.
    """
    while 1 < lower <= 3 and _fits(program, {symbol: lower - 1}):
        lower -= 1
    return lower if lower > 1 else 0


def _fits(program: Any, sizes: Mapping[Any, int]) -> bool:
    """Whether the operations take the given sizes of symbols (others: the hint) and make what was traced."""

    def size(expr: Any) -> int:
        return int(expr.subs({symbol: sizes.get(symbol, SEQ_HINT) for symbol in expr.free_symbols}))

    def shape(value: torch.Tensor) -> list[int]:
        return [n if isinstance(n, int) else size(n.node.expr) for n in value.shape]

    class Replay(torch.fx.Interpreter):
        def run_node(self, n: Any) -> Any:
            traced = n.meta.get("val")
            if n.op == "call_function" and traced is None:
                return None  # export's own assertions, which hold the limit in question
            found = super().run_node(n)
            if isinstance(traced, torch.Tensor) and list(found.shape) != shape(traced):
                raise ValueError(n.name)
            return found

    nodes = (node.meta["val"] for node in program.graph.nodes if node.op == "placeholder")
    try:
        with FakeTensorMode():
            inputs = [torch.empty(shape(v), dtype=v.dtype) if isinstance(v, torch.Tensor) else v for v in nodes]
            Replay(program.graph_module).run(*inputs)
    except (ValueError, IndexError, RuntimeError):
        return False
    return True


def _place(trace: str, locate: Locate) -> str | None:
    frames = re.findall(r'File "([^"]+)", line (\d+)', trace)
    library = torch.__file__.rsplit("/", 1)[0]
    own = [frame for frame in frames if not frame[0].startswith(library)] or frames
    return locate(own[-1][0], int(own[-1][1])) if own else None


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, torch.fx.Node) or type(value) is not type(default):
        return value is default
    return bool(value == default)
