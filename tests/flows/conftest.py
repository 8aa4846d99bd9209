"""Flows run against one Prefect server a test session, and on a bench that answers from a formula."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from emmy import config
from tests.flows.model_bench import CAPS, ModelBench


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Entered once: the server takes about ten seconds to start."""
    from prefect.settings import (
        PREFECT_HOME,
        PREFECT_LOGGING_LEVEL,
        PREFECT_SERVER_ANALYTICS_ENABLED,
        temporary_settings,
    )
    from prefect.testing.utilities import prefect_test_harness

    home = tmp_path_factory.mktemp("prefect")
    quiet = {PREFECT_LOGGING_LEVEL: "CRITICAL", PREFECT_SERVER_ANALYTICS_ENABLED: False, PREFECT_HOME: home}
    with temporary_settings(updates=quiet), prefect_test_harness(server_startup_timeout=120):
        yield


@pytest.fixture
def results(prefect_server: None, tmp_path: Path) -> Iterator[Path]:
    """A storage of this test's own, so that no result of another test is found."""
    from prefect.settings import PREFECT_LOCAL_STORAGE_PATH, temporary_settings

    storage = tmp_path / "results"
    storage.mkdir()
    with temporary_settings(updates={PREFECT_LOCAL_STORAGE_PATH: storage}):
        yield storage


@pytest.fixture
def goldens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A goldens folder with the real dataset and no golden file; reports go to the test's folder as well."""
    folder = tmp_path / "goldens"
    folder.mkdir()
    shutil.copy(config.project_root() / "goldens" / "dataset.yaml", folder)
    monkeypatch.setattr(config, "goldens_dir", lambda: folder)
    monkeypatch.setattr(config, "plans_dir", lambda: tmp_path / "plans")
    return folder


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModelBench:
    """The device and its bench replaced by a model."""
    import emmy.device.registry as registry
    import flows.plan
    from emmy.pipeline import Workspace

    model = ModelBench()
    monkeypatch.setattr(registry, "capabilities", lambda *_: CAPS)
    monkeypatch.setattr(registry, "resolve", lambda *_: "opencl")
    monkeypatch.setattr(Workspace, "bench", lambda _, sweep: model.open(sweep))
    # Sources that are being edited while the tests run would change the keys between two sweeps of one test.
    monkeypatch.setattr(flows.plan, "code_version", lambda: "as of this test")
    return model
