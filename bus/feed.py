"""The listener's end of the live feed: bounded, loses the oldest, never slows who tells."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

__all__ = ["NEWS_BYTES_MAX", "NEWS_MAX", "News"]

NEWS_MAX: Final = 1024
NEWS_BYTES_MAX: Final = 16 * 1024 * 1024


class News:
    """What was told about a topic, oldest first; ends when the listening ends."""

    def __init__(self) -> None:
        self._bodies: deque[bytes] = deque()
        self._bytes = 0
        self._some = asyncio.Event()
        self._ended = False

    def put(self, body: bytes) -> None:
        """Add, and let go of the oldest when it is too much."""
        self._bodies.append(body)
        self._bytes += len(body)
        while len(self._bodies) > NEWS_MAX or (self._bytes > NEWS_BYTES_MAX and len(self._bodies) > 1):
            self._bytes -= len(self._bodies.popleft())
        self._some.set()

    def end(self) -> None:
        """Let who waits for more go."""
        self._ended = True
        self._some.set()

    def __aiter__(self) -> News:
        return self

    async def __anext__(self) -> bytes:
        while not self._bodies:
            if self._ended:
                raise StopAsyncIteration
            self._some.clear()
            await self._some.wait()
        body = self._bodies.popleft()
        self._bytes -= len(body)
        return body
