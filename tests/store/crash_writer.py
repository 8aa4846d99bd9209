"""The process that the crash tests kill: measures a recording's leaves into a store, skipping what is stored.

Says ``started``, and ``row`` for each row that it appended.

Usage: crash_writer.py STORE RECORDING SWEEP FIRST STEP
"""

import sys
from pathlib import Path

from emmy.bench.records import SCREEN, Measurement
from emmy.device.replay import ReplayBench
from emmy.store import Store

FOLD_EVERY = 40


def main(path: str, recording: str, sweep: str, first: str, step: str) -> None:
    store, bench = Store(Path(path)), ReplayBench(Path(recording))
    print("started", flush=True)
    for place, leaf in enumerate(bench.leaves()[int(first) :: int(step)]):
        planned = Measurement(leaf.region, bench.device, "1", "2", "k_matmul", leaf.knobs, "std", "O3", SCREEN.label,
                              f"digest of {leaf.knobs}", sweep, bench.screen(leaf).status)  # fmt: skip
        if store.lookup(planned.key) is None:
            store.append(_filled(planned, bench, leaf))
            print("row", flush=True)
        if place % FOLD_EVERY == FOLD_EVERY - 1:
            store.fold()
    store.fold()


def _filled(planned: Measurement, bench: ReplayBench, leaf: object) -> Measurement:
    from dataclasses import replace

    reply = bench.screen(leaf)  # type: ignore[arg-type]
    return replace(planned, median_us=reply.median_us, low_us=reply.low_us, high_us=reply.high_us,
                   samples=reply.samples, error=reply.error)  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
