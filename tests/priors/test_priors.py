import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emmy.config import load
from emmy.device.base import Capabilities
from emmy.errors import InputError
from emmy.priors import choose
from emmy.priors import fit as fitting
from emmy.priors.base import SaturatedScore
from emmy.priors.fit import MIN_ROWS, RegionData, fit
from emmy.priors.metrics import pick_regret, rank_of, ranks, spearman
from emmy.priors.offline import OfflineArtefact, OfflinePrior, WeightSet, load_artefact
from emmy.priors.terms import candidates, design, parse, spelled, table_digest
from emmy.priors.uninformed import UninformedPrior
from emmy.schedule import features as table

USED = ("registers", "k_step", "tier_row")


def data(region: str, rows: int = 40, shift: float = 0.0, symbolic: bool = False, noise: float = 0.0) -> RegionData:
    """A region whose ln(latency) is a parabola of ``registers`` (best at 4) plus a slope on ``k_step``."""
    rng = np.random.default_rng(sum(map(ord, region)))
    features = np.zeros((rows, len(table.NAMES)), dtype=np.float32)
    features[:, table.NAMES.index("registers")] = registers = rng.uniform(1, 7, rows)
    features[:, table.NAMES.index("k_step")] = step = rng.uniform(0, 5, rows)
    ln = shift + 0.4 * (registers - 4) ** 2 + 0.3 * step + noise * rng.standard_normal(rows)
    return RegionData(
        region, f"shape.{region}", "toy-cpu", symbolic, features, np.exp(ln), ("screen.v2.cold",), ("s1",)
    )


class Space(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.features)


def as_space(one: RegionData) -> Any:
    return Space(features=one.features, key=one.region, region=SimpleNamespace(symbols=("s",) if one.symbolic else ()))


def caps(kind: str = "cpu") -> Capabilities:
    return Capabilities("toy", kind, "opencl", "avx2", "", "", 2, 64, 1 << 15, 256, 16, 1, 1 << 20, 1 << 30)


# ------------------------------------------------------------------------------------------------------- metrics


def test_ties_with_the_best_are_losses() -> None:
    scores, latency = np.array([1.0, 1.0, 2.0]), np.array([10.0, 40.0, 20.0])
    assert pick_regret(scores, latency) == 4.0
    assert rank_of(scores, 0) == 2
    assert rank_of(np.zeros(5), 3) == 5


def test_rank_correlation_is_none_where_it_cannot_be_measured() -> None:
    assert spearman(np.array([1.0, 2.0]), np.array([2.0, 3.0])) is None
    assert spearman(np.array([1.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0])) is None
    assert spearman(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 8.0, 27.0, 64.0])) == pytest.approx(1.0)
    assert list(ranks(np.array([3.0, 1.0, 3.0]))) == [2.5, 1.0, 2.5]


# ------------------------------------------------------------------------------------------------------- fitting


def test_a_fit_ranks_a_region_it_has_not_seen() -> None:
    regions = [data("a"), data("b", shift=3.0), data("c", shift=-2.0)]
    found = fit(regions, today="2026-01-01")
    fresh = data("d", rows=200, shift=8.0)
    scores = found.weights.scores(fresh.features)
    assert (spearman(scores, fresh.latency_us) or 0) > 0.97
    assert pick_regret(scores, fresh.latency_us) < 1.1
    assert {s.shape for s in found.scores} == {"shape.a", "shape.b", "shape.c"}
    provenance = found.weights.provenance
    assert (provenance.rows, provenance.regions, provenance.devices, provenance.date) == (
        120,
        3,
        ("toy-cpu",),
        "2026-01-01",
    )
    assert provenance.spearman is not None
    assert provenance.spearman > 0.9


def test_a_region_is_judged_without_its_own_rows() -> None:
    """Two regions that contradict each other: each one's cross-validation must be bad."""
    opposite = data("b")
    opposite = replace(opposite, latency_us=1.0 / opposite.latency_us)
    found = fit([data("a"), opposite])
    assert all(score.spearman is not None and score.spearman < 0 for score in found.scores)


