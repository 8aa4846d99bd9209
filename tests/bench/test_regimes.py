"""Which rows of the cheap build are measured again in the deployable one."""

from __future__ import annotations

import pytest

from emmy.bench.regimes import next_contender, screening_regime
from emmy.schedule.space import tiers


def everything(cheap: dict[int, float], real: dict[int, float | None], tolerance: float, limit: int = 8,
               known: dict[int, float | None] | None = None) -> list[int]:  # fmt: skip
    """All leaves that are measured again, in order, where a measurement gives ``real``."""
    deployed, taken = dict(known or {}), []
    while (leaf := next_contender(cheap, deployed, tolerance, limit)) is not None:
        assert leaf not in deployed
        deployed[leaf] = real[leaf]
        taken.append(leaf)
    return taken


def test_rows_within_the_tolerance_fastest_first() -> None:
    cheap = {1: 11.4, 2: 10.0, 3: 11.6, 4: 10.5}
    assert everything(cheap, dict.fromkeys(cheap, 8.0), 0.15) == [2, 4, 1]
    assert everything(cheap, dict.fromkeys(cheap, 8.0), 0.05) == [2, 4]
    assert everything(cheap, dict.fromkeys(cheap, 8.0), 0.0) == [2]


def test_an_inversion_inside_the_tolerance_is_found() -> None:
    cheap = {1: 10.0, 2: 11.0}
    real: dict[int, float | None] = {1: 9.0, 2: 6.0}
    assert min(everything(cheap, real, 0.15), key=lambda leaf: real[leaf] or 0) == 2


def test_nothing_that_cannot_reach_a_tier_measured_in_the_deployable_build() -> None:
    """Tensor cores won by five: one scalar row is measured again, which shows what the build gains, and no more."""
    cheap = {1: 50.0, 2: 51.0, 3: 52.0}
    assert everything(cheap, dict.fromkeys(cheap, 45.0), 0.15, known={100: 10.0}) == [1]
    assert everything(cheap, dict.fromkeys(cheap, 45.0), 0.15, known={100: 44.0}) == [1, 2, 3]


def test_a_row_that_fails_in_the_deployable_build_makes_room_for_the_next() -> None:
    cheap = {1: 10.0, 2: 10.1, 3: 10.2}
    assert everything(cheap, {1: None, 2: None, 3: 9.0}, 0.15) == [1, 2, 3]


def test_the_limit() -> None:
    cheap = dict.fromkeys(range(30), 10.0)
    assert everything(cheap, dict.fromkeys(cheap, 9.0), 0.15, limit=5) == [0, 1, 2, 3, 4]


def test_no_cheap_rows_no_contender() -> None:
    assert next_contender({}, {1: 10.0}, 0.15) is None


@pytest.mark.parametrize(
    ("o1_valid", "offered", "regime"),
    [(True, ("O1", "O3"), "O1"), (False, ("O1", "O3"), "O3"), (True, ("O3",), "O3")],
)
def test_regime_of_a_screening(o1_valid: bool, offered: tuple[str, ...], regime: str) -> None:
    assert screening_regime(o1_valid, offered) == regime


def test_only_scalar_tiles_declare_the_cheap_build_valid() -> None:
    assert {tier.name for tier in tiers() if tier.o1_valid} == {"scalar"}
