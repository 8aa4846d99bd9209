import json
import subprocess
from collections.abc import Callable

from emmy.bench.records import Status
from emmy.evaluate.failures import failures, signature, text
from emmy.store import Store

Put = Callable[..., object]

TEXT = """\
6 ok, 3 failed, 2 clusters

k_matmul_3fa2c1 (quick.matmul.256) on cpu-test: 2 timeout (O3), 4 ok
  error   run exceeded its deadline of 5 s
  shared  FUSE='' STAGE=d2/sync
  only in failing rows  STAGE=d2/sync
  example {"FUSE": "", "TILE": "n64x8", "STAGE": "d2/sync"}

k_matmul_3fa2c1 (quick.matmul.256) on cpu-test: 1 compile_failed (O3), 4 ok
  error   ptxas: too much shared memory
  example {"FUSE": "", "TILE": "n66x8", "STAGE": ""}"""


def test_clusters(measured: Store) -> None:
    assert text(failures(measured)) == TEXT


def test_what_an_ok_row_has_as_well_tells_nothing(measured: Store, put: Put) -> None:
    put("matmul", 9, 20.0, stage="d2/sync")
    assert failures(measured).clusters[0].shared == {"FUSE": "", "STAGE": "d2/sync"}
    assert failures(measured).clusters[0].telling == {}


def test_failing_rows_are_compared_with_ok_rows_of_their_own_build(store: Store, put: Put) -> None:
    store.start_sweep("cpu-test", sweep="s")
    for tile in (1, 2):
        put("matmul", tile, 10.0, stage="d2/sync", regime="O1")
        put("matmul", tile, None, stage="d2/sync", status=Status.LAUNCH_FAILED, error="too much shared memory")
    put("matmul", 3, 9.0)
    (cluster,) = failures(store).clusters
    assert (cluster.regimes, cluster.count, cluster.ok) == (("O3",), 2, 1)
    assert cluster.telling == {"STAGE": "d2/sync"}


def test_status_kernel_and_error_make_a_cluster(store: Store, put: Put) -> None:
    store.start_sweep("cpu-test", sweep="s")
    put("matmul", 1, None, status=Status.TIMEOUT, error="5 s")
    put("matmul", 2, None, status=Status.BENCH_FAIL, error="5 s")
    put("softmax", 3, None, status=Status.TIMEOUT, error="5 s")
    put("softmax", 4, None, status=Status.TIMEOUT, error="other")
    put("softmax", 5, None, status=Status.TIMEOUT, error="7 s")
    found = failures(store)
    assert [(c.kernel[2:6], c.status, c.count) for c in found.clusters] == [
        ("soft", "timeout", 2), ("matm", "bench_fail", 1), ("matm", "timeout", 1), ("soft", "timeout", 1)
    ]  # fmt: skip
    # No OK row of the kernel: nothing can tell failing rows from others.
    assert all(cluster.telling == {} for cluster in found.clusters)
    assert failures(store, "softmax").failed == 3


def test_errors_that_differ_in_numbers_are_one() -> None:
    assert signature("at 0x7f1c: 3.5 of 10 elements wrong\nrow 7") == signature(
        "at 0xdead: 12 of 512 elements wrong\nrow 9"
    )
    assert signature("k_matmul_3fa2c1 failed") != signature("k_softmax_3fa2c1 failed")


def test_no_failures_is_said(store: Store, put: Put, emmy: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    store.start_sweep("cpu-test", sweep="s")
    put("matmul", 1, 5.0)
    done = emmy("eval", "failures")
    assert (done.returncode, done.stdout) == (0, "1 ok, 0 failed: no failures\n")


def test_json(measured: Store, emmy: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    found = json.loads(emmy("eval", "failures", "--json", "-").stdout)
    assert (found["ok"], found["failed"]) == (6, 3)
    assert [cluster["count"] for cluster in found["clusters"]] == [2, 1]
    assert found["clusters"][0]["shared"] == {"FUSE": "", "STAGE": "d2/sync"}
