"""What a profiler watches: ``python -m emmy.bench.profiled JOB.json`` runs one plan and one PyTorch program once each.

The job holds a row, its reference data and a source, as a comparison's job does. The plan is compiled and checked
first; only the two runs at the end are between the profiler's start and stop, on buffers of the benched size.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from emmy.bench.jobs import ReferenceSet, Row, TorchSource
from emmy.bench.session import Session


def main(path: Path) -> int:
    import cupy
    import torch

    from emmy.bench.torch_rows import torch_row

    job = json.loads(path.read_text())
    row, refs = Row.from_json(job["row"]), ReferenceSet.from_json(job["refs"])
    session = Session("cuda", lambda phase: None)
    ready = session.qualified(row, refs)
    bounds, _ = session.bound_sets(row, refs, ready, "warm")
    source = TorchSource(**job["source"] | {"inputs": tuple(job["source"]["inputs"])})
    program = torch_row(source, refs, session.device, "warm")
    cupy.cuda.runtime.deviceSynchronize()
    cupy.cuda.runtime.profilerStart()
    session.device.run(bounds[0])
    with torch.inference_mode():
        program.function(*program.sets[0])
    torch.cuda.synchronize()
    cupy.cuda.runtime.profilerStop()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
