"""What stands in a CUBIN, read by NVIDIA's own tools; neither needs a GPU."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from emmy.errors import MissingPrerequisite

PACKAGES = {"cuobjdump": "nvidia-cuda-cuobjdump", "nvdisasm": "nvidia-cuda-nvdisasm"}
TOOLKIT = Path("/usr/local/cuda/bin")


@dataclass(frozen=True, slots=True)
class Resources:
    """Of one kernel: registers a thread; bytes of stack and of local memory a thread (spills live there); bytes of
    shared memory a block that the binary reserves, the system's own share (1 KiB from sm_90 on) included."""

    registers: int
    stack_bytes: int
    local_bytes: int
    shared_bytes: int


def find_tool(name: str) -> str:
    """A tool on the PATH, in NVIDIA's wheels or in the toolkit. Raises MissingPrerequisite naming the package."""
    return find_tools(name)[0]


def find_tools(*names: str) -> tuple[str, ...]:
    """Several tools. Raises MissingPrerequisite naming all that are missing, and their packages."""
    found = {name: shutil.which(name) or _packaged(name) or shutil.which(str(TOOLKIT / name)) for name in names}
    missing = [name for name in names if found[name] is None]
    if missing:
        raise MissingPrerequisite(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed",
            hint=f"pip install {' '.join(PACKAGES[name] for name in missing)}",
        )
    return tuple(path for path in found.values() if path is not None)


def resources(cubin: bytes) -> dict[str, Resources]:
    """By kernel name. Raises MissingPrerequisite where cuobjdump is missing or cannot read the binary."""
    return parse_resources(_run("cuobjdump", cubin, "--dump-resource-usage"))


def parse_resources(text: str) -> dict[str, Resources]:
    """From the output of ``cuobjdump --dump-resource-usage``."""
    found = {}
    for name, line in re.findall(r"^ *Function (\S+?):\s*\n\s*(REG:.*)$", text, re.MULTILINE):
        facts = {key: int(value) for key, value in re.findall(r"([A-Z]+):(\d+)", line)}
        found[name] = Resources(facts["REG"], facts.get("STACK", 0), facts.get("LOCAL", 0), facts.get("SHARED", 0))
    return found


def disassemble(cubin: bytes) -> str:
    """SASS. Raises MissingPrerequisite where nvdisasm is missing or cannot read the binary."""
    return _run("nvdisasm", cubin, "-c")


def _run(name: str, cubin: bytes, *flags: str) -> str:
    tool = find_tool(name)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, *flags, file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        words = " ".join((done.stderr or done.stdout).replace(file.name, "it").split()) or f"exit {done.returncode}"
        hint = f"its version may be older than NVRTC's: pip install --upgrade {PACKAGES[name]}"
        raise MissingPrerequisite(f"{name} cannot read the binary", found=words, hint=hint)
    return done.stdout


def _packaged(tool: str) -> str | None:
    """A tool that a wheel of NVIDIA's brought along."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(root).glob(f"*/bin/{tool}")):
            return str(path)
    return None