def test_an_update_keeps_what_its_rows_say_nothing_of() -> None:
    base = fit([data("a"), data("b"), data("c")], today="2026-01-01").weights
    whole = data("d")
    chosen = []
    for region in ("e", "f", "g"):  # what a search under the base brings: its favourites, all of the smallest k step
        one = data(region, rows=30, noise=0.05)
        step = table.NAMES.index("k_step")
        latency = one.latency_us * np.exp(-0.3 * one.features[:, step])
        features = one.features.copy()
        features[:, step] = 0.0
        chosen.append(replace(one, features=features, latency_us=latency, sweeps=("s2",)))
    updated, afresh = fit(chosen, base=base).weights, fit(chosen).weights
    kept = spearman(updated.scores(whole.features), whole.latency_us)
    lost = spearman(afresh.scores(whole.features), whole.latency_us)
    assert kept is not None
    assert lost is not None
    assert kept > 0.99 > 0.97 > lost
    assert updated.terms[: len(base.terms)] == base.terms
    assert updated.provenance.sweeps == ("s1", "s2")
    assert (updated.provenance.rows, updated.provenance.regions) == (120 + 90, 6)


def test_what_is_known_of_a_feature_stands_until_rows_say_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    place, regions = table.NAMES.index("busy"), []
    for name in ("a", "b"):
        one = data(name)
        features = one.features.copy()
        features[:, place] = np.random.default_rng(len(regions)).uniform(0, 2, len(features))
        regions.append(replace(one, features=features))
    monkeypatch.setattr(fitting, "PENALTIES", (1e9,))
    weights = fit(regions).weights
    at = weights.terms.index(("busy",))
    assert weights.weights[at] / weights.scales[at] == pytest.approx(np.log(2), rel=1e-4)
    assert abs(weights.weights[weights.terms.index(("k_step",))]) < 1e-6


def test_too_few_measurements_are_refused() -> None:
    with pytest.raises(InputError, match="emmy tune"):
        fit([data("a"), data("b", rows=MIN_ROWS - 1)])


def test_terms_that_cannot_rank_within_a_region_are_left_out() -> None:
    regions = [data("a"), data("b")]
    for place, one in enumerate(regions):
        one.features[:, table.NAMES.index("blocks")] = place
    names = fit(regions).weights.features
    assert "blocks" not in names
    assert {"registers", "k_step"} <= set(names)


# ------------------------------------------------------------------------------------------------------- artefact


def test_an_artefact_survives_its_file(tmp_path: Path) -> None:
    weights = fit([data("a"), data("b")]).weights
    path = tmp_path / "weights.json"
    OfflineArtefact({("cpu", "weights"): weights, ("gpu", "weights_dynamic"): weights}).write(path)
    assert load_artefact(path).sets == {("cpu", "weights"): weights, ("gpu", "weights_dynamic"): weights}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": 99, "kinds": {}}', '{"schema": 1, "kinds": {"cpu": {"w": 1}}}']
)
def test_a_damaged_artefact_is_one_message(tmp_path: Path, text: str) -> None:
    path = tmp_path / "weights.json"
    path.write_text(text)
    with pytest.raises(InputError, match="offline prior"):
        load_artefact(path)


def test_symbolic_regions_have_weights_of_their_own() -> None:
    static, dynamic = (fit([data("a"), data(other)]).weights for other in ("b", "c"))
    artefact = OfflineArtefact({("cpu", "weights"): static, ("cpu", "weights_dynamic"): dynamic})
    assert artefact.of("cpu", True) == dynamic
    assert artefact.of("cpu", False) == static
    assert OfflineArtefact({("cpu", "weights"): static}).of("cpu", True) == static
    assert artefact.of("gpu", False) is None


def test_terms_read_what_they_print() -> None:
    for term in candidates(USED):
        assert parse(spelled(term)) == term
    assert ("tier_row", "tier_row") not in candidates(USED)
    one = data("a", rows=3)
    square = design(one.features, [("registers", "registers")])[:, 0]
    assert square == pytest.approx(one.features[:, table.NAMES.index("registers")] ** 2)


# ------------------------------------------------------------------------------------------------------- choosing


@pytest.fixture
def artefact(tmp_path: Path) -> Path:
    path = tmp_path / "weights.json"
    OfflineArtefact({("cpu", "weights"): fit([data("a"), data("b")]).weights}).write(path)
    return path


