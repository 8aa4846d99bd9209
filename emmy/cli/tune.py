"""``emmy tune``: search the schedules of a golden, snippet or reproducer, and record what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from emmy import config
from emmy.cli.common import (
    PositiveInt,
    device_option,
    dump_dir_option,
    group_option,
    kernel_option,
    patience_option,
    target_options,
)
from emmy.errors import InputError
from emmy.target import Target


@click.command(help="Search the schedules of a golden, snippet, model or reproducer.")
@click.option("--dataset", type=click.Choice(["golden"]), help="Tune every shape of the golden dataset.")
@group_option
@kernel_option
@click.option("--clean", is_flag=True, help="Start a new, cold sweep: forget this device's evidence, never goldens.")
@patience_option
@click.option("--gpus", type=PositiveInt(), metavar="N", help="How many GPUs to tune on: 1; more are refused.")
@click.option("--devices", metavar="I,J", help="The GPU by its number: 0; CUDA_VISIBLE_DEVICES chooses another.")
@click.option("--bench", "then_bench", is_flag=True, help="Bench each shape against PyTorch afterwards.")
@device_option
@dump_dir_option
@target_options(required=False, ir_option=False)
def command(
    target: Target | None,
    dataset: str | None,
    groups: tuple[str, ...],
    kernel: str | None,
    clean: bool,
    patience: int | None,
    gpus: int | None,
    devices: str | None,
    then_bench: bool,
    device: str | None,
    dump_dir: Path | None,
) -> int:
    if (target is None) == (dataset is None):
        found = "neither" if target is None else "both"
        raise InputError(
            "tune",
            found=f"{found} --dataset and a target",
            expected="--dataset golden, or one target",
            hint="for example emmy tune --golden quick.matmul.256",
        )
    if target is not None and (groups or kernel):
        raise InputError(
            "--group" if groups else "--kernel", found="a single target", expected="--dataset golden beside it"
        )
    settings = config.load(patience=patience, device=device, dump_dir=dump_dir)

    from emmy.cli.tuning import run_tune
    from emmy.pipeline import golden_targets, open_workspace

    work = open_workspace(settings)
    _check_gpus(work.caps, gpus, devices)
    targets = (target,) if target is not None else golden_targets(work.caps, groups, kernel)
    if not targets:
        found = f"no shape with {kernel!r} in its name" if kernel else "no shape"
        where = f"the groups {', '.join(groups)}" if groups else f"the default of {work.caps.name}"
        raise InputError("--dataset golden", found=f"{found} in {where}", hint="emmy golden list shows all of them")
    return run_tune(work, targets, clean=clean, then_bench=then_bench)


def _check_gpus(caps: Any, gpus: int | None, devices: str | None) -> None:
    """Raises InputError for more than one device, and for another than the first."""
    numbers = [part.strip() for part in devices.split(",")] if devices is not None else ["0"]
    for flag, wanted in (("--gpus", gpus or 1), ("--devices", len(numbers))):
        if wanted > 1:
            have = "a CPU device" if caps.kind == "cpu" else "one GPU a command"
            raise InputError(flag, found=f"{wanted} devices on {caps.name}, {have}", expected="1")
    if numbers != ["0"]:
        other = numbers[0] if caps.kind == "gpu" and numbers[0].isdecimal() else None
        raise InputError(
            "--devices", found=devices, expected="0", hint=f"CUDA_VISIBLE_DEVICES={other} chooses it" if other else None
        )
