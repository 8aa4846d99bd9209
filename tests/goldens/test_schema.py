"""Golden files: the seeds' entries, derived values, and every way in which a file is refused."""

import re
from pathlib import Path

import pytest

from emmy import config
from emmy.errors import GoldenSchemaError, InputError
from emmy.goldens import schema
from emmy.goldens.entry import GoldenConfig, scalar
from emmy.goldens.fields import compose, plain
from emmy.goldens.schema import device_file, foreign_entries, goldens_by_name, load_goldens, parse_goldens, slug
from emmy.schedule.knobs import KnobMap

HEADER = "device: NVIDIA GeForce RTX 5090\nmachines: any\ngoldens:\n"
SEEDS = f"""{HEADER}\
  - kernel: matmul
    name: qwen3_06b.q_proj.s128
    M: 128
    N: 2048
    K: 1024
    knobs: {{BN: 16, BM: 8, FM: 4, FN: 2, FK: 1, BK: 64, SPLITK: 1, BR: 1, STAGE: '11', RING: 3}}
    emmy_us: 18.4
    cublas_us: 20.9
  - kernel: matmul
    name: qwen3_06b.q_proj.s512.dynM
    M: 512            # the Dim hint — MUST equal DEFAULT_SEQ_HINT (512) today, see below
    N: 2048
    K: 1024
    dynamic: {{seq_len: {{input: x0, axis: 0}}}}
    knobs: {{BN: 32, BM: 8, FM: 8, FN: 4, FK: 1, BK: 64, SPLITK: 1, BR: 1, STAGE: '11', RING: 2}}
    emmy_us: 52.0
    cublas_us: 53.5
"""


def test_the_seeds_entries_load():
    content = parse_goldens(SEEDS, "rtx5090.yaml").content
    first, second = content.entries
    assert content.device == "NVIDIA GeForce RTX 5090"
    assert str(first.knobs["TILE"]) == "n16x8/f2x4/k64"
    assert str(first.knobs["STAGE"]) == "d3/async"
    assert first.ratio == pytest.approx(18.4 / 20.9)
    assert first.golden
    assert not first.fast_math
    assert (first.line, second.line) == (4, 12)
    assert str(second.dynamic) == "seq_len@x0:0"
    assert str(second.knobs["TILE"]) == "n32x8/f4x8/k64"
    assert foreign_entries(content) == []


def test_the_seeds_entries_print_as_they_were():
    entries = parse_goldens(SEEDS, "rtx5090.yaml").content.entries
    printed = HEADER + "".join(f"  {line}\n" for entry in entries for line in entry.lines())
    assert printed == re.sub(r" +# the Dim.*", "", SEEDS)


def test_an_entry_survives_json():
    for entry in parse_goldens(SEEDS, "rtx5090.yaml").content.entries:
        assert GoldenConfig.from_json(entry.to_json()) == entry


def test_lanes_follow_from_knobs():
    knobs = "{TILE: a:mma_m16n8k16_f16_f16/w2x4/f4x2/k2, STAGE: d3/async}"
    text = re.sub(r"knobs: .*", f"knobs: {knobs}", SEEDS, count=1)
    first, second = parse_goldens(text, "f").content.entries
    assert (first.fast_math, second.fast_math) == (True, False)


def test_unknown_knob_spellings_load_as_they_are():
    text = re.sub(r"knobs: .*", "knobs: {TILE: zz/9, SWIZZLE: 3, TMA: true}", SEEDS, count=1)
    entry = parse_goldens(text, "f").content.entries[0]
    assert dict(entry.written) == {"TILE": "zz/9", "SWIZZLE": 3, "TMA": True}
    assert set(entry.knobs.raw) == {"TILE", "SWIZZLE", "TMA"}


def test_a_slower_entry_is_no_golden():
    text = SEEDS.replace("emmy_us: 18.4", "emmy_us: 21").replace("cublas_us: 20.9", "eager_us: 20.9")
    entry = parse_goldens(text, "f").content.entries[0]
    assert (entry.golden, entry.reference, entry.cublas_us, entry.reference_us) == (False, "eager", None, 20.9)


FIRST, DYNAMIC = "qwen3_06b.q_proj.s128", "qwen3_06b.q_proj.s512.dynM"


