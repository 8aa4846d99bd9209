"""Warp specialisation: one ring loop becomes a producer's and a consumer's, in roles of their own."""

from __future__ import annotations

from emmy.errors import EmmyError
from emmy.ir.kernel import Stmt, statements
from emmy.ir.pipeline import Fill, Role, Roles, Wait
from emmy.passes.expand.needs import only


def partition(
    body: tuple[Stmt, ...], rings: tuple[str, ...], *, producer: tuple[int, int], consumer: tuple[int, int],
    registers: tuple[int, int] = (0, 0),
) -> Roles:  # fmt: skip
    """``body`` as two roles: what fills ``rings`` in the one, everything else in the other.

    producer, consumer: (first warp, warps). registers: budget a thread of the two (0: left alone). Definitions that
    both need are made in both. Raises EmmyError when ``body`` does not both fill and wait for each ring.
    """
    names = frozenset(rings)
    filled = {s.ring for s in statements(body) if isinstance(s, Fill)}
    waited = {s.ring for s in statements(body) if isinstance(s, Wait)}
    if missing := names - (filled & waited):
        raise EmmyError(f"nothing to partition: ring {', '.join(sorted(missing))} is not both filled and waited for")
    return Roles((
        Role("producer", *producer, only(body, names, producer=True), registers[0]),
        Role("consumer", *consumer, only(body, names, producer=False), registers[1]),
    ))  # fmt: skip
