"""Text of a kernel with its own names numbered in order of appearance: equal kernels of other names have equal text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from emmy.ir.expr import Expr
from emmy.ir.kernel import Kernel, Stmt, rewrite

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|(?<![\w.])[A-Za-z_]\w*')
"""Text literals, and identifiers that are neither members (``threadIdx.x``) nor suffixes of numbers (``1.0f``)."""

_TEMPORARY = re.compile(r"t\d+")
"""Names that printers give to what they compute once."""


def names_of(kernel: Kernel) -> tuple[str, ...]:
    """Everything that a kernel names: parameters, arrays, loops, roles, values; each once, sorted."""
    found = {kernel.name, *(param.name for param in kernel.params), *(array.name for array in kernel.shared)}

    def same(expr: Expr) -> Expr:
        return expr

    def note(name: str) -> str:
        found.add(name)
        return name

    def visit(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        for stmt in body:
            rewrite(stmt, same, visit, note)
        return body

    visit(kernel.body)
    return tuple(sorted(found - {""}))


def anonymous(source: str, name: str, names: Collection[str]) -> str:
    """``source`` from the kernel's own ``name`` on with each of ``names`` as ``$0``, ``$1``, … in order of appearance.

    Whole identifiers are renamed, different ones differently; the slot of a register array (``acc_0_1``) keeps its
    indices. What stands in front of the kernel, text literals and the language's words stay.
    """
    from emmy.codegen.words import CUDA_WORDS, OPENCL_WORDS  # a worker reads artefacts without the compiler

    words = (OPENCL_WORDS | CUDA_WORDS) & {name, *names}
    own = ({name, *names} - words) | {f"{word}_" for word in words}  # so they are printed
    start = re.search(rf"\b{re.escape(name)}\s*\(", source)
    if start is None:
        return source
    numbers: dict[str, str] = {}
    texts: dict[str, str] = {}

    def rename(token: str) -> str:
        stem = token
        while stem not in own and not _TEMPORARY.fullmatch(stem):
            stem, _, index = stem.rpartition("_")
            if not index.isdecimal():
                return token
        return numbers.setdefault(stem, f"${len(numbers)}") + token[len(stem) :]

    def visit(match: re.Match[str]) -> str:
        token = match.group()
        if token not in texts:
            texts[token] = token if token.startswith('"') else rename(token)
        return texts[token]

    return source[: start.start()] + _TOKEN.sub(visit, source[start.start() :])


def places(names: Iterable[str]) -> dict[str, int]:
    """Number of each name in order of first appearance."""
    return {name: number for number, name in enumerate(dict.fromkeys(names))}
