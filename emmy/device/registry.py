"""Devices by name: capabilities for everyone, open devices for the bench worker."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from emmy.config import default_work_dir
from emmy.device.base import Capabilities, Device
from emmy.device.cuda_targets import TARGETS, cuda_target
from emmy.errors import InputError

NAMES = ("auto", "cuda", "opencl")


def capabilities(name: str | None = None, work_dir: Path | None = None) -> Capabilities:
    """Capabilities of a device or compile target, without opening it here.

    ``auto`` or None: a CUDA GPU where one is, else OpenCL. A target (``sm_90a``, …) answers on any machine.
    ``work_dir`` holds the probe's cached answer. Raises InputError for an unknown name, MissingPrerequisite with what
    to install.
    """
    name = resolve(name)
    if name in TARGETS:
        return cuda_target(name)
    if name == "cuda":
        from emmy.device.probe import cuda_capabilities

        return cuda_capabilities()
    from emmy.device.probe import opencl_capabilities

    return opencl_capabilities(work_dir or default_work_dir())


def resolve(name: str | None) -> str:
    """The device name ``open_device`` takes, or a compile target. Raises InputError for an unknown one."""
    if name is None or name == "auto":
        return "cuda" if has_cuda_gpu() else "opencl"
    if name not in NAMES and name not in TARGETS:
        raise InputError("device", found=repr(name), expected=", ".join((*NAMES, *TARGETS)))
    return name


def has_cuda_gpu() -> bool:
    """Whether the NVIDIA driver's own tool lists a GPU; no context is created."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    try:
        listed = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and listed.stdout.startswith("GPU ")


def open_device(name: str) -> Device:
    """Opens a device; in the bench worker only, since it creates a context. Raises MissingPrerequisite."""
    if name == "opencl":
        from emmy.device.opencl import OpenCLDevice

        return OpenCLDevice()
    if name == "cuda":
        from emmy.device.cuda import CudaDevice

        return CudaDevice()
    raise InputError("device", found=repr(name), expected="opencl or cuda")
