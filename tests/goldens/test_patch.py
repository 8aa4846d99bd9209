"""Patches of golden files: each operation, byte-exactness on random files, digests, atomicity, JSON."""

import dataclasses
import os
import random
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emmy.errors import EmmyError, GoldenSchemaError, InputError, KnobError
from emmy.goldens import edits as edits_module
from emmy.goldens import patch as patch_module
from emmy.goldens.dataset import shape, shapes
from emmy.goldens.edits import lines_of
from emmy.goldens.entry import GoldenConfig, flow_knobs, round_us
from emmy.goldens.patch import Operation, Proposal, digest
from emmy.goldens.schema import load_goldens, parse_goldens

TEXT = """\
# NVIDIA GeForce RTX 5090, kept by hand
device: "NVIDIA GeForce RTX 5090"   # as the driver says
machines: any
goldens:
  # squares
  - kernel: matmul
    name: square.512
    M: 512   # rows
    N: 512
    K: 512
    knobs: {BN: 16, BM: 8, FM: 4, FN: 2, FK: 1, BK: 64, SPLITK: 1, BR: 1, STAGE: '11', RING: 3}  # by hand
    emmy_us: 18.40   # 2026-06-12
    cublas_us: 20.9

  # at parity
  - {kernel: matmul, name: square.512, M: 512, N: 512, K: 512,
     knobs: {TILE: n8x8/f2x2, STAGE: ""}, emmy_us: 18.5, cublas_us: 20.9}

  - kernel: softmax
    name: softmax.2048x2048
    M: 2048
    N: 2048
    knobs:
      TILE: r4/v4/reg   # rows
      REDUCE: c256
    emmy_us: 9
    eager_us: 12.5
# the end
"""
KNOBS = {"FUSE": "", "TILE": "n32x8/f2x4/k32", "REDUCE": "g2k", "STAGE": "d2/sync", "WSPEC": "", "RASTER": "g8"}
PATH = "rtx.yaml"
DEVICE = "NVIDIA GeForce RTX 5090"


def entries(text=TEXT):
    return parse_goldens(text, PATH).content.entries


def proposal(*operations, text=TEXT):
    return Proposal(PATH, digest(text), DEVICE, "any", operations)


def patched(*operations, text=TEXT):
    return proposal(*operations, text=text).preview(text)


def changed(before, after):
    """(lines gone, lines come) between two texts."""
    old, new = lines_of(before), lines_of(after)
    return [line for line in old if line not in new], [line for line in new if line not in old]


def test_replace_changes_the_values_and_keeps_all_else_of_the_entry():
    old = entries()[0]
    entry = GoldenConfig.of(shape("square.512"), KNOBS, 15.25, cublas_us=20.9)
    gone, come = changed(TEXT, patched(Operation.replace(old, entry, "3.1 % faster")))
    assert [line.split(":")[0].strip() for line in gone] == ["knobs", "emmy_us"]
    assert come == [f"    knobs: {flow_knobs(KNOBS)}  # by hand\n", "    emmy_us: 15.25   # 2026-06-12\n"]


def test_replace_in_a_flow_entry_and_of_block_knobs():
    flow, block = entries()[1:]
    after = patched(
        Operation.replace(flow, dataclasses.replace(flow, emmy_us=11.0, cublas_us=21.0), "r"),
        Operation.replace(block, dataclasses.replace(block, written=tuple(KNOBS.items())), "r"),
    )
    assert '     knobs: {TILE: n8x8/f2x2, STAGE: ""}, emmy_us: 11.0, cublas_us: 21.0}\n' in after
    assert f"    knobs:\n      {flow_knobs(KNOBS)}\n    emmy_us: 9\n" in after


def test_replace_by_another_reference_renames_the_field():
    old = entries()[2]
    after = patched(Operation.replace(old, dataclasses.replace(old, eager_us=None, cublas_us=11.5), "r"))
    assert changed(TEXT, after) == (["    eager_us: 12.5\n"], ["    cublas_us: 11.5\n"])


def test_lower_changes_one_number():
    after = patched(Operation.lower(entries()[0], 17.9, "codegen win"))
    assert changed(TEXT, after) == (["    emmy_us: 18.40   # 2026-06-12\n"], ["    emmy_us: 17.9   # 2026-06-12\n"])


def test_lower_finds_a_legacy_entry_by_what_it_means():
    old = dataclasses.replace(entries()[0], written=tuple(entries()[0].knobs.to_dict().items()))
    assert "emmy_us: 17.9 " in patched(Operation.lower(old, 17.9, "codegen win"))


