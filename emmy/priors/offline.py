"""The offline prior: linear weights over the feature table, fitted by ``emmy fit`` and shipped as a JSON artefact."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emmy.errors import InputError
from emmy.files import write_text
from emmy.priors.base import Scores, checked
from emmy.priors.terms import Term, design, parse, spelled, table_digest

if TYPE_CHECKING:
    from emmy.schedule.space import Space

SCHEMA = 1
SHIPPED = Path(__file__).with_name("offline_weights.json")


@dataclass(frozen=True, slots=True)
class Provenance:
    """Which measurements a weight set comes from, and how well it ranked regions that it had not seen.

    date: day of the fit. devices, protocols, sweeps: of the rows. rows, regions: numbers of them. spearman,
    pick_regret: medians over regions, each predicted by a fit without it (None: could not be measured).
    penalty: the ridge penalty that was chosen.

    Of weights that were updated, rows and regions are added up over the fits (a region counts in each), and spearman
    and pick_regret are the update's: regions were left out of it, and may be among those of the weights it began with.
    """

    date: str
    devices: tuple[str, ...]
    protocols: tuple[str, ...]
    sweeps: tuple[str, ...]
    rows: int
    regions: int
    shapes: tuple[str, ...]
    spearman: float | None
    pick_regret: float | None
    penalty: float

    @property
    def line(self) -> str:
        rank = "unmeasured" if self.spearman is None else f"{self.spearman:.2f}"
        regret = "unmeasured" if self.pick_regret is None else f"{self.pick_regret:.2f}x"
        return (
            f"{self.rows} rows of {self.regions} regions on {', '.join(self.devices)}, {self.date}; "
            f"cross-validated rank correlation {rank}, pick regret {regret}"
        )


@dataclass(frozen=True, slots=True)
class WeightSet:
    """Linear weights: score = Σ weight · (term − mean) / scale, in ln(latency) up to a constant of the region."""

    terms: tuple[Term, ...]
    weights: tuple[float, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    digest: str
    provenance: Provenance

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(sorted({name for term in self.terms for name in term}))

    @property
    def current(self) -> bool:
        """Whether the features it weighs still mean what they meant at the fit."""
        return table_digest(self.features) == self.digest

    def scores(self, matrix: Any) -> Scores:
        standard = (design(matrix, self.terms) - np.array(self.means)) / np.array(self.scales)
        scores: Scores = standard @ np.array(self.weights)
        return scores

    def to_json(self) -> dict[str, Any]:
        rows = zip(self.terms, self.weights, self.means, self.scales, strict=True)
        from dataclasses import asdict

        return {
            "feature_table": self.digest,
            "provenance": asdict(self.provenance),
            "terms": {spelled(t): {"weight": w, "mean": m, "scale": s} for t, w, m, s in rows},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WeightSet:
        raw: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data["provenance"].items()}
        rows = data["terms"]
        return cls(
            tuple(parse(text) for text in rows),
            tuple(float(row["weight"]) for row in rows.values()),
            tuple(float(row["mean"]) for row in rows.values()),
            tuple(float(row["scale"]) for row in rows.values()),
            str(data["feature_table"]),
            Provenance(**raw),
        )


@dataclass(frozen=True, slots=True)
class OfflineArtefact:
    """The weight sets of one file: by device kind (``cpu``, ``gpu``) and ``weights`` or ``weights_dynamic``."""

    sets: Mapping[tuple[str, str], WeightSet] = field(default_factory=dict)

    def of(self, kind: str, dynamic: bool) -> WeightSet | None:
        """The set for a region; a symbolic region is ranked by the static set where there is no other."""
        if dynamic and (kind, "weights_dynamic") in self.sets:
            return self.sets[kind, "weights_dynamic"]
        return self.sets.get((kind, "weights"))

    def write(self, path: Path) -> None:
        """Writes the file as a whole or not at all."""
        kinds: dict[str, dict[str, Any]] = {}
        for (kind, name), weights in sorted(self.sets.items()):
            kinds.setdefault(kind, {})[name] = weights.to_json()
        write_text(path, json.dumps({"schema": SCHEMA, "kinds": kinds}, indent=1) + "\n")


def load_artefact(path: Path) -> OfflineArtefact:
    """Reads an artefact. Raises InputError for a file that is missing, no artefact, or of a newer schema."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        schema = data["schema"]
    except OSError as error:
        raise InputError("offline prior", found=f"{path}: {error.strerror}", expected="a file of emmy fit") from None
    except (ValueError, KeyError, TypeError):
        raise InputError("offline prior", found=f"{path}, not an artefact", expected="a file of emmy fit") from None
    if schema != SCHEMA:
        raise InputError(
            f"offline prior {path}",
            found=f"schema {schema}",
            expected=f"schema {SCHEMA}",
            hint="fit it again with emmy fit",
        )
    try:
        sets = {
            (kind, name): WeightSet.from_json(body)
            for kind, named in data["kinds"].items()
            for name, body in named.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError("offline prior", found=f"{path}: damaged ({error})", expected="a file of emmy fit") from None
    return OfflineArtefact(sets)


@dataclass(frozen=True, slots=True)
class OfflinePrior:
    """Ranks a space by the weight set of its device's kind and of whether its region is symbolic."""

    artefact: OfflineArtefact
    kind: str
    name: str = "offline"
    trusted: bool = True

    @property
    def about(self) -> str:
        return "; ".join(
            f"{name}: {weights.provenance.line}"
            for (kind, name), weights in sorted(self.artefact.sets.items())
            if kind == self.kind
        )

    def scores(self, space: Space) -> Scores:
        weights = self.artefact.of(self.kind, bool(space.region.symbols))
        if weights is None:
            raise InputError("offline prior", found="no weights", expected=f"weights for {self.kind} devices")
        return checked(weights.scores(space.features), space.features, self.name)
