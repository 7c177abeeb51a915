"""Ringing: sent and not waited for, but not forgotten before the server has stored it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Final

from ..errors import BusError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.msg import Msg

    from .connection import Connection, Listening

__all__ = ["Ringing"]

UNSTORED_MAX: Final = 2048
"""The server drops what comes faster than it stores, from 10,000 messages on: wait before that."""

ROOM_S: Final = 0.5


class Ringing:
    """Publishes the bells of one stream. A bell that was not stored is rung again when what hindered it is mended.

    A stream that never answers holds up its own bells only: each has a count of its own.
    """

    def __init__(self, connection: Connection, repair: Callable[[], Awaitable[bool]]) -> None:
        self._connection = connection
        self._repair = repair
        self._unstored: dict[str, str] = {}
        self._refused: set[str] = set()
        self._numbers = itertools.count(1)
        self._listening: Listening | None = None
        self._inbox = ""
        self._room = asyncio.Event()
        self._mending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen for what was stored."""
        self._inbox = self._connection.new_inbox()
        self._unstored.clear()
        self._listening = await self._connection.listen(f"{self._inbox}.*", self._on_stored)
        self._connection.on_up.append(self._on_up)

    async def ring(self, subject: str) -> None:
        """Send, or let it be: the sweeper rings again (L1)."""
        if len(self._unstored) >= UNSTORED_MAX:
            if not self._connection.connected:
                return
            await self._wait_for_room()
        number = str(next(self._numbers))
        self._unstored[number] = subject  # kept when it is not sent: rung when the connection is back
        with contextlib.suppress(BusError):
            await self._connection.publish(subject, reply=f"{self._inbox}.{number}")

    async def _wait_for_room(self) -> None:
        self._room.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._room.wait(), ROOM_S)
            return
        self._unstored.clear()  # the answers are lost

    async def _on_stored(self, message: Msg) -> None:
        subject = self._unstored.pop(message.subject.rpartition(".")[2], None)
        if len(self._unstored) < UNSTORED_MAX // 2:
            self._room.set()
        missing = not message.data and (message.headers or {}).get("Status") == "503"
        if subject and (missing or b'"error"' in message.data):
            self._refused.add(subject)
            self._begin_to_mend()

    async def _on_up(self) -> None:
        """Ring what was not stored when the connection went: twice is once."""
        unstored, self._unstored = set(self._unstored.values()), {}
        for subject in unstored:
            await self.ring(subject)

    def _begin_to_mend(self) -> None:
        if self._mending is None or self._mending.done():
            self._mending = asyncio.ensure_future(self._mend())

    async def _mend(self) -> None:
        """Make the stream and ring once more; a bell that is refused again is the sweeper's."""
        while self._refused:
            refused, self._refused = self._refused, set()
            with contextlib.suppress(BusError):
                if await self._repair():
                    for subject in refused:
                        await self._connection.publish(subject)
