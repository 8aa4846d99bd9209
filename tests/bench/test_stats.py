import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emmy.bench.stats import (
    BadSamples,
    Comparison,
    Thresholds,
    Verdict,
    clears_floor,
    compare,
    interval,
    judge,
    noise_floor,
    pool,
    process_means,
    wants_look,
)
from emmy.errors import EmmyError

LATENCY = st.floats(0.5, 5000.0)
OPPOSITE = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}


@st.composite
def paired(draw: st.DrawFn) -> tuple[list[list[float]], list[list[float]]]:
    processes, rounds = draw(st.integers(2, 8)), draw(st.integers(1, 6))
    base, scale, spread = (
        draw(LATENCY),
        draw(st.sampled_from([0.5, 0.9, 0.97, 1.0, 1.02, 1.2])),
        draw(st.floats(0, 0.2)),
    )
    numbers = np.random.default_rng(draw(st.integers(0, 2**32)))
    noise = np.exp(spread * numbers.normal(size=(2, processes, rounds)))
    return (base * scale * noise[0]).tolist(), (base * noise[1]).tolist()


@settings(deadline=None)
@given(paired())
def test_swapping_the_sides_swaps_the_verdict(series: tuple[list[list[float]], list[list[float]]]) -> None:
    greedy, golden = series
    there, back = compare(greedy, golden), compare(golden, greedy)
    assert (back.ratio, back.low, back.high) == pytest.approx((1 / there.ratio, 1 / there.high, 1 / there.low))
    assert there.swapped.ratio == pytest.approx(back.ratio)
    borders = [abs(edge * end - 1) for edge in (1 / 1.03, 1.03) for end in (1 / there.low, 1 / there.high)]
    if min(borders) > 1e-9:
        assert judge(back) == OPPOSITE.get(judge(there), judge(there))


@settings(deadline=None)
@given(paired(), st.floats(1e-6, 1e6))
def test_units_do_not_matter(series: tuple[list[list[float]], list[list[float]]], unit: float) -> None:
    greedy, golden = series
    scaled = compare([[v * unit for v in p] for p in greedy], [[v * unit for v in p] for p in golden])
    assert (scaled.ratio, scaled.low, scaled.high) == pytest.approx(
        (compare(greedy, golden).ratio, compare(greedy, golden).low, compare(greedy, golden).high), rel=1e-9
    )


@pytest.mark.parametrize(
    ("ends", "processes", "verdict"),
    [
        ((0.90, 0.97), 6, Verdict.BETTER),
        ((0.90, 0.98), 6, Verdict.UNRESOLVED),
        ((1.04, 1.30), 6, Verdict.WORSE),
        ((1.02, 1.30), 6, Verdict.UNRESOLVED),
        ((0.98, 1.02), 6, Verdict.SAME),
        ((0.96, 1.04), 6, Verdict.UNRESOLVED),
        ((0.50, 0.51), 5, Verdict.UNRESOLVED),
        ((0.50, 0.51), 12, Verdict.BETTER),
    ],
)
def test_verdicts(ends: tuple[float, float], processes: int, verdict: Verdict) -> None:
    low, high = ends
    assert judge(Comparison(math.sqrt(low * high), low, high, processes)) == verdict


def test_thresholds_are_settings() -> None:
    comparison = Comparison(0.95, 0.94, 0.96, 4)
    assert judge(comparison, Thresholds(min_processes=4)) == Verdict.BETTER
    assert judge(comparison, Thresholds(min_processes=4, threshold=1.1)) == Verdict.SAME


def test_the_interval_is_students() -> None:
    # t(0.975, 5) = 2.570582; the values' standard deviation is sqrt(3.5).
    mean, low, high = interval([1, 2, 3, 4, 5, 6], 0.95)
    assert (mean, high - mean, mean - low) == pytest.approx((3.5, *(2 * [2.570582 * math.sqrt(3.5 / 6)])), rel=1e-6)


def test_identical_series_are_the_same() -> None:
    series = [[10.0, 11.0]] * 6
    assert compare(series, series) == Comparison(1.0, 1.0, 1.0, 6)
    assert judge(compare(series, series)) == Verdict.SAME
    assert noise_floor(series, series) == 0.0


# -------------------------------------------------------------------------------------------------------- simulation


def simulated(
    numbers: np.random.Generator, ratio: float, *, processes: int = 6, rounds: int = 6, within: float = 0.02,
    between: float = 0.02, drift: float = 0.0, order: str = "ABBA",
) -> tuple[Sequence[Sequence[float]], Sequence[Sequence[float]]]:  # fmt: skip
    """Two kernels timed one after the other in each round while the machine slows down by ``drift`` a slot."""
    greedy: list[list[float]] = []
    golden: list[list[float]] = []
    for _ in range(processes):
        # How this process treats the two kernels differently.
        own = math.exp(between * numbers.normal())
        slot = 0
        ours: list[float] = []
        theirs: list[float] = []
        for number in range(rounds):
            first = order[2 * number % len(order)] == "A"
            for turn in (first, not first):
                value = 100 * math.exp(drift * slot + within * numbers.normal())
                (ours if turn else theirs).append(value * (ratio * own if turn else 1.0))
                slot += 1
        greedy.append(ours)
        golden.append(theirs)
    return greedy, golden


