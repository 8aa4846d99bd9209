"""Failures of a mapped step: a shape's own are kept beside the others' results, the device's own end the run."""

from __future__ import annotations

from typing import Any

import pytest

from emmy.errors import DeviceLost, FullDisk, InputError
from flows.results import settle


class Future:
    """What settle needs of a Prefect future."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def result(self) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def test_a_shapes_own_failure_leaves_the_others_their_results() -> None:
    failed: dict[Any, str] = {}
    found = settle(
        [Future(1), Future(InputError("knobs", found="x")), Future(ValueError("odd"))], ["a", "b", "c"], failed
    )  # type: ignore[list-item]
    assert found == {"a": 1}
    assert failed == {"b": "knobs: found x", "c": "ValueError: odd"}


@pytest.mark.parametrize("error", [DeviceLost("NVIDIA H200", "no driver"), FullDisk("store")])
def test_a_lost_device_or_a_full_disk_ends_the_run(error: Exception) -> None:
    with pytest.raises(type(error)):
        settle([Future(1), Future(error)], ["a", "b"], {})  # type: ignore[list-item]
