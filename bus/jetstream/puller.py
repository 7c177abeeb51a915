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
from typing import TYPE_CHECKING, Final, Protocol

from ..errors import BusError
from .requests import Requests

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from .connection import Connection, Listening

__all__ = ["EXPIRES_S", "Lack", "Lane", "OnMessage", "Puller", "steadily"]

log = logging.getLogger("fencepost.bus")

HEARTBEAT_S: Final = 1.0
EXPIRES_S: Final = 30.0
SILENT_S: Final = 2 * HEARTBEAT_S + 0.5
NS: Final = 10**9

REPAIR_FIRST_S: Final = 0.05
REPAIR_MAX_S: Final = 2.0
PAUSE_S: Final = 0.25

_HEARTBEAT: Final = "100"
_ENDED: Final = {"404", "408"}
_LEFT: Final = "Nats-Pending-Messages"
_NOBODY: Final = "503"
_CONFLICT: Final = "409"


class OnMessage(Protocol):
    """Where messages go."""

    async def __call__(self, message: Msg, *, asked: bool) -> None:
        """Take a message; `asked` tells whether a request that still counts asked for it."""
        ...


Lack = Callable[[int], int]
"""How many messages to ask for when so many are owed already."""


def steadily(batch: int) -> Lack:
    """Keep between half a batch and one and a half on their way."""
    return lambda owed: 0 if owed > batch // 2 else batch


@dataclass(frozen=True, slots=True)
class Lane:
    """One durable consumer, how to make it anew, and where its messages go."""

    stream: str
    consumer: str
    make: Callable[[], Awaitable[None]]
    on_message: OnMessage
    on_doubt: Callable[[], None]
    """The stream may be another one now."""

    let_go: Callable[[], Awaitable[None]]
    """Called when nothing is taken any more and what waited was given back."""
    lack: Lack
    expires_s: float


class Puller:
    """Pulls for one lane until stopped, whatever happens to the server."""

    def __init__(self, connection: Connection, lane: Lane) -> None:
        self._connection = connection
        self._lane = lane
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{lane.stream}.{lane.consumer}"
        self._requests = Requests(lane.expires_s)
        self._inbox = ""
        self._heard = 0.0
        self._listening: Listening | None = None
        self._repair: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._stopping = self._let_go = False

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
        for task in (self._repair, self._asking):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait({task})
        await self._connection.unlisten(self._listening)

    async def let_go(self) -> None:
        """Leave what was never received to others. Once."""
        if self._stopping and not self._let_go and not self._connection.is_silent:
            self._let_go = True
            await self._lane.let_go()

    # ---- asking

    def ask_more(self) -> None:
        """Ask for what the lane lacks now, soon."""
        if not self._stopping and self._listening is not None and (self._asking is None or self._asking.done()):
            self._asking = asyncio.ensure_future(self._top_up())

    async def _pull_anew(self) -> None:
        self._requests.forget()
        self._heard = time.monotonic()
        await self._top_up()

    async def _top_up(self) -> None:
        """Ask until the lane lacks nothing: what it lacks may grow while a request is sent."""
        while not self._stopping and not self._mending and (lack := self._lane.lack(self._requests.owed)) > 0:
            number = self._requests.ask(lack)
            request = {
                "batch": lack,
                "expires": int(self._lane.expires_s * NS),
                "idle_heartbeat": int(HEARTBEAT_S * NS),
            }
            try:
                await self._connection.publish(
                    self._subject, json.dumps(request).encode(), reply=f"{self._inbox}.{number}"
                )
            except BusError:
                self._requests.take_back(number)  # asked again when the connection is back
                break

    # ---- hearing

    async def _on_message(self, message: Msg) -> None:
        self._heard = time.monotonic()
        if message.subject.startswith(self._inbox):  # never by the status header: a stranger may store one
            await self._on_status(message)
            return
        await self._lane.on_message(message, asked=self._requests.came())
        await self._top_up()

    async def _on_status(self, message: Msg) -> None:
        headers = message.headers or {}
        status, what = headers.get("Status", ""), headers.get("Description", "")
        number = message.subject.rpartition(".")[2]
        if status == _HEARTBEAT or not self._requests.ended(number, headers.get(_LEFT)):
            return
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
        if not self._requests.owed:  # nothing is asked for, so nothing is said
            self._heard = time.monotonic()
            await self._top_up()
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