def test_add_stands_behind_the_shapes_last_entry():
    entry = GoldenConfig.of(shape("square.512"), KNOBS, 18.45, cublas_us=20.9)
    after = patched(Operation.add(entry, "same"))
    block = "".join(f"  {line}\n" for line in entry.lines())
    before, _, rest = TEXT.partition("cublas_us: 20.9}\n")
    assert after == before + "cublas_us: 20.9}\n\n" + block + rest  # a blank line, as between the others


def test_prune_takes_the_entrys_lines_and_leaves_the_comments_around():
    after = patched(Operation.prune(entries()[1], "slower"))
    assert "  # at parity\n\n  - kernel: softmax\n" in after
    assert len(lines_of(TEXT)) - len(lines_of(after)) == 2
    assert entries(after) == (entries()[0], entries()[2])


def test_new_is_appended_and_everything_can_be_pruned():
    entry = GoldenConfig.of(shape("quick.matmul.256"), KNOBS, 99.5, eager_us=80.25)
    after = patched(Operation.new(entry, "first"))
    assert after.endswith("eager_us: 80.25\n# the end\n")
    empty = patched(*(Operation.prune(old, "gone") for old in entries()))
    assert entries(empty) == ()
    assert entries(patched(Operation.new(entry, "first"), text=empty)) == (entry,)


