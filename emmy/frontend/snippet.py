"""Snippets: the code of ``-c``, with ``torch``, ``F`` and ``nn`` in scope.

    x0 = torch.randn(512, 1024); x1 = torch.randn(1024, 2048); x0 @ x1
    F.silu(torch.randn(1024, 4096)) * torch.randn(1024, 4096)
    layer = nn.Linear(1024, 4096); x = torch.randn(8, 1024); layer(x)

The last statement is an expression: the result, a tensor or a tuple of tensors. Statements before it that read no
tensor are *set-up* and run once: a tensor that they assign is an input of that name, a module lends its parameters as
inputs, anything else (a number, a function, an import) is a constant. A statement that reads a tensor is *traced*. A
random factory (``torch.randn``, ``rand``, ``randint``, and the ``_like`` forms) inside a traced statement is an input
too: these are named ``x0``, ``x1``, … in order of appearance.
"""

from __future__ import annotations

import ast
import builtins
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from emmy.errors import EmmyError, InputError

FILE = "<snippet>"
_FACTORIES = ("randn", "rand", "randint", "randn_like", "rand_like", "randint_like", "normal", "randperm")
_TRACED = "forward"
"""Name of the traced function: torch.export records call sites only in functions of this name."""

_WIDTH = 10_000
"""Lines of the compiled code are ``line * 10000 + column``: tracebacks have no columns, and snippets are one line."""

_LEVELS = 3_000
"""Levels that Python 3.11 may nest while it compiles, a term each; 3.12 takes between 1000 and 2000 at most."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """A snippet ready to trace. ``function`` takes the inputs in order; ``modules`` are those its code may call."""

    source: str
    function: Callable[..., Any]
    inputs: dict[str, torch.Tensor]
    modules: dict[str, torch.nn.Module] = field(default_factory=dict)

    def locate(self, file: str, line: int) -> str:
        """The call site as the user would say it: ``snippet:line:column``, or ``file:line``."""
        if file != FILE:
            return f"{file}:{line}"
        return f"snippet:{line // _WIDTH}:{line % _WIDTH + 1}"


def read_snippet(source: str, given: Mapping[str, torch.Tensor] | None = None) -> Snippet:
    """Parse a snippet and run its set-up. ``given``: inputs that it does not create itself, in order.

    Raises InputError, with line and caret, for a syntax error, an unknown name, a failing set-up, and a snippet without
    inputs or result.
    """
    tree = _parse(source)
    body = tree.body
    if not body or not isinstance(body[-1], ast.Expr):
        raise InputError(
            "snippet has no result",
            found="a last statement that is no expression" if body else "nothing",
            expected="an expression at the end, such as: x0 = torch.randn(512, 1024); F.silu(x0)",
        )
    scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "nn": torch.nn, "__name__": FILE}
    scope |= given or {}
    tensors: set[str] = set(given or ())
    traced: list[ast.stmt] = []
    for statement in body[:-1]:
        if _reads(statement, tensors) or not _sets_up(statement):
            traced.append(statement)
            tensors |= _assigned(statement)
        else:
            before = dict(scope)
            _run(source, [statement], scope)
            tensors |= {n for n, v in scope.items() if isinstance(v, torch.Tensor) and before.get(n) is not v}
    inputs = {n: v for n, v in scope.items() if isinstance(v, torch.Tensor)}
    hoist = _Hoist(source, scope, set(scope))
    traced = [hoist.statement(statement) for statement in [*traced, body[-1]]]
    inputs |= hoist.inputs
    _check_names(source, traced, scope | inputs)
    if not inputs:
        raise InputError("snippet has no inputs", expected="tensors such as torch.randn(512, 1024)")
    modules = {n: v for n, v in scope.items() if isinstance(v, torch.nn.Module)}
    return Snippet(source, _function(traced, list(inputs), scope), inputs, modules)


def failure(source: str, error: BaseException) -> InputError:
    """An error that the snippet's own code raised, as a message with the line and a caret under the place."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE and frame.lineno]
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    message = f"snippet failed: {type(error).__name__}: {text}"
    if not frames:
        return InputError(message)
    line = frames[-1].lineno or 0
    return InputError(f"{message}\n{_caret(source, line // _WIDTH, line % _WIDTH)}")


def _caret(source: str, line: int, column: int) -> str:
    lines = source.splitlines() or [""]
    text = lines[min(max(line, 1), len(lines)) - 1]
    return f"  line {line}: {text}\n{' ' * (len(f'  line {line}: ') + column)}^"


