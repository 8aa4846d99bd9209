"""Index arithmetic made simple: integer expressions as polynomials over axes and size symbols.

An axis variable lies in ``0 … extent - 1``; a size symbol is at least 1 wherever an index is evaluated (a loop over an
empty axis evaluates nothing). With these ranges ``(i*64 + j) // 64`` becomes ``i``, ``(i*64 + j) % 64`` becomes ``j``
and ``c*(x//c) + x%c`` becomes ``x``, for constant and for symbolic extents, so that a view around a contraction leaves
affine loads behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Expr, Load, Var, call, cast, transform

Mono = tuple[Expr, ...]
"""A product of atoms, in canonical order; empty for the constant term."""

Poly = dict[Mono, int]
"""A sum of monomials with integer coefficients; no zero coefficients."""


class Simplifier:
    """Simplifies the index expressions of one scope.

    extents: extent of every axis variable in scope; any other variable is a size symbol.
    """

    def __init__(self, extents: Mapping[str, Expr]) -> None:
        self._extents = extents
        self._polys: dict[Expr, Poly] = {}
        self._highs: dict[str, Poly] = {}

    def index(self, expr: Expr) -> Expr:
        """An equal, simpler form of an integer index expression."""
        return _to_expr(self._poly(expr))

    def body(self, expr: Expr) -> Expr:
        """``expr`` with the coordinates of its loads, its int32 arithmetic and the comparisons of such simplified."""

        def rule(node: Expr) -> Expr | None:
            match node:
                case Load(tensor, index, dtype, lanes):
                    return Load(tensor, tuple(self.index(i) for i in index), dtype, lanes)
                case Call(fn, (a, b), _) if fn in _COMPARE and a.dtype == b.dtype == DType.I32:
                    return self._compare(fn, a, b)
                case Call(_, _, DType.I32):
                    return self.index(node)
            return None

        return transform(expr, rule)

    def nonnegative(self, expr: Expr) -> bool:
        """Whether ``expr >= 0`` is provable."""
        return self._nonneg(self._poly(expr))

    def less(self, a: Expr, b: Expr) -> bool:
        """Whether ``a < b`` is provable."""
        return self._less(self._poly(a), self._poly(b))

    # ------------------------------------------------------------------------------------------- normal form

    def _poly(self, expr: Expr) -> Poly:
        known = self._polys.get(expr)
        if known is None:
            known = self._polys[expr] = self._convert(expr)
        return known

    def _convert(self, expr: Expr) -> Poly:
        match expr:
            case Const(value):
                return _const(int(value))
            case Var(name):
                extent = self._extents.get(name)
                return {} if extent is not None and extent == Const(1, DType.I32) else {(expr,): 1}
            case Call("add", (a, b)):
                return self._merge(_add(self._poly(a), self._poly(b)))
            case Call("sub", (a, b)):
                return self._merge(_add(self._poly(a), _scale(self._poly(b), -1)))
            case Call("neg", (a,)):
                return _scale(self._poly(a), -1)
            case Call("mul", (a, b)):
                return self._merge(_mul(self._poly(a), self._poly(b)))
            case Call("floordiv", (a, b)):
                return self._merge(self._div(self._poly(a), self._poly(b)))
            case Call("mod", (a, b)):
                return self._merge(self._mod(self._poly(a), self._poly(b)))
            case Call("min" | "max" as fn, (a, b)):
                return self._extreme(fn, self._poly(a), self._poly(b))
            case Call("cast", (a,), dtype) if dtype == DType.I32 and a.dtype == DType.I32:
                return self._poly(a)
            case Call("select", (cond, yes, no)):
                test, a, b = self.body(cond), self.index(yes), self.index(no)
                chosen = call("select", test, a, b)
                return {(chosen,): 1} if isinstance(chosen, Call) else self._poly(chosen)
            case Call(fn, args, dtype):
                return {(call(fn, *(self.body(a) for a in args), dtype=dtype),): 1}
            case Load(tensor, index, dtype, lanes):
                return {(Load(tensor, tuple(self.index(i) for i in index), dtype, lanes),): 1}
        return {(expr,): 1}

    def _extreme(self, fn: str, a: Poly, b: Poly) -> Poly:
        low, high = (a, b) if fn == "min" else (b, a)
        if self._nonneg(_add(b, _scale(a, -1))):
            return low
        if self._nonneg(_add(a, _scale(b, -1))):
            return high
        return {(call(fn, _to_expr(a), _to_expr(b)),): 1}

    def _compare(self, fn: str, a: Expr, b: Expr) -> Expr:
        pa, pb = self._poly(a), self._poly(b)
        holds: Callable[[], bool]
        fails: Callable[[], bool]
        if fn == "lt":
            holds, fails = lambda: self._less(pa, pb), lambda: self._at_most(pb, pa)
        elif fn == "le":
            holds, fails = lambda: self._at_most(pa, pb), lambda: self._less(pb, pa)
        elif fn == "gt":
            holds, fails = lambda: self._less(pb, pa), lambda: self._at_most(pa, pb)
        elif fn == "ge":
            holds, fails = lambda: self._at_most(pb, pa), lambda: self._less(pa, pb)
        else:
            equal, apart = lambda: pa == pb, lambda: self._less(pa, pb) or self._less(pb, pa)
            holds, fails = (equal, apart) if fn == "eq" else (apart, equal)
        if holds():
            return Const(True, DType.BOOL)
        if fails():
            return Const(False, DType.BOOL)
        return call(fn, _to_expr(pa), _to_expr(pb))

    # ------------------------------------------------------------------------------------ division and remainder

    def _div(self, p: Poly, d: Poly) -> Poly:
        if p == d:
            return _const(1)
        quotient, rest = _split(p, d)
        if not rest or self._within(rest, d):
            return quotient
        factored = self._factor(rest, d)
        if factored is not None:
            high, _, divisor, _ = factored
            return _add(quotient, self._div(high, divisor))
        match _single_atom(rest):
            case Call("floordiv", (x, inner)) if self._positive(self._poly(inner)):
                return _add(quotient, self._div(self._poly(x), _mul(self._poly(inner), d)))
            case Call("mod", (x, modulus)):
                outer, left = _split(self._poly(modulus), d)
                if not left and self._positive(d):
                    return _add(quotient, self._mod(self._div(self._poly(x), d), outer))
        return _add(quotient, {(Call("floordiv", (_to_expr(rest), _to_expr(d)), DType.I32),): 1})

    def _mod(self, p: Poly, d: Poly) -> Poly:
        if p == d:
            return {}
        _, rest = _split(p, d)
        if not rest or self._within(rest, d):
            return rest
        factored = self._factor(rest, d)
        if factored is not None:
            high, low, divisor, unit = factored
            return _add(_mul(unit, self._mod(high, divisor)), low)
        match _single_atom(rest):
            case Call("mod", (x, modulus)):
                _, left = _split(self._poly(modulus), d)
                if not left:
                    return self._mod(self._poly(x), d)
        return {(Call("mod", (_to_expr(rest), _to_expr(d)), DType.I32),): 1}

    def _factor(self, p: Poly, d: Poly) -> tuple[Poly, Poly, Poly, Poly] | None:
        """``(high, low, divisor, unit)`` with ``p = unit*high + low``, ``0 <= low < unit`` and ``d = unit*divisor``."""
        if len(d) != 1:
            return None
        ((mono, coefficient),) = d.items()
        units: dict[tuple[int, Mono], None] = {}
        for term, factor in p.items():
            units.setdefault((math.gcd(factor, coefficient), _common(term, mono)))
        for size, atoms in units:
            if size <= 1 and not atoms:
                continue
            unit = {atoms: size}
            high, low = _split(p, unit)
            if high and (not low or self._within(low, unit)):
                return high, low, _split(d, unit)[0], unit
        return None

    def _merge(self, p: Poly) -> Poly:
        """``c*(x//c) + x%c`` back to ``x``, and ``c*((x//c) % b) + x%c`` back to ``x % (b*c)``."""
        for mono, factor in p.items():
            for atom in mono:
                match atom:
                    case Call("mod", (x, c)):
                        others = _without(mono, atom)
                        merged = self._recombine(p, mono, others, factor, x, self._poly(c))
                        if merged is not None:
                            return self._merge(merged)
        return p

    def _recombine(self, p: Poly, mono: Mono, others: Mono, factor: int, x: Expr, c: Poly) -> Poly | None:
        if len(c) != 1:
            return None
        ((c_mono, c_factor),) = c.items()
        wanted = factor * c_factor
        for other, coefficient in p.items():
            if coefficient != wanted:
                continue
            for atom in other:
                if _ordered((*others, *c_mono)) != _without(other, atom):
                    continue
                whole: Poly | None = None
                match atom:
                    case Call("floordiv", (y, e)) if y == x and self._poly(e) == c:
                        whole = self._poly(x)
                    case Call("mod", (y, b)):
                        rest = dict(self._poly(y))
                        quotient = Call("floordiv", (x, _to_expr(c)), DType.I32)
                        if rest.pop((quotient,), 0) == 1:  # y = rest + x//c
                            whole = self._mod(_add(_mul(rest, c), self._poly(x)), _mul(self._poly(b), c))
                if whole is not None:
                    left = {m: v for m, v in p.items() if m not in (mono, other)}
                    return _add(_mul(whole, {others: factor}), left)
        return None

    # --------------------------------------------------------------------------------------------------- ranges

    def _within(self, p: Poly, d: Poly) -> bool:
        return self._nonneg(p) and self._less(p, d)

    def _less(self, p: Poly, q: Poly) -> bool:
        return self._nonneg(_add(_add(q, _scale(p, -1)), _const(-1)))

    def _at_most(self, p: Poly, q: Poly) -> bool:
        return self._nonneg(_add(q, _scale(p, -1)))

    def _positive(self, p: Poly) -> bool:
        return self._nonneg(_add(p, _const(-1)))

    def _nonneg(self, p: Poly) -> bool:
        highest = self._upper(_scale(p, -1))
        if highest is None:
            return False
        # a symbol is 1 + something that is not negative
        shifted: Poly = {}
        for mono, factor in highest.items():
            term = _const(-factor)
            for atom in mono:
                term = _mul(term, {(): 1, (atom,): 1})
            shifted = _add(shifted, term)
        return all(factor >= 0 for factor in shifted.values())

    def _upper(self, p: Poly) -> Poly | None:
        """An upper bound of ``p`` as a polynomial over size symbols, None where there is none to be had."""
        total: Poly = {}
        for mono, factor in p.items():
            term = _const(factor)
            for atom in mono:
                bound = self._bounds(atom)
                if bound is None:
                    return None
                low, high = bound
                chosen = high if factor > 0 else low
                if chosen is None:
                    return None
                term = _mul(term, chosen)
            total = _add(total, term)
        return total

    def _bounds(self, atom: Expr) -> tuple[Poly, Poly | None] | None:
        """``(low, high)`` of an atom that is never negative, ``high`` None if unbounded; None if it may be negative."""
        match atom:
            case Var(name):
                if name not in self._extents:
                    return {(atom,): 1}, {(atom,): 1}
                if name not in self._highs:
                    self._highs[name] = {}  # an extent never depends on its own axis
                    self._highs[name] = _add(self._poly(self._extents[name]), _const(-1))
                return {}, self._highs[name]
            case Call("mod", (_, d)) if self._positive(self._poly(d)):
                return {}, self._upper(_add(self._poly(d), _const(-1)))
            case Call("floordiv", (x, d)) if self._positive(self._poly(d)) and self._nonneg(self._poly(x)):
                high, divisor = self._upper(self._poly(x)), self._poly(d)
                if high is not None and set(high) <= {()} and set(divisor) == {()}:
                    return {}, _const(high.get((), 0) // divisor[()])
                return {}, high
            case Call("min", (a, b)) if self._nonneg(self._poly(a)) and self._nonneg(self._poly(b)):
                first, second = self._upper(self._poly(a)), self._upper(self._poly(b))
                if first is not None and second is not None and set(first) | set(second) <= {()}:
                    return {}, _const(min(first.get((), 0), second.get((), 0)))
                return {}, first if first is not None else second
        return None


def simplify(expr: Expr, extents: Mapping[str, Expr]) -> Expr:
    """One index expression simplified; see Simplifier."""
    return Simplifier(extents).index(expr)


_COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")


# --------------------------------------------------------------------------------------------- polynomial algebra


def _const(value: int) -> Poly:
    return {(): value} if value else {}


def _ordered(atoms: Mono) -> Mono:
    return tuple(sorted(atoms, key=repr)) if len(atoms) > 1 else atoms


def _add(p: Poly, q: Poly) -> Poly:
    out = dict(p)
    for mono, factor in q.items():
        total = out.get(mono, 0) + factor
        if total:
            out[mono] = total
        else:
            out.pop(mono, None)
    return out


def _scale(p: Poly, factor: int) -> Poly:
    return {mono: value * factor for mono, value in p.items()} if factor else {}


def _mul(p: Poly, q: Poly) -> Poly:
    out: Poly = {}
    for a, x in p.items():
        for b, y in q.items():
            out = _add(out, {_ordered((*a, *b)): x * y})
    return out


def _without(mono: Mono, atom: Expr) -> Mono:
    rest = list(mono)
    rest.remove(atom)
    return tuple(rest)


def _common(a: Mono, b: Mono) -> Mono:
    left, shared = list(b), []
    for atom in a:
        if atom in left:
            left.remove(atom)
            shared.append(atom)
    return _ordered(tuple(shared))


def _split(p: Poly, d: Poly) -> tuple[Poly, Poly]:
    """``(q, r)`` with ``p = q*d + r``; ``r`` keeps what ``d`` does not divide (a constant is reduced)."""
    if not d:
        return {}, p
    if len(d) != 1:
        for factor in (1, -1):
            if p == _scale(d, factor):
                return _const(factor), {}
        return {}, p
    ((mono, coefficient),) = d.items()
    quotient: Poly = {}
    rest: Poly = {}
    for term, factor in p.items():
        shared = _common(term, mono)
        if len(shared) != len(mono):
            rest[term] = factor
            continue
        left = term
        for atom in mono:
            left = _without(left, atom)
        if factor % coefficient == 0:
            quotient[left] = factor // coefficient
        elif not left:
            if factor // coefficient:
                quotient[left] = factor // coefficient
            rest[term] = factor % coefficient
        else:
            rest[term] = factor
    return quotient, rest


def _single_atom(p: Poly) -> Expr | None:
    if len(p) == 1:
        ((mono, factor),) = p.items()
        if factor == 1 and len(mono) == 1:
            return mono[0]
    return None


def _to_expr(p: Poly) -> Expr:
    """Terms in order of appearance, positive ones first, the constant last."""
    total: Expr | None = None
    constant = p.get((), 0)
    for mono, factor in sorted(((m, f) for m, f in p.items() if m), key=lambda item: item[1] < 0):
        term: Expr | None = None
        for atom in mono:
            scalar = atom if atom.dtype == DType.I32 else cast(atom, DType.I32)
            term = scalar if term is None else term * scalar
        assert term is not None
        size = abs(factor)
        term = term if size == 1 else term * size
        if total is None:
            total = term if factor > 0 else call("neg", term)
        else:
            total = total + term if factor > 0 else total - term
    if total is None:
        return Const(constant, DType.I32)
    if constant == 0:
        return total
    return total + constant if constant > 0 else total - (-constant)
