"""Step: write an agreed proposal into its golden file, whole or not at all."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from emmy.goldens.fields import read_text
from emmy.goldens.patch import Proposal


@task(name="apply", cache_policy=NO_CACHE)
def apply_proposal(proposal: str) -> str:
    """The golden file's path. Raises InputError where the file is not the one that the proposal was made against."""
    path = Path(proposal)
    return str(Proposal.from_json(read_text(path), path).apply())
