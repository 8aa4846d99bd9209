"""Pins from variables and flags, and the nearest offered values."""

import pytest

from emmy import config
from emmy.errors import KnobError
from emmy.schedule.knobs import KnobMap
from emmy.schedule.pins import environment_pin, flag_pins, nearest_offered, parse_pin


def test_nothing_set_pins_nothing():
    assert environment_pin(config.load({})) == KnobMap()


def test_a_familys_variable_wins_over_the_knobs_variable():
    settings = config.load({"EMMY_KNOBS": "TILE=n16x8/f2x4,STAGE=d2/sync", "EMMY_STAGE": "", "EMMY_FAST_EXP": "1"})
    assert str(environment_pin(settings)) == "TILE=n16x8/f2x4,STAGE=,FAST_EXP=true"


def test_a_flag_wins_over_variables_and_leaves_the_others():
    settings = config.load({"EMMY_KNOBS": "TILE=n16x8/f2x4,STAGE=d2/sync"})
    ((label, pin), (_, other)) = flag_pins([" STAGE=d3/async ", "REDUCE=g2k"], settings)
    assert label == "STAGE=d3/async"
    assert str(pin) == "TILE=n16x8/f2x4,STAGE=d3/async"
    assert str(other) == "TILE=n16x8/f2x4,REDUCE=g2k,STAGE=d2/sync"


def test_a_legacy_text_is_a_pin():
    assert str(parse_pin("BN=16,BM=8,FM=4,FN=2,BK=64")["TILE"]) == "n16x8/f2x4/k64"
    assert set(parse_pin("BM=16,BN=64,BK=32").raw) == {"BM", "BN", "BK"}


@pytest.mark.parametrize(
    ("environ", "flags", "source"),
    [
        ({"EMMY_KNOBS": "TILE=zz"}, [], "EMMY_KNOBS: TILE"),
        ({"EMMY_TILE": "zz"}, [], "EMMY_TILE: TILE"),
        ({}, ["TILE=zz"], "--ab: TILE"),
        ({}, ["MMA=1,WM=32"], "--ab: unknown knob family"),
        ({}, [" "], "--ab"),
    ],
)
def test_an_error_names_its_source(environ, flags, source):
    with pytest.raises(KnobError) as caught:
        flag_pins(flags, config.load(environ))
    assert str(caught.value).startswith(source)


def test_nearest_offered_prefers_form_then_size():
    offered = ["r4/v4/reg", "n64x8/f2x4", "n16x16/f2x4", "n16x8/f2x4/k16", "n16x8/f2x4"]
    assert nearest_offered("n16x8/f2x8", offered) == ("n16x8/f2x4", "n16x16/f2x4", "n64x8/f2x4")
    assert nearest_offered("d3/async", ["", "d2/sync", "d2/async", "d4/async"], 2) == ("d4/async", "d2/async")
    assert nearest_offered("x", []) == ()
