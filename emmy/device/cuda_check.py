"""Results compared where they are: on the GPU, so that outputs and inputs of a gigabyte need not come back a leaf.

Only whether a result is right is decided here. What is not right is downloaded and compared on the host
(``emmy.bench.check``), which says where and by how much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emmy.bench.check import LARGEST
from emmy.errors import CompileFailed

if TYPE_CHECKING:
    from emmy.device.cuda import Buffer, CudaDevice

TYPES = {"f32": "float", "f16": "__half", "bf16": "__nv_bfloat16", "f64": "double"}
POISON = {True: 0xFF, False: 0xA5}
"""Byte that outputs are filled with: a NaN of every float type, and for others what ``sentinel`` writes."""

_CHECK = """
extern "C" __global__ void check_{name}(const {type}* out, const double* ref, const float* scale, long long n,
                                        double element, double largest, double* sums, unsigned long long* wrong) {{
  double error = 0.0, norm = 0.0;
  unsigned long long bad = 0;
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {{
    double r = ref[i];
    const double g = (double){read};
    double d = g - r;
    if (!isfinite(d)) {{
      const bool over = isinf(g) && fabs(r) * (1.0 + element) >= largest && (g > 0.0) == (r > 0.0);
      const bool same = g == r || (isnan(g) && isnan(r)) || over;
      if (!same && !(isfinite(g) && isfinite(r))) bad++;
      d = 0.0;
      if (!isfinite(r) || over) r = 0.0;
    }}
    error += d * d;
    norm += r * r;
    if (scale != nullptr && fabs(d) > (double)scale[i] * element) bad++;
  }}
  for (int lane = 16; lane > 0; lane /= 2) {{
    error += __shfl_down_sync(0xffffffffu, error, lane);
    norm += __shfl_down_sync(0xffffffffu, norm, lane);
    bad += __shfl_down_sync(0xffffffffu, bad, lane);
  }}
  if (threadIdx.x % 32 == 0) {{
    atomicAdd(sums, error);
    atomicAdd(sums + 1, norm);
    if (bad) atomicAdd(wrong, bad);
  }}
}}
"""

_SUM = """
extern "C" __global__ void checksum(const unsigned char* bytes, long long n, unsigned long long* total) {
  unsigned long long sum = 0;
  const long long step = (long long)gridDim.x * blockDim.x, words = n / 8;
  const unsigned long long* x = (const unsigned long long*)bytes;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < words + n % 8; i += step) {
    unsigned long long h = i < words ? x[i] : bytes[8 * words + (i - words)];
    h = (h ^ (unsigned long long)i * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
    h = (h ^ (h >> 31)) * 0x94d049bb133111ebull;
    sum += h ^ (h >> 29);
  }
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_down_sync(0xffffffffu, sum, lane);
  if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}
"""

_THREADS = 256


def source() -> str:
    """All kernels of this module."""
    reads = {"f32": "out[i]", "f64": "out[i]", "f16": "__half2float(out[i])", "bf16": "__bfloat162float(out[i])"}
    checks = [_CHECK.format(name=name, type=kind, read=reads[name]) for name, kind in TYPES.items()]
    return "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n" + "".join(checks) + _SUM


class CudaChecker:
    """Comparisons on one device. Scratch memory of three numbers; all calls wait for their answer."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.cp = device.cp
        binary = device.binaries.compile(source(), device.caps.arch, ())
        if binary.error:
            raise CompileFailed("the kernels that compare results do not compile", log=binary.log)
        with device.calls("the kernels that compare results cannot be loaded"):
            self.module = self.cp.cuda.Module()
            self.module.load(binary.cubin)
        self.scratch = device.alloc(24)

    def poison(self, buffer: Buffer, is_float: bool) -> None:
        """Fills a buffer with what no kernel computes."""
        if buffer.nbytes:
            value, stream = POISON[is_float], self.device.stream.ptr
            with self.device.calls("filling an output failed"):
                self.cp.cuda.runtime.memsetAsync(buffer.pointer, value, buffer.nbytes, stream)

    def checksum(self, buffer: Buffer) -> int:
        """64 bits that change when any bit of the buffer does (but for one chance in 2^64)."""
        self._launch("checksum", buffer.nbytes // 8 + 8, np.uint64(buffer.pointer), np.int64(buffer.nbytes),
                     np.uint64(self.scratch.pointer))  # fmt: skip
        return int(self._answer()[0])

    def right(self, out: Buffer, reference: Buffer, scale: Buffer | None, dtype: str, norm: float, element: float,
              count: int) -> float | None:  # fmt: skip
        """The relative error by norm of a right result, None for a wrong one. References are float64, scales f32."""
        scratch = self.scratch.pointer
        self._launch(f"check_{dtype}", count, np.uint64(out.pointer), np.uint64(reference.pointer),
                     np.uint64(scale.pointer if scale is not None else 0), np.int64(count), np.float64(element),
                     np.float64(LARGEST[dtype]), np.uint64(scratch), np.uint64(scratch + 16))  # fmt: skip
        answer = self._answer()
        error2, norm2 = (float(value) for value in answer[:2].view(np.float64))
        relative = float(np.sqrt(error2 / norm2)) if norm2 > 0 else float(np.sqrt(error2))
        return relative if answer[2] == 0 and relative <= norm else None

    def _launch(self, name: str, items: int, *arguments: Any) -> None:
        blocks = max(1, min(-(-items // _THREADS), 16 * self.device.caps.units))
        with self.device.calls("results cannot be compared on the device"):
            self.cp.cuda.runtime.memsetAsync(self.scratch.pointer, 0, 24, self.device.stream.ptr)
            function = self.module.get_function(name)
            function((blocks, 1, 1), (_THREADS, 1, 1), arguments, stream=self.device.stream)

    def _answer(self) -> np.ndarray:
        answer = np.empty(3, np.uint64)
        self.device.download(self.scratch, answer)
        return answer
