"""What the OpenCL device of this machine is and can do at most, found out in a process of its own.

PoCL aborts the process that compiles where there is no linker or no libgcc, so neither the command line nor a worker
may be the first to try. The answer is kept in a small JSON, keyed by versions and processor: the machine's next probe
is a file read.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from emmy.device.base import Capabilities
from emmy.errors import FullDisk, MissingPrerequisite

VERSION = 1
"""Of the probe itself: in the key of its cached answer."""

DEADLINE_S = 120.0

_INSTALL = "install a C tool chain (Debian, Ubuntu: apt-get install gcc libc6-dev binutils)"

_CHAINS = 12
_STEPS = 4096


def _flops_kernel(lanes: int) -> str:
    """Multiply-adds in 12 independent chains: enough for the latency of 4 cycles, few enough for 16 registers.

    b + c is close to 1, so that no value becomes denormal or infinite.
    """
    vector, chains = f"float{lanes}", range(_CHAINS)
    start = " ".join(f"{vector} r{i} = ({vector})(get_global_id(0) + {i});" for i in chains)
    step = " ".join(f"r{i} = r{i} * b + c;" for i in chains)
    return f"""
__kernel void peak_flops{lanes}(__global {vector}* out, const float b, const float c) {{
  {start}
  for (int i = 0; i < {_STEPS}; i++) {{ {step} }}
  out[get_global_id(0)] = {" + ".join(f"r{i}" for i in chains)};
}}
"""


_STREAM = """
__kernel void peak_bytes(__global const float16* x, __global float16* out, const int n, const int passes) {
  float16 r0 = 0, r1 = 0, r2 = 0, r3 = 0;
  __global const float16* from = x + (long)get_group_id(0) * n;
  for (int pass = 0; pass < passes; pass++)
    for (int i = 0; i < n; i += 4) { r0 += from[i]; r1 += from[i + 1]; r2 += from[i + 2]; r3 += from[i + 3]; }
  out[get_group_id(0)] = r0 + r1 + r2 + r3;
}
"""


def opencl_capabilities(work_dir: Path) -> Capabilities:
    """Capabilities of this machine's OpenCL device, peaks measured; probed once and then read from ``work_dir``.

    Raises MissingPrerequisite, saying what to install, where PyOpenCL, a driver or the tool chain is missing.
    """
    key = _key()
    path = work_dir / "device-opencl.json"
    found = _cached(path, key)
    if found is not None:
        return found
    work_dir.mkdir(parents=True, exist_ok=True)
    with _locked(work_dir / "device-opencl.lock"):
        found = _cached(path, key)
        if found is not None:
            return found
        capabilities = run_probe(work_dir / "binaries" / "probe")
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(json.dumps({"key": key, "capabilities": capabilities.to_dict()}, indent=1))
        os.replace(fresh, path)
    return capabilities


def cuda_capabilities() -> Capabilities:
    """Capabilities of the first CUDA GPU, asked for in a process of its own: this one gets no context.

    Raises MissingPrerequisite: no driver, a driver older than the runtime, no GPU or too old a one, no CuPy, no NVRTC.
    """
    answer = _ask([sys.executable, "-m", "emmy.device.probe", "cuda"], dict(os.environ), "the CUDA device")
    if isinstance(answer, Capabilities):
        return answer
    raise MissingPrerequisite(f"the CUDA device cannot be used ({answer[0]})", found=answer[1],
                              hint="nvidia-smi tells whether the driver works")  # fmt: skip


def run_probe(cache_dir: Path, env: dict[str, str] | None = None) -> Capabilities:
    """Probes in a subprocess. Raises MissingPrerequisite."""
    from emmy.device.opencl import prepare_environment

    environ = dict(os.environ) if env is None else dict(env)
    cache_dir.mkdir(parents=True, exist_ok=True)
    prepare_environment(str(cache_dir), environ)
    answer = _ask([sys.executable, "-m", "emmy.device.probe"], environ, "the OpenCL device")
    if isinstance(answer, Capabilities):
        return answer
    ended, words = answer
    if "No space left on device" in words:
        raise FullDisk(cache_dir)
    missing = [tool for tool in ("cc", "ld") if shutil.which(tool, path=environ.get("PATH")) is None]
    cause = f"no {' and no '.join(missing)} on the PATH" if missing else words
    raise MissingPrerequisite(f"the OpenCL device cannot compile ({ended})", found=cause, hint=_INSTALL)


def _ask(command: list[str], environ: dict[str, str], what: str) -> Capabilities | tuple[str, str]:
    """The probe process's capabilities, or how it ended and its last words. Raises what the probe itself found."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=environ, check=False)
    except subprocess.TimeoutExpired:
        raise MissingPrerequisite(
            f"{what} does not answer", found=f"no end after {DEADLINE_S:g} s", hint="is the machine overloaded?"
        ) from None
    for line in reversed(done.stdout.splitlines()):
        if line.startswith('{"capabilities"'):
            return Capabilities.from_dict(json.loads(line)["capabilities"])
        if line.startswith('{"missing"'):
            told = json.loads(line)
            raise MissingPrerequisite(told["missing"], **told["facts"])
    words = " | ".join((done.stderr or done.stdout).strip().splitlines()[-4:]) or "no message"
    return f"exit code {done.returncode}" if done.returncode >= 0 else f"signal {-done.returncode}", words