@pytest.mark.parametrize(
    ("old", "new", "line", "entry", "field", "words"),
    [
        ("M: 512 ", "M: 1024 ", 14, DYNAMIC, "M", "expected 512"),
        ("axis: 0", "axis: 1", 17, DYNAMIC, "dynamic", "seq_len@x0:1 (K), expected seq_len@x0:0 (M)"),
        ("input: x0, axis: 0", "input: x1, axis: 1", 17, DYNAMIC, "dynamic", "seq_len@x1:1 (N)"),
        ("axis: 0", "axis: -1", 17, DYNAMIC, "axis", "at least 0"),
        ("{seq_len: {input: x0, axis: 0}}", "seq_len@x0:0", 17, DYNAMIC, "dynamic", "a mapping"),
        (".dynM", "", 13, "qwen3_06b.q_proj.s512", "name", ".dynM"),
        ("name: qwen3_06b.q_proj.s128", "name: q.s128.dynM", 4, "q.s128.dynM", "dynamic", "the name says"),
        ("M: 128", "M: -128", 6, FIRST, "M", "at least 1"),
        ("emmy_us: 18.4", "emmy_us: -18.4", 10, FIRST, "emmy_us", "-18.4"),
        ("emmy_us: 18.4", "emmy_us: .nan", 10, FIRST, "emmy_us", "above 0"),
        ("emmy_us: 18.4", "emmy_us: fast", 10, FIRST, "emmy_us", "'fast'"),
        ("BN: 16", "BN: -16", 9, FIRST, "knobs", "BN -16"),
        ("BN: 16", "BN: [16]", 9, FIRST, "knobs", "BN"),
        ("BN: 16", "BN: 16, BN: 32", 9, FIRST, "BN", "twice"),
        ("cublas_us: 20.9", "cublas_us: 20.9\n    eager_us: 3", 4, FIRST, "cublas_us", "both"),
        ("\n    cublas_us: 20.9", "", 4, FIRST, "cublas_us", "neither"),
        ("emmy_us: 18.4", "emy_us: 18.4", 4, FIRST, "emmy_us", "nothing"),
        ("emmy_us: 18.4", "emmy_us: 18.4\n    cublas: 3", 11, FIRST, "cublas", "did you mean cublas_us?"),
        ("kernel: matmul", "kernel: conv", 4, FIRST, "kernel", "matmul, softmax"),
        ("    K: 1024\n", "", 4, FIRST, "K", "nothing"),
        ("device: NVIDIA GeForce RTX 5090\n", "", 1, "header", "device", "a text"),
        ("machines: any", "machines: any\nowner: me", 3, "header", "owner", "unknown field"),
        ("goldens:\n", "goldens: 3\nx:\n", 3, "header", "goldens", "a list"),
        ("M: 128", "M: 128: 3", 6, None, None, "YAML"),
        ("device", "\tdevice", 1, None, None, "YAML"),
    ],
)
def test_a_bad_file_is_refused_by_file_line_entry_and_field(old, new, line, entry, field, words):
    assert old in SEEDS
    with pytest.raises(GoldenSchemaError) as caught:
        parse_goldens(SEEDS.replace(old, new, 1), "rtx.yaml")
    error = caught.value
    assert (error.file, error.line, error.entry, error.field) == ("rtx.yaml", line, entry, field)
    assert words in str(error)
    assert str(error).startswith(f"rtx.yaml:{line}")


def test_the_same_configuration_twice_is_refused_whatever_its_spelling():
    lines = SEEDS.splitlines(keepends=True)[3:11]
    modern = re.sub(
        r"knobs: .*", "knobs: {TILE: n16x8/f2x4/k64, STAGE: d3/async, REDUCE: '', FUSE: ''}", "".join(lines)
    )
    assert len(parse_goldens(SEEDS + modern, "f").content.entries) == 3
    full = modern.replace("FUSE: ''", "FUSE: '', WSPEC: '', RASTER: '', FAST_EXP: ''")
    with pytest.raises(
        GoldenSchemaError, match=r"entry qwen3_06b\.q_proj\.s128, field knobs: found the knobs of the entry"
    ):
        parse_goldens(SEEDS + full, "f")


@pytest.mark.parametrize("text", ["", "[]", "just text", "device: x\nmachines: y\n", "a: 1\n---\nb: 2\n"])
def test_what_is_no_golden_file_is_refused(text):
    with pytest.raises(GoldenSchemaError):
        parse_goldens(text, "f")


@pytest.mark.parametrize("data", [b"device: \xff\n", b"\xef\xbb\xbfdevice: x\n", b"device: \x00\n"])
def test_what_is_no_text_is_refused(tmp_path, data):
    path = tmp_path / "f.yaml"
    path.write_bytes(data)
    with pytest.raises(GoldenSchemaError, match=r"f\.yaml"):
        load_goldens(path)


