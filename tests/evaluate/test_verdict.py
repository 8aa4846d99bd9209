from dataclasses import dataclass, field, replace

import pytest

from emmy.bench.jobs import Reply
from emmy.bench.protocol import ConfirmResult
from emmy.bench.records import Status
from emmy.bench.stats import Comparison, Thresholds, Verdict
from emmy.evaluate.verdict import Category, GoldenRow, Look, Pick, categorise, look_of, operations

A = {"FUSE": "", "TILE": "n16x8/f2x4", "REDUCE": "", "STAGE": ""}
B = {"FUSE": "", "TILE": "n32x8/f2x4", "REDUCE": "", "STAGE": ""}
C = {"FUSE": "", "TILE": "n8x8/f4x4", "REDUCE": "", "STAGE": "d2/sync"}
FM = {**A, "FAST_EXP": True}
QUIET = 0.02


def ratio(value: float, width: float = 0.01, processes: int = 6) -> Comparison:
    return Comparison(value, value - width, value + width, processes)


def golden(label: str, knobs: dict, lane: str = "std", recorded: float = 100.0, **changes: object) -> GoldenRow:
    return replace(GoldenRow(label, lane, knobs, recorded, 200.0), **changes)  # type: ignore[arg-type]


def look(greedy: float, reference: float | None = 200.0, **goldens: float) -> Look:
    """greedy's µs; each golden's µs; ratios with an interval of ± 0.01."""
    return Look(greedy, goldens, {label: ratio(greedy / us) for label, us in goldens.items()}, reference)


@dataclass(frozen=True)
class Case:
    """One row of the table: what was measured, and what has to follow."""

    verdict: Verdict
    says: str
    goldens: tuple[GoldenRow, ...]
    first: Look
    changes: tuple[tuple[str, str | None], ...] = ()
    again: tuple[Look, ...] = ()
    pick: Pick = field(default_factory=lambda: Pick("std", A))
    wants: int = 0
    floor: float | None = QUIET


g0, g1 = golden("g0", B), golden("g1", C)
WIN = look(80, g0=100)