def test_abba_cancels_a_linear_drift_and_abab_does_not() -> None:
    numbers = np.random.default_rng(0)
    for ratio in (0.9, 1.0, 1.1):
        steady = simulated(numbers, ratio, within=0, between=0, drift=0.01)
        assert process_means(*steady) == pytest.approx([math.log(ratio)] * 6, abs=1e-12)
    naive = simulated(numbers, 1.0, within=0, between=0, drift=0.01, order="AB")
    assert process_means(*naive) == pytest.approx([-0.01] * 6, abs=1e-12)


@pytest.mark.parametrize("drift", [0.0, 0.01])
@pytest.mark.parametrize("ratio", [0.95, 1.0])
def test_the_interval_covers_the_truth_as_often_as_it_says(ratio: float, drift: float) -> None:
    numbers = np.random.default_rng(7)
    one_look = Thresholds(looks=1)
    comparisons = [compare(*simulated(numbers, ratio, drift=drift), one_look) for _ in range(2000)]
    covered = sum(c.low <= ratio <= c.high for c in comparisons) / len(comparisons)
    # Three standard errors of a share of 0.95 in 2000.
    assert covered == pytest.approx(0.95, abs=0.015)


def test_rounds_of_a_process_are_not_independent() -> None:
    """Taking every round as an observation of its own would cover far less than it says."""
    numbers = np.random.default_rng(3)
    covered = 0
    for _ in range(500):
        greedy, golden = simulated(numbers, 1.0, between=0.05)
        flat = (
            [[value] for process in greedy for value in process],
            [[value] for process in golden for value in process],
        )
        comparison = compare(*flat, Thresholds(looks=1))
        covered += comparison.low <= 1.0 <= comparison.high
    assert covered / 500 < 0.75


@pytest.mark.parametrize("ratio", [1.0, 1 / 1.03])
def test_false_wins_stay_below_nominal_over_all_looks(ratio: float) -> None:
    """At a true ratio of 1, and at the very border of a win, with looks pooled until they resolve."""
    numbers = np.random.default_rng(11)
    thresholds = Thresholds()
    experiments, wins = 1500, 0
    for _ in range(experiments):
        greedy, golden = simulated(numbers, ratio)
        looks = 1
        while wants_look(compare(greedy, golden, thresholds), looks, thresholds):
            more = simulated(numbers, ratio)
            greedy, golden, looks = pool(greedy, more[0]), pool(golden, more[1]), looks + 1
        wins += judge(compare(greedy, golden, thresholds), thresholds) == Verdict.BETTER
    # One side of a two-sided interval; three standard errors of that share above it.
    nominal = (1 - thresholds.confidence) / 2
    assert wins / experiments <= nominal + 3 * math.sqrt(nominal * (1 - nominal) / experiments)
    if ratio == 1.0:
        assert wins == 0


def test_a_real_win_is_found() -> None:
    numbers = np.random.default_rng(5)
    found = [judge(compare(*simulated(numbers, 0.8))) for _ in range(200)]
    assert found.count(Verdict.BETTER) >= 190


def test_looks_are_limited() -> None:
    unclear = Comparison(0.97, 0.94, 1.0, 6)
    assert [wants_look(unclear, looks) for looks in (1, 2, 3)] == [True, True, False]
    assert not wants_look(Comparison(0.5, 0.49, 0.51, 6), 1)


def test_the_noise_floor_is_what_a_kernel_may_seem_to_gain_on_itself() -> None:
    numbers = np.random.default_rng(9)
    floors = [noise_floor(*simulated(numbers, 1.0, between=0.03)) for _ in range(200)]
    wins = [compare(*simulated(numbers, 1.0, between=0.03)) for _ in range(200)]
    assert sum(clears_floor(win, floor) for win, floor in zip(wins, floors, strict=True)) == 0
    assert 0.01 < float(np.median(floors)) < 0.2


def test_without_a_floor_a_win_has_to_clear_the_noise_band() -> None:
    win = Comparison(0.89, 0.88, 0.90, 6)
    assert judge(win) == Verdict.BETTER
    assert not clears_floor(win, None)
    assert clears_floor(win, 0.05)
    assert clears_floor(Comparison(0.8, 0.79, 0.81, 6), None)


# -------------------------------------------------------------------------------------------------------- degenerate


@pytest.mark.parametrize(
    ("greedy", "golden", "said"),
    [
        ([], [], "at least 2"),
        ([[1.0]], [[1.0]], "at least 2"),
        ([[1.0], [1.0]], [[1.0]], "2 and 1"),
        ([[1.0], [1.0]], [[1.0], [1.0, 2.0]], "1 and 2"),
        ([[1.0], []], [[1.0], []], "at least one"),
        ([[1.0], [math.nan]], [[1.0], [1.0]], "nan"),
        ([[1.0], [1.0]], [[1.0], [math.inf]], "inf"),
        ([[1.0], [0.0]], [[1.0], [1.0]], "0.0"),
        ([[1.0], [1.0]], [[1.0], [-2.0]], "-2.0"),
    ],
)
def test_degenerate_samples_are_a_typed_error(greedy: list[list[float]], golden: list[list[float]], said: str) -> None:
    with pytest.raises(BadSamples) as caught:
        compare(greedy, golden)
    assert said in str(caught.value)
    assert isinstance(caught.value, EmmyError)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=1))
def test_too_few_means_are_a_typed_error(means: list[float]) -> None:
    with pytest.raises(BadSamples):
        interval(means, 0.95)
