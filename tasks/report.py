"""Step: the findings report. Not cached: its artefacts have to appear in every run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from emmy.files import write_text
from emmy.goldens.schema import slug
from emmy.report.golden import Outcome, Sweep, context, report

TABLE_KEY = "golden-sweep-ab"
REPORT_KEY = "golden-sweep-report"


@task(name="report", cache_policy=NO_CACHE)
def write_report(sweep: Sweep, outcomes: Sequence[Outcome], folder: str, plans: str) -> dict[str, str]:
    """{report, copy}: where the report was written. Its table and text become artefacts of the flow run."""
    name = f"golden-sweep-{slug(sweep.device)}-findings.md"
    text = report(sweep, outcomes)
    written = write_text(Path(plans) / name, text)
    copy = write_text(Path(folder) / name, text)
    create_table_artifact(table(sweep, outcomes), key=TABLE_KEY, description=f"A/B of sweep {sweep.sweep}")
    create_markdown_artifact(text, key=REPORT_KEY, description=f"{sweep.device}, sweep {sweep.sweep}")
    return {"report": str(written), "copy": str(copy)}


def table(sweep: Sweep, outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """The outcome table as rows of text."""
    return [
        {"lane": lane["lane"]} | {key.replace("_", " "): "" if cell is None else str(cell) for key, cell in row.items()}
        for lane in context(sweep, outcomes)["lanes"]
        for row in lane["rows"]
    ]
