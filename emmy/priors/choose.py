"""Which prior ranks on a device: the offline one where its artefact fits, else a stated shuffle."""

from __future__ import annotations

from pathlib import Path

from emmy.config import Settings
from emmy.device.base import Capabilities
from emmy.errors import InputError
from emmy.priors.base import Prior
from emmy.priors.offline import SHIPPED, OfflinePrior, load_artefact
from emmy.priors.uninformed import UninformedPrior


def offline_file(settings: Settings) -> Path:
    """The artefact to read: EMMY_OFFLINE_FILE, else the shipped one."""
    return settings.offline_file or SHIPPED


def choose_prior(settings: Settings, caps: Capabilities) -> Prior:
    """The prior of this device. Its ``about`` says where it comes from, or why the order is a shuffle.

    Raises InputError for a file that EMMY_OFFLINE_FILE names and that cannot be used: who names a file wants that one.
    """
    path = offline_file(settings)
    reason = _unusable(path, caps.kind)
    if reason is None:
        return OfflinePrior(load_artefact(path), caps.kind)
    if settings.offline_file is not None:
        raise InputError("EMMY_OFFLINE_FILE", found=reason, expected="an artefact that emmy fit wrote")
    return UninformedPrior(reason)


def _unusable(path: Path, kind: str) -> str | None:
    if not path.is_file():
        return f"no offline prior at {path.name}"
    artefact = load_artefact(path)
    weights = artefact.of(kind, False)
    if weights is None:
        return f"{path.name} has no weights for {kind} devices"
    stale = [name for (of, name), one in artefact.sets.items() if of == kind and not one.current]
    if stale:
        return f"{path.name}: the feature table changed since {', '.join(stale)} was fitted; run emmy fit"
    return None