TABLE = {
    "better: replace": Case(Verdict.BETTER, "reconfirmed 2 times", (g0,), WIN, (("replace", "g0"),), (WIN, WIN)),
    "better: replace the best, prune the superseded": Case(
        Verdict.BETTER,
        "against g0",
        (g0, g1),
        look(80, g0=90, g1=100),
        (("replace", "g0"), ("prune", "g1")),
        (look(80, g0=90, g1=100),) * 2,
    ),
    "better: keep an alternate at parity with the pick": Case(
        Verdict.BETTER,
        "against g0",
        (g0, g1),
        Look(80, {"g0": 85, "g1": 85.1}, {"g0": ratio(0.94), "g1": ratio(0.965)}, 200),
        (("replace", "g0"),),
        (look(80, g0=85),) * 2,
    ),
    "better than the best with the knobs of another: prune the best": Case(
        Verdict.BETTER,
        "against g0",
        (g0, golden("g1", A)),
        Look(80, {"g0": 100, "g1": 101}, {"g0": ratio(0.8), "g1": ratio(0.99)}, 200),
        (("prune", "g0"),),
        (look(80, g0=100, g1=80),) * 2,
    ),
    "better, not yet reconfirmed": Case(Verdict.UNRESOLVED, "to be reconfirmed 2 times", (g0,), WIN, wants=2),
    "better, reconfirmed once": Case(Verdict.UNRESOLVED, "reconfirmed 1 times", (g0,), WIN, again=(WIN,), wants=1),
    "better, not reconfirmed": Case(
        Verdict.UNRESOLVED, "not reconfirmed, run 2 gave 0.990", (g0,), WIN, again=(WIN, look(99, g0=100))
    ),
    "better, the golden lost in a reconfirming run": Case(
        Verdict.UNRESOLVED, "run 1 gave no comparison", (g0,), WIN, again=(look(80), WIN)
    ),
    "better, below the noise floor": Case(
        Verdict.UNRESOLVED, "noise floor of 30.0%", (g0,), WIN, again=(WIN, WIN), floor=0.3
    ),
    "better, the floor unknown, within the noise band": Case(
        Verdict.UNRESOLVED, "noise floor of 13.0%", (g0,), look(90, g0=100), again=(look(90, g0=100),) * 2, floor=None
    ),
    "better than itself is noise": Case(Verdict.UNRESOLVED, "noise", (golden("g0", A),), WIN, again=(WIN, WIN)),
    "same, other knobs: add": Case(Verdict.SAME, "other knobs", (g0,), look(100, g0=100), (("add", None),)),
    "same, same knobs: nothing": Case(Verdict.SAME, "reproduces g0", (golden("g0", A),), look(100, g0=100)),
    "same, knobs of another golden: nothing": Case(
        Verdict.SAME, "reproduces g1", (g0, golden("g1", A)), look(100, g0=100, g1=100.5)
    ),
    "same knobs, codegen win: lower": Case(
        Verdict.SAME, "codegen win", (golden("g0", A),), look(80, g0=80), (("lower", "g0"),), (look(81, g0=81),) * 2
    ),
    "codegen win, not yet reconfirmed": Case(
        Verdict.SAME, "to be reconfirmed", (golden("g0", A),), look(80, g0=80), wants=2
    ),
    "codegen win that did not come out again": Case(
        Verdict.SAME,
        "did not come out again",
        (golden("g0", A),),
        look(80, g0=80),
        again=(look(80, g0=80), look(99, g0=99)),
    ),
    "a faster machine is no better compiler": Case(
        Verdict.SAME, "reproduces g0", (golden("g0", A),), look(50, reference=100, g0=50)
    ),
    "codegen win, the reference not timed: nothing": Case(
        Verdict.SAME, "reproduces g0", (golden("g0", A),), look(50, reference=None, g0=50)
    ),
    "worse: leave": Case(Verdict.WORSE, "did not reach", (g0,), look(120, g0=100)),
    "worse than the best, better than another: leave": Case(
        Verdict.WORSE, "against g0", (g0, g1), look(120, g0=100, g1=150)
    ),
    "unresolved: leave": Case(
        Verdict.UNRESOLVED, "crosses a limit", (g0,), Look(97, {"g0": 100}, {"g0": ratio(0.97, 0.05)}, 200)
    ),
    "too few processes: leave": Case(
        Verdict.UNRESOLVED, "n=4", (g0,), Look(80, {"g0": 100}, {"g0": ratio(0.8, processes=4)}, 200), again=(WIN, WIN)
    ),
    "new": Case(Verdict.NEW, "no golden of this shape", (), look(80), (("new", None),)),
    "new, the reference not timed": Case(Verdict.NEW, "nothing to record", (), look(80, reference=None)),
    "the pick failed": Case(
        Verdict.UNRESOLVED,
        "timeout: 5 s",
        (g0,),
        Look(None, {"g0": 100}, {}, 200),
        pick=Pick("std", A, Status.TIMEOUT, "5 s"),
    ),
    "every golden failed": Case(
        Verdict.UNRESOLVED,
        "g0 was not benched: no such tile",
        (golden("g0", B, status=Status.PIN_UNMATCHED, reason="no such tile"),),
        look(80),
    ),
    "a failed golden beside a good one is said": Case(
        Verdict.WORSE,
        "g1 was not benched: pin_unmatched",
        (g0, golden("g1", C, status=Status.PIN_UNMATCHED)),
        look(120, g0=100),
    ),
    "std pick, an fm golden much faster: it does not count": Case(
        Verdict.SAME, "against g0", (g0, golden("fm0", FM, "fm")), look(100, g0=100, fm0=50), (("add", None),)
    ),
    "std pick, fm goldens alone: new": Case(
        Verdict.NEW, "std lane", (golden("fm0", FM, "fm"),), look(100, fm0=50), (("new", None),)
    ),
    "fm pick, slower than the fm golden, faster than std: worse": Case(
        Verdict.WORSE,
        "against fm0",
        (g0, golden("fm0", {**FM, "TILE": "x"}, "fm")),
        look(70, g0=100, fm0=50),
        pick=Pick("fm", FM),
    ),
    "fm pick, faster than the fm golden: that alone is replaced": Case(
        Verdict.BETTER,
        "against fm0",
        (g0, golden("fm0", {**FM, "TILE": "x"}, "fm")),
        look(40, g0=100, fm0=50),
        (("replace", "fm0"),),
        (look(40, g0=100, fm0=50),) * 2,
        Pick("fm", FM),
    ),
    "fm pick, no fm golden, faster than std: recorded beside it": Case(
        Verdict.NEW, "no fm golden", (g0,), WIN, (("new", None),), (WIN, WIN), Pick("fm", FM)
    ),
    "fm pick, no fm golden, to be reconfirmed": Case(
        Verdict.UNRESOLVED, "reconfirmed 2", (g0,), WIN, (), (), Pick("fm", FM), 2
    ),
    "fm pick, no fm golden, not faster than std": Case(
        Verdict.NEW, "does not pay", (g0,), look(100, g0=100), (), (), Pick("fm", FM)
    ),
}


