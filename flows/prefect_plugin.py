"""Lets a deployment named like its flow be called by that one name: ``prefect deployment run golden-sweep``.

Prefect 3.9 reads ``FLOW/DEPLOYMENT`` only. The hook wraps the client's look-up by name; a test holds it to the
installed version, since that method is not a public extension point.
"""

from __future__ import annotations

import functools
from typing import Any

from prefect.plugins import HookContext, SetupResult, register_hook


def full_name(name: str) -> str:
    """``golden-sweep`` is ``golden-sweep/golden-sweep``; a name with a slash stays as it is."""
    return name if "/" in name else f"{name}/{name}"


def allow_one_name() -> None:
    """Wraps ``PrefectClient.read_deployment_by_name`` once."""
    from prefect.client.orchestration import PrefectClient

    original = PrefectClient.read_deployment_by_name
    if getattr(original, "one_name", False):
        return

    @functools.wraps(original)
    async def read_deployment_by_name(self: Any, name: str) -> Any:
        return await original(self, full_name(name))

    read_deployment_by_name.one_name = True  # type: ignore[attr-defined]
    PrefectClient.read_deployment_by_name = read_deployment_by_name  # type: ignore[method-assign]


@register_hook
async def setup_environment(*, ctx: HookContext) -> SetupResult | None:
    """Called by Prefect before a command starts."""
    allow_one_name()
    return None
