"""The screening protocol on a clock of its own: how many samples, when it stops."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from emmy.bench.records import SCREEN
from emmy.bench.session import run_rounds
from emmy.bench.timing import MAX_SAMPLES, Samples, quartiles, repeats_for, rotation_sets, screen_samples


class Clock:
    """Executions of ``seconds`` each, with relative noise from ``noise()``."""

    def __init__(self, seconds: float, noise: Callable[[], float] = lambda: 0.0) -> None:
        self.now, self.seconds, self.noise = 0.0, seconds, noise
        self.calls: list[tuple[int, int]] = []

    def sample(self, repeats: int, first: int) -> float:
        self.calls.append((repeats, first))
        taken = repeats * self.seconds * (1 + self.noise())
        self.now += taken
        return taken

    def screen(self, best_us: float | None = None, rough: float | None = None) -> Samples:
        return screen_samples(
            self.sample, self.seconds if rough is None else rough, SCREEN, best_us, clock=lambda: self.now
        )


def test_steady_row_takes_the_fewest_samples() -> None:
    clock = Clock(100e-6)
    samples = clock.screen()
    assert len(samples.values_us) == SCREEN.samples
    assert samples.quartiles()[1] == pytest.approx(100)
    assert clock.now < 0.05


def test_noisy_row_takes_more_samples_within_its_budget() -> None:
    noise = random.Random(0)
    clock = Clock(100e-6, lambda: abs(noise.gauss(0, 0.2)))
    samples = clock.screen()
    assert SCREEN.samples < len(samples.values_us) <= MAX_SAMPLES
    assert clock.now < SCREEN.budget_s + 0.05


def test_clearly_slow_row_is_abandoned_after_one_short_sample() -> None:
    clock = Clock(500e-6)
    samples = clock.screen(best_us=100)
    assert samples.abandoned
    assert clock.now < 0.002


def test_row_far_slower_than_the_best_is_not_launched_again() -> None:
    clock = Clock(50e-3)
    samples = clock.screen(best_us=100)
    assert samples.abandoned
    assert clock.calls == []


def test_contender_is_never_abandoned() -> None:
    assert not Clock(140e-6).screen(best_us=100).abandoned
    assert not Clock(90e-6).screen(best_us=100).abandoned


def test_latency_of_a_single_short_launch_does_not_abandon() -> None:
    # A launch that takes 5 us of its own looks like 1 ms when it is started alone.
    assert not Clock(5e-6).screen(best_us=5, rough=1e-3).abandoned


def test_wrong_rough_time_does_not_decide_the_length_of_a_sample() -> None:
    clock = Clock(10e-6)
    clock.screen(rough=1e-3)
    assert clock.calls[1][0] == repeats_for(10e-6, SCREEN.target_s)


def test_rotation_goes_on_where_the_last_sample_ended() -> None:
    clock = Clock(100e-6)
    clock.screen()
    for (repeats, first), (_, following) in zip(clock.calls, clock.calls[1:], strict=False):
        assert following == first + repeats


def test_rotation_exceeds_twice_the_cache_within_memory() -> None:
    mib = 1 << 20
    assert rotation_sets(3 * mib, 32 * mib, 8 << 30, "cold") == 22
    assert rotation_sets(100 * mib, 32 * mib, 8 << 30, "cold") == 1
    assert rotation_sets(3 * mib, 32 * mib, 12 * mib, "cold") == 2
    assert rotation_sets(3 * mib, 32 * mib, 8 << 30, "warm") == 1
    assert rotation_sets(0, 32 * mib, 8 << 30, "cold") == 1


def test_quartiles() -> None:
    assert quartiles([3.0, 1.0, 2.0, 5.0, 4.0]) == (2.0, 3.0, 4.0)
    assert quartiles([7.0]) == (7.0, 7.0, 7.0)


def test_rounds_are_abba_in_random_order() -> None:
    visits: list[str] = []

    def timer(label: str) -> Callable[[int, int], float]:
        def sample(repeats: int, first: int) -> float:
            visits.append(label)
            return repeats * 1e-3

        return sample

    labels = ("a", "b", "c")
    series, repeats = run_rounds(
        {x: timer(x) for x in labels}, dict.fromkeys(labels, 1e-3), SCREEN, 20, 0.0, random.Random(1)
    )
    assert {label: len(values) for label, values in series.items()} == dict.fromkeys(labels, 20)
    assert repeats == dict.fromkeys(labels, 10)
    orders = [tuple(visits[i : i + 6]) for i in range(0, len(visits), 6)]
    assert all(order[:3] == order[5:2:-1] and sorted(order[:3]) == ["a", "b", "c"] for order in orders)
    assert len(set(orders)) > 3


def test_drift_falls_on_all_rows_alike() -> None:
    clock = [1e-3]

    def sample(repeats: int, first: int) -> float:
        clock[0] += 1e-6
        return repeats * clock[0]

    series, _ = run_rounds({"a": sample, "b": sample}, {"a": 1e-3, "b": 1e-3}, SCREEN, 5, 0.0, random.Random(1))
    assert series["a"] == pytest.approx(series["b"])
