"""Messages between the bench client and its worker: a 32-bit little-endian length, then JSON in UTF-8."""

from __future__ import annotations

import json
import os
import select
import struct
import time
from typing import Any

_HEADER = struct.Struct("<I")
MAX_BYTES = 256 << 20


class Closed(Exception):
    """The other end is gone."""


class Expired(Exception):
    """Nothing complete arrived in time."""


def send(fd: int, message: Any) -> None:
    """Writes one message. Raises Closed when nobody reads."""
    body = json.dumps(message, separators=(",", ":")).encode()
    data = memoryview(_HEADER.pack(len(body)) + body)
    try:
        while data:
            data = data[os.write(fd, data) :]
    except (BrokenPipeError, ConnectionResetError):
        raise Closed from None


def receive(fd: int, deadline: float | None = None) -> Any:
    """Reads one message. Raises Closed at the end of the stream, Expired at ``deadline`` (monotonic clock)."""
    (length,) = _HEADER.unpack(_read(fd, _HEADER.size, deadline))
    if length > MAX_BYTES:
        raise Closed
    return json.loads(_read(fd, length, deadline))


def _read(fd: int, count: int, deadline: float | None) -> bytes:
    chunks: list[bytes] = []
    while count:
        if deadline is not None and not select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise Expired
        chunk = os.read(fd, min(count, 1 << 20))
        if not chunk:
            raise Closed
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)
