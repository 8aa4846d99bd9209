"""``emmy golden`` on folders of its own: output and exit codes."""

import shutil

import pytest

from emmy import config
from emmy.cli.main import main
from emmy.goldens.dataset import shape
from emmy.goldens.entry import GoldenConfig
from emmy.goldens.patch import Operation, Proposal
from emmy.goldens.schema import load_goldens

KNOBS = {"FUSE": "", "TILE": "n16x8/f2x4/k64", "REDUCE": "", "STAGE": "d2/sync", "WSPEC": "", "RASTER": ""}
ENTRY = GoldenConfig.of(shape("quick.matmul.256"), KNOBS, 80.0, eager_us=100.0)
FAST = GoldenConfig.of(shape("quick.matmul.256"), KNOBS | {"FAST_EXP": True}, 70.0, eager_us=100.0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A goldens folder with the dataset and one device file of two entries."""
    shutil.copy(config.goldens_dir() / "dataset.yaml", tmp_path)
    monkeypatch.setattr(config, "goldens_dir", lambda: tmp_path)
    path = tmp_path / "cpu.yaml"
    Proposal.make(path, "cpu", "any", [Operation.new(ENTRY, "first")]).apply(path)
    Proposal.make(path, "cpu", "any", [Operation.add(FAST, "the other lane")]).apply(path)
    return tmp_path


@pytest.fixture
def proposal(folder):
    made = Proposal.make(folder / "cpu.yaml", "cpu", "any", [Operation.lower(ENTRY, 60.0, "a better compiler")])
    path = folder / "p.json"
    path.write_text(made.to_json())
    return path


def test_list(folder, capsys):
    assert main(["golden", "list", "--group", "quick", "--kernel", "matmul"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "kind", "dims", "dtype", "groups", "cpu"]
    assert lines[1].endswith("1 std + 1 fm")
    assert lines[2].endswith("-")
    assert lines[-1].startswith("4 shapes, 1 devices")


def test_show(folder, capsys):
    assert main(["golden", "show", "quick.matmul.256"]) == 0
    out = capsys.readouterr().out
    assert "x0 @ x1" in out
    assert "x1: [256, 256] f32" in out
    assert "0.800" in out
    assert "TILE=n16x8/f2x4/k64" in out
    assert main(["golden", "show", "quick.matmul.512"]) == 0
    assert "no entry recorded" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["show", "quick.matmul.257"], ["list", "--group", "quik"], ["diff", "none.json"], ["check", "none.yaml"]],
)
def test_bad_input_is_exit_code_2(folder, capsys, arguments):
    assert main(["golden", *arguments]) == 2
    captured = capsys.readouterr()
    assert (captured.err + captured.out).count("error: ") == 1


def test_check(folder, capsys):
    assert main(["golden", "check"]) == 0
    assert "cpu.yaml: cpu, 2 entries, 0 complaints" in capsys.readouterr().out
    path = folder / "other.yaml"
    text = (folder / "cpu.yaml").read_text().replace("device: cpu", "device: other")
    path.write_text(text.replace("n16x8/f2x4/k64", "zz"))
    assert main(["golden", "check"]) == 1
    assert "other.yaml:4: quick.matmul.256: not in the grammar, kept as it stands: TILE zz" in capsys.readouterr().out
    path.write_text(text.replace("M: 256", "M: 0"))
    assert main(["golden", "check"]) == 2
    out = capsys.readouterr().out
    assert "other.yaml:6: entry quick.matmul.256, field M: found 0" in out
    assert "cpu.yaml: cpu, 2 entries, 0 complaints" in out
    assert main(["golden", "check", str(folder / "cpu.yaml")]) == 0


def test_diff_is_a_patch_with_reasons(proposal, capsys):
    assert main(["golden", "diff", str(proposal)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        "# lower quick.matmul.256: a better compiler\n--- a/goldens/cpu.yaml\n+++ b/goldens/cpu.yaml\n"
    )
    assert "-    emmy_us: 80.0\n+    emmy_us: 60.0\n" in out


def test_apply_asks_unless_told(folder, proposal, capsys):
    before = (folder / "cpu.yaml").read_text()
    assert main(["golden", "apply", str(proposal)]) == 2
    assert "--yes" in capsys.readouterr().err
    assert (folder / "cpu.yaml").read_text() == before
    assert main(["golden", "apply", str(proposal), "--yes"]) == 0
    assert load_goldens(folder / "cpu.yaml").entries[0].emmy_us == 60.0
    capsys.readouterr()
    assert main(["golden", "apply", str(proposal), "--yes"]) == 2
    assert "changed since" in capsys.readouterr().err


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1)])
def test_apply_at_a_terminal(folder, proposal, monkeypatch, answer, code):
    before = (folder / "cpu.yaml").read_text()
    monkeypatch.setattr("emmy.cli.golden.at_terminal", lambda: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda prompt: answer.strip())
    assert main(["golden", "apply", str(proposal)]) == code
    assert ((folder / "cpu.yaml").read_text() == before) == (code == 1)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"device": "cpu"', '"device": "NVIDIA H200"', "found goldens of cpu, expected those of NVIDIA H200"),
        ("n16x8/f2x4/k64", "zz", "zz"),
        ('"STAGE"', '"STAG"', "STAG"),
    ],
)
def test_apply_refuses_another_device_and_unknown_knobs(folder, capsys, old, new, words):
    path, before = folder / "p.json", (folder / "cpu.yaml").read_text()
    entry = GoldenConfig.of(shape("quick.matmul.512"), KNOBS, 60.0, eager_us=100.0)
    made = Proposal.make(folder / "cpu.yaml", "cpu", "any", [Operation.new(entry, "first")]).to_json()
    assert old in made
    path.write_text(made.replace(old, new))
    assert main(["golden", "apply", str(path), "--yes"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert (folder / "cpu.yaml").read_text() == before