def test_the_offline_prior_is_chosen_where_its_artefact_fits(artefact: Path) -> None:
    prior = choose.choose_prior(load({"EMMY_OFFLINE_FILE": str(artefact)}), caps())
    assert (prior.name, prior.trusted) == ("offline", True)
    assert "80 rows of 2 regions on toy-cpu" in prior.about
    one = data("z")
    assert np.argmin(prior.scores(as_space(one))) == np.argmin(one.latency_us)


def test_a_missing_artefact_is_said_and_the_order_is_stated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(choose, "SHIPPED", tmp_path / "none.json")
    prior = choose.choose_prior(load({}), caps())
    assert prior.name == "uninformed"
    assert not prior.trusted
    assert "no offline prior at none.json" in prior.about
    assert "seed 0" in prior.about


def test_weights_of_another_device_kind_do_not_rank(monkeypatch: pytest.MonkeyPatch, artefact: Path) -> None:
    monkeypatch.setattr(choose, "SHIPPED", artefact)
    prior = choose.choose_prior(load({}), caps("gpu"))
    assert prior.name == "uninformed"
    assert "no weights for gpu devices" in prior.about


def test_a_changed_feature_table_disqualifies_the_weights(monkeypatch: pytest.MonkeyPatch, artefact: Path) -> None:
    monkeypatch.setattr(choose, "SHIPPED", artefact)
    changed = dict(table.FEATURES) | {"registers": replace(table.FEATURES["registers"], meaning="something else")}
    monkeypatch.setattr(table, "FEATURES", changed)
    prior = choose.choose_prior(load({}), caps())
    assert prior.name == "uninformed"
    assert "feature table changed" in prior.about
    with pytest.raises(InputError, match="EMMY_OFFLINE_FILE"):
        choose.choose_prior(load({"EMMY_OFFLINE_FILE": str(artefact)}), caps())


def test_a_file_that_is_asked_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="EMMY_OFFLINE_FILE"):
        choose.choose_prior(load({"EMMY_OFFLINE_FILE": str(tmp_path / "none.json")}), caps())


def test_the_digest_covers_meaning_and_unit_of_the_features_in_use() -> None:
    before = table_digest(USED)
    assert table_digest(("registers", "k_step")) != before
    assert table_digest(tuple(reversed(USED))) == before


def test_a_saturated_score_is_an_error() -> None:
    weights = fit([data("a"), data("b")]).weights
    flat = replace(weights, weights=tuple(0.0 for _ in weights.weights))
    prior = OfflinePrior(OfflineArtefact({("cpu", "weights"): flat}), "cpu")
    with pytest.raises(SaturatedScore, match="for all of 40 leaves"):
        prior.scores(as_space(data("a")))
    broken = replace(weights, weights=tuple(float("nan") for _ in weights.weights))
    with pytest.raises(SaturatedScore, match="not finite"):
        OfflinePrior(OfflineArtefact({("cpu", "weights"): broken}), "cpu").scores(as_space(data("a")))


def test_the_uninformed_order_is_a_permutation_that_repeats() -> None:
    one = as_space(data("a"))
    prior = UninformedPrior("a test")
    assert np.array_equal(prior.scores(one), prior.scores(one))
    assert sorted(prior.scores(one) * 40) == pytest.approx(list(range(40)))
    other = as_space(data("b"))
    assert not np.array_equal(prior.scores(one), prior.scores(other))
    assert not np.array_equal(prior.scores(one), UninformedPrior("a test", seed=1).scores(one))


def test_weights_are_json_a_person_can_read(artefact: Path) -> None:
    body = json.loads(artefact.read_text())["kinds"]["cpu"]["weights"]
    assert {"feature_table", "provenance", "terms"} == set(body)
    assert set(body["terms"]["registers^2"]) == {"weight", "mean", "scale"}
    assert WeightSet.from_json(body).current


def test_the_shipped_weights_are_of_todays_feature_table() -> None:
    """When this fails the meaning of a feature changed: tune and run ``emmy fit`` again."""
    sets = load_artefact(choose.SHIPPED).sets
    assert ("cpu", "weights") in sets
    for name, weights in sets.items():
        assert weights.current, name
        assert weights.provenance.rows > 0, name
