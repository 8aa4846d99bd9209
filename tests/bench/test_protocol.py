"""The bench on the real device: a faster kernel measures faster, rows are interleaved, a failure stays in its row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from emmy.bench.jobs import Row, TorchSource
from emmy.bench.protocol import Bench
from emmy.bench.records import Status
from emmy.device.base import Capabilities
from emmy.device.registry import capabilities
from emmy.errors import FullDisk
from tests.bench.hand import add, add_references

N = 1 << 18
EAGER = TorchSource("def f(x0, x1):\n    return x0 + x1\n")


@pytest.fixture(scope="module")
def caps(tmp_path_factory: pytest.TempPathFactory) -> Capabilities:
    return capabilities("opencl", tmp_path_factory.mktemp("caps"))


@pytest.fixture(scope="module")
def bench(caps: Capabilities, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench("opencl", caps, tmp_path_factory.mktemp("bench")) as bench:
        yield bench


def test_screen_orders_a_fast_and_a_slow_kernel(bench: Bench, tmp_path: Path) -> None:
    refs = add_references(tmp_path, (N,))
    fast = bench.screen(add("good", (N,)), refs)
    slow = bench.screen(add("slow", (N,)), refs, best_us=fast.median_us)
    assert fast.status == slow.status == Status.OK, (fast, slow)
    assert fast.median_us is not None
    assert slow.median_us is not None
    assert slow.median_us > 5 * fast.median_us
    assert slow.abandoned
    assert not fast.abandoned
    assert fast.build_s > 0


def test_second_screen_of_a_row_does_not_build_again(bench: Bench, tmp_path: Path) -> None:
    refs = add_references(tmp_path, (N,))
    first = bench.screen(add("good", (N,)), refs)
    second = bench.screen(add("good", (N,)), refs)
    assert second.build_s == first.build_s
    assert second.wall_s < 3


def test_roofline_turns_the_impossible_into_a_failure(bench: Bench, tmp_path: Path) -> None:
    artefact = replace(add("good", (N,)), flops=10**15)
    reply = bench.screen(artefact, add_references(tmp_path, (N,)))
    assert reply.status == Status.IMPLAUSIBLE
    assert "GFLOP/s" in reply.error


def test_buffers_that_cannot_fit_are_named(bench: Bench, tmp_path: Path) -> None:
    artefact = add("good", (1 << 40,))
    reply = bench.screen(artefact, add_references(tmp_path, (N,)))
    assert reply.status == Status.BENCH_FAIL
    assert "x 4096.00 GiB" in reply.error
    assert "12288.00 GiB needed" in reply.error


def test_confirm_interleaves_rows_and_reference(bench: Bench, tmp_path: Path) -> None:
    rows = [Row("a", add("good", (N,))), Row("b", add("good", (N,), block=128)), Row("bad", add("wrong", (N,)))]
    result = bench.confirm(rows, add_references(tmp_path, (N,)), [EAGER], processes=2, rounds=3)
    assert result.lost == ()
    assert {label: [len(p) for p in ps] for label, ps in result.seconds.items()} == {
        "a": [3, 3],
        "b": [3, 3],
        "bad": [],
        "eager": [3, 3],
    }
    assert result.replies["bad"].status == Status.WRONG_RESULT
    for label in ("a", "b", "eager"):
        reply = result.replies[label]
        assert reply.ok, reply
        assert reply.low_us is not None
        assert reply.median_us is not None
        assert 1 < reply.low_us <= reply.median_us
        assert reply.samples == 6


def test_reference_that_means_something_else_is_refused(bench: Bench, tmp_path: Path) -> None:
    other = TorchSource("def f(x0, x1):\n    return x0 - x1\n")
    result = bench.confirm(
        [Row("a", add("good", (N,)))], add_references(tmp_path, (N,)), [other], processes=1, rounds=1
    )
    assert result.replies["a"].ok
    assert result.replies["eager"].status == Status.LAUNCH_FAILED
    assert "disagrees" in result.replies["eager"].error


def test_a_crash_is_its_own_row_not_the_comparison(bench: Bench, tmp_path: Path) -> None:
    rows = [Row("a", add("good", (N,))), Row("crash", add("segfault", (N,)))]
    result = bench.confirm(rows, add_references(tmp_path, (N,)), processes=1, rounds=1)
    assert result.lost == ()
    assert result.replies["crash"].status == Status.LAUNCH_FAILED
    assert "SIGSEGV" in result.replies["crash"].error
    assert result.replies["a"].ok


def test_labels_have_to_be_unique(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unique"):
        bench.confirm([Row("eager", add("good"))], add_references(tmp_path), [EAGER])


def test_rows_are_built_on_all_cores_and_found_compiled(bench: Bench, tmp_path: Path) -> None:
    refs = add_references(tmp_path, (N,))
    # The first two are one kernel: two processes compile it into one cache at the same time.
    blocks, kinds = (32, 32, 16, 8, 64), ("good", "good", "good", "good", "broken")
    rows = [Row(str(i), add(kind, (N,), block)) for i, (kind, block) in enumerate(zip(kinds, blocks, strict=True))]
    built = bench.build_ahead(rows, refs)
    assert [reply.status for reply in built] == [Status.OK] * 4 + [Status.COMPILE_FAILED]
    assert all(reply.build_s > 0 for reply in built[:4])
    for row in rows[:4]:
        assert bench.screen(row.artefact, refs).ok


def test_a_failure_on_a_full_disk_is_not_held_against_the_kernel(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = add_references(tmp_path)
    assert bench.qualify(add("broken"), refs).status == Status.COMPILE_FAILED
    monkeypatch.setattr("emmy.bench.protocol.MIN_FREE_BYTES", 1 << 62)
    with pytest.raises(FullDisk, match="free some space"):
        bench.qualify(add("broken"), refs)
    assert bench.qualify(add("good"), refs).ok
