"""``emmy run``: compile, run and check a program; ``--bench`` times it against its goldens, pins and PyTorch."""

from __future__ import annotations

from pathlib import Path

import click

from emmy import config
from emmy.cli.common import device_option, dump_dir_option, json_option, target_options, write_json
from emmy.errors import InputError
from emmy.target import Target


@click.command(help="Compile, run and check a program; --bench times it against others.")
@click.option("--bench", "bench_it", is_flag=True, help="Time greedy, goldens and --ab rows beside PyTorch.")
@click.option("--bench-backends", "backends", metavar="LIST", help="Of eager, tcompile, emmy (default: eager,emmy).")
@click.option("--ab", "ab", metavar="KNOBS", multiple=True, help="Bench these knobs too (repeatable).")
@click.option("--profile", is_flag=True, help="Profile emmy's kernels beside PyTorch's (CUDA).")
@json_option
@device_option
@dump_dir_option
@target_options()
def command(
    target: Target,
    bench_it: bool,
    backends: str | None,
    ab: tuple[str, ...],
    profile: bool,
    json_path: Path | None,
    device: str | None,
    dump_dir: Path | None,
) -> int:
    for flag, given in (("--ab", ab), ("--bench-backends", backends), ("--json", json_path)):
        if given and not bench_it:
            raise InputError(flag, found="no --bench", expected="--bench beside it")
    chosen = _backends(backends)
    settings = config.load(device=device, dump_dir=dump_dir)

    from emmy.cli.benching import bench_one, check_one
    from emmy.cli.profile import profile_one
    from emmy.cli.tuning import dump
    from emmy.pipeline import check_memory, open_job, open_workspace
    from emmy.schedule.pins import environment_pin, flag_pins

    pin, pins = environment_pin(settings), flag_pins(ab, settings)
    work = open_workspace(settings)
    if profile and work.caps.language != "cuda":
        raise InputError("--profile", found=f"the device {work.caps.name}", expected="a CUDA GPU, where ncu can count")
    job = open_job(target)
    check_memory(job, work.caps)
    if settings.dump_dir is not None:
        dump(work, job, settings.dump_dir, lambda text: click.echo(text, err=True))
    sweep = work.sweep()
    with work.bench(sweep) as bench:
        if not bench_it:
            code = check_one(work, job, bench, pin)
            return max(code, profile_one(work, job, pin, settings.dump_dir)) if profile else code
        quiet = json_path is not None and str(json_path) == "-"
        comparison = bench_one(work, job, bench, sweep, pins, pin, chosen, quiet=quiet)
    work.store.fold()
    if json_path is not None:
        write_json(json_path, comparison.to_json())
    code = 0 if comparison.ok else 1
    return max(code, profile_one(work, job, pin, settings.dump_dir)) if profile else code


def _backends(text: str | None) -> tuple[str, ...]:
    from emmy.comparison import BACKENDS

    names = tuple(part.strip() for part in (text or "eager,emmy").split(",") if part.strip())
    unknown = [name for name in names if name not in BACKENDS]
    if unknown or "emmy" not in names:
        raise InputError(
            "--bench-backends", found=text, expected="emmy and any of eager, tcompile, separated by commas"
        )
    return tuple(dict.fromkeys(names))
