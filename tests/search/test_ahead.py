"""Leaves prepared by processes are the leaves that this process would have made."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Timer

import pytest

from emmy.device.binaries import BinaryCache
from emmy.device.cuda_targets import cuda_target
from emmy.errors import CompileFailed, TimedOut
from emmy.ir.nest import Region
from emmy.schedule.knobs import KnobMap
from emmy.schedule.space import enumerate_space
from emmy.search.ahead import Prepared, Preparer, Ticket, prepare
from emmy.search.variant import Variant, knobs_text
from tests.codegen.compilers import require_nvrtc
from tests.passes import plans

CAPS = cuda_target("sm_90a")


@pytest.fixture(scope="module")
def region() -> Region:
    return plans.softmax(64, 256)


@pytest.fixture(scope="module")
def preparer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Preparer]:
    with Preparer(CAPS, tmp_path_factory.mktemp("cuda"), 1) as preparer:
        yield preparer


def test_a_prepared_leaf_equals_the_one_made_here_and_is_compiled(region: Region, preparer: Preparer) -> None:
    require_nvrtc()
    space = enumerate_space(region, CAPS)
    for leaf in (0, len(space) // 2):
        knobs = space.knobs(leaf)
        found = preparer.result(preparer.submit(region, knobs), 120).variant(region, CAPS, knobs)
        assert found is not None
        here = Variant(region, CAPS, knobs, space.lower(leaf))
        assert found.digest == here.digest
        assert found.artefact == here.artefact
        assert found.plan == here.plan
        assert found.lane == here.lane
    assert preparer.cache is not None
    assert len(list(preparer.cache.glob("*.cubin"))) >= 2


def test_the_cache_has_what_the_device_will_ask_for(region: Region, tmp_path: Path) -> None:
    require_nvrtc()
    from emmy.codegen.nvrtc import nvrtc_version
    from emmy.device.cuda import compile_options

    knobs = enumerate_space(region, CAPS).knobs(0)
    for regime in ("O1", "O3"):
        done = prepare(pickle.dumps(region), CAPS, knobs_text(knobs), tmp_path, regime)
        assert done.artefact is not None
        (kernel,) = done.artefact.kernels
        compiler = "nvrtc {}.{}".format(*nvrtc_version())
        key = BinaryCache.key(kernel.source, CAPS.arch, compile_options(done.artefact.options, regime), compiler)
        held = BinaryCache(tmp_path).get(key)
        assert held is not None
        assert not held.error


def test_a_leaf_that_does_not_lower_says_why(region: Region, preparer: Preparer) -> None:
    done = preparer.result(preparer.submit(region, KnobMap.parse("TILE=n16x8/f2x4/k8")), 120)
    assert done.error.startswith("refused by")
    assert done.variant(region, CAPS, KnobMap()) is None


def test_a_deadline_kills_and_other_leaves_start_again(region: Region, preparer: Preparer) -> None:
    knobs = enumerate_space(region, CAPS).knobs(0)
    preparer.close()
    late, other = preparer.submit(region, knobs), preparer.submit(region, knobs)
    with pytest.raises(CompileFailed, match=r"deadline of 0.01 s"):
        preparer.result(late, 0.01)
    assert preparer.result(other, 120).artefact is not None


def test_a_leaf_whose_process_was_killed_is_prepared_again(region: Region, preparer: Preparer) -> None:
    knobs = enumerate_space(region, CAPS).knobs(0)
    preparer.result(preparer.submit(region, knobs), 120)
    assert preparer._pool is not None
    for process in preparer._pool._processes.values():
        process.kill()
    assert preparer.result(preparer.submit(region, knobs), 120).artefact is not None


def test_a_leaf_that_kills_its_process_fails_alone(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    with Preparer(CAPS, None, 1) as preparer:
        knobs = enumerate_space(region, CAPS).knobs(0)
        ticket = preparer.submit(region, knobs)
        monkeypatch.setattr(preparer, "_submit", lambda *_: preparer._started().submit(os._exit, 3))
        ticket.future = preparer._submit(region, knobs, "O3")
        with pytest.raises(CompileFailed, match="died, also of this leaf alone"):
            preparer.result(ticket, 120)


def test_leaves_of_dead_processes_leave_the_new_ones_alone(region: Region) -> None:
    knobs = enumerate_space(region, CAPS).knobs(0)
    with Preparer(CAPS, None, 1) as preparer:
        lost = [preparer.submit(region, knobs) for _ in range(2)]
        preparer.close()
        later = preparer.submit(region, knobs)
        pool = preparer._pool
        for ticket in (*lost, later):
            assert preparer.result(ticket, 120).artefact is not None
        assert preparer._pool is pool


def test_a_leaf_that_killed_its_processes_is_not_left_with_the_next(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    knobs = enumerate_space(region, CAPS).knobs(0)
    with Preparer(CAPS, None, 1) as preparer:
        with monkeypatch.context() as patch:
            patch.setattr(preparer, "_submit", lambda *_: preparer._started().submit(os._exit, 3))
            deadly = preparer.submit(region, knobs)
            with pytest.raises(CompileFailed, match="died"):
                preparer.result(deadly, 120)
        next_one = preparer.submit(region, knobs)
        assert next_one.future.result(120).artefact is not None


def test_what_is_done_first_is_taken_first(region: Region, preparer: Preparer) -> None:
    def under_way(done: bool) -> Ticket:
        future: Future[Prepared] = Future()
        if done:
            future.set_result(Prepared(None, "done"))
        return Ticket(region, KnobMap(), "O3", future)

    slow, quick, last = under_way(False), under_way(True), under_way(True)
    assert preparer.ready([slow, quick, last], 120) == 1
    Timer(0.05, lambda: slow.future.set_result(Prepared(None, "late"))).start()
    assert preparer.ready([slow], 120) == 0
    assert slow.future.done()


def test_a_leaf_that_hangs_is_given_up_while_others_are_done(region: Region, preparer: Preparer) -> None:
    hanging: Future[Prepared] = Future()
    assert hanging.set_running_or_notify_cancel()
    late = Ticket(region, KnobMap(), "O3", hanging)
    waiting, done = (Ticket(region, KnobMap(), "O3", Future()) for _ in range(2))
    done.future.set_result(Prepared(None, "done"))
    assert preparer.ready([waiting, late, done], 0.05) == 2, "a deadline counts from when a process has the leaf"
    assert preparer.ready([waiting, late], 0.05) == 1
    assert preparer.ready([late, done], 0.05) == 0, "a leaf that hangs is told before more are measured"
    with pytest.raises(TimedOut, match="its deadline"):
        preparer.result(late, 0.05)
