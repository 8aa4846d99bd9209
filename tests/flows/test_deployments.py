"""prefect.yaml and the plugin, held to the installed Prefect."""

from __future__ import annotations

import asyncio
import importlib.metadata
from typing import Any

import pytest
from ruamel.yaml import YAML

from emmy.config import project_root
from flows.prefect_plugin import allow_one_name, full_name


def test_every_deployment_names_a_flow_of_its_own_name() -> None:
    from prefect.flows import load_flow_from_entrypoint

    deployments = YAML(typ="safe").load(project_root() / "prefect.yaml")["deployments"]
    assert [one["name"] for one in deployments] == ["golden-sweep", "apply-patch"]
    for one in deployments:
        path, _, name = one["entrypoint"].partition(":")
        flow = load_flow_from_entrypoint(f"{project_root() / path}:{name}", use_placeholder_flow=False)
        assert flow.name == one["name"]
        scheduled = [schedule["parameters"] for schedule in one.get("schedules", ())]
        for parameters in (one["parameters"], *scheduled):
            assert set(parameters) <= set(flow.parameters.properties)


def test_a_nightly_run_is_cold() -> None:
    deployments = YAML(typ="safe").load(project_root() / "prefect.yaml")["deployments"]
    (nightly,) = deployments[0]["schedules"]
    assert nightly["parameters"] == {"clean": True}


@pytest.mark.parametrize(("name", "full"), [("golden-sweep", "golden-sweep/golden-sweep"), ("a/b", "a/b")])
def test_one_name_stands_for_flow_and_deployment(name: str, full: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.client.orchestration import PrefectClient

    asked = []

    async def stock(self: Any, name: str) -> str:
        asked.append(name)
        return name

    monkeypatch.setattr(PrefectClient, "read_deployment_by_name", stock)
    allow_one_name()
    allow_one_name()
    assert asyncio.run(PrefectClient.read_deployment_by_name(None, name)) == full  # type: ignore[arg-type]
    assert asked == [full] == [full_name(name)]


def test_the_installed_prefect_has_what_the_plugin_wraps() -> None:
    import inspect

    from prefect.client.orchestration import PrefectClient

    original = inspect.unwrap(PrefectClient.read_deployment_by_name)
    assert inspect.iscoroutinefunction(original)
    assert list(inspect.signature(original).parameters) == ["self", "name"]


def test_prefect_finds_the_plugin() -> None:
    found = {point.name: point.value for point in importlib.metadata.entry_points(group="prefect.plugins")}
    assert found.get("emmy-one-name") == "flows.prefect_plugin", "install the project: pip install --editable ."