def test_a_missing_file_is_bad_input(tmp_path):
    with pytest.raises(InputError, match=r"none\.yaml"):
        load_goldens(tmp_path / "none.yaml")


def test_an_empty_list_is_a_file_without_entries():
    for value in ("", " []", " ~"):
        assert parse_goldens(f"device: x\nmachines: y\ngoldens:{value}\n", "f").content.entries == ()


@pytest.mark.parametrize(
    "value", ["", "11", "0x1f", "true", "No", "a: b", "it's", "a:b", "n16x8/f2x4", "- x", "#", "1e3", 3, 2.5, True]
)
def test_a_scalar_reads_back_from_flow_style(value):
    root = compose(f"{{k: {scalar(value)}, z: 1}}", "f")
    found = {plain(key): plain(node) for key, node in root.value}
    assert found == {"k": value, "z": 1}
    assert type(found["k"]) is type(value)


def test_a_device_finds_its_file_by_name(tmp_path):
    (tmp_path / "rtx5090_sm120.yaml").write_text(SEEDS)
    (tmp_path / "dataset.yaml").write_text("shapes:\n")
    assert device_file("nvidia geforce rtx 5090", tmp_path).name == "rtx5090_sm120.yaml"
    assert device_file("NVIDIA H200", tmp_path) == tmp_path / "h200.yaml"
    (tmp_path / "h200.yaml").write_text("device: NVIDIA H200 NVL\nmachines: any\ngoldens:\n")
    with pytest.raises(InputError, match="H200 NVL"):
        device_file("NVIDIA H200", tmp_path)


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA GeForce RTX 5090", "rtx5090"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("pocl-cpu-avx512", "pocl-cpu-avx512"),
        ("???", "device"),
    ],
)
def test_slug(device, name):
    assert slug(device) == name


def test_goldens_by_name(tmp_path):
    (tmp_path / "a.yaml").write_text(SEEDS)
    (tmp_path / "b.yaml").write_text(SEEDS.replace("NVIDIA GeForce RTX 5090", "other").replace("18.4", "9.5"))
    both = goldens_by_name("qwen3_06b.q_proj.s128", directory=tmp_path)
    assert [(entry.device, entry.emmy_us) for entry in both] == [("NVIDIA GeForce RTX 5090", 18.4), ("other", 9.5)]
    assert goldens_by_name("qwen3_06b.q_proj.s128", "other", tmp_path) == both[1:]
    assert goldens_by_name("square.512", "other", tmp_path) == ()
    assert goldens_by_name("square.512", "unknown device", tmp_path) == ()
    with pytest.raises(InputError, match="nearest"):
        goldens_by_name("square.513", directory=tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("q_proj.s128", "z_proj.s128", "not a shape of the dataset"),
        ("K: 1024", "K: 2048", "dims is M 128, N 2048, K 2048; the dataset has M 128, N 2048, K 1024"),
        ("N: 2048\n    K: 1024\n    dynamic", "N: 1024\n    K: 1024\n    dynamic", "dims is M 512"),
        ("M: 128", "M: 128\n    dtype: f16", "dtype is f16; the dataset has f32"),
    ],
)
def test_foreign_entries_are_named(old, new, words):
    assert old in SEEDS
    ((_, complaint),) = foreign_entries(parse_goldens(SEEDS.replace(old, new, 1), "f").content)
    assert words in complaint


def test_the_projects_own_files_are_sound():
    assert (config.goldens_dir() / "dataset.yaml").exists()
    for path in schema.golden_paths():
        content = load_goldens(path)
        assert foreign_entries(content) == []
        assert device_file(content.device) == path


def test_the_readmes_example_loads():
    text = (config.goldens_dir() / "README.md").read_text()
    example = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1]
    (entry,) = parse_goldens(example, Path("README.md")).content.entries
    assert entry.golden
    assert set(entry.knobs) == set(KnobMap().record())


@pytest.mark.parametrize(
    ("text", "words"),
    [("a: " + "[" * 5000 + "]" * 5000, "nested too deep"), ("M: " + "9" * 5000, "")],
    ids=["brackets", "digits"],
)
def test_monsters_are_told_apart_from_crashes(text: str, words: str) -> None:
    from emmy.goldens.fields import compose, plain

    if words:
        with pytest.raises(GoldenSchemaError, match=words):
            compose(text, "file.yaml")
    else:
        node = compose(text, "file.yaml")
        assert node is not None
        assert plain(node.value[0][1]) == "9" * 5000
