"""Bells, offerings and start messages: from consumers through mailboxes to handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from ..errors import BusError
from ..interface import Again, OnBell, OnOffering, OnStart, StartMessage
from ..mailbox import Mailboxes
from .delivered import Delivered, Settled, delivered
from .puller import EXPIRES_S, Lack, Lane, OnMessage, Puller, steadily
from .streams import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.aio.msg import Msg

    from ..subjects import Subjects
    from .connection import Connection
    from .streams import Streams

__all__ = ["Intake", "StepTaking", "Taking"]

START_CONSUMER: Final = "ingress"
BIRTH_RETRY_S: Final = 0.5
BELL_BATCH: Final = 64
START_BATCH: Final = 16
"""Start messages may be as large as the server allows."""
STEP_BATCH_MAX: Final = 256
STEPS_UNDER_WAY_MAX: Final = 65_536
"""Of all nodes of an app together; each takes no more than it has room for."""

STEP_EXPIRES_S: Final = 5.0
"""A request outlives the room it was made for by this at most. What comes then is given back at once."""

Handle = Callable[[Delivered], Awaitable[None]]


class Taking:
    """See `Subscription`: some pullers that end in the same mailboxes."""

    def __init__(self, handle: Handle, forget: Callable[[Taking], None]) -> None:
        self._boxes = Mailboxes(handle, self._emptied)
        self._pullers: list[Puller] = []
        self._forget = forget
        self._stopped = False

    def _emptied(self) -> None:
        """Called when a key has nothing under way any more."""

    async def start(self, pullers: Sequence[Puller]) -> None:
        """Pull; all or nothing."""
        self._pullers = list(pullers)
        try:
            outcomes = await asyncio.gather(*(puller.start() for puller in pullers), return_exceptions=True)
            _raise_first(outcomes)
        except BaseException:  # cancelled too: nobody would ever stop what was begun
            await self.stop()
            raise

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
        await asyncio.gather(*(puller.let_go() for puller in self._pullers))


class StepTaking(Taking):
    """See `Steps`: asks for no more than there is room, and gives back what comes when the room is gone."""

    def __init__(self, handle: Handle, forget: Callable[[Taking], None], room: Callable[[], int]) -> None:
        super().__init__(handle, forget)
        self._room = room

    def room_grew(self) -> None:
        """See Steps."""
        for puller in self._pullers:
            puller.ask_more()

    def _emptied(self) -> None:
        self.room_grew()

    def lack(self, owed: int) -> int:
        """Ask for what is free, in portions that at least double what is owed: one request a message costs too much."""
        free = self._room() - len(self._boxes) - owed
        return min(free, STEP_BATCH_MAX) if free > 0 and free >= owed else 0

    async def put_asked(self, key: str, letter: Delivered, *, asked: bool) -> None:
        """Put what there is room for. A handler that begins may be counted twice, so what was asked for counts."""
        room = self._room()
        if room > 0 and (asked or room > len(self._boxes)):
            await self.put(key, letter)
        else:
            await letter.give_back(0)


def _raise_first(outcomes: Sequence[BaseException | None]) -> None:
    for outcome in outcomes:
        if outcome is not None:
            raise outcome


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

        async def on_message(message: Msg, *, asked: bool) -> None:  # noqa: ARG001 - there is always room for bells
            await taking.put(message.subject, delivered(message, self.connection, settled, self.streams.ack_wait_s))

        lanes = [
            self._lane(
                Source(
                    self.subjects.wake_stream,
                    self.subjects.wake_consumer(app, partition),
                    self.subjects.wakes(app, partition),
                ),
                on_message,
                steadily(BELL_BATCH),
            )
            for partition in dict.fromkeys(partitions)
        ]
        await taking.start([Puller(self.connection, lane) for lane in lanes])
        return taking

    def _lane(self, source: Source, on_message: OnMessage, lack: Lack, expires_s: float = EXPIRES_S) -> Lane:
        stream, consumer = source.stream, source.consumer
        doubt, end = partial(self.streams.forget_birth, stream), partial(self.streams.let_go, source)
        make = partial(self.streams.ensure_consumer, source)
        return Lane(stream, consumer, make, on_message, doubt, end, lack, expires_s)

    async def offerings(self, app: str, queue: str, on_offering: OnOffering, room: Callable[[], int]) -> StepTaking:
        """Start taking an app's offerings of a queue."""

        async def handle(letter: Delivered) -> None:
            if offering := self.subjects.offering_of(letter.message.subject):
                await on_offering(offering)

        taking = StepTaking(handle, self.forget, room)
        settled = Settled()

        async def on_message(message: Msg, *, asked: bool) -> None:
            letter = delivered(message, self.connection, settled, self.streams.ack_wait_s)
            await taking.put_asked(message.subject, letter, asked=asked)

        stream, subject = self.streams.want_queue(queue), self.subjects.offerings(queue, app)
        source = Source(stream, app, subject, max_ack_pending=STEPS_UNDER_WAY_MAX)
        await taking.start([Puller(self.connection, self._lane(source, on_message, taking.lack, STEP_EXPIRES_S))])
        return taking

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

        async def on_message(message: Msg, *, asked: bool) -> None:  # noqa: ARG001 - as above
            letter = delivered(message, self.connection, settled, self.streams.ack_wait_s)
            letter.birth = self.streams.birth_known(stream)  # now: later the stream may be another one
            await taking.put(letter.source, letter)

        source = Source(stream, START_CONSUMER, self.subjects.every_start)
        await taking.start([Puller(self.connection, self._lane(source, on_message, steadily(START_BATCH)))])
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
