"""What a sweep is going to do, settled before anything is measured."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from emmy import config
from emmy.bench.protocol import ROUNDS
from emmy.bench.stats import Thresholds
from emmy.errors import InputError
from emmy.files import check_folder
from emmy.goldens.dataset import shape as golden_shape
from emmy.goldens.schema import goldens_by_name
from emmy.pipeline import Workspace, golden_targets, open_workspace
from emmy.priors.choose import offline_file
from tasks.keys import SweepRun, code_version, file_digest

QUICK_PATIENCE = 12
"""Patience of the quick group where nobody says otherwise: a sweep of ten shapes is to end within five minutes."""

QUICK_LOOKS = 2
"""Looks of the quick group: on two busy cores (2026-11-30) a third, 8 s a shape, decided next to nothing."""

QUICK_ROUNDS = 3
"""Rounds a process of the quick group's A/Bs. The interval comes from process means."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of the outcome table: a shape in the standard or the fast-math lane."""

    shape: str
    lane: str = "std"

    def __str__(self) -> str:
        return self.shape if self.lane == "std" else f"{self.shape} [{self.lane}]"


@dataclass(frozen=True, slots=True)
class Plan:
    """The shapes, the workspace and the rules of one sweep. started: when the flow run began."""

    work: Workspace
    names: tuple[str, ...]
    thresholds: Thresholds
    rounds: int
    command: str
    entries: Mapping[str, list[dict[str, Any]]]
    started: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def lanes(self) -> list[Lane]:
        """Standard lane first; the fast-math lane as well where the enumeration is open to it."""
        kinds = ("std", "fm") if self.work.settings.fast_math else ("std",)
        return [Lane(name, kind) for kind in kinds for name in self.names]

    def goldens(self, shape: str) -> list[dict[str, Any]]:
        """The recorded entries of a shape as JSON."""
        return self.entries[shape]

    def run(self, sweep: str) -> dict[str, Any]:
        """What every number of the sweep depends on besides its shape."""
        settings, caps = self.work.settings, self.work.caps
        pins = ",".join([settings.knobs, *(f"{family}={text}" for family, text in settings.family_pins)])
        return SweepRun(
            sweep, caps.name, caps.driver, caps.compiler, code_version(), settings.patience, settings.o3_tol,
            settings.o1, settings.fast_math, pins, file_digest(offline_file(settings)),
            json.dumps(asdict(self.thresholds) | {"rounds": self.rounds}),
        ).to_json()  # fmt: skip

    def folder(self, sweep: str) -> Path:
        """Where the sweep's patch and a copy of its report go."""
        return self.work.folder / sweep


def plan_of(
    group: str | None, kernel: str | None, patience: int | None, reconfirm: int, device: str | None,
    plans_dir: str | None = None,
) -> Plan:  # fmt: skip
    """Checks all that a sweep is given. plans_dir: where its report goes (default: plans/).

    Raises InputError, GoldenSchemaError, StoreError, MissingPrerequisite.
    """
    if patience is not None and patience < 1:
        raise InputError("--patience", found=patience, expected="a whole number of at least 1")
    if reconfirm < 0:
        raise InputError("--reconfirm", found=reconfirm, expected="a whole number, 0 for none")
    given = patience is not None or bool(os.environ.get("EMMY_PATIENCE", "").strip())
    check_folder("--plans-dir", Path(plans_dir) if plans_dir else config.plans_dir())
    work = open_workspace(config.load(patience=patience, device=device))
    quick = (group or ("quick" if work.caps.kind == "cpu" else "")) == "quick"
    if quick and not given:
        work = open_workspace(config.load(patience=QUICK_PATIENCE, device=device))
    names = tuple(target.value for target in golden_targets(work.caps, (group,) if group else (), kernel))
    entries = {name: [entry.to_json() for entry in goldens_by_name(name, work.caps.name)] for name in names}
    rules, rounds = Thresholds(reconfirm=reconfirm), ROUNDS
    if quick:
        rules, rounds = replace(rules, looks=QUICK_LOOKS), QUICK_ROUNDS
    command = command_of(group, kernel, patience, reconfirm, device)
    return Plan(work, names, rules, rounds, command, entries)


def command_of(group: str | None, kernel: str | None, patience: int | None, reconfirm: int, device: str | None) -> str:
    """The command line that does what these parameters do, EMMY_* variables in front."""
    variables = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("EMMY_") and value]
    flags = [("--group", group), ("--kernel", kernel), ("--patience", patience), ("--device", device)]
    words = [f"{flag} {value}" for flag, value in flags if value is not None]
    words += [f"--reconfirm {reconfirm}"] if reconfirm != Thresholds().reconfirm else []
    return " ".join([*variables, "python -m flows.golden_sweep", *words])


def warnings(plan: Plan) -> list[str]:
    """What is known to lose winners in these settings."""
    from emmy.cli.tuning import warnings_of

    return warnings_of(plan.work.settings.patience, plan.work.settings.o3_tol)


def dims_of(shape: str) -> str:
    return golden_shape(shape).dims_text