@pytest.mark.parametrize("value", ["", " ", " []", "  []  # none yet", " ~", " null"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["", "\n", "\n# the end\n"])
def test_the_first_entries_of_an_empty_list(value, newline, end):
    text = f"# top\ndevice: {DEVICE}\nmachines: y\ngoldens:{value}{end}".replace("\n", newline)
    added = [
        GoldenConfig.of(shape(name), KNOBS, 99.5, eager_us=80.25) for name in ("quick.matmul.256", "quick.matmul.512")
    ]
    after = patched(*(Operation.new(entry, "first") for entry in added), text=text)
    assert entries(after) == tuple(added)
    assert after.count("\r") == (after.count("\n") if newline == "\r\n" else 0)
    assert after.startswith(text.partition("goldens:")[0])
    assert "# none yet" in after or "# none yet" not in text


def test_a_file_that_does_not_exist_yet(tmp_path):
    path = tmp_path / "pocl-cpu-avx512.yaml"
    entry = GoldenConfig.of(shape("quick.matmul.256.dynM"), KNOBS, 99.5, eager_us=80.25)
    made = Proposal.make(path, "pocl-cpu-avx512", "two cores: AVX-512", [Operation.new(entry, "first")])
    assert made.to_diff(path).startswith("--- /dev/null\n+++ b/goldens/pocl-cpu-avx512.yaml\n")
    assert Proposal.from_json(made.to_json()).apply(path) == path
    content = load_goldens(path)
    assert content.entries == (entry,)
    assert (content.device, content.machines) == ("pocl-cpu-avx512", "two cores: AVX-512")
    with pytest.raises(InputError, match="expected no file"):
        made.apply(path)


OLD = entries()[0]
NEW = GoldenConfig.of(shape("square.512"), KNOBS, 15.0, cublas_us=20.9)
STRANGE = dataclasses.replace(OLD, written=(("TILE", "n1x1/f1x1"),))


@pytest.mark.parametrize(
    ("operations", "words"),
    [
        ([Operation.lower(OLD, 18.4, "")], "less than the recorded 18.4"),
        ([Operation.lower(OLD, -1.0, "")], "less than the recorded"),
        ([Operation.lower(STRANGE, 1.0, "")], "no entry with the knobs TILE=n1x1/f1x1"),
        ([Operation.prune(STRANGE, "")], "no entry with the knobs"),
        ([Operation.new(NEW, "")], "none: add or replace"),
        ([Operation.add(dataclasses.replace(NEW, name="square.1024"), "")], "no recorded entry"),
        ([Operation.lower(OLD, 1.0, ""), Operation.prune(OLD, "")], "one operation an entry"),
        ([Operation.replace(OLD, dataclasses.replace(NEW, name="square.1024"), "")], "one of square.512"),
        ([Operation.replace(OLD, dataclasses.replace(NEW, dims=(("M", 1), ("N", 1), ("K", 1))), "")], "'M': 512"),
        ([Operation.add(OLD, "")], "knobs of the entry at line"),
        ([Operation.add(dataclasses.replace(NEW, emmy_us=-3.0), "")], "above 0"),
        ([Operation.add(dataclasses.replace(NEW, dims=(("M", 0), ("N", 1), ("K", 1))), "")], "at least 1"),
    ],
)
def test_an_operation_that_does_not_fit_is_refused(tmp_path, operations, words):
    path = tmp_path / PATH
    path.write_text(TEXT)
    with pytest.raises((InputError, GoldenSchemaError)) as caught:
        proposal(*operations).apply(path)
    assert words in str(caught.value)
    assert path.read_text() == TEXT
    assert os.listdir(tmp_path) == [PATH]


@pytest.mark.parametrize(
    "text",
    [
        TEXT[: TEXT.index("goldens:")] + "goldens: [{kernel: reduce, name: r.8, M: 8, N: 8, knobs: {TILE: ''}, "
        "emmy_us: 3, eager_us: 2}]\n",
        TEXT.replace("\n", "\r"),
        TEXT.replace("knobs: {BN", "knobs: &k {BN")
        .replace('knobs: {TILE: n8x8/f2x2, STAGE: ""}', "knobs: *k")
        .replace("name: square.512, M: 512, N: 512, K: 512,", "name: square.513, M: 512, N: 512, K: 512,"),
    ],
    ids=["a list in brackets", "lone carriage returns", "an alias"],
)
def test_a_layout_that_lines_cannot_edit_is_refused(text):
    old = entries(text)[-2 if len(entries(text)) > 1 else 0]
    with pytest.raises(InputError, match="edit it by hand"):
        patched(
            Operation.replace(old, dataclasses.replace(old, written=tuple(KNOBS.items()), emmy_us=1.0), ""), text=text
        )


@pytest.mark.parametrize(
    ("knobs", "words"),
    [({"ODD": "11"}, "unknown knob"), ({"TILE": "zz"}, "zz"), ({"STAGE": "d2/teleport"}, "teleport")],
)
@pytest.mark.parametrize("kind", ["add", "replace", "new"])
def test_a_new_entry_with_knobs_outside_the_grammar_is_refused(tmp_path, kind, knobs, words):
    path = tmp_path / PATH
    path.write_text(TEXT)
    name = "quick.matmul.256" if kind == "new" else "square.512"
    entry = GoldenConfig.of(shape(name), KNOBS | knobs, 15.0, cublas_us=20.9)
    operation = Operation.replace(OLD, entry, "r") if kind == "replace" else Operation(kind, name, "r", entry=entry)
    with pytest.raises(KnobError) as caught:
        proposal(operation).apply(path)
    assert str(caught.value).startswith(f"{kind} {name} in {PATH}: ")
    assert words in str(caught.value)
    assert path.read_text() == TEXT


def test_a_proposal_made_on_another_device_is_refused(tmp_path):
    path = tmp_path / PATH
    path.write_text(TEXT)
    made = dataclasses.replace(proposal(Operation.lower(OLD, 17.0, "win")), device="NVIDIA H200")
    words = f"golden file {PATH}: found goldens of {DEVICE}, expected those of NVIDIA H200"
    for act in (made.apply, made.to_diff, lambda p: Proposal.make(p, "NVIDIA H200", "any", made.operations)):
        with pytest.raises(InputError, match=words):
            act(path)
    assert path.read_text() == TEXT


def test_a_changed_file_is_refused_and_left_alone(tmp_path):
    path = tmp_path / PATH
    path.write_text(TEXT)
    made = Proposal.make(path, DEVICE, "any", [Operation.lower(OLD, 17.0, "win")])
    path.write_text(TEXT + "# one more remark\n")
    for act in (made.apply, made.to_diff):
        with pytest.raises(InputError, match="it changed since the proposal was made"):
            act(path)
    assert path.read_text() == TEXT + "# one more remark\n"
    path.unlink()
    with pytest.raises(InputError, match="found no file"):
        made.apply(path)


def test_apply_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / PATH
    path.write_text(TEXT)
    path.chmod(0o640)
    made = Proposal.make(path, DEVICE, "any", [Operation.lower(OLD, 17.0, "win")])

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(patch_module.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        made.apply(path)
    assert path.read_text() == TEXT
    assert os.listdir(tmp_path) == [PATH]
    monkeypatch.undo()
    made.apply(path)
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == [PATH]


def test_a_file_changed_while_writing_is_not_overwritten(tmp_path, monkeypatch):
    path = tmp_path / PATH
    path.write_text(TEXT)
    made = Proposal.make(path, DEVICE, "any", [Operation.lower(OLD, 17.0, "win")])
    fsync = os.fsync
    monkeypatch.setattr(patch_module.os, "fsync", lambda handle: (path.write_text(f"{TEXT}# late\n"), fsync(handle)))
    with pytest.raises(InputError, match="changed since"):
        made.apply(path)
    assert path.read_text() == f"{TEXT}# late\n"
    assert os.listdir(tmp_path) == [PATH]


def test_an_edit_beyond_the_entries_is_caught(monkeypatch):
    def sloppy(self, place):
        start, end = self.span(place)
        return [edits_module.Edit(start - 12, end, "")]

    monkeypatch.setattr(edits_module.Editor, "remove", sloppy)
    with pytest.raises(EmmyError, match="touch other lines"):
        patched(Operation.prune(entries()[1], "r"))


def test_a_wrong_edit_is_caught(monkeypatch):
    monkeypatch.setattr(patch_module, "apply_edits", lambda text, edits: text)
    with pytest.raises(EmmyError, match="intended entries"):
        patched(Operation.lower(OLD, 1.0, "r"))


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("\n", "\r\n"), TEXT[: TEXT.index("# the end")].rstrip("\n")])
def test_the_diff_applies_with_patch(tmp_path, text):
    (tmp_path / "goldens").mkdir()
    path = tmp_path / "goldens" / PATH
    path.write_bytes(text.encode())
    quick = GoldenConfig.of(shape("quick.matmul.256"), KNOBS, 99.5, eager_us=80.25)
    made = Proposal.make(path, DEVICE, "any", [Operation.new(quick, "n"), Operation.replace(OLD, NEW, "r")])
    diff = made.to_diff(path)
    made.apply(path)
    after = path.read_bytes()
    path.write_bytes(text.encode())
    subprocess.run(["git", "apply", "-p1", "-"], input=diff.encode(), cwd=tmp_path, check=True)
    assert path.read_bytes() == after


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"file": "a.yaml"}',
        proposal(Operation.new(NEW, "r")).to_json().replace('"new"', '"drop"'),
        proposal(Operation.prune(OLD, "r")).to_json().replace(PATH, "../x.yaml"),
        proposal(Operation.prune(OLD, "r")).to_json().replace('"target"', '"t"'),
    ],
)
def test_what_is_no_proposal_is_refused(text):
    with pytest.raises(InputError, match=r"p\.json is no proposal"):
        Proposal.from_json(text, "p.json")