def of(case: Case, **changes: object) -> Category:
    return categorise("quick.matmul.256", case.pick, case.goldens, case.first, floor=case.floor, reconfirmed=case.again)


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE)
def test_category(case: Case) -> None:
    found = of(case)
    assert (found.verdict, found.wants_reconfirm) == (case.verdict, case.wants), found.reasons
    assert case.says in "; ".join(found.reasons)
    assert tuple((change.op, change.target) for change in found.changes) == case.changes
    assert all(change.reason for change in found.changes)
    lanes = {row.label: row.lane for row in case.goldens}
    assert {lanes[change.target] for change in found.changes if change.target} <= {case.pick.lane}


def test_every_operation_and_every_verdict_is_in_the_table() -> None:
    assert {op for case in TABLE.values() for op, _ in case.changes} == {"replace", "add", "lower", "prune", "new"}
    assert {case.verdict for case in TABLE.values()} == set(Verdict)


def test_an_entry_has_the_picks_record_and_latency_and_keeps_the_recorded_reference() -> None:
    change = of(TABLE["better: replace"]).changes[0]
    assert (change.knobs, change.emmy_us, change.reference_us) == (A, 80, 200.0)


def test_a_reference_that_moved_beyond_the_noise_band_is_recorded_anew() -> None:
    change = categorise("s", Pick("std", A), (g0,), look(100, reference=300.0, g0=100), floor=QUIET).changes[0]
    assert change.reference_us == 300.0
    assert "300 µs here, 200 µs on record" in change.reason


def test_lowering_keeps_the_machines_speed_out() -> None:
    slow = look(120, reference=300.0, g0=120)
    (change,) = categorise("s", Pick("std", A), (golden("g0", A),), slow, floor=QUIET, reconfirmed=(slow, slow)).changes
    # 120/300 against 100/200 on record: 0.8 of it.
    assert change.emmy_us == pytest.approx(80.0)


def test_an_absent_family_and_one_that_is_off_are_the_same_knobs() -> None:
    short = {"TILE": "n16x8/f2x4"}
    assert of(replace(TABLE["same, same knobs: nothing"], goldens=(golden("g0", short),))).changes == ()


def test_thresholds_are_settings() -> None:
    case = TABLE["better, not yet reconfirmed"]
    eager = Thresholds(reconfirm=0)
    found = categorise("s", case.pick, case.goldens, case.first, floor=QUIET, thresholds=eager)
    assert [change.op for change in found.changes] == ["replace"]


def test_the_look_of_a_confirm_run() -> None:
    def series(us: float) -> tuple[tuple[float, ...], ...]:
        return tuple((us * 1e-6 * wobble, us * 1e-6 / wobble) for wobble in (1.0, 1.001, 1.002, 0.999, 1.0, 1.003))

    def reply(us: float) -> Reply:
        return Reply(Status.OK, median_us=us)

    result = ConfirmResult(
        {"greedy": series(80), "g0": series(100), "g1": (), "eager": series(200)},
        {"greedy": reply(80), "g0": reply(100), "g1": Reply(Status.TIMEOUT), "eager": reply(200)},
    )
    found = look_of(result, "greedy", ["g0", "g1"], "eager")
    assert (found.greedy_us, found.golden_us, found.reference_us) == (80, {"g0": 100}, 200)
    assert set(found.ratios) == {"g0"}
    assert found.ratios["g0"].ratio == pytest.approx(0.8)
    lost = ConfirmResult(result.seconds, result.replies | {"greedy": Reply(Status.WRONG_RESULT)})
    assert look_of(lost, "greedy", ["g0"], "eager") == Look(None, {"g0": 100}, {}, 200)


def test_changes_become_operations_on_a_golden_file() -> None:
    from emmy.goldens import dataset
    from emmy.goldens.entry import GoldenConfig

    shape = dataset.shape("quick.matmul.256")
    old = GoldenConfig.of(shape, B, 100.0, eager_us=200.0)
    other = GoldenConfig.of(shape, C, 110.0, eager_us=200.0)
    found = of(TABLE["better: replace the best, prune the superseded"])
    first, second = operations(found, shape, {"g0": old, "g1": other}, "eager")
    assert (first.kind, first.target, second.kind, second.target) == ("replace", old.written, "prune", other.written)
    assert first.entry is not None
    assert (dict(first.entry.written), first.entry.emmy_us, first.entry.eager_us) == (A, 80.0, 200.0)
    assert dict(first.evidence)["verdict"] == "better"
    (lowered,) = operations(of(TABLE["same knobs, codegen win: lower"]), shape, {"g0": old}, "eager")
    assert (lowered.kind, lowered.emmy_us) == ("lower", 81.0)
    (new,) = operations(of(TABLE["new"]), shape, {}, "cublas")
    assert new.entry is not None
    assert (new.kind, new.entry.cublas_us, new.entry.eager_us) == ("new", 200.0, None)
    (added,) = operations(of(TABLE["same, other knobs: add"]), shape, {"g0": old}, "eager")
    assert added.kind == "add"
