"""A compilation that passes its deadline is ``timeout``, whoever was compiling."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from emmy.bench.jobs import Row
from emmy.bench.protocol import Bench
from emmy.bench.records import Status
from emmy.device.binaries import BinaryCache, CompilePool
from emmy.device.cuda_targets import cuda_target
from emmy.errors import CompileFailed, TimedOut
from emmy.schedule.space import enumerate_space
from emmy.search.ahead import Preparer
from tests.bench.hand import add, add_references
from tests.passes import plans

CAPS = cuda_target("sm_90a")
LATE = "compilation exceeded its deadline of 0.01 s"


def test_the_error_is_a_failed_compilation_with_a_status_of_its_own() -> None:
    error = pickle.loads(pickle.dumps(TimedOut("compilation", 60.0)))
    assert isinstance(error, CompileFailed)
    assert (Status(error.status), error.deadline_s, error.log) == (Status.TIMEOUT, 60.0, "")
    assert str(error) == "compilation exceeded its deadline of 60 s"
    assert Status(CompileFailed("x").status) == Status.COMPILE_FAILED


def test_the_pool_of_the_bench_says_so(tmp_path: Path) -> None:
    pool, job = CompilePool(BinaryCache(tmp_path), 1), ("source", "sm_80", ())
    pool.request([job])
    with pytest.raises(TimedOut, match=LATE):
        pool.wait(*job, 0.01)
    assert pool.pool is None


def test_the_preparer_says_so() -> None:
    region = plans.softmax(64, 256)
    with Preparer(CAPS, None, 1) as preparer:
        ticket = preparer.submit(region, enumerate_space(region, CAPS).knobs(0))
        with pytest.raises(TimedOut, match=LATE):
            preparer.result(ticket, 0.01)


@pytest.mark.parametrize("job", ["qualify", "screen"])
def test_a_row_that_was_compiled_ahead_too_slowly_is_a_timeout(tmp_path: Path, job: str) -> None:
    artefact, references = add("good", (4096,)), add_references(tmp_path, (4096,))
    bench = Bench("cuda", CAPS, tmp_path / "_tune", deadlines={"compile": 0.01})
    bench.build_ahead([Row("good", artefact)], references)
    reply = getattr(bench, job)(artefact, references)
    bench.__exit__()
    assert (reply.status, reply.error) == (Status.TIMEOUT, LATE)
