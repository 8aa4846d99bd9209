"""What commands here need before anything is started: a CUDA GPU, a file that can be read.

Every command ends in ``emmy.cli.main.guarded``, which makes one line and an exit code of the errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from emmy.config import Settings
from emmy.errors import InputError, MissingPrerequisite

if TYPE_CHECKING:
    from emmy.device.base import Capabilities
    from emmy.pipeline import Workspace


def gpu(command: str) -> Capabilities:
    """Of the CUDA GPU, which a process of its own opens. Raises MissingPrerequisite."""
    from emmy.device.probe import cuda_capabilities

    with _told(command):
        return cuda_capabilities()


def gpu_workspace(command: str, settings: Settings) -> Workspace:
    """Of the CUDA GPU. Raises InputError for another device, MissingPrerequisite where the GPU cannot be used."""
    from emmy.device.registry import on_this_machine
    from emmy.pipeline import open_workspace

    device = on_this_machine(settings).device
    if device not in (None, "auto", "cuda"):
        raise InputError(f"benchmarks.{command}", found=f"the device {settings.device}", expected="a CUDA GPU")
    with _told(command):
        return open_workspace(replace(settings, device="cuda"))


@contextmanager
def _told(command: str) -> Iterator[None]:
    """Says which command needs the GPU; where there is none, no other device will do."""
    from emmy.device.registry import has_cuda_gpu

    try:
        yield
    except MissingPrerequisite as error:
        raise MissingPrerequisite(
            f"benchmarks.{command} needs a CUDA GPU: {error.message}",
            found=error.found,
            expected=error.expected,
            hint=error.hint if has_cuda_gpu() else "benchmarks/README.md says what runs without one",
        ) from error


def text_of(path: Path, expected: str) -> str:
    """The text of a file that the command line names. Raises InputError for one that cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}", found=error.strerror, expected=expected) from None
    except UnicodeDecodeError:
        raise InputError(f"cannot read {path}", found="bytes that are not UTF-8", expected=expected) from None
