"""Every EMMY_* variable, its default and its meaning, in one table; flags win over variables, variables over defaults.

A plain dataclass: `import pydantic_settings` takes 0.23-0.28 s (AMD EPYC, 2 cores, 2026-11-30), more than half of the
0.4 s that `emmy --help` may take.
"""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emmy.errors import InputError

FAMILIES = ("FUSE", "TILE", "REDUCE", "STAGE", "WSPEC", "RASTER", "FAST_EXP")
"""The knob families, in fork order; each has a variable `EMMY_<FAMILY>` that pins it."""

SEQ_HINT = 512
"""The size at which a symbolic axis is tuned and benched."""


def project_root() -> Path:
    """The folder that holds `emmy/`, `goldens/`, `templates/`: the checkout, or site-packages of an installed wheel."""
    return Path(__file__).resolve().parent.parent


def in_checkout() -> bool:
    """Whether emmy runs from a checkout of the project (editable install) and not from an installed wheel."""
    return (project_root() / "pyproject.toml").is_file()


def goldens_dir() -> Path:
    """`dataset.yaml` and one golden file per GPU."""
    return project_root() / "goldens"


def templates_dir() -> Path:
    """The Jinja2 templates of the reports."""
    return project_root() / "templates"


def plans_dir() -> Path:
    """Where findings reports go: `plans/` of the checkout, or of the current folder outside one."""
    return (project_root() if in_checkout() else Path.cwd()) / "plans"


def default_work_dir() -> Path:
    """`_tune/` of the checkout, or of the current folder outside one."""
    return (project_root() if in_checkout() else Path.cwd()) / "_tune"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the variables and flags come to. Picklable, so that workers get it by value.

    `family_pins` holds (family, text) of every EMMY_<FAMILY> that is set, in fork order; an empty text pins the family
    to *off*, an absent family is not pinned. `knobs` is the text of EMMY_KNOBS. Both are parsed by the knob grammar.
    """

    tune_db: Path
    online_file: Path
    offline_file: Path | None
    knobs: str
    family_pins: tuple[tuple[str, str], ...]
    patience: int
    o3_tol: float
    o1: bool
    fast_math: bool
    device: str | None
    dump_dir: Path | None
    debug: bool

    @property
    def work_dir(self) -> Path:
        """The folder of the store. Logs, journal, binaries and online prior live beside it: they move together."""
        return self.tune_db.parent


def _positive_int(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _fraction(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(text)
    return value


_FLAGS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def _flag(text: str) -> bool:
    value = _FLAGS.get(text.lower())
    if value is None:
        raise ValueError(text)
    return value


def _path(text: str) -> Path:
    return Path(text).expanduser().absolute()


def _creatable(text: str) -> Path:
    path = _path(text)
    nearest = next(folder for folder in path.parents if os.path.lexists(folder))
    if not nearest.is_dir():
        raise ValueError(text)
    return path


@dataclass(frozen=True, slots=True)
class Variable:
    """One EMMY_* variable: the `Settings` field it sets, how its text is read, what a valid text looks like."""

    name: str
    field: str
    parse: Callable[[str], Any]
    expected: str
    default: Any
    help: str


VARIABLES: tuple[Variable, ...] = (
    Variable(
        "EMMY_TUNE_DB",
        "tune_db",
        _creatable,
        "a path, none of whose folders is a file",
        None,
        "tune store (default: _tune/emmy.duckdb)",
    ),
    Variable(
        "EMMY_ONLINE_FILE",
        "online_file",
        _path,
        "a file path",
        None,
        "place of the online prior, which no command writes or reads yet (default: beside the store)",
    ),
    Variable(
        "EMMY_OFFLINE_FILE", "offline_file", _path, "a file path", None, "offline prior (default: the shipped one)"
    ),
    Variable("EMMY_KNOBS", "knobs", str, "FAMILY=VALUE pairs", "", "knobs to pin, FAMILY=VALUE separated by commas"),
    Variable(
        "EMMY_PATIENCE",
        "patience",
        _positive_int,
        "a whole number of at least 1",
        50,
        "live attempts without a new best",
    ),
    Variable(
        "EMMY_O3_TOL",
        "o3_tol",
        _fraction,
        "a number of at least 0",
        0.15,
        "share above the fastest within which a screened leaf is a finalist, and with EMMY_O1=1 is built in O3",
    ),
    Variable("EMMY_O1", "o1", _flag, "1 or 0", False, "screen in the cheap build, O1, where device and tier allow it"),
    Variable("EMMY_FAST_MATH", "fast_math", _flag, "1 or 0", False, "enumerate the fast-math lane as well"),
    Variable("EMMY_DEVICE", "device", str, "a device name", None, "device to use (default: a CUDA GPU, else OpenCL)"),
    Variable("EMMY_DUMP_DIR", "dump_dir", _path, "a folder path", None, "folder for kernels and reproducers"),
    Variable("EMMY_DEBUG", "debug", _flag, "1 or 0", False, "show tracebacks"),
)
"""The only source of defaults. A variable set to the empty text counts as not set (a family's pin does not)."""

_FAMILY_VARIABLES = {f"EMMY_{family}": family for family in FAMILIES}


def load(environ: Mapping[str, str] | None = None, **flags: Any) -> Settings:
    """The settings of this process. `flags` are `Settings` fields given on the command line; None means not given.

    Raises InputError naming the variable, what it held and what it may hold.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {variable.field: _value(variable, environ) for variable in VARIABLES}
    values["family_pins"] = tuple(
        (family, environ[name]) for name, family in _FAMILY_VARIABLES.items() if name in environ
    )
    unknown = flags.keys() - values.keys()
    if unknown:
        raise TypeError(f"no such setting: {', '.join(sorted(unknown))}")
    values.update((field, value) for field, value in flags.items() if value is not None)
    if values["tune_db"] is None:
        values["tune_db"] = default_work_dir() / "emmy.duckdb"
    if values["online_file"] is None:
        values["online_file"] = values["tune_db"].parent / "online.cbm"
    return Settings(**values)


def _value(variable: Variable, environ: Mapping[str, str]) -> Any:
    text = environ.get(variable.name, "").strip()
    if not text:
        return variable.default
    try:
        return variable.parse(text)
    except ValueError:
        raise InputError(
            f"environment variable {variable.name}", found=repr(text), expected=variable.expected
        ) from None


def debug_requested(environ: Mapping[str, str] | None = None) -> bool:
    """Whether EMMY_DEBUG is on; never raises, since error messages depend on it."""
    environ = os.environ if environ is None else environ
    return _FLAGS.get(environ.get("EMMY_DEBUG", "").strip().lower(), False)


def unread_variables(environ: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """(name, nearest known name) of every EMMY_* variable that is not read but looks like one that is."""
    from difflib import get_close_matches

    environ = os.environ if environ is None else environ
    known = [variable.name for variable in VARIABLES] + list(_FAMILY_VARIABLES)
    strangers = sorted(name for name in environ if name.startswith("EMMY_") and name not in known)
    return [(name, near[0]) for name in strangers if (near := get_close_matches(name, known, n=1, cutoff=0.8))]
