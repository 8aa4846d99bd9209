"""What a prior is: it orders the leaves of a space without a measurement of that region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from emmy.errors import EmmyError

if TYPE_CHECKING:
    from emmy.schedule.space import Space

Scores = NDArray[np.float64]


class SaturatedScore(EmmyError):
    """A prior gave scores that order nothing: one value for every leaf, or values that are not finite."""


class Prior(Protocol):
    """A ranking model.

    name: ``offline``, ``online`` or ``uninformed``; rows and picks name it as their source. trusted: whether its pick
    may be deployed ahead of a lesser prior (an online prior of low rank correlation is not). about: one line saying
    what it was fitted on, for logs.
    """

    @property
    def name(self) -> str: ...

    @property
    def trusted(self) -> bool: ...

    @property
    def about(self) -> str: ...

    def scores(self, space: Space) -> Scores:
        """One score a leaf, lower is faster: ln(latency) up to a constant of the region.

        Raises SaturatedScore where the scores order nothing.
        """


def checked(scores: Scores, features: NDArray[np.float32], name: str) -> Scores:
    """``scores``, once they are known to be finite and to tell apart leaves whose features differ."""
    if not np.isfinite(scores).all():
        bad = int(np.count_nonzero(~np.isfinite(scores)))
        raise SaturatedScore(
            f"{name} prior",
            found=f"{bad} of {len(scores)} scores not finite",
            expected="finite scores",
            hint="fit it again with emmy fit",
        )
    if len(scores) > 1 and np.ptp(scores) == 0.0 and np.ptp(features, axis=0).any():
        raise SaturatedScore(
            f"{name} prior",
            found=f"the score {scores[0]:g} for all of {len(scores)} leaves",
            expected="scores that differ where features differ",
            hint="fit it again with emmy fit",
        )
    return scores
