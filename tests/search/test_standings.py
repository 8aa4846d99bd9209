"""Which build the leaves of a region are screened in, and what follows from their latencies."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from emmy.bench.jobs import Reply
from emmy.bench.records import Status
from emmy.bench.regimes import LIMIT
from emmy.search.standings import MINORITY, Standings, regimes_of

BOTH = ("O1", "O3")


@dataclass
class FakePart:
    tier: Any
    count: int

    def __len__(self) -> int:
        return self.count


@dataclass
class FakeSpace:
    """Parts of so many leaves; ``True`` where the tier's cheap build is valid."""

    parts: list[FakePart] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def locate(self, leaf: int) -> tuple[FakePart, int]:
        for part in self.parts:
            if leaf < len(part):
                return part, leaf
            leaf -= len(part)
        raise IndexError(leaf)


def space(*parts: tuple[bool, int]) -> Any:
    return FakeSpace([FakePart(SimpleNamespace(o1_valid=valid), count) for valid, count in parts])


def ok(us: float, abandoned: bool = False) -> Reply:
    return Reply(Status.OK, median_us=us, abandoned=abandoned)


@pytest.mark.parametrize(
    ("parts", "offered", "regimes"),
    [
        (((True, 7406), (False, 34)), BOTH, ("O1", "O3")),
        (((True, 7406), (False, 34)), ("O3",), ("O3", "O3")),
        (((True, 588), (False, 4114), (False, 34)), BOTH, ("O3", "O3", "O3")),
        (((True, 100), (False, int(100 * MINORITY) + 1)), BOTH, ("O3", "O3")),
        (((True, 100),), BOTH, ("O1",)),
        (((False, 1170),), BOTH, ("O3",)),
        (((True, 0), (False, 3)), BOTH, ("O3", "O3")),
        (((True, 0),), BOTH, ("O3",)),
        ((), BOTH, ()),
    ],
)
def test_the_cheap_build_screens_where_nearly_every_leaf_has_it(
    parts: tuple[tuple[bool, int], ...], offered: tuple[str, ...], regimes: tuple[str, ...]
) -> None:
    found = regimes_of(space(*parts), offered)
    assert found == regimes
    assert Standings(space(*parts), found).regime == ("O1" if "O1" in regimes else "O3")


def test_the_policy_hears_of_one_build_alone() -> None:
    here = space((True, 3), (False, 1))
    standings = Standings(here, ("O1", "O3"))
    assert [standings.of(leaf) for leaf in range(4)] == ["O1", "O1", "O1", "O3"]
    assert standings.add(0, "O1", ok(5.0)) == 5.0
    assert standings.add(3, "O3", ok(1.0)) is None
    assert standings.add(1, "O1", Reply(Status.TIMEOUT)) is None
    assert (standings.best_us("O1"), standings.best_us("O3")) == (5.0, 1.0)
    plain = Standings(here, ("O3", "O3"))
    assert plain.add(3, "O3", ok(1.0)) == 1.0


def test_leaders_are_those_within_the_tolerance_fastest_first() -> None:
    standings = Standings(space((False, 60)), ("O3",))
    for leaf, us in enumerate((10.0, 11.4, 11.6, 10.5, 30.0)):
        standings.add(leaf, "O3", ok(us))
    standings.add(9, "O3", Reply(Status.WRONG_RESULT))
    assert standings.leaders(0.15, 4) == [0, 3, 1]
    assert standings.leaders(0.15, 2) == [0, 3]
    assert standings.leaders(0.15, 2, "O1") == []
    assert standings.contender(0.15) is None


def test_rows_of_the_cheap_build_never_lead_in_the_deployable_one() -> None:
    standings = Standings(space((True, 60)), ("O1",))
    standings.add(0, "O1", ok(1.0))
    standings.add(1, "O1", ok(1.1))
    standings.add(2, "O1", ok(0.1, abandoned=True))
    assert (standings.leaders(0.15, 4), standings.best_us()) == ([], None)
    assert standings.leaders(0.15, LIMIT, "O1") == [0, 1]
    assert standings.contender(0.15) == 0
    standings.add(0, "O3", Reply(Status.LAUNCH_FAILED))
    assert standings.contender(0.15) == 1
    standings.add(1, "O3", ok(9.0))
    assert (standings.leaders(0.15, 4), standings.best_us(), standings.contender(0.15)) == ([1], 9.0, None)
    assert standings.ended == {0: Status.LAUNCH_FAILED, 1: Status.OK, 2: Status.OK}
