"""``emmy fit``: which weights it reads, which it writes, and which it leaves as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from emmy.cli import fit as command
from emmy.cli.main import main
from emmy.device.base import Capabilities
from emmy.priors.fit import RegionData, fit
from emmy.priors.offline import OfflineArtefact, WeightSet, load_artefact
from emmy.schedule import features as table
from emmy.search.training import Training

GPU = Capabilities("toy", "gpu", "cuda", "sm_90a", "", "", 132, 1024, 1 << 15, 128, 255, 32, 1 << 20, 1 << 30)


def data(region: str, symbolic: bool = False, slope: float = 0.3) -> RegionData:
    """40 rows whose ln(latency) is ``slope`` times the feature ``k_step``."""
    rng = np.random.default_rng(sum(map(ord, region)))
    features = np.zeros((40, len(table.NAMES)), dtype=np.float32)
    features[:, table.NAMES.index("k_step")] = step = rng.uniform(0, 5, 40)
    return RegionData(region, region, "toy", symbolic, features, np.exp(slope * step), ("screen.v2.cold",), ("s1",))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[RegionData]:
    """The regions that the store is taken to hold."""
    regions: list[RegionData] = []

    class Store:
        exists, path = True, tmp_path / "emmy.duckdb"

        def __init__(self, path: Path) -> None:
            pass

        def measurements(self, **_: Any) -> pl.DataFrame:
            return pl.DataFrame({"shape": ["x"]})

    monkeypatch.setattr("emmy.store.Store", Store)
    monkeypatch.setattr(
        "emmy.search.training.training_rows",
        lambda *_: Training(tuple(regions), 40 * len(regions), {}),
    )
    monkeypatch.setattr(command, "recorded_capabilities", lambda *_: GPU)
    monkeypatch.setattr(command, "golden_regions", lambda _: iter(()))
    return regions


@pytest.fixture
def present(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An artefact with weights of a CPU, and both kinds of a GPU: the symbolic ones fall with the k step."""
    path = tmp_path / "present.json"
    sets = {
        ("cpu", "weights"): fit([data("a"), data("b")]).weights,
        ("gpu", "weights"): fit([data("a"), data("b")]).weights,
        ("gpu", "weights_dynamic"): fit([data("a", slope=-0.3), data("b", slope=-0.3)]).weights,
    }
    OfflineArtefact(sets).write(path)
    monkeypatch.setenv("EMMY_OFFLINE_FILE", str(path))
    return path


def sets_of(path: Path) -> dict[tuple[str, str], WeightSet]:
    return dict(load_artefact(path).sets)


def falls(weights: WeightSet) -> bool:
    """Whether a large k step is ranked first."""
    low, high = (np.zeros((1, len(table.NAMES)), dtype=np.float32) for _ in range(2))
    low[0, table.NAMES.index("k_step")], high[0, table.NAMES.index("k_step")] = 1.0, 4.0
    return float(weights.scores(high)[0]) < float(weights.scores(low)[0])


def test_an_update_keeps_the_symbolic_weights_where_too_few_were_measured(
    measured: list[RegionData], present: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured += [data("c"), data("d", symbolic=True)]
    out = tmp_path / "out.json"
    assert main(["fit", "--update", "--out", str(out)]) == 0
    before, after = sets_of(present), sets_of(out)
    assert set(after) == set(before)
    assert after["cpu", "weights"] == before["cpu", "weights"]
    assert after["gpu", "weights_dynamic"] == before["gpu", "weights_dynamic"]
    assert after["gpu", "weights"] != before["gpu", "weights"]
    assert "no weights of their own for symbolic regions: 1 measured, 4 wanted" in capsys.readouterr().out


def test_an_update_starts_from_the_symbolic_weights(measured: list[RegionData], present: Path, tmp_path: Path) -> None:
    """Rows that say nothing of the k step: what the present symbolic weights know of it stays."""
    for name in ("c", "d", "e", "f"):
        one = data(name, symbolic=True)
        features = one.features.copy()
        features[:, table.NAMES.index("registers")] = features[:, table.NAMES.index("k_step")]
        features[:, table.NAMES.index("k_step")] = 0.0
        measured.append(replace(one, features=features))
    out = tmp_path / "out.json"
    assert main(["fit", "--update", "--out", str(out)]) == 0
    after = sets_of(out)
    assert after["gpu", "weights_dynamic"].provenance.regions == 2 + 4
    assert falls(after["gpu", "weights_dynamic"])
    assert not falls(after["gpu", "weights"])


def test_a_fit_afresh_drops_the_kinds_weights_and_keeps_the_other_kinds(
    measured: list[RegionData], present: Path
) -> None:
    measured += [data("c"), data("d")]
    before = sets_of(present)
    assert main(["fit", "--out", str(present)]) == 0
    after = sets_of(present)
    assert set(after) == {("cpu", "weights"), ("gpu", "weights")}
    assert after["cpu", "weights"] == before["cpu", "weights"]
    assert after["gpu", "weights"].provenance.regions == 2


def test_an_update_of_nothing_says_so(
    measured: list[RegionData], present: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    OfflineArtefact({key: value for key, value in sets_of(present).items() if key[0] == "cpu"}).write(present)
    measured += [data("c"), data("d")]
    assert main(["fit", "--update"]) == 2
    error = capsys.readouterr().err
    assert "--update" in error
    assert "no weights for a gpu" in error
    assert "fit without --update" in error
