from collections import Counter

import numpy as np
import pytest

from emmy.bench.records import Status
from emmy.schedule import features as table
from emmy.search.policy import RESOLUTION, Search
from emmy.search.tree import ForkTree


def space(count: int = 60, branches: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Labels with ``branches`` CTA tiles of 12 k steps each, and two features that follow them."""
    place = np.arange(count)
    labels = np.zeros((count, 9), dtype=np.int64)
    labels[:, 2], labels[:, 4] = place % branches, place // branches
    features = np.zeros((count, len(table.NAMES)), dtype=np.float32)
    features[:, table.NAMES.index("registers")] = labels[:, 2]
    features[:, table.NAMES.index("k_step")] = labels[:, 4]
    return labels, features


def run(search: Search, latency: np.ndarray) -> list[int]:
    asked = []
    while leaves := search.ask():
        search.tell(leaves[0], Status.OK, float(latency[leaves[0]]))
        asked += leaves
    return asked


def test_without_exploration_and_learning_the_order_is_the_priors() -> None:
    labels, features = space()
    scores = np.random.default_rng(3).permutation(60).astype(float)
    search = Search(labels, features, scores, patience=100, learn=False, explore_every=0, nearby_every=0)
    assert run(search, np.full(60, 5.0)) == list(np.argsort(scores))


def test_the_same_replies_give_the_same_search() -> None:
    labels, features = space()
    latency = 10.0 + np.random.default_rng(0).random(60)
    first, second = (run(Search(labels, features, np.arange(60.0), 20), latency) for _ in range(2))
    assert first == second
    assert len(set(first)) == len(first)


def test_steps_change_one_thing_of_the_best_leaf_each_in_its_turn() -> None:
    labels, features = space()
    labels[:, 5] = np.arange(60) % 3  # of the reduction, with the k step and the tile
    prior = 100.0 * labels[:, 4] + np.arange(60)  # sure of the first k step
    latency = 10.0 + np.abs(labels[:, 4] - 7) + labels[:, 2]
    search = Search(labels, features, prior, patience=100, learn=False, explore_every=0)
    asked = []
    for _ in range(24):
        best = search.best
        (leaf,) = search.ask()
        if search.origin(leaf) == "nearby":
            moves = [moved for moved in ((2, 3), (4,), (5,)) if (labels[leaf] != labels[best])[list(moved)].any()]
            assert len(moves) == 1
            asked.append(moves[0])
        search.tell(leaf, Status.OK, float(latency[leaf]))
    assert len(asked) >= 4
    assert (4,) in asked
    plain = Search(labels, features, prior, patience=100, learn=False, explore_every=0, nearby_every=0)
    for _ in range(24):
        (leaf,) = plain.ask()
        plain.tell(leaf, Status.OK, float(latency[leaf]))
    assert search.best_us < plain.best_us


def test_patience_counts_live_attempts_since_the_last_new_best() -> None:
    labels, features = space()
    search = Search(labels, features, np.arange(60.0), patience=4, learn=False, explore_every=0)
    search.tell(0, Status.OK, 10.0)
    search.tell(1, Status.OK, 20.0)
    search.tell(2, Status.COMPILE_FAILED)
    assert search.live_since_best == 2
    search.tell(3, Status.OK, 5.0)
    assert search.live_since_best == 0
    assert not search.done
    for leaf in range(4, 8):
        search.tell(leaf, Status.OK, 9.0)
    assert search.done
    assert not search.ask()


def test_known_leaves_cost_no_patience_but_set_the_best() -> None:
    labels, features = space()
    search = Search(labels, features, np.arange(60.0), patience=3)
    search.tell(7, Status.OK, 4.0, live=False)
    for leaf in range(20, 40):
        search.tell(leaf, Status.OK, 9.0, live=False)
    assert (search.live_since_best, search.live, search.best, search.done) == (0, 0, 7, False)


def test_a_gain_within_the_resolution_is_the_best_but_renews_no_patience() -> None:
    labels, features = space()
    search = Search(labels, features, np.arange(60.0), patience=10)
    search.tell(0, Status.OK, 100.0)
    search.tell(1, Status.OK, 100.0 * (1 - RESOLUTION / 2))
    assert (search.best, search.live_since_best) == (1, 1)


def test_no_branch_of_an_early_fork_is_starved() -> None:
    """A prior that ranks four of five tiles last does not keep the search out of them."""
    labels, features = space()
    scores = labels[:, 2] * 10.0
    search = Search(labels, features, scores, patience=1000, learn=False)
    for _ in range(16):
        (leaf,) = search.ask()
        search.tell(leaf, Status.OK, 100.0)
    tried = Counter(int(labels[a.leaf, 2]) for a in search.attempts)
    assert set(tried) == {0, 1, 2, 3, 4}
    assert tried[0] > max(tried[branch] for branch in range(1, 5))


def test_measurements_move_the_order_away_from_a_wrong_prior() -> None:
    """The prior prefers low register counts, the truth high ones: learning finds the best sooner than the prior."""
    labels, features = space()
    scores = labels[:, 2] * 0.3 + labels[:, 4] * 0.01
    latency = 100.0 * np.exp(-0.5 * labels[:, 2] + 0.05 * np.abs(labels[:, 4] - 6))
    best = int(np.argmin(latency))
    steps = [run(Search(labels, features, scores, 60, learn=learn), latency).index(best) for learn in (True, False)]
    assert steps[0] < steps[1] / 2


def test_a_timeout_closes_leaves_with_at_least_as_much_unrolled_code_in_the_same_tier() -> None:
    labels, features = space(12, 3)
    features[:, table.NAMES.index("tier_scalar")] = [1] * 9 + [0] * 3
    features[:, table.NAMES.index("fragment")] = [1, 2, 3] * 4
    search = Search(labels, features, np.arange(12.0), 50)
    search.tell(1, Status.TIMEOUT)
    assert [leaf for leaf in range(12) if not search.open[leaf]] == [1, 2, 4, 5, 7, 8]
    assert search.pruned == {1: 5}


def test_a_timeout_prunes_nothing_where_the_tier_says_nothing_about_code_size() -> None:
    labels, features = space(12, 3)
    search = Search(labels, features, np.arange(12.0), 50)
    search.tell(1, Status.TIMEOUT)
    assert np.count_nonzero(~search.open) == 1


def test_a_tree_keeps_only_levels_that_fork() -> None:
    labels, _ = space()
    tree = ForkTree(labels)
    assert tree.level == [2, 4]
    assert [len(counts) for counts in tree.visits] == [5, 60]


@pytest.mark.parametrize("count", [0, 1])
def test_degenerate_spaces_end_at_once(count: int) -> None:
    labels, features = np.zeros((count, 9), dtype=np.int64), np.zeros((count, len(table.NAMES)), dtype=np.float32)
    search = Search(labels, features, np.zeros(count), 5)
    if count:
        assert search.ask() == [0]
        search.tell(0, Status.OK, 3.0)
    assert search.ask() == []


def test_a_batch_holds_no_leaf_twice_and_no_more_than_patience_allows() -> None:
    labels, features = space()
    search = Search(labels, features, np.arange(60.0), patience=6)
    search.tell(30, Status.OK, 1.0)
    first = search.ask(4)
    second = search.ask(4)
    assert len({*first, *second}) == 6
    assert len(second) == 2
    assert search.ask(4) == []
    for leaf in (*first, *second):
        search.tell(leaf, Status.OK, 2.0)
    assert search.done
    assert search.live == 7
