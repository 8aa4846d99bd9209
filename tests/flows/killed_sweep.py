"""A sweep in a process of its own, on the model of a device, slow enough to be killed in the middle."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import emmy.device.registry as registry
import flows.plan
from emmy import config
from emmy.bench.jobs import Reply
from emmy.pipeline import Workspace
from tests.flows.model_bench import CAPS, ModelBench


class SlowBench(ModelBench):
    def screen(self, *args: Any, **options: Any) -> Reply:
        time.sleep(0.3)
        reply = super().screen(*args, **options)
        print("screened", self.asked[-1][1], flush=True)
        return reply


def main(folder: str) -> None:
    from flows.golden_sweep import golden_sweep

    model = SlowBench()
    config.goldens_dir = lambda: Path(folder) / "goldens"  # type: ignore[assignment]
    config.plans_dir = lambda: Path(folder) / "plans"  # type: ignore[assignment]
    registry.capabilities = lambda *_: CAPS  # type: ignore[assignment]
    registry.resolve = lambda *_: "opencl"  # type: ignore[assignment]
    Workspace.bench = lambda _, sweep: model.open(sweep)  # type: ignore[assignment,method-assign]
    flows.plan.code_version = lambda: "as of this test"
    golden_sweep(kernel="quick.matmul", patience=3)


if __name__ == "__main__":
    main(sys.argv[1])
