"""``emmy fit``: fit the offline prior on the measurements of this device and write its artefact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from emmy import config
from emmy.cli.common import json_option, write_json
from emmy.device.registry import on_this_machine
from emmy.errors import InputError
from emmy.files import check_file

if TYPE_CHECKING:
    from emmy.config import Settings
    from emmy.device.base import Capabilities
    from emmy.ir.nest import Region
    from emmy.priors.fit import Fit

DYNAMIC = "weights_dynamic"
MIN_DYNAMIC = 4
"""Symbolic regions from which weights of their own are fitted; with fewer, those of all regions rank them better."""


@click.command(help="Fit the offline prior on real measurements.")
@click.option(
    "--out",
    metavar="F",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write here instead of the shipped artefact; compare with EMMY_OFFLINE_FILE before overwriting it.",
)
@click.option(
    "--update",
    is_flag=True,
    help="Start from the present weights of this kind of device: for rows of searches that they led.",
)
@json_option
@click.option(
    "--device",
    metavar="NAME",
    help="Whose measurements: auto, cuda, opencl, or a device's own name; a GPU's may have been brought here.",
)
def command(out: Path | None, update: bool, json_path: Path | None, device: str | None) -> int:
    settings = config.load(device=device)

    from emmy.priors.choose import offline_file
    from emmy.priors.fit import fit
    from emmy.priors.offline import SHIPPED, OfflineArtefact, load_artefact
    from emmy.search.training import training_rows
    from emmy.store import Store

    path = out or SHIPPED
    check_file("--out", path)
    store = Store(settings.tune_db)
    if not store.exists:
        raise InputError(
            "tune store",
            found=f"nothing at {store.path}",
            expected="measurements",
            hint="run emmy tune --dataset golden first",
        )
    caps = recorded_capabilities(settings)
    present = load_artefact(offline_file(settings)).sets if update else {}
    base, base_dynamic = (present.get((caps.kind, name)) for name in ("weights", DYNAMIC))
    if update and (base is None or not base.current):
        raise InputError("--update", found=f"no weights for a {caps.kind} that today's features can use",
                         expected="weights to start from", hint="fit without --update")  # fmt: skip
    names = {name for name in store.measurements(device=caps.name)["shape"] if name}
    training = training_rows(store, caps, golden_regions(names))
    click.echo(f"{training.used} rows of {len(training.data)} regions on {caps.name}")
    for reason, rows in sorted(training.unread.items()):
        click.echo(f"  not used: {rows} rows, {reason}")

    dynamic = [one for one in training.data if one.symbolic]
    fits = {"weights": fit(training.data, base=base)}
    if update and base_dynamic is None:
        click.echo("no weights of their own for symbolic regions, as in those that are updated")
    elif len(dynamic) >= MIN_DYNAMIC:
        fits[DYNAMIC] = fit(dynamic, base=base_dynamic)
    else:
        click.echo(f"no weights of their own for symbolic regions: {len(dynamic)} measured, {MIN_DYNAMIC} wanted")
    others = present or (load_artefact(path).sets if path.is_file() else {})
    sets = {key: weights for key, weights in others.items() if update or key[0] != caps.kind}
    sets |= {(caps.kind, name): one.weights for name, one in fits.items()}
    OfflineArtefact(sets).write(path)
    for name, one in fits.items():
        click.echo(f"\n{name}: {one.weights.provenance.line}")
        click.echo(report(one))
    click.echo(f"\nwrote {path}")
    if json_path is not None:
        write_json(json_path, {name: to_json(one) for name, one in fits.items()})
    return 0


def recorded_capabilities(settings: Settings) -> Capabilities:
    """A device of this machine, or a GPU by its own name whose measurements were brought here.

    Raises InputError for a name that is neither.
    """
    from emmy.device.cuda_targets import cuda_target, target_of_gpu
    from emmy.device.registry import capabilities

    arch = target_of_gpu(settings.device) if settings.device else None
    if arch and settings.device:
        return replace(cuda_target(arch), name=settings.device)
    return capabilities(on_this_machine(settings).device, settings.work_dir)


def golden_regions(names: set[str]) -> Iterator[tuple[str, Region]]:
    """(shape name, region) of the dataset's shapes that were measured."""
    from emmy.goldens.dataset import load_dataset
    from emmy.pipeline import open_job
    from emmy.target import Target, TargetKind

    for shape in load_dataset():
        if shape.name in names:
            job = open_job(Target(TargetKind.GOLDEN, shape.name))
            yield from ((shape.name, region) for region in job.regions)


def report(one: Fit) -> str:
    """Rank correlation and pick regret of each region, from a fit that has not seen its shape."""
    from emmy.evaluate.table import table

    rows = [
        (
            score.shape or score.region,
            str(score.rows),
            "-" if score.spearman is None else f"{score.spearman:.2f}",
            f"{score.pick_regret:.2f}x",
        )
        for score in sorted(one.scores, key=lambda score: (score.shape, score.region))
    ]
    return table(("left out", "rows", "rank correlation", "pick regret"), rows, right=(1, 2, 3))


def to_json(one: Fit) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "provenance": asdict(one.weights.provenance),
        "regions": [asdict(score) for score in one.scores],
    }
