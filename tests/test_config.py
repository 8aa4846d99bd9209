import pickle
from pathlib import Path

import pytest

from emmy import config
from emmy.errors import EmmyError, GoldenSchemaError, InputError, Refused, UnsupportedOp, check


def test_defaults() -> None:
    settings = config.load({})
    assert (settings.patience, settings.o3_tol, settings.o1) == (50, 0.15, False)
    assert (settings.fast_math, settings.debug) == (False, False)
    assert settings.tune_db == config.project_root() / "_tune" / "emmy.duckdb"
    assert settings.online_file.parent == settings.work_dir == config.project_root() / "_tune"
    assert (settings.knobs, settings.family_pins) == ("", ())
    assert (settings.device, settings.dump_dir, settings.offline_file) == (None, None, None)


def test_flags_win_over_variables_and_variables_over_defaults() -> None:
    environ = {"EMMY_PATIENCE": "7", "EMMY_FAST_MATH": "1"}
    assert config.load(environ).patience == 7
    assert config.load(environ, patience=9).patience == 9
    assert config.load(environ, patience=None).patience == 7
    assert config.load(environ, fast_math=False).fast_math is False


def test_everything_moves_with_the_store(tmp_path: Path) -> None:
    settings = config.load({"EMMY_TUNE_DB": str(tmp_path / "other.duckdb")})
    assert settings.work_dir == settings.online_file.parent == tmp_path
    apart = config.load({"EMMY_TUNE_DB": str(tmp_path / "a.duckdb"), "EMMY_ONLINE_FILE": str(tmp_path / "x" / "p.cbm")})
    assert apart.online_file == tmp_path / "x" / "p.cbm"


def test_outside_a_checkout_the_work_folder_is_in_the_current_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(config, "in_checkout", lambda: False)
    monkeypatch.chdir(tmp_path)
    assert config.load({}).work_dir == tmp_path / "_tune"
    assert config.plans_dir() == tmp_path / "plans"


@pytest.mark.parametrize("family", config.FAMILIES)
def test_a_family_set_to_nothing_is_pinned_off_and_one_not_set_is_not_pinned(family: str) -> None:
    assert config.load({f"EMMY_{family}": ""}).family_pins == ((family, ""),)
    assert config.load({f"EMMY_{family}": "x"}).family_pins == ((family, "x"),)


def test_family_pins_come_in_fork_order() -> None:
    settings = config.load({"EMMY_RASTER": "g8", "EMMY_TILE": "n16x8/f2x4", "EMMY_FUSE": ""})
    assert settings.family_pins == (("FUSE", ""), ("TILE", "n16x8/f2x4"), ("RASTER", "g8"))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("EMMY_PATIENCE", "abc", "a whole number of at least 1"),
        ("EMMY_PATIENCE", "0", "a whole number of at least 1"),
        ("EMMY_PATIENCE", "-3", "a whole number of at least 1"),
        ("EMMY_PATIENCE", "2.5", "a whole number of at least 1"),
        ("EMMY_O3_TOL", "-0.1", "a number of at least 0"),
        ("EMMY_O3_TOL", "nan", "a number of at least 0"),
        ("EMMY_O3_TOL", "lots", "a number of at least 0"),
        ("EMMY_FAST_MATH", "maybe", "1 or 0"),
        ("EMMY_O1", "O3", "1 or 0"),
        ("EMMY_DEBUG", "2", "1 or 0"),
    ],
)
def test_a_bad_variable_is_named_with_what_was_found_and_expected(name: str, text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        config.load({name: text})
    assert str(caught.value) == f"environment variable {name}: found {text!r}, expected {expected}"
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("below", ["emmy.duckdb", "a/b/emmy.duckdb"])
def test_a_store_below_a_file_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(InputError, match=r"EMMY_TUNE_DB: found .*file/.*expected a path, none of whose folders"):
        config.load({"EMMY_TUNE_DB": str(tmp_path / "file" / below)})
    assert config.load({"EMMY_TUNE_DB": str(tmp_path / below)}).tune_db == tmp_path / below


@pytest.mark.parametrize("variable", config.VARIABLES, ids=lambda variable: variable.name)
def test_an_empty_variable_counts_as_not_set(variable: config.Variable) -> None:
    assert config.load({variable.name: " "}) == config.load({})


def test_every_variable_sets_a_field_of_the_settings() -> None:
    fields = [variable.field for variable in config.VARIABLES]
    assert sorted([*fields, "family_pins"]) == sorted(config.Settings.__dataclass_fields__)


def test_an_unknown_flag_is_a_programming_error() -> None:
    with pytest.raises(TypeError, match="pateince"):
        config.load({}, pateince=3)


def test_misspelt_variables_are_noticed_and_foreign_ones_left_alone() -> None:
    environ = {"EMMY_TIEL": "r4", "EMMY_PATIENC": "3", "EMMY_PATIENCE": "3", "EMMY_THE_CAT": "1", "OTHER": "1"}
    assert config.unread_variables(environ) == [("EMMY_PATIENC", "EMMY_PATIENCE"), ("EMMY_TIEL", "EMMY_TILE")]


def test_the_project_root_holds_the_package() -> None:
    assert (config.project_root() / "emmy" / "config.py").samefile(config.__file__)
    assert config.in_checkout()


ERRORS: list[tuple[EmmyError, str, int]] = [
    (InputError("--x", found=3, expected="4", hint="do y"), "--x: found 3, expected 4; do y", 2),
    (UnsupportedOp("aten.sort", "a.py:3"), "aten.sort is not supported (called at a.py:3)", 2),
    (
        Refused("tile.divides", "emmy/a.py:3", found="w3", nearest=("w2", "w4")),
        "refused by tile.divides (emmy/a.py:3): found w3; nearest offered: w2, w4",
        2,
    ),
    (
        GoldenSchemaError("g.yaml", 12, "square.512", "M", found="symbolic 7", expected="512"),
        "g.yaml:12: entry square.512, field M: found symbolic 7, expected 512",
        2,
    ),
    (GoldenSchemaError("g.yaml", None, None, None, found="a list"), "g.yaml: found a list", 2),
]


@pytest.mark.parametrize(("error", "text", "code"), ERRORS, ids=lambda value: type(value).__name__)
def test_an_error_says_its_facts_and_survives_pickling(error: EmmyError, text: str, code: int) -> None:
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert type(each) is type(error)
        assert (str(each), each.exit_code, each.__dict__) == (text, code, error.__dict__)


def test_a_refusal_points_at_the_rule_that_refused() -> None:
    with pytest.raises(Refused) as caught:
        check(False, Refused, "tile.divides", found="w3")
    file, line = caught.value.where.rsplit(":", 1)
    source = (config.project_root() / file).read_text().splitlines()
    assert file == "tests/test_config.py"
    assert "check(False, Refused" in source[int(line) - 1]


def test_check_passes_what_holds() -> None:
    check(True, InputError, "never raised")