def test_json_keeps_reasons_and_evidence():
    made = proposal(Operation.lower(OLD, 17.0, "3 % better", ratio=0.93, low=None), Operation.add(NEW, "same"))
    assert Proposal.from_json(made.to_json()) == made
    assert '"reason": "3 % better"' in made.to_json()


# Random files: entries in every layout, comments anywhere, and random operations on them.

COMMENTS = ["", "", "", "# why", "#- kernel: matmul", "# ü µ —odd", "  # {knobs: x}"]
TILES = [f"n{n}x{m}/f{fn}x{fm}" for n in (8, 16) for m in (4, 8) for fn in (1, 2) for fm in (1, 4)]
POOL = [*shapes("quick"), *shapes("square")[:3]]


def random_config(rng, used, found=None, *, recorded=False):
    found = found or rng.choice(POOL)
    free = [tile for tile in TILES if (found.name, tile) not in used]
    tile = rng.choice(free)
    used.add((found.name, tile))
    knobs = {"TILE": tile, "STAGE": rng.choice(["", "d2/sync"]), "FAST_EXP": rng.choice(["", True])}
    knobs |= {"ODD": "11"} if recorded else {}  # a file may hold what the grammar does not know
    reference = {rng.choice(["cublas_us", "eager_us"]): rng.choice([3, 20.9, 12.25])}
    return GoldenConfig.of(found, knobs, rng.choice([1, 2.5, 18.4]), **{k: float(v) for k, v in reference.items()})


def random_entry(rng, entry, indent):
    pairs = [line[2:].split(": ", 1) for line in entry.lines()]
    rng.shuffle(pairs)
    if rng.random() < 0.2:
        body = ", ".join(f"{key}: {value}" for key, value in pairs)
        return [f"{indent}- {{{body}}}{random_remark(rng)}"]
    lines = []
    for key, value in pairs:
        if key == "knobs" and rng.random() < 0.3:
            lines.append(f"{key}:{random_remark(rng)}")
            lines += [f"    {part}{random_remark(rng)}" for part in value[1:-1].split(", ")]
        else:
            value = f'"{value}"' if key == "name" and rng.random() < 0.3 else value
            lines.append(f"{key}: {' ' * rng.randrange(3)}{value}{random_remark(rng)}")
        if rng.random() < 0.1:
            lines.append(rng.choice(["", "# between"]))
    while lines and lines[-1] in ("", "# between"):
        lines.pop()
    dash = rng.choice(["- ", "-   "])
    return [f"{indent}{dash if place == 0 else ' ' * len(dash)}{line}" for place, line in enumerate(lines)]


