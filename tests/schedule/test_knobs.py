"""The knob grammar: both directions of every value and map, its errors, the older spelling, lanes and steps."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emmy import config
from emmy.errors import KnobError
from emmy.schedule.knobs import (
    FAMILIES,
    FAMILY_NAMES,
    OFF,
    AtomTile,
    Cooperative,
    Fuse,
    Gate,
    KnobMap,
    Raster,
    RawKnob,
    Reduce,
    RowTile,
    ScalarTile,
    Split,
    Stage,
    WarpSpec,
    parse_value,
)

size = st.integers(1, 4096)
names = st.from_regex(r"[a-z_][a-z0-9_.]{0,8}", fullmatch=True)
splits = st.builds(Split, st.integers(2, 64), st.sampled_from("kac"))
cooperatives = st.builds(Cooperative, st.integers(2, 1024))
atoms = st.builds(
    "{}_m{}n{}k{}_{}_{}".format,
    st.sampled_from(["mma", "wgmma"]),
    st.sampled_from([16, 64]),
    st.sampled_from([8, 128, 256]),
    st.sampled_from([8, 16]),
    st.sampled_from(["f16", "bf16", "tf32"]),
    st.sampled_from(["f16", "f32"]),
)
VALUES = {
    "FUSE": st.builds(Fuse, st.just("") | names),
    "TILE": st.builds(ScalarTile, size, size, size, size, st.none() | size)
    | st.builds(AtomTile, atoms, size, size, size, size, size)
    | st.builds(RowTile, size, size, st.sampled_from(["reg", "smem", "reread"])),
    "REDUCE": st.builds(Reduce, splits, st.none() | cooperatives) | st.builds(Reduce, st.none(), cooperatives),
    "STAGE": st.builds(Stage, size, st.sampled_from(["sync", "async", "tma"])),
    "WSPEC": st.builds(WarpSpec, size, size, st.booleans()),
    "RASTER": st.builds(
        Raster,
        st.sampled_from(["h", "g1", "g8", "g16"]),
        st.none() | st.tuples(size, size),
        st.booleans(),
    )
    | st.builds(Raster, st.just(""), st.tuples(size, size), st.booleans())
    | st.just(Raster(persistent=True)),
    "FAST_EXP": st.just(Gate()),
}
entries = st.sampled_from(FAMILY_NAMES).flatmap(
    lambda family: st.tuples(
        st.builds(lambda step: f"{family}@{step}" if step else family, st.just("") | names),
        st.just(OFF) | VALUES[family],
    )
)
maps = st.lists(entries, unique_by=lambda entry: entry[0], max_size=8).map(lambda pairs: KnobMap.parse(dict(pairs)))

SPELLINGS = {
    "FUSE": ["cut", "cut@softmax"],
    "TILE": [
        "n16x8/f2x4",
        "n16x8/f2x4/k64",
        "a:mma_m16n8k16_f16_f32/w2x4/f4x2/k2",
        "a:mma_m16n8k16_f16_f32/w2x4/f1x1/k2",
        "a:wgmma_m64n256k16_f16_f32/w2x1/k4",
        "a:wgmma_m64n128k16_f16_f32/w2x1/f2x1/k4",
        "r4/v4/reg",
        "r1/v8/smem",
        "r2/v1/reread",
    ],
    "REDUCE": ["g2k", "g4a", "g2c", "c256", "g2k/c256"],
    "STAGE": ["d2/sync", "d3/async", "d4/tma"],
    "WSPEC": ["p1c2", "p1c2/pp"],
    "RASTER": ["g8", "h", "g8/c2x1", "p/g8/c2x1", "p", "p/h", "c2x1", "p/c2x1"],
    "FAST_EXP": ["true"],
}


def test_every_family_has_spellings_under_test():
    assert set(SPELLINGS) == set(VALUES) == set(FAMILY_NAMES)


def test_every_family_has_its_variable():
    assert config.FAMILIES == FAMILY_NAMES


@pytest.mark.parametrize(("family", "text"), [(f, t) for f, texts in SPELLINGS.items() for t in [*texts, ""]])
def test_a_spelling_prints_as_it_was_read(family, text):
    assert str(parse_value(family, text)) == text


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_the_examples_of_an_error_parse(family):
    for example in FAMILIES[family].examples:
        assert parse_value(family, example) is not None


@given(st.sampled_from(FAMILY_NAMES).flatmap(lambda family: st.tuples(st.just(family), VALUES[family])))
def test_a_value_reads_back_from_its_text(pair):
    family, value = pair
    assert parse_value(family, str(value)) == value


@given(st.sampled_from(FAMILY_NAMES), st.text("0123456789abcdefghkmnprvwx/:@_ ", max_size=24))
def test_any_text_is_refused_or_has_a_stable_spelling(family, text):
    try:
        value = parse_value(family, text)
    except KnobError:
        return
    assert parse_value(family, str(value)) == value


@given(maps)
def test_a_map_reads_back_from_text_and_dict(knobs):
    assert KnobMap.parse(str(knobs)) == knobs
    assert KnobMap.parse(knobs.to_dict()) == knobs
    assert KnobMap.parse(str(knobs.to_dict()).replace("True", "true")) == knobs
    assert hash(KnobMap.parse(str(knobs))) == hash(knobs)
    assert pickle.loads(pickle.dumps(knobs)) == knobs


@given(maps, maps)
def test_a_merged_pin_is_met(knobs, pin):
    merged = knobs.merge(pin)
    assert merged.unmet(pin) == ()
    assert set(merged) <= {*knobs, *pin}
    assert knobs.merge(KnobMap()) == knobs
    assert KnobMap().merge(pin) == pin


@given(maps)
def test_a_record_stamps_every_family_and_keeps_every_decision(knobs):
    record = KnobMap.parse(knobs.record())
    assert {name.partition("@")[0] for name in record} == set(FAMILY_NAMES)
    assert all(record.at(step) == record.at(step).merge(knobs.at(step)) for step in (*knobs.steps, "other"))


def test_typed_values():
    assert parse_value("TILE", "n16x8/f2x4/k64") == ScalarTile(n=16, m=8, fn=2, fm=4, k=64)
    atom = parse_value("TILE", "a:mma_m16n8k16_f16_f32/w2x4/f4x2/k2")
    assert atom == AtomTile("mma_m16n8k16_f16_f32", wm=2, wn=4, fm=4, fn=2, k=2)
    assert (atom.block_m, atom.block_n, atom.block_k) == (2 * 4 * 16, 4 * 2 * 8, 2 * 16)
    wgmma = parse_value("TILE", "a:wgmma_m64n256k16_f16_f32/w2x1/k4")
    assert (wgmma.fm, wgmma.fn, wgmma.unit, wgmma.accumulate_dtype) == (1, 1, "wgmma", "f32")
    assert parse_value("REDUCE", "g2k/c256") == Reduce(Split(2, "k"), Cooperative(256))
    assert parse_value("RASTER", "p/g8/c2x1") == Raster("g8", (2, 1), True)
    assert parse_value("RASTER", "g8").group == 8
    assert parse_value("FAST_EXP", True) == Gate()
    assert parse_value("FAST_EXP", False) is OFF


def test_ring_aliases_decide_a_depth():
    assert parse_value("STAGE", "tma/ring") == Stage(4, "tma")
    assert parse_value("STAGE", "cp/ring") == Stage(3, "async")


@pytest.mark.parametrize(
    "text",
    [
        "TILE=n16x8/f2x4,STAGE=d2/sync,WSPEC=",
        "STAGE=d2/sync;WSPEC=;TILE=n16x8/f2x4",
        "WSPEC= TILE=n16x8/f2x4  STAGE=d2/sync",
        "{TILE: n16x8/f2x4, STAGE: 'd2/sync', WSPEC: ''}",
        '{"TILE": "n16x8/f2x4", "STAGE": "d2/sync", "WSPEC": ""}',
        "{TILE: n16x8/f2x4, WSPEC: , STAGE: d2/sync}",
    ],
)
def test_one_map_in_every_separator(text):
    assert str(KnobMap.parse(text)) == "TILE=n16x8/f2x4,STAGE=d2/sync,WSPEC="


@pytest.mark.parametrize(
    ("family", "text", "nearest"),
    [
        ("TILE", "n16*8/f2*4", "n16x8/f2x4"),
        ("TILE", "N16x8/F2x4", "n16x8/f2x4"),
        ("TILE", "n016x8/f2x4", "n16x8/f2x4"),
        ("TILE", "mma_m16n8k16_f16_f32/w2x4/f4x2/k2", "a:mma_m16n8k16_f16_f32/w2x4/f4x2/k2"),
        ("TILE", "a:mma_m16n8k16_f16_f32/w2x4/k2", "a:mma_m16n8k16_f16_f32/w2x4/f4x2/k2"),
        ("REDUCE", "c256/g2k", "g2k/c256"),
        ("STAGE", "d3/cp", "d3/async"),
        ("STAGE", "d2", "d2/sync"),
        ("RASTER", "c2x1/g8", "g8/c2x1"),
        ("WSPEC", "p1c2/pingpong", "p1c2"),
    ],
)
def test_an_error_says_family_text_form_and_nearest(family, text, nearest):
    with pytest.raises(KnobError) as caught:
        parse_value(family, text)
    said = str(caught.value)
    assert said.startswith(f"{family}: found {text!r}")
    assert FAMILIES[family].form in said
    assert FAMILIES[family].examples[0] in said
    assert said.endswith(f"nearest valid spelling: {nearest}")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("TIEL=n16x8/f2x4", ["'TIEL'", "did you mean TILE?"]),
        ("TILE", ["'TILE'", "FAMILY=VALUE"]),
        ("TILE=n16x8/f2x4,TILE=n8x8/f2x4", ["TILE", "twice"]),
        ("{TILE n16x8}", ["not a knob map"]),
        ("{TILE: n16x8/f2x4", ["not a knob map"]),
        ("REDUCE=g1k", ["REDUCE", "at least 2"]),
        ({"TILE@": "n16x8/f2x4"}, ["TILE@qk"]),
        ({"TILE": 3}, ["TILE", "3"]),
    ],
)
def test_a_bad_map_is_refused(source, words):
    with pytest.raises(KnobError) as caught:
        KnobMap.parse(source)
    assert all(word in str(caught.value) for word in words)


def test_unknown_knobs_are_kept_on_request():
    source = {"TILE": "zz9/q", "SWIZZLE": 3, "STAGE": "d2/sync", "TMA": True}
    knobs = KnobMap.parse(source, keep_unknown=True)
    assert knobs.to_dict() == source
    assert knobs["TILE"] == RawKnob("zz9/q")
    assert set(knobs.raw) == {"TILE", "SWIZZLE", "TMA"}


SEED_128 = {"BN": 16, "BM": 8, "FM": 4, "FN": 2, "FK": 1, "BK": 64, "SPLITK": 1, "BR": 1, "STAGE": "11", "RING": 3}
SEED_DYN = {"BN": 32, "BM": 8, "FM": 8, "FN": 4, "FK": 1, "BK": 64, "SPLITK": 1, "BR": 1, "STAGE": "11", "RING": 2}
REST_OFF = {"FUSE": "", "REDUCE": "", "WSPEC": "", "RASTER": "", "FAST_EXP": ""}


@pytest.mark.parametrize(
    ("legacy", "modern"),
    [
        (SEED_128, {"TILE": "n16x8/f2x4/k64", "STAGE": "d3/async"} | REST_OFF),
        (SEED_DYN, {"TILE": "n32x8/f4x8/k64", "STAGE": "d2/async"} | REST_OFF),
        ({"BN": 16, "BM": 8, "FM": 4, "FN": 2}, {"TILE": "n16x8/f2x4", "STAGE": ""} | REST_OFF),
        (
            SEED_128 | {"SPLITK": 4, "RING": 1},
            REST_OFF | {"TILE": "n16x8/f2x4/k64", "STAGE": "d1/sync", "REDUCE": "g4k"},
        ),
        (
            SEED_128 | {"SPLITK": 2, "BR": 256},
            REST_OFF | {"TILE": "n16x8/f2x4/k64", "STAGE": "d3/async", "REDUCE": "g2k/c256"},
        ),
        (SEED_128 | {"STAGE": "00"}, REST_OFF | {"TILE": "n16x8/f2x4/k64", "STAGE": ""}),
        ({"BR": 256}, {"REDUCE": "c256"}),
        ({"STAGE": 11, "RING": 3}, {"STAGE": "d3/async"}),
    ],
)
def test_the_older_spelling_is_translated(legacy, modern):
    assert KnobMap.parse(legacy) == KnobMap.parse(modern)


@pytest.mark.parametrize(
    ("legacy", "left"),
    [
        ({"BM": 16, "BN": 64, "BK": 32}, {"BM", "BN", "BK"}),  # no fragment: not a tile
        (SEED_128 | {"FK": 2}, {"BN", "BM", "FM", "FN", "FK", "BK"}),
        (SEED_128 | {"STAGE": "10"}, {"STAGE", "RING"}),
        (SEED_128 | {"BN": 0}, {"BN", "BM", "FM", "FN", "FK", "BK"}),
    ],
)
def test_what_has_no_modern_spelling_stays_as_it_is(legacy, left):
    knobs = KnobMap.parse(legacy, keep_unknown=True)
    assert set(knobs.raw) == left
    assert {name: knobs.to_dict()[name] for name in left} == {name: legacy[name] for name in left}
    assert knobs.at("step") == knobs == KnobMap.parse(dict(knobs)) == KnobMap.parse(knobs.to_dict(), keep_unknown=True)


@pytest.mark.parametrize(
    ("knobs", "lane"),
    [
        ("", "std"),
        ("TILE=n16x8/f2x4,FAST_EXP=", "std"),
        ("TILE=n16x8/f2x4,FAST_EXP=false", "std"),
        ("FAST_EXP=true", "fm"),
        ("TILE=a:mma_m16n8k16_f16_f32/w2x4/f4x2/k2", "std"),
        ("TILE=a:mma_m16n8k16_bf16_f32/w2x4/f4x2/k2", "std"),
        ("TILE=a:mma_m16n8k16_f16_f16/w2x4/f4x2/k2", "fm"),
        ("TILE=a:mma_m16n8k16_bf16_f16/w2x4/f4x2/k2", "fm"),
        ("TILE=a:mma_m16n8k8_tf32_f32/w2x4/f4x2/k2", "fm"),
        ("TILE@qk=a:mma_m16n8k16_f16_f32/w2x4/f4x2/k2,TILE@pv=a:mma_m16n8k16_f16_f16/w2x4/f4x2/k2", "fm"),
        ("TILE=a:mma_m16n8k16_f16_f16/zz", "fm"),
        ("TILE=a:mma_m16n8k16_f16_f32/zz", "std"),
    ],
)
def test_lane(knobs, lane):
    assert KnobMap.parse(knobs, keep_unknown=True).lane == lane


ALL_OFF = dict.fromkeys(FAMILY_NAMES, "")


def test_a_record_uses_the_shortest_unambiguous_keys():
    knobs = KnobMap.parse("TILE@qk=n16x8/f2x4,TILE@pv=n8x8/f2x4,STAGE@qk=d2/sync,STAGE@pv=d2/sync,REDUCE@softmax=c256")
    steps = {"TILE": ("qk", "pv"), "STAGE": ("qk", "pv"), "REDUCE": ("softmax",)}
    stamped = {"TILE@qk": "n16x8/f2x4", "TILE@pv": "n8x8/f2x4", "STAGE": "d2/sync", "REDUCE": "c256"}
    assert knobs.record(steps) == {k: v for k, v in ALL_OFF.items() if k != "TILE"} | stamped
    assert KnobMap.parse("TILE@matmul=n16x8/f2x4").record(["matmul"]) == ALL_OFF | {"TILE": "n16x8/f2x4"}
    assert list(KnobMap.parse("STAGE=d2/sync,TILE=n16x8/f2x4").record()) == list(FAMILY_NAMES)


def test_a_step_takes_its_own_key_else_the_bare_one():
    knobs = KnobMap.parse("TILE=n16x8/f2x4,TILE@pv=n8x8/f2x4,FUSE=cut")
    assert str(knobs.at("pv")) == "FUSE=cut,TILE=n8x8/f2x4"
    assert str(knobs.at("qk")) == "FUSE=cut,TILE=n16x8/f2x4"


def test_unmet_pins_are_named():
    realised = KnobMap.parse("TILE=n16x8/f2x4,STAGE=,REDUCE@qk=g2k,REDUCE@pv=")
    assert realised.unmet(KnobMap.parse("TILE=n16x8/f2x4,REDUCE@qk=g2k")) == ()
    missed = realised.unmet(KnobMap.parse("STAGE=d2/sync,REDUCE=g2k,WSPEC=p1c2"))
    assert [name for name, _, _ in missed] == ["REDUCE", "STAGE", "WSPEC"]
    differing = realised.differences(KnobMap.parse("TILE=n8x8/f2x4,STAGE="))
    assert [name for name, _, _ in differing] == ["TILE", "REDUCE@pv", "REDUCE@qk"]