def _key() -> str:
    versions = []
    for package in ("pyopencl", "pocl-binary-distribution", "pocl"):
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{package} none")
    parts = (str(VERSION), *versions, processor(), platform.machine(), str(os.cpu_count()))
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


def processor() -> str:
    """The processor's model name and flags, as the kernel tells them; empty where it does not."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags"))}))
    return platform.processor()


def _cached(path: Path, key: str) -> Capabilities | None:
    try:
        held = json.loads(path.read_text())
        return Capabilities.from_dict(held["capabilities"]) if held["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        # Nothing worth keeping stands in a file that cannot be read: it is written again.
        return None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def measure(device: Any) -> Capabilities:
    """Capabilities of an open OpenCL device with measured peaks.

    The best of many short runs: another process only slows, and a run of a millisecond often has the cores for itself.
    ``cache_bytes_s`` is read from blocks of 16 KiB, which live in a core's first-level cache.
    """
    caps: Capabilities = device.caps
    cl, queue, context = device.cl, device.queue, device.context
    import numpy as np

    program = cl.Program(context, _flops_kernel(8) + _flops_kernel(16) + _STREAM).build()
    items = 16 * caps.units

    def best(launch: Any, seconds: float) -> float:
        fastest, until = float("inf"), time.perf_counter() + seconds
        launch()
        while time.perf_counter() < until:
            started = time.perf_counter()
            launch()
            fastest = min(fastest, time.perf_counter() - started)
        return fastest

    out = cl.Buffer(context, cl.mem_flags.READ_WRITE, 64 * max(items, 4096))

    def flops(lanes: int) -> float:
        kernel = cl.Kernel(program, f"peak_flops{lanes}")
        kernel.set_args(out, np.float32(0.9999), np.float32(0.0001))

        def run() -> None:
            cl.enqueue_nd_range_kernel(queue, kernel, (items,), (1,))
            queue.finish()

        return float(items * _STEPS * _CHAINS * lanes * 2 / best(run, 0.3))

    def stream(block_bytes: int, groups: int, passes: int) -> float:
        source = cl.Buffer(context, cl.mem_flags.READ_WRITE, block_bytes * groups)
        cl.enqueue_fill_buffer(queue, source, np.ones(1, np.float32), 0, block_bytes * groups)
        kernel = cl.Kernel(program, "peak_bytes")
        kernel.set_args(source, out, np.int32(block_bytes // 64), np.int32(passes))

        def run() -> None:
            cl.enqueue_nd_range_kernel(queue, kernel, (groups,), (1,))
            queue.finish()

        rate = float(passes * block_bytes * groups / best(run, 0.3))
        source.release()
        return rate

    groups = 8 * caps.units
    memory = stream(max(4 * caps.llc_bytes, 64 << 20) // groups, groups, 1)
    cache = stream(16384, groups, 256)
    return replace(caps, peak_flops=max(flops(8), flops(16)), peak_bytes=memory, cache_bytes_s=max(cache, memory))


def main() -> None:
    try:
        if sys.argv[1:] == ["cuda"]:
            from emmy.device.cuda import CudaDevice

            caps = CudaDevice().caps
        else:
            from emmy.device.opencl import OpenCLDevice

            caps = measure(OpenCLDevice())
        answer: dict[str, Any] = {"capabilities": caps.to_dict()}
    except MissingPrerequisite as error:
        facts = {"found": error.found, "expected": error.expected, "hint": error.hint}
        answer = {"missing": error.message, "facts": facts}
    # PoCL's compiler may print; the answer is the last line that looks like one.
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