def random_remark(rng):
    remark = rng.choice(COMMENTS)
    return f"  {remark.strip()}" if remark else ""


def random_file(rng, configs):
    """(text, the lines outside the entries and each entry's own lines, in order)"""
    indent = " " * rng.choice([0, 2, 4])
    lines = [
        (None, line)
        for line in ["# head", f"device: {DEVICE}", rng.choice(["machines: 'm'", 'machines: "m"']), "goldens:"]
    ]
    for place, config in enumerate(configs):
        lines += [(None, rng.choice(COMMENTS)) for _ in range(rng.randrange(3))]
        lines += [(place, line) for line in random_entry(rng, config, indent)]
    lines += [(None, rng.choice(COMMENTS)) for _ in range(rng.randrange(3))]
    newline = rng.choice(["\n", "\r\n"])
    lines = [(owner, line + newline) for owner, line in lines]
    if rng.random() < 0.3:
        owner, line = lines[-1]
        lines[-1] = (owner, line.rstrip("\r\n"))
        lines = [pair for pair in lines if pair[1]]
    return "".join(line for _, line in lines), lines


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_random_operations_on_random_files(seed):
    rng = random.Random(seed)
    used = set()
    configs = [random_config(rng, used, recorded=True) for _ in range(rng.randrange(1, 7))]
    text, lines = random_file(rng, configs)
    assert entries(text) == tuple(configs)
    operations, touched = [], set()
    after = {place: [config] for place, config in enumerate(configs)}
    appended = []
    for place, config in enumerate(configs):
        choice = rng.choice(["replace", "lower", "prune", "keep"])
        if choice != "keep":
            touched.add(place)
        if choice == "replace":
            fresh = random_config(rng, used, shape(config.name))
            after[place] = [fresh]
            operations.append(Operation.replace(config, fresh, "r"))
        elif choice == "lower":
            after[place] = [dataclasses.replace(config, emmy_us=config.emmy_us / 2)]
            operations.append(Operation.lower(config, config.emmy_us / 2, "r"))
        elif choice == "prune":
            after[place] = []
            operations.append(Operation.prune(config, "r"))
    for _ in range(rng.randrange(3)):
        fresh = random_config(rng, used)
        owners = [place for place, config in enumerate(configs) if config.name == fresh.name]
        if owners:
            after[owners[-1]].append(fresh)
            operations.append(Operation.add(fresh, "r"))
        elif fresh.name not in [entry.name for entry in appended]:
            appended.append(fresh)
            operations.append(Operation.new(fresh, "r"))
    rng.shuffle(operations)
    appended.sort(key=lambda entry: [operation.entry for operation in operations].index(entry))
    for place, found in after.items():
        added = [operation.entry for operation in operations if operation.kind == "add" and operation.entry in found]
        after[place] = [entry for entry in found if entry not in added] + added

    made = proposal(*operations, text=text)
    result = made.preview(text)
    assert entries(result) == (*(entry for found in after.values() for entry in found), *appended)
    assert Proposal.from_json(made.to_json()).preview(text) == result

    kept = [line for owner, line in lines if owner not in touched]
    if kept and not kept[-1].endswith("\n") and kept[-1] not in lines_of(result)[-1:]:
        kept.pop()  # the file had no line break at its end, and something now stands behind
    rest = iter(lines_of(result))
    assert all(any(line == other for other in rest) for line in kept)
    entry_lines = sum(len(entry.lines()) for entry in appended) + sum(
        len(operation.entry.lines()) for operation in operations if operation.kind == "add"
    )
    assert len(lines_of(result)) <= len(lines) + 2 * entry_lines
    assert result.count("\r\n") == result.count("\r") == (result.count("\n") if "\r" in text else 0)


@pytest.mark.parametrize(
    ("us", "rounded"), [(0.00001, 0.001), (3.14159, 3.142), (18.4321, 18.43), (123456.789, 123456.8)]
)
def test_round_us(us, rounded):
    assert round_us(us) == rounded
