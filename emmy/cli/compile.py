"""``emmy compile``: print a program as one of its IRs, for this machine's device or for a named target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from emmy import config
from emmy.cli.common import device_option, dump_dir_option, target_options
from emmy.errors import InputError
from emmy.target import Target

if TYPE_CHECKING:
    from emmy.bench.artefact import KernelSpec
    from emmy.codegen.nvrtc import NvrtcResult
    from emmy.pipeline import Job, Workspace
    from emmy.search.pick import Pick

IRS = ("graph", "nest", "schedule", "kernel", "opencl", "cuda", "ptx", "sass")


@click.command(help="Compile a program and print one of its IRs.")
@click.option("--ir", "ir", type=click.Choice(IRS), help="What to print (default: the device's own language).")
@click.option("--target", "arch", metavar="ARCH", help="Compile for this architecture (sm_90a, …); no GPU is needed.")
@device_option
@dump_dir_option
@target_options(ir_option=False)
def command(target: Target, ir: str | None, arch: str | None, device: str | None, dump_dir: Path | None) -> int:
    if arch is not None and device is not None:
        raise InputError("--target beside --device", expected="one of them")
    settings = config.load(device=device, dump_dir=dump_dir)
    if arch is not None:
        from emmy.device.cuda_targets import cuda_target

        cuda_target(arch)
    if arch is None and ir in ("cuda", "ptx", "sass"):
        from emmy.device.registry import has_cuda_gpu

        if not has_cuda_gpu():
            raise InputError(f"--ir {ir}", found="no CUDA GPU and no --target", expected="--target sm_90a or the like")

    from emmy.cli.tuning import dump
    from emmy.pipeline import open_job, open_workspace

    work = open_workspace(settings, target=arch, measures=False)
    if ir in ("opencl", "cuda") and ir != work.caps.language:
        raise InputError(
            f"--ir {ir}",
            found=f"{work.caps.name}, which is programmed in {work.caps.language}",
            expected=f"--ir {work.caps.language}, or another --device or --target",
        )
    job = open_job(target)
    click.echo(_printers()[ir or work.caps.language](work, job), nl=False)
    if settings.dump_dir is not None:
        dump(work, job, settings.dump_dir, lambda text: click.echo(text, err=True))
    return 0


def _printers() -> dict[str, Callable[[Workspace, Job], str]]:
    return {
        "graph": _graph,
        "nest": _nest,
        "schedule": _schedule,
        "kernel": _kernel,
        "opencl": _source,
        "cuda": _source,
        "ptx": _ptx,
        "sass": _sass,
    }


def _graph(work: Workspace, job: Job) -> str:
    from emmy.ir.graph import text

    return text(job.traced.graph)


def _nest(work: Workspace, job: Job) -> str:
    from emmy.ir.nest import text

    return "\n".join(text(region) for region in job.regions)


def picks(work: Workspace, job: Job) -> tuple[Pick, ...]:
    """The greedy pick of each region, under the variables' pin; what decided each goes to standard error."""
    from emmy.comparison import greedy_picks
    from emmy.schedule.pins import environment_pin

    found = greedy_picks(job, work.picker(), environment_pin(work.settings))
    for pick in found:
        click.echo(f"{pick.variant.region.name}: {pick.source} pick; {pick.about}", err=True)
    return found


def _schedule(work: Workspace, job: Job) -> str:
    from emmy.ir.plan import text
    from emmy.search.structure import cuts

    parts = []
    for pick in picks(work, job):
        region = pick.variant.region
        space = work.picker().space(region)
        parts.append(f"{region.name}: {len(space)} leaves on {work.caps.name}")
        parts += [f"  {part.tier.name}: {len(part)} leaves" for part in space.parts]
        parts += [f"  {tier}: declined, {reason}" for tier, reason in space.declined.items()]
        parts += [f"  FUSE={cut.fuse}: {', '.join(cut.steps)}" for cut in cuts(region)]
        parts.append(text(pick.variant.plan))
    return "\n".join(parts)


def _kernel(work: Workspace, job: Job) -> str:
    from emmy.ir.kernel_print import text

    kernels = {launch.kernel.name: launch.kernel for pick in picks(work, job) for launch in pick.variant.plan.launches}
    return "\n".join(text(kernel) for kernel in kernels.values())


def _source(work: Workspace, job: Job) -> str:
    kernels = {kernel.name: kernel.source for pick in picks(work, job) for kernel in pick.variant.artefact.kernels}
    return "\n".join(kernels.values())


def _built(work: Workspace, job: Job, ir: str) -> Iterator[tuple[KernelSpec, NvrtcResult]]:
    """Every kernel of the picks as the CUDA device builds it to deploy."""
    from emmy.codegen.nvrtc import compile_cuda, need_architecture
    from emmy.device.cuda import compile_options

    _need_cuda(work, ir)
    need_architecture(work.caps.arch)
    artefacts = [pick.variant.artefact for pick in picks(work, job)]
    kernels = {kernel.name: (kernel, artefact.options) for artefact in artefacts for kernel in artefact.kernels}
    for kernel, options in kernels.values():
        yield kernel, compile_cuda(kernel.source, work.caps.arch, compile_options(options, "O3"))


def _ptx(work: Workspace, job: Job) -> str:
    return "\n".join(result.ptx for _, result in _built(work, job, "ptx"))


def _sass(work: Workspace, job: Job) -> str:
    from emmy.codegen.cubin import disassemble, find_tools, resources
    from emmy.device.cuda import warnings

    _need_cuda(work, "sass")
    find_tools("nvdisasm", "cuobjdump")
    parts = []
    for kernel, result in _built(work, job, "sass"):
        used = resources(result.cubin)[kernel.name]
        threads = kernel.block[0] * kernel.block[1]
        parts.append(
            f"// {kernel.name} for {work.caps.arch}: {used.registers} registers, "
            f"{used.stack_bytes + used.local_bytes} bytes spilled, {kernel.smem_bytes} bytes of shared memory, "
            f"{threads} threads\n"
        )
        parts += [f"// ptxas: {text}\n" for text in warnings(result.log)]
        parts.append(disassemble(result.cubin))
    return "".join(parts)


def _need_cuda(work: Workspace, ir: str) -> None:
    if work.caps.language != "cuda":
        raise InputError(f"--ir {ir}", found=f"the device {work.caps.name}", expected="--target sm_90a or the like")
