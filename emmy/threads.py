"""Work on pieces of large arrays, side by side: NumPy lets go of the interpreter's lock inside its loops."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")

MOST = 16


def cores() -> int:
    """Cores that this process may run on, at most MOST."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(count, MOST)


def each(work: Callable[[Item], Found], items: Iterable[Item]) -> list[Found]:
    """``work`` of every item, in their order; the first exception is raised."""
    listed = list(items)
    if len(listed) < 2 or cores() < 2:
        return [work(item) for item in listed]
    with ThreadPoolExecutor(min(cores(), len(listed))) as pool:
        return list(pool.map(work, listed))
