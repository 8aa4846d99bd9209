"""Step: the patch of the golden file, as a proposal that a person reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from emmy.device.base import Capabilities
from emmy.files import write_text
from emmy.goldens.patch import Operation, Proposal
from emmy.goldens.schema import device_file
from tasks.session import current

KEY = "golden-sweep-patch"


@task(name="propose", cache_policy=NO_CACHE)
def propose(operations: Sequence[Mapping[str, Any]], folder: str) -> dict[str, Any]:
    """{diff, json, count, text}: where the unified diff and the reasons were written. Nothing is applied."""
    caps = current().work.caps
    proposal = Proposal.make(
        device_file(caps.name), caps.name, machines(caps), [Operation.from_json(one) for one in operations]
    )
    diff, reasons = Path(folder) / "golden-patch.diff", Path(folder) / "golden-patch.json"
    text = proposal.to_diff(device_file(caps.name))
    write_text(diff, text)
    write_text(reasons, proposal.to_json())
    create_markdown_artifact(_markdown(proposal, text), key=KEY, description=f"{len(operations)} operations")
    return {"diff": str(diff), "json": str(reasons), "count": len(operations), "text": text}


def machines(caps: Capabilities) -> str:
    """For which machines the numbers of a new golden file hold."""
    return "any" if caps.kind == "gpu" else f"{caps.arch} CPUs, recorded on {caps.units} cores"


def _markdown(proposal: Proposal, diff: str) -> str:
    reasons = "\n".join(f"- **{one.kind}** `{one.name}`: {one.reason}" for one in proposal.operations)
    return f"{reasons}\n\n```diff\n{diff}```\n" if proposal.operations else "No change to the golden file.\n"
