"""Statistics of an A/B: is the greedy pick faster than the golden, and may one say so?

The observation is the log ratio greedy/golden of a round, in which both ran next to each other. Rounds of a process
share its fate (placement, clocks, allocator), so a process counts once, by the mean of its rounds: the interval is
Student's t over n process means. With interleaved rounds in ABBA order a linear drift cancels in that mean. Pure
functions: no clock, no device.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from emmy.errors import EmmyError

Series = Sequence[Sequence[float]]
"""Latencies by process and round, any unit; two series of a comparison have the same unit and pair up by round."""


class BadSamples(EmmyError):
    """Samples from which no interval follows: too few processes, unpaired rounds, not positive, not finite."""


class Verdict(enum.StrEnum):
    """Greedy against golden. ``new``: there is no golden to compare with."""

    BETTER = "better"
    SAME = "same"
    WORSE = "worse"
    UNRESOLVED = "unresolved"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The rules of a verdict.

    threshold: ratio from which two latencies differ (1.03: 3 %).
    noise_band: swing of a small kernel from run to run, as a share; a win has to clear it where no
    golden-against-itself run gave this session's own floor.
    looks: times that an unresolved comparison is measured, the first included.
    confidence: of the interval, over all looks together.
    min_processes: fewer never resolve.
    reconfirm: runs in fresh processes in which a win has to come out again.
    """

    threshold: float = 1.03
    noise_band: float = 0.13
    looks: int = 3
    confidence: float = 0.95
    min_processes: int = 6
    reconfirm: int = 2

    @property
    def look_confidence(self) -> float:
        """Confidence of each look's interval, such that all of them hold together (Bonferroni)."""
        return 1.0 - (1.0 - self.confidence) / self.looks


DEFAULT = Thresholds()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ratio greedy/golden (below 1: greedy is faster): estimate and interval. processes: number of means behind it."""

    ratio: float
    low: float
    high: float
    processes: int

    @property
    def swapped(self) -> Comparison:
        """Golden/greedy."""
        return Comparison(1 / self.ratio, 1 / self.high, 1 / self.low, self.processes)

    def __str__(self) -> str:
        return f"{self.ratio:.3f} [{self.low:.3f}, {self.high:.3f}] (n={self.processes})"


def process_means(greedy: Series, golden: Series) -> list[float]:
    """Mean log ratio greedy/golden of each process. Raises BadSamples."""
    if len(greedy) != len(golden):
        raise BadSamples("unpaired processes", found=f"{len(greedy)} and {len(golden)}", expected="as many of each")
    means = []
    for process, (ours, theirs) in enumerate(zip(greedy, golden, strict=True)):
        if len(ours) != len(theirs) or not ours:
            raise BadSamples(f"rounds of process {process}", found=f"{len(ours)} and {len(theirs)}",
                             expected="as many of each, at least one")  # fmt: skip
        bad = [value for value in (*ours, *theirs) if not (math.isfinite(value) and value > 0)]
        if bad:
            raise BadSamples(f"latency in process {process}", found=bad[0], expected="a positive number")
        means.append(math.fsum(math.log(a / b) for a, b in zip(ours, theirs, strict=True)) / len(ours))
    return means


def interval(means: Sequence[float], confidence: float) -> tuple[float, float, float]:
    """Mean and two-sided t interval of independent values: (mean, low, high). Raises BadSamples for fewer than two."""
    from scipy.special import stdtrit

    count = len(means)
    if count < 2:
        raise BadSamples("processes of a comparison", found=count, expected="at least 2")
    if not all(math.isfinite(value) for value in means):
        raise BadSamples("mean of a process", found=next(v for v in means if not math.isfinite(v)), expected="a number")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} is not between 0 and 1")
    mean = math.fsum(means) / count
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in means) / (count - 1))
    half = float(stdtrit(count - 1, 0.5 + confidence / 2)) * deviation / math.sqrt(count)
    return mean, mean - half, mean + half


def compare(greedy: Series, golden: Series, thresholds: Thresholds = DEFAULT) -> Comparison:
    """The ratio greedy/golden with its interval at ``look_confidence``. Raises BadSamples."""
    means = process_means(greedy, golden)
    mean, low, high = interval(means, thresholds.look_confidence)
    return Comparison(math.exp(mean), math.exp(low), math.exp(high), len(means))


def judge(comparison: Comparison, thresholds: Thresholds = DEFAULT) -> Verdict:
    """``better``: whole interval below 1/threshold; ``worse``: above threshold; ``same``: within; else unresolved."""
    if comparison.processes < thresholds.min_processes:
        return Verdict.UNRESOLVED
    if comparison.high < 1 / thresholds.threshold:
        return Verdict.BETTER
    if comparison.low > thresholds.threshold:
        return Verdict.WORSE
    if comparison.low >= 1 / thresholds.threshold and comparison.high <= thresholds.threshold:
        return Verdict.SAME
    return Verdict.UNRESOLVED


def wants_look(comparison: Comparison, looks: int, thresholds: Thresholds = DEFAULT) -> bool:
    """Whether to measure again (and ``pool``) after ``looks`` looks."""
    return judge(comparison, thresholds) == Verdict.UNRESOLVED and looks < thresholds.looks


def pool(*looks: Series) -> list[Sequence[float]]:
    """The processes of several looks as one series."""
    return [process for look in looks for process in look]


def noise_floor(once: Series, again: Series, thresholds: Thresholds = DEFAULT) -> float:
    """How far a golden seems to be from itself, as a share: the far end of its interval, on either side.

    0.04 says that in this session a ratio of 1/1.04 may come from one and the same kernel. Raises BadSamples.
    """
    itself = compare(once, again, thresholds)
    return max(itself.high, 1 / itself.low) - 1


def clears_floor(comparison: Comparison, floor: float | None, thresholds: Thresholds = DEFAULT) -> bool:
    """Whether the whole interval lies below 1/(1 + floor); a floor of None is the noise band."""
    return comparison.high < 1 / (1 + (thresholds.noise_band if floor is None else floor))
