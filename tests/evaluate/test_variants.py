import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from emmy.errors import InputError
from emmy.evaluate.variants import leaderboards, text
from emmy.store import Store

Emmy = Callable[..., subprocess.CompletedProcess[str]]

MATMUL = """\
k_matmul_3fa2c1 (quick.matmul.256) on cpu-test, sweep new
  7 variants: 4 ok, 1 compile_failed, 2 timeout; ranked by O3 screen.v2.cold, microseconds
  offline pick: rank 2/2, 1.25x of best  <-- misses best
  rank  O3 confirm.v2.cold  O3 screen.v2.cold  O1 screen.v2.cold  status          lane  prior rank  regs  spills  smem  warnings                  knobs
     1               10.40              10.00                  -  ok              std         7/40    32       0     -  -                         TILE=n2x8
     2                   -              12.50                  -  ok              std         1/40    40       2  4096  C7510     <- offline pick  TILE=n1x8
     -                   -              300.0                  -  abandoned       std         2/40     -       -     -  -                         TILE=n4x8
     -                   -                  -               1234  ok              std            -     -       -     -  -                         TILE=n3x8
     -                   -                  -                  -  compile_failed  std            -     -       -     -  -                         TILE=n66x8
     -                   -                  -                  -  timeout         std            -     -       -     -  -                         TILE=n64x8 STAGE=d2/sync
     -                   -                  -                  -  timeout         std            -     -       -     -  -                         TILE=n65x8 STAGE=d2/sync
"""  # noqa: E501


def squeezed(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()]


@pytest.mark.parametrize("folded", [False, True])
def test_the_leaderboard(measured: Store, folded: bool) -> None:
    if folded:
        measured.fold()
    boards = leaderboards(measured, "matmul")
    assert squeezed(text(boards)) == squeezed(MATMUL)


def test_columns_are_aligned_and_carry_regime_and_protocol(measured: Store) -> None:
    lines = text(leaderboards(measured, "matmul")).splitlines()
    header, first = lines[3], lines[4]
    for column, value in (("O3 confirm.v2.cold", "10.40"), ("O3 screen.v2.cold", "10.00")):
        end = header.index(column) + len(column)
        assert first[:end].endswith(value)
    assert first.index("TILE=") == header.index("knobs")


def test_a_pick_that_is_the_best_does_not_miss_it(measured: Store) -> None:
    (board,) = leaderboards(measured, "softmax")
    assert [str(pick) for pick in board.picks] == ["offline pick: rank 1/1, 1.00x of best"]
    assert "benched at seq_len=512 (symbolic hint)" in text([board])


def test_a_pick_within_three_percent_does_not_miss_the_best(measured: Store, put: Callable[..., object]) -> None:
    put("softmax", 2, 2.95, rank=4)
    (board,) = leaderboards(measured, "softmax")
    assert str(board.picks[0]) == "offline pick: rank 2/2, 1.02x of best"


def test_a_pick_that_failed_or_was_not_measured_misses_the_best(store: Store, put: Callable[..., object]) -> None:
    store.start_sweep("cpu-test", sweep="s")
    put("matmul", 1, None, rank=1, status="timeout", error="5 s")
    put("matmul", 2, 10.0, rank=2)
    put("reduce", 2, 10.0, rank=2, prior="online")
    assert [str(board.picks[0]) for board in leaderboards(store)] == [
        "offline pick: timeout (TILE=n1x8)  <-- misses best",
        "online pick: not measured ((all off))  <-- misses best",
    ]


def test_only_the_top_is_shown_but_always_the_pick(store: Store, put: Callable[..., object]) -> None:
    store.start_sweep("cpu-test", sweep="s")
    for tile in range(30):
        put("matmul", tile, 10.0 + tile, rank=30 - tile)
    shown = text(leaderboards(store), top=5).splitlines()
    assert [line.split()[0] for line in shown[4:]] == ["1", "2", "3", "4", "5", "30", "…"]
    assert "24 more" in shown[-1]
    assert len(text(leaderboards(store), top=0).splitlines()) == 34


def test_without_the_deployable_build_the_cheap_one_ranks_and_says_so(store: Store, put: Callable[..., object]) -> None:
    store.start_sweep("cpu-test", sweep="s")
    put("matmul", 1, 9.0, regime="O1")
    put("matmul", 2, 8.0, regime="O1")
    (board,) = leaderboards(store)
    assert board.ranked_by == "O1 screen.v2.cold"
    assert [line.us for line in board.lines] == [{"O1 screen.v2.cold": 8.0}, {"O1 screen.v2.cold": 9.0}]


