"""Devices by name: capabilities for everyone, open devices for the bench worker."""

from __future__ import annotations

from emmy.device.base import Capabilities, Device
from emmy.errors import InputError, MissingPrerequisite


def open_device(name: str) -> Device:
    """Opens a device; in the bench worker only, since it creates a context. Raises MissingPrerequisite."""
    if name == "opencl":
        from emmy.device.opencl import OpenCLDevice

        return OpenCLDevice()
    if name == "cuda":
        raise MissingPrerequisite(
            "kernels cannot be run on a CUDA GPU yet", hint="compile for one with --target, or run on --device opencl"
        )
    raise InputError("device", found=repr(name), expected="opencl or cuda")
