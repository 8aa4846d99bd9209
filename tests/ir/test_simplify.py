"""Simplified index expressions against brute-force evaluation, and the forms that views must leave behind."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, Load, Var, call, evaluate_int, free_vars, i32, lt, select
from emmy.ir.nest import show
from emmy.ir.simplify import Simplifier, simplify

A, J, K, S, T = (Var(name) for name in "ijkst")
EXTENTS = {"i": i32(6), "j": S, "k": i32(64)}

KNOWN = [
    (A // 6, "0"),
    (A % 6, "i"),
    ((A * 64 + K) // 64, "i"),
    ((A * 64 + K) % 64, "k"),
    ((A * S + J) // S, "i"),
    ((A * S + J) % S, "j"),
    (((A * S + J) * 64 + K) // 64, "((i * s) + j)"),
    ((((A * S + J) * 64 + K) // 64) % S, "j"),
    ((A * 64 + K) // 32, "((i * 2) + (k // 32))"),
    ((A * 64 + K) % 32, "(k % 32)"),
    (((A * 64 + K) // 32) * 32 + (A * 64 + K) % 32, "(k + (i * 64))"),
    ((K // 16) * 16 + K % 16, "k"),
    (((K // 16) % 2) * 16 + K % 16, "(k % 32)"),
    ((J // S) + (J % S), "j"),
    (J // 4 * 4 + J % 4, "j"),
    ((K % 32) // 8, "((k // 8) % 4)"),
    ((K % 32) % 8, "(k % 8)"),
    ((J // 4) // 3, "(j // 12)"),
    ((A * 8 + K // 8) // 8, "i"),
    ((J * 4 + K // 16) // 4, "j"),
    ((S * 64) // 64, "s"),
    ((S * T * 4) // (T * 2), "(s * 2)"),
    ((A + 70) // 64, "1"),
    (A - A, "0"),
    ((A + 3) - 3, "i"),
    (call("min", A, i32(9)), "i"),
    (call("max", J, i32(0)), "j"),
]


@pytest.mark.parametrize(("expr", "expected"), KNOWN, ids=[show(e) for e, _ in KNOWN])
def test_known_forms(expr: Expr, expected: str) -> None:
    assert show(simplify(expr, EXTENTS)) == expected


def test_an_axis_of_extent_one_is_its_only_coordinate() -> None:
    assert simplify(A * 8 + J, {"i": i32(1), "j": i32(8)}) == J


def test_a_product_of_axes_is_left_alone() -> None:
    assert show(simplify((A * J) // 7, EXTENTS)) == "((i * j) // 7)"


@pytest.mark.parametrize(
    ("cond", "expected"),
    [
        (lt(A, i32(6)), True), (lt(A, i32(5)), None), (lt(J, S), True), (call("ge", A, i32(0)), True),
        (call("gt", A, i32(5)), False), (call("le", J, S), True), (call("eq", J, S), False),
        (call("ne", A, i32(6)), True), (call("eq", A, A), True), (lt(J + 1, S), None), (lt(J, S + T), True),
    ],
)  # fmt: skip
def test_comparisons_within_the_ranges(cond: Expr, expected: bool | None) -> None:
    chosen = Simplifier(EXTENTS).body(select(cond, Load("a", (A,), DType.F32), Load("b", (A,), DType.F32)))
    name = {True: "a", False: "b"}
    assert (chosen.tensor if isinstance(chosen, Load) else None) == (None if expected is None else name[expected])


def test_coordinates_of_loads_are_simplified_inside_values() -> None:
    value = Load("x", ((A * 64 + K) // 64, (A * 64 + K) % 64), DType.F32) + 1.0
    assert show(Simplifier(EXTENTS).body(value)) == "(x[i, k] + 1)"


LEAVES = st.sampled_from([A, J, K, S]) | st.integers(0, 9).map(i32)
DIVISORS = st.sampled_from([i32(1), i32(2), i32(3), i32(4), i32(8), i32(64), S, S * 4, S + 1])


def _grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a - b, inner, inner),
        st.builds(lambda a, c: a * c, inner, st.sampled_from([i32(2), i32(3), i32(8), i32(64), S])),
        st.builds(lambda a, d: a // d, inner, DIVISORS),
        st.builds(lambda a, d: a % d, inner, DIVISORS),
        st.builds(lambda a, b: call("min", a, b), inner, inner),
        st.builds(lambda a, b: call("max", a, b), inner, inner),
        st.builds(lambda a, b, c: select(lt(a, b), b, c), inner, inner, inner),
    )


@settings(max_examples=400, deadline=None)
@given(st.recursive(LEAVES, _grow, max_leaves=8), st.sampled_from([1, 2, 5, 8]))
def test_the_value_stays(expr: Expr, size: int) -> None:
    simple = simplify(expr, EXTENTS)
    again = simplify(simple, EXTENTS)
    used = sorted(free_vars(expr) & set(EXTENTS))
    ranges = {"i": range(6), "j": range(size), "k": (0, 1, 7, 8, 31, 32, 63)}
    for values in itertools.product(*(ranges[name] for name in used)):
        env = dict(zip(used, values, strict=True)) | {"s": size}
        assert evaluate_int(simple, env) == evaluate_int(expr, env), show(simple)
        assert evaluate_int(again, env) == evaluate_int(expr, env)


@st.composite
def factorised(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two shapes with the same number of elements."""
    primes = draw(st.lists(st.sampled_from([2, 2, 3, 5]), min_size=1, max_size=5))

    def grouped(items: list[int]) -> list[int]:
        shape = [1]
        for item in items:
            if draw(st.booleans()):
                shape.append(1)
            shape[-1] *= item
        return shape

    return grouped(primes), grouped(draw(st.permutations(primes)))


@settings(max_examples=150, deadline=None)
@given(factorised())
def test_there_and_back_through_a_view_is_the_identity(shapes: tuple[list[int], list[int]]) -> None:
    old, new = shapes
    names = [Var(f"a{n}") for n in range(len(old))]
    there = _through(names, old, new)
    back = [simplify(e, {f"a{n}": i32(extent) for n, extent in enumerate(old)}) for e in _through(there, new, old)]
    assert back == [v if extent > 1 else i32(0) for v, extent in zip(names, old, strict=True)]


def _through(coords: list[Expr], shape: list[int], target: list[int]) -> list[Expr]:
    linear: Expr = i32(0)
    for coordinate, extent in zip(coords, shape, strict=True):
        linear = linear * extent + coordinate
    out = []
    inner = 1
    for extent in reversed(target):
        out.append((linear // inner) % extent)
        inner *= extent
    return out[::-1]
