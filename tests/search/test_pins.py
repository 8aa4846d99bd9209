from collections.abc import Callable
from typing import Any

import pytest

from emmy.device.base import Capabilities
from emmy.errors import Refused
from emmy.ir.nest import Region
from emmy.priors.uninformed import UninformedPrior
from emmy.schedule.knobs import KnobMap
from emmy.search.pick import Pick, Picker
from emmy.search.pinned import Unmatched, pinned
from emmy.search.realise import realise


@pytest.fixture
def picker(toy: Capabilities) -> Picker:
    return Picker(toy, UninformedPrior("a test"))


def met(found: Pick | Unmatched) -> KnobMap:
    assert isinstance(found, Pick), str(found)
    assert found.source == "pin"
    return found.variant.knobs


def test_a_partial_pin_leaves_the_other_families_to_the_prior(picker: Picker, region: Region) -> None:
    knobs = met(pinned(picker, region, KnobMap.parse("REDUCE=g2k")))
    assert str(knobs["REDUCE"]) == "g2k"
    space = picker.space(region)
    scores = picker.prior.scores(space)
    fitting = [leaf for leaf in range(len(space)) if str(space.knobs(leaf)["REDUCE"]) == "g2k"]
    assert knobs == space.knobs(min(fitting, key=lambda leaf: scores[leaf]))


def test_a_pin_reaches_values_that_are_not_enumerated(picker: Picker, region: Region) -> None:
    """f3x5 is in no grid, and no rule of the tier refuses it."""
    knobs = met(pinned(picker, region, KnobMap.parse("TILE=n1x1/f3x5/k7")))
    assert str(knobs["TILE"]) == "n1x1/f3x5/k7"
    assert picker.space(region).find(knobs) is None


def test_a_complete_pin_is_realised_letter_for_letter(picker: Picker, region: Region) -> None:
    pin = KnobMap.parse("FUSE=,TILE=n1x1/f4x2/k2,REDUCE=,STAGE=,WSPEC=,RASTER=")
    assert met(pinned(picker, region, pin)) == pin


def test_a_pin_that_a_rule_refuses_names_the_rule_its_place_and_what_is_offered(picker: Picker, region: Region) -> None:
    found = pinned(picker, region, KnobMap.parse("TILE=n1x1/f32x16/k8"))
    assert isinstance(found, Unmatched)
    assert found.rule == "toy_area"
    assert found.where.split(":")[0].endswith("conftest.py")
    assert found.where.split(":")[-1].isdigit()
    assert found.nearest[0].startswith("TILE=n1x1/f")
    assert "toy_area" in str(found)
    assert "nearest offered" in str(found)


def test_a_value_of_no_tier_says_what_the_tier_takes(picker: Picker, region: Region) -> None:
    found = pinned(picker, region, KnobMap.parse("STAGE=d4/tma"))
    assert isinstance(found, Unmatched)
    assert (found.rule, found.reason) == ("toy_stage", "found STAGE=d4/tma, expected ''")


def test_the_realised_knobs_are_compared_with_the_pin(
    picker: Picker, region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lowering that degrades in silence does not pass for the pin."""
    from emmy.search import pinned as module

    def degrade(region: Region, caps: Capabilities, knobs: KnobMap) -> Any:
        return realise(region, caps, knobs.merge(KnobMap.parse("REDUCE=")))

    monkeypatch.setattr(module, "realise", degrade)
    found = pinned(picker, region, KnobMap.parse("REDUCE=g2k"))
    assert isinstance(found, Unmatched)


def test_an_empty_pin_is_the_greedy_pick(picker: Picker, region: Region) -> None:
    found = pinned(picker, region, KnobMap())
    assert isinstance(found, Pick)
    assert found.source == "uninformed"


def test_a_cut_that_a_region_has_not_is_refused(picker: Picker, region: Region) -> None:
    found = pinned(picker, region, KnobMap.parse("FUSE=cut@softmax"))
    assert isinstance(found, Unmatched)
    assert found.rule == "no_such_cut"


def test_a_region_no_tier_takes_says_why(toy: Capabilities, region_of: Callable[..., Region]) -> None:
    from dataclasses import replace

    region = region_of(8)
    double = replace(region, comps=(region.comps[0], replace(region.comps[0], name="again")))
    with pytest.raises(Refused, match="toy_one_reduction"):
        Picker(toy, UninformedPrior("a test")).greedy(double)


def test_a_step_that_a_region_has_not_is_refused(picker: Picker, region: Region) -> None:
    """Else the row would record the pin's value, and another leaf would have run."""
    found = pinned(picker, region, KnobMap.parse("TILE@foo=n1x1/f4x4/k2"))
    assert isinstance(found, Unmatched)
    assert found.rule == "no_such_step"
    assert "@foo" in found.reason
