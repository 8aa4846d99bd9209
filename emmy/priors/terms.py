"""Terms of a linear prior: products of at most two features, so that an optimum inside a range can be expressed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from emmy.schedule import features as table

Term = tuple[str, ...]
"""One or two feature names; a feature named twice is its square."""


def spelled(term: Term) -> str:
    """``threads``, ``threads^2``, ``tier_row*threads``."""
    if len(term) == 2 and term[0] == term[1]:
        return f"{term[0]}^2"
    return "*".join(term)


def parse(text: str) -> Term:
    """Inverse of ``spelled``."""
    if text.endswith("^2"):
        return (text[:-2], text[:-2])
    return tuple(text.split("*"))


def design(matrix: NDArray[np.float32], terms: Sequence[Term]) -> NDArray[np.float64]:
    """The (leaves, terms) matrix of term values for a (leaves, features) matrix in table order."""
    place = {name: number for number, name in enumerate(table.NAMES)}
    out = np.ones((len(matrix), len(terms)))
    for number, term in enumerate(terms):
        for name in term:
            out[:, number] *= matrix[:, place[name]]
    return out


def candidates(names: Iterable[str]) -> tuple[Term, ...]:
    """Each feature, and the square of each one that is not an indicator."""
    names = tuple(names)
    squares = tuple((name, name) for name in names if table.FEATURES[name].unit != "0/1")
    return tuple((name,) for name in names) + squares


def by_tier(names: Iterable[str]) -> tuple[Term, ...]:
    """Each feature times each tier's indicator: what a feature costs in one tier says little about another."""
    names = tuple(names)
    tiers = [name for name in names if name.startswith("tier_")]
    return tuple((tier, name) for tier in tiers for name in names if name not in tiers)


def table_digest(names: Iterable[str]) -> str:
    """Digest of what these features mean: their rows of the table. A name that the table lacks changes it."""
    rows = []
    for name in sorted(set(names)):
        row = table.FEATURES.get(name)
        rows.append(f"{name}\x1f{row.unit}\x1f{row.meaning}\x1f{row.log}" if row else f"{name}\x1fabsent")
    return hashlib.sha256("\x1e".join(rows).encode()).hexdigest()[:16]
