"""What a tier is: an analysis of a region, a grid of leaves as columns, rules, features, and a lowering.

A leaf is one row of ``Columns`` (NumPy arrays of equal length, one a schedule parameter). Each tier has one list of
rules; a rule is a function over columns, so a hundred thousand leaves are checked at once, and its name and file:line
explain why a leaf was never offered. Rules of legality hold for pins as well; rules of policy only keep out of a search
what is known not to be worth it, and a pin reaches past them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emmy.device.base import Capabilities
from emmy.errors import Refused
from emmy.ir.nest import Region
from emmy.ir.plan import Plan
from emmy.schedule.knobs import KnobMap

Columns = dict[str, NDArray[Any]]

LEVELS = ("fuse", "tier", "cta", "warp", "k", "reduce", "stage", "wspec", "raster")
"""Fork order. Every tier gives each leaf an integer label a level; leaves with equal labels share the fork's branch."""


Check = Callable[[Any, Capabilities, Columns], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule over columns: ``check(problem, caps, columns)`` is True where a leaf is allowed.

    what: what it asks for, as an error's "expected". policy: it is about what is worth a measurement, not about what is
    right: the enumeration obeys it, a pin does not.
    """

    name: str
    where: str
    what: str
    policy: bool
    check: Check

    def refusal(self, **facts: Any) -> Refused:
        return Refused(self.name, self.where, **{"expected": self.what, **facts})


def rule(name: str, policy: bool = False) -> Callable[[Check], Rule]:
    """Makes a rule of a function: its place in the source is recorded, its docstring is what the rule asks for."""

    def wrap(check: Check) -> Rule:
        code = check.__code__
        path = code.co_filename
        short = path[path.rindex("emmy/") :] if "emmy/" in path else path
        what = " ".join((check.__doc__ or "").split()).rstrip(".")
        return Rule(name, f"{short}:{code.co_firstlineno}", what[:1].lower() + what[1:], policy, check)

    return wrap


class Tier(ABC):
    """One way to realise a region as kernels. Stateless; ``problem`` is the tier's own analysis of a region."""

    name: ClassVar[str]
    rules: ClassVar[tuple[Rule, ...]]
    o1_valid: ClassVar[bool] = False
    """Whether the cheap build keeps the shape of this tier's code: its ranking then stands for the deployable one."""

    @abstractmethod
    def match(self, region: Region, caps: Capabilities) -> Any:
        """The tier's analysis of the region. Raises Refused where the tier cannot realise it."""

    @abstractmethod
    def grid(self, problem: Any, caps: Capabilities, fast_math: bool) -> Columns:
        """Every combination of the values this tier tries, legal or not."""

    @abstractmethod
    def knobs(self, problem: Any, columns: Columns, row: int) -> KnobMap:
        """The knob map of one leaf: every family it decides."""

    @abstractmethod
    def read(self, problem: Any, knobs: KnobMap) -> Columns:
        """The one-row columns of a complete knob map. Raises Refused where its values are not this tier's."""

    @abstractmethod
    def labels(self, problem: Any, columns: Columns) -> Mapping[str, NDArray[np.int64]]:
        """Labels at the levels cta, warp, k, reduce, stage, wspec, raster."""

    @abstractmethod
    def features(self, problem: Any, caps: Capabilities, columns: Columns) -> dict[str, NDArray[np.float64]]:
        """Values of the features (emmy.schedule.features) that this tier knows, one array a feature."""

    @abstractmethod
    def lower(self, problem: Any, caps: Capabilities, columns: Columns) -> Plan:
        """The plan of a one-row leaf. Refuses what the rules refuse; never changes a parameter."""

    def legal(
        self, problem: Any, caps: Capabilities, columns: Columns, policy: bool = True
    ) -> tuple[NDArray[np.bool_], NDArray[np.int16]]:
        """(allowed, index of the first refusing rule or -1) a leaf. policy: rules of policy count as well."""
        count = len(next(iter(columns.values())))
        first = np.full(count, -1, dtype=np.int16)
        for number, one in enumerate(self.rules):
            if policy or not one.policy:
                allowed = np.broadcast_to(one.check(problem, caps, columns), (count,))
                first[~allowed & (first < 0)] = number
        return first < 0, first

    def refuse(self, problem: Any, caps: Capabilities, columns: Columns) -> Refused | None:
        """Why a one-row leaf cannot be realised, or None. Rules of policy do not count."""
        allowed, first = self.legal(problem, caps, columns, policy=False)
        return None if allowed[0] else self.rules[int(first[0])].refusal()


def product(**values: Sequence[int]) -> Columns:
    """The cross product of parameter values as int32 columns, the last varying fastest."""
    grids = np.meshgrid(*(np.asarray(v, dtype=np.int32) for v in values.values()), indexing="ij")
    return {name: grid.ravel() for name, grid in zip(values, grids, strict=True)}


def take(columns: Columns, rows: Any) -> Columns:
    """The given rows of every column."""
    return {name: column[rows] for name, column in columns.items()}


def concat(parts: Sequence[Columns]) -> Columns:
    """Columns one after the other; all parts have the same names, in any order."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