def test_a_board_of_two_builds_ranks_the_deployable_one_and_mixes_no_latencies(
    store: Store, put: Callable[..., object]
) -> None:
    """Screened in O1, the two fastest again in O3: the third, slower in O1 than they are in O3, stays behind them."""
    store.start_sweep("cpu-test", sweep="s")
    for tile, cheap in ((1, 8.0), (2, 9.0), (3, 9.5), (4, 9.2)):
        put("matmul", tile, cheap, regime="O1", rank=4 - tile if tile < 4 else 9)
    put("matmul", 1, 20.0)
    put("matmul", 2, 19.0)
    put("matmul", 4, None, status="launch_failed", error="no")
    (board,) = leaderboards(store)
    assert board.ranked_by == "O3 screen.v2.cold"
    assert [(line.rank, line.knobs["TILE"], line.status) for line in board.lines] == [
        (1, "n2x8", "ok"), (2, "n1x8", "ok"), (None, "n3x8", "ok"), (None, "n4x8", "launch_failed"),
    ]  # fmt: skip
    (pick,) = board.picks
    assert (pick.rank, pick.measured, pick.ratio) == (4, 4, 9.5 / 8.0)
    assert str(pick) == "offline pick: rank 4/4 by O1 screen.v2.cold, 1.19x of best  <-- misses best"


def test_what_was_given_up_in_the_deployable_build_is_not_ordered_by_the_cheap_one(
    store: Store, put: Callable[..., object]
) -> None:
    store.start_sweep("cpu-test", sweep="s")
    for tile, cheap, real in ((1, 5.0, 40.0), (2, 6.0, 30.0), (3, 7.0, 10.0)):
        put("matmul", tile, cheap, regime="O1")
        put("matmul", tile, real, abandoned=tile < 3)
    put("matmul", 4, 6.5, regime="O1")
    (board,) = leaderboards(store)
    assert [line.knobs["TILE"] for line in board.lines] == ["n3x8", "n2x8", "n1x8", "n4x8"]


def test_sweeps_are_kept_apart(measured: Store) -> None:
    assert [board.kernel for board in leaderboards(measured)] == ["k_matmul_3fa2c1", "k_softmax_3fa2c1"]
    assert [board.kernel for board in leaderboards(measured, sweep="old")] == ["k_reduce_3fa2c1"]
    with pytest.raises(InputError, match="old, new"):
        leaderboards(measured, sweep="older")


# ------------------------------------------------------------------------------------------------------- the command


def test_the_command_prints_and_writes_json(measured: Store, emmy: Emmy, tmp_path: Path) -> None:
    done = emmy("eval", "variants", "--kernel", "quick.matmul", "--json", str(tmp_path / "v.json"))
    assert (done.returncode, done.stderr) == (0, "")
    assert squeezed(done.stdout) == squeezed(MATMUL)
    (board,) = json.loads((tmp_path / "v.json").read_text())
    assert board["counts"] == {"ok": 4, "timeout": 2, "compile_failed": 1}
    assert board["lines"][0]["us"] == {"O3 screen.v2.cold": 10.0, "O3 confirm.v2.cold": 10.4}
    (pick,) = board["picks"]
    assert (pick["prior"], pick["rank"], pick["measured"], pick["ratio"]) == ("offline", 2, 2, 1.25)
    assert (pick["status"], pick["misses"], pick["knobs"]["TILE"]) == ("ok", True, "n1x8")


def test_json_to_standard_output_is_json_alone(measured: Store, emmy: Emmy) -> None:
    for arguments in (["variants", "--kernel", "softmax"], ["variants", "--kernel", "nowhere"], ["failures"]):
        done = emmy("eval", *arguments, "--json", "-")
        assert done.returncode == 0
        json.loads(done.stdout)


@pytest.mark.parametrize("view", ["variants", "failures"])
def test_no_store_is_a_missing_prerequisite(emmy: Emmy, view: str) -> None:
    done = emmy("eval", view)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "emmy tune" in done.stderr


@pytest.mark.parametrize("view", ["variants", "failures"])
def test_nothing_measured_is_an_answer(store: Store, emmy: Emmy, view: str) -> None:
    store.start_sweep("cpu-test", sweep="s")
    done = emmy("eval", view)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing measured in the newest sweep: run emmy tune" in done.stdout


@pytest.mark.parametrize("view", ["variants", "failures"])
def test_a_filter_that_nothing_matches_lists_what_there_is(measured: Store, emmy: Emmy, view: str) -> None:
    done = emmy("eval", view, "--kernel", "conv")
    assert done.returncode == 0
    assert "'conv'" in done.stdout
    assert "quick.matmul.256" in done.stdout


def test_a_new_sweep_points_to_the_older_one(measured: Store, emmy: Emmy) -> None:
    measured.start_sweep("cpu-test", sweep="newest")
    assert "--sweep old" in emmy("eval", "variants").stdout


@pytest.mark.parametrize("arguments", [["--sweep", "2019"], ["--top", "-1"]])
def test_bad_input(measured: Store, emmy: Emmy, arguments: list[str]) -> None:
    done = emmy("eval", "variants", *arguments)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_corrupt_store_is_one_message(store: Store, emmy: Emmy) -> None:
    store.path.parent.mkdir(parents=True)
    store.path.write_bytes(b"not a store")
    done = emmy("eval", "variants")
    assert done.returncode == 2
    assert str(store.path) in done.stderr
    assert "Traceback" not in done.stderr


def test_help_lists_what_exists(emmy: Emmy) -> None:
    listed = emmy("eval", "--help").stdout
    assert "variants" in listed
    assert "failures" in listed
