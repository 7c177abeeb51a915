"""A consumer's messages as a steady flow: nats-py has none.

Several pull requests overlap; each has a number, so that a late status is not taken for another's. The server
sends a heartbeat while a request waits, so that silence means something. Requests die with the connection and
with the consumer: they are made again after a reconnect, when heartbeats stay away, and when the consumer was
made anew.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..errors import BusError

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from .connection import Connection, Listening

__all__ = ["HEARTBEAT_S", "Lane", "OnMessage", "Puller"]

log = logging.getLogger("fencepost.bus")

HEARTBEAT_S: Final = 0.5
EXPIRES_S: Final = 30.0
SILENT_S: Final = 2 * HEARTBEAT_S + 0.5
BATCH: Final = 64
NS: Final = 10**9

REPAIR_FIRST_S: Final = 0.05
REPAIR_MAX_S: Final = 2.0
PAUSE_S: Final = 0.25

_HEARTBEAT: Final = "100"
_ENDED: Final = {"404", "408"}
_NOBODY: Final = "503"
_CONFLICT: Final = "409"


OnMessage = Callable[["Msg"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Lane:
    """One durable consumer, how to make it anew, and where its messages go."""

    stream: str
    consumer: str
    make: Callable[[], Awaitable[None]]
    on_message: OnMessage
    on_doubt: Callable[[], None]
    """The stream may be another one now."""

    batch: int = BATCH


class Puller:
    """Pulls for one lane until stopped, whatever happens to the server."""

    def __init__(self, connection: Connection, lane: Lane) -> None:
        self._connection = connection
        self._lane = lane
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{lane.stream}.{lane.consumer}"
        self._request = json.dumps(
            {"batch": lane.batch, "expires": int(EXPIRES_S * NS), "idle_heartbeat": int(HEARTBEAT_S * NS)}
        ).encode()
        self._owed: dict[str, int] = {}
        self._number = 0
        self._inbox = ""
        self._heard = 0.0
        self._listening: Listening | None = None
        self._repair: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> None:
        """Make the consumer if need be, and pull."""
        await self._lane.make()
        self._inbox = self._connection.new_inbox()
        self._listening = await self._connection.listen(f"{self._inbox}.*", self._on_message)
        self._connection.on_up.append(self._on_up)
        self._connection.on_tick.append(self._on_tick)
        await self._pull_anew()

    async def stop(self) -> None:
        """Pull no more; what is on its way still goes to the lane. Idempotent."""
        if self._stopping or self._listening is None:
            return
        self._stopping = True
        self._connection.on_up.remove(self._on_up)
        self._connection.on_tick.remove(self._on_tick)
        if self._repair is not None:
            self._repair.cancel()
            await asyncio.wait({self._repair})
        await self._connection.unlisten(self._listening)

    # ---- asking

    async def _pull_anew(self) -> None:
        self._owed.clear()
        self._heard = time.monotonic()
        await self._top_up()

    async def _top_up(self) -> None:
        """Ask for more when less than half a batch is on its way."""
        if self._stopping or sum(self._owed.values()) > self._lane.batch // 2:
            return
        self._number += 1
        number = str(self._number)
        self._owed[number] = self._lane.batch
        try:
            await self._connection.publish(self._subject, self._request, reply=f"{self._inbox}.{number}")
        except BusError:
            self._owed.pop(number, None)  # asked again when the connection is back

    # ---- hearing

    async def _on_message(self, message: Msg) -> None:
        self._heard = time.monotonic()
        if message.subject.startswith(self._inbox):  # never by the status header: a stranger may store one
            await self._on_status(message)
            return
        for number, owed in self._owed.items():
            if owed > 1:
                self._owed[number] = owed - 1
            else:
                del self._owed[number]
            break
        await self._lane.on_message(message)
        await self._top_up()

    async def _on_status(self, message: Msg) -> None:
        headers = message.headers or {}
        status, what = headers.get("Status", ""), headers.get("Description", "")
        number = message.subject.rpartition(".")[2]
        if status == _HEARTBEAT or number not in self._owed:
            return
        del self._owed[number]
        if status in _ENDED or "Completed" in what:
            await self._top_up()
        elif status == _NOBODY or (status == _CONFLICT and "Deleted" in what):
            self._mend(0.0)
        else:
            log.info("consumer %s: %s %s", self._lane.consumer, status, what)
            self._mend(PAUSE_S)

    async def _on_up(self) -> None:
        self._lane.on_doubt()
        await self._pull_anew()

    async def _on_tick(self) -> None:
        silent = time.monotonic() - self._heard > SILENT_S
        if silent and self._connection.connected and not self._mending:
            log.debug("consumer %s is silent, asking again", self._lane.consumer)
            await self._pull_anew()

    # ---- mending

    @property
    def _mending(self) -> bool:
        return self._repair is not None and not self._repair.done()

    def _mend(self, delay_s: float) -> None:
        self._lane.on_doubt()
        if not self._mending and not self._stopping:
            self._repair = asyncio.ensure_future(self._mended(delay_s))

    async def _mended(self, delay_s: float) -> None:
        """Make stream and consumer anew until that works, then pull."""
        await asyncio.sleep(delay_s)
        pause_s, said = REPAIR_FIRST_S, ""
        while True:
            try:
                await self._lane.make()
                break
            except BusError as error:
                if str(error) != said:
                    said = str(error)
                    log.warning("consumer %s cannot be made now: %s", self._lane.consumer, said)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads a crowd, hides nothing
            pause_s = min(2 * pause_s, REPAIR_MAX_S)
        self._repair = None
        await self._pull_anew()
