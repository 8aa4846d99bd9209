"""A server that does not come up says why."""

from pathlib import Path

import pytest

from emmy.errors import FullDisk, MissingPrerequisite
from flows.server import LocalServer


def test_a_server_that_ends_at_once_gives_its_exit_code_or_the_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.server.sys.executable", "/bin/false")
    server = LocalServer(tmp_path)
    server.start()
    with pytest.raises(MissingPrerequisite, match="exit code 1"):
        server.wait()
    monkeypatch.setattr("emmy.bench.protocol.MIN_FREE_BYTES", 1 << 62)
    server.start()
    with pytest.raises(FullDisk):
        server.wait()