def _place(node: ast.expr) -> tuple[int, int]:
    return (node.lineno // _WIDTH, node.lineno % _WIDTH) if node.lineno >= _WIDTH else (node.lineno, node.col_offset)


def _parse(source: str) -> ast.Module:
    try:
        return ast.parse(source, FILE)
    except (RecursionError, MemoryError):
        raise _too_deep() from None
    except SyntaxError as error:
        place = _caret(source, error.lineno or 1, max((error.offset or 1) - 1, 0))
        raise InputError(f"snippet has a syntax error: {error.msg}\n{place}") from None
    except ValueError as error:
        raise InputError("snippet cannot be read", found=error) from None


def _run(source: str, statements: list[ast.stmt], scope: dict[str, Any]) -> None:
    code = _compiled(ast.Module(body=statements, type_ignores=[]))
    try:
        with torch.no_grad():
            exec(code, scope)
    except EmmyError:
        raise
    except (Exception, SystemExit) as error:
        raise failure(source, error) from None


def _too_deep() -> InputError:
    return InputError(
        "snippet nests too deep",
        found="an expression that Python cannot read in one piece",
        expected="at most some 1000 terms in an expression",
        hint="give its parts names, or write a loop",
    )


def _compiled(module: ast.Module) -> Any:
    for node in ast.walk(module):
        if isinstance(node, ast.expr | ast.stmt) and node.lineno < _WIDTH:
            node.lineno = node.end_lineno = node.lineno * _WIDTH + node.col_offset
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _LEVELS))
    try:
        return compile(module, FILE, "exec")
    except RecursionError:
        raise _too_deep() from None
    finally:
        sys.setrecursionlimit(before)


def _function(statements: list[ast.stmt], names: list[str], scope: dict[str, Any]) -> Callable[..., Any]:
    result = statements[-1]
    assert isinstance(result, ast.Expr)
    definition = ast.parse(f"def {_TRACED}({', '.join(names)}): pass").body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.body = [*statements[:-1], ast.copy_location(ast.Return(result.value), result)]
    exec(_compiled(ast.Module(body=[definition], type_ignores=[])), scope)
    made: Callable[..., Any] = scope.pop(_TRACED)
    return made


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def _reads(statement: ast.stmt, tensors: set[str]) -> bool:
    if (
        isinstance(statement, ast.Assign | ast.AnnAssign)
        and statement.value is not None
        and _is_factory(statement.value)
    ):
        return False
    return bool(_names(statement, ast.Load) & tensors)


def _assigned(statement: ast.stmt) -> set[str]:
    return _names(statement, ast.Store)


def _sets_up(statement: ast.stmt) -> bool:
    return not isinstance(statement, ast.Return)


def _is_factory(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "torch"
        and node.func.attr in _FACTORIES
    )


class _Hoist:
    """Random factories inside traced statements become inputs."""

    def __init__(self, source: str, scope: dict[str, Any], taken: set[str]) -> None:
        self.source = source
        self.scope = scope
        self.taken = taken
        self.inputs: dict[str, torch.Tensor] = {}

    def statement(self, statement: ast.stmt) -> ast.stmt:
        """``statement``, changed in place, in order; not by recursion, since a sum of 1000 terms nests 1000 levels."""
        pending = _places(statement)[::-1]
        while pending:
            holder, key, node = pending.pop()
            made = self._input(node) if isinstance(node, ast.Call) and _is_factory(node) else None
            if made is not None:
                holder[key] = made
            else:
                pending += _places(node)[::-1]
        return statement

    def _input(self, node: ast.Call) -> ast.expr | None:
        known = self.scope | self.inputs | {"__builtins__": builtins}
        if _names(node, ast.Load) - set(known) - set(dir(builtins)):
            return None
        name = next(f"x{n}" for n in range(1_000_000) if f"x{n}" not in self.taken)
        scope = dict(known)
        holder = ast.copy_location(ast.Name(name, ast.Store()), node)
        _run(self.source, [ast.copy_location(ast.Assign([holder], node), node)], scope)
        self.taken.add(name)
        self.inputs[name] = scope[name]
        return ast.copy_location(ast.Name(name, ast.Load()), node)


def _places(node: ast.AST) -> list[tuple[Any, Any, ast.AST]]:
    """(holder, key, child) of each child of ``node``, in order: ``holder[key]`` is the child."""
    found: list[tuple[Any, Any, ast.AST]] = []
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            found.append((vars(node), name, value))
        elif isinstance(value, list):
            found += [(value, n, item) for n, item in enumerate(value) if isinstance(item, ast.AST)]
    return found


def _check_names(source: str, statements: list[ast.stmt], scope: dict[str, Any]) -> None:
    known = set(scope) | set(dir(builtins))
    for statement in statements:
        known |= {n.arg for n in ast.walk(statement) if isinstance(n, ast.arg)}
        known |= _assigned(statement) if not isinstance(statement, ast.Assign) else set()
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in known:
                raise InputError(
                    f"snippet reads {node.id}, which nothing defines\n{_caret(source, *_place(node))}",
                    hint=f"create inputs in the snippet: {node.id} = torch.randn(512, 1024); …",
                )
        known |= _assigned(statement)
