"""Step: which sweep this is. A retry of a flow run finds the answer of its first attempt and continues that sweep."""

from __future__ import annotations

from typing import Any

from prefect import task
from prefect.cache_policies import CacheKeyFnPolicy

from tasks.session import current


@task(
    name="sweep",
    task_run_name="sweep of {device}",
    cache_policy=CacheKeyFnPolicy(cache_key_fn=lambda _, inputs: f"sweep--{inputs['flow_run']}"),
    persist_result=True,
    result_serializer="json",
)
def open_sweep(flow_run: str, device: str, clean: bool) -> dict[str, Any]:
    """{sweep, new}: the device's current sweep, or a new cold one (``clean``, or where there is none)."""
    work = current().work
    before = work.store.current_sweep(work.caps.name)
    sweep = work.sweep(clean)
    return {"sweep": sweep, "new": sweep != before}
