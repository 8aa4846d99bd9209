"""The lines of a search: which build a number is of."""

from types import SimpleNamespace
from typing import Any

from emmy.bench.jobs import Reply
from emmy.bench.records import Status
from emmy.cli.tuning import progress_line, summary
from emmy.search.screening import Progress
from emmy.search.tuner import Tuned


def test_numbers_of_the_cheap_build_say_so() -> None:
    reply = Reply(Status.OK, median_us=12.0)
    cheap = Progress("k", 3, 40, "TILE=n1x1", reply, True, "prior", 11.0, 1, "O1")
    assert progress_line(cheap) == "k 3/40  O1 12.00 us prior  TILE=n1x1  O1 best 11.00 us, 1 since"
    again = Progress("k", 9, 40, "TILE=n1x1", reply, True, "contender", None, 1)
    assert progress_line(again) == "k 9/40  12.00 us contender  TILE=n1x1  no best yet, 1 since"
    none = Progress("k", 1, 40, "TILE=n1x1", Reply(Status.TIMEOUT, "5 s"), True, "prior", None, 1, "O1")
    assert progress_line(none) == "k 1/40  O1 timeout: 5 s prior  TILE=n1x1  no best yet, 1 since"


def test_a_summary_counts_what_was_measured_twice() -> None:
    region: Any = SimpleNamespace(name="k")
    tuned = Tuned(region, "a", live=20, offered=400, again=6)
    assert summary("k", tuned) == "k: no result  (20 of 400 leaves measured, 6 again in O3, 0.0 s)"
