"""Applies the patch that a sweep proposed to its golden file, after a person agreed."""

from __future__ import annotations

from pathlib import Path

from prefect import flow
from prefect.flow_runs import pause_flow_run
from prefect.input import RunInput

from emmy import config
from emmy.errors import InputError
from emmy.goldens.fields import read_text
from emmy.goldens.patch import Proposal
from tasks.apply import apply_proposal

WAIT_S = 24 * 3600


class Approval(RunInput):
    """What the form of a waiting run asks."""

    apply: bool = False


@flow(name="apply-patch")
def apply_patch(proposal: str | None = None, approve: bool = False) -> str:
    """Writes the golden file, whole or not at all, and returns its path; empty where a person declined.

    proposal: the JSON that a sweep wrote (default: the newest one in the work folder). approve: who starts the flow
    has read the diff; otherwise the run waits for somebody who has. Raises InputError where the golden file changed
    since the proposal was made, or the proposal changes nothing.
    """
    path = Path(proposal) if proposal is not None else newest_proposal(config.load().work_dir)
    loaded = Proposal.from_json(read_text(path), path)
    if not loaded.operations:
        raise InputError(f"proposal {path}", found="no operations", expected="at least one")
    diff = loaded.to_diff()
    if not approve:
        reasons = "\n".join(f"- {one.kind} {one.name}: {one.reason}" for one in loaded.operations)
        form = Approval.with_initial_data(description=f"{reasons}\n\n```diff\n{diff}```\n", apply=False)
        if not pause_flow_run(wait_for_input=form, timeout=WAIT_S, key=loaded.sha256 or "new-file").apply:
            return ""
    return apply_proposal(str(path))


def newest_proposal(folder: Path) -> Path:
    """The newest ``golden-patch.json`` below a work folder. Raises InputError where there is none."""
    found = sorted(folder.glob("*/golden-patch.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise InputError("proposal", found=f"none below {folder}", expected="a file that a sweep wrote",
                         hint="run the golden sweep first")  # fmt: skip
    return found[-1]
