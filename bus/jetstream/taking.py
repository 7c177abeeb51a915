"""Bells and start messages: from consumers through mailboxes to handlers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..errors import BusError
from ..interface import Again, OnBell, OnStart, StartMessage
from ..mailbox import Mailboxes
from .delivered import Delivered, Settled, delivered
from .puller import Lane, OnMessage, Puller

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nats.aio.msg import Msg

    from ..subjects import Subjects
    from .connection import Connection
    from .streams import Streams

__all__ = ["Intake", "Taking"]

START_CONSUMER: Final = "ingress"
BIRTH_RETRY_S: Final = 0.5
START_BATCH: Final = 16
"""Start messages may be as large as the server allows."""


class Taking:
    """See `Subscription`: some pullers that end in the same mailboxes."""

    def __init__(self, handle: Callable[[Delivered], Awaitable[None]], forget: Callable[[Taking], None]) -> None:
        self._boxes = Mailboxes(handle)
        self._pullers: list[Puller] = []
        self._forget = forget
        self._stopped = False

    async def start(self, pullers: Sequence[Puller]) -> None:
        """Pull; all or nothing."""
        self._pullers = list(pullers)
        outcomes = await asyncio.gather(*(puller.start() for puller in pullers), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                await self.stop()
                raise outcome

    async def put(self, key: str, letter: Delivered) -> None:
        """Put into the key's mailbox, unless it is a copy of what was settled already."""
        if letter.identity in letter.settled:
            await letter.settle()
        else:
            self._boxes.put(key, letter)

    async def stop(self) -> None:
        """See Subscription."""
        if not self._stopped:
            self._stopped = True
            self._forget(self)
        self._boxes.close()
        # Only then give back: what is given back while a request of ours waits comes here again, and is lost for the
        # acknowledgement time when it meets the end of the subscription on its way.
        await asyncio.gather(*(puller.stop() for puller in self._pullers))
        await self._boxes.stop()


@dataclass(frozen=True, slots=True)
class Intake:
    """What is needed to take from streams."""

    connection: Connection
    streams: Streams
    subjects: Subjects
    forget: Callable[[Taking], None]

    async def bells(self, app: str, partitions: Sequence[int], on_bell: OnBell) -> Taking:
        """Start taking the bells of these partitions."""

        async def handle(letter: Delivered) -> None:
            if bell := self.subjects.bell_of(letter.message.subject):
                await on_bell(bell)

        taking = Taking(handle, self.forget)
        settled = Settled()

        async def on_message(message: Msg) -> None:
            await taking.put(message.subject, delivered(message, self.connection, settled, self.streams.ack_wait_s))

        lanes = [self._bell_lane(app, partition, on_message) for partition in dict.fromkeys(partitions)]
        await taking.start([Puller(self.connection, lane) for lane in lanes])
        return taking

    def _bell_lane(self, app: str, partition: int, on_message: OnMessage) -> Lane:
        stream, consumer = self.subjects.wake_stream, self.subjects.wake_consumer(app, partition)
        wakes = self.subjects.wakes(app, partition)

        async def make() -> None:
            await self.streams.ensure_consumer(stream, consumer, wakes)

        return Lane(stream, consumer, make, on_message, self.streams.forget_births)

    async def starts(self, on_start: OnStart) -> Taking:
        """Start taking start messages."""
        stream = self.subjects.start_stream

        async def handle(letter: Delivered) -> None:
            try:
                birth = letter.birth or await self.streams.birth(stream)
            except BusError as error:
                raise Again(BIRTH_RETRY_S) from error
            await on_start(self._start_message(letter, birth))

        taking = Taking(handle, self.forget)
        settled = Settled()

        async def on_message(message: Msg) -> None:
            letter = delivered(message, self.connection, settled, self.streams.ack_wait_s)
            letter.birth = self.streams.birth_known(stream)  # now: later the stream may be another one
            await taking.put(letter.source, letter)

        async def make() -> None:
            await self.streams.ensure_consumer(stream, START_CONSUMER, self.subjects.every_start)

        lane = Lane(stream, START_CONSUMER, make, on_message, self.streams.forget_births, batch=START_BATCH)
        await taking.start([Puller(self.connection, lane)])
        return taking

    def _start_message(self, letter: Delivered, birth: str) -> StartMessage:
        message = letter.message
        return StartMessage(
            workflow=self.subjects.workflow_of(message.subject) or "",
            subject=message.subject,
            body=message.data,
            headers=dict(message.headers or {}),
            source=f"{birth}-{letter.source}",
            delivery=letter.delivery,
        )
