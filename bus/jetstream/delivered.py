"""A message of a stream on its way through a mailbox."""

from __future__ import annotations

import contextlib
import json
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..errors import BusError
from .streams import NS

if TYPE_CHECKING:
    from collections.abc import Hashable

    from nats.aio.msg import Msg

    from .connection import Connection

__all__ = ["Delivered", "Settled", "delivered"]

SETTLED_MAX: Final = 4096


class Settled:
    """The messages that were handled lately.

    While this process was held up the server may have sent one message several times over; the copies lie in the
    socket and come one after the other. They are acknowledged without being handled again.
    """

    def __init__(self) -> None:
        self._identities: OrderedDict[Hashable, None] = OrderedDict()

    def add(self, identity: Hashable) -> None:
        """Remember this one, and forget the oldest."""
        self._identities[identity] = None
        if len(self._identities) > SETTLED_MAX:
            self._identities.popitem(last=False)

    def __contains__(self, identity: Hashable) -> bool:
        return identity in self._identities


@dataclass(slots=True, eq=False)
class Delivered:
    """See `Letter`. It is acknowledged only on the connection that brought it."""

    message: Msg
    identity: Hashable
    delivery: int
    source: str
    arrived: float
    epoch: int
    connection: Connection
    settled: Settled
    ack_wait_s: float
    birth: str | None = None

    def __repr__(self) -> str:
        return f"{self.message.subject} (delivery {self.delivery})"

    @property
    def expired(self) -> bool:
        """See Letter."""
        return time.monotonic() - self.arrived > self.ack_wait_s

    async def settle(self) -> None:
        """See Letter."""
        self.settled.add(self.identity)
        await self._say(b"+ACK")

    async def give_back(self, delay_s: float) -> None:
        """See Letter."""
        delay = b" " + json.dumps({"delay": int(delay_s * NS)}).encode() if delay_s > 0 else b""
        await self._say(b"-NAK" + delay)

    async def _say(self, word: bytes) -> None:
        if self.epoch != self.connection.epoch:
            return  # in a store made anew this number may be another message
        with contextlib.suppress(BusError):  # not said: it comes again after the acknowledgement time
            await self.connection.publish(self.message.reply, word)


def delivered(message: Msg, connection: Connection, settled: Settled, ack_wait_s: float) -> Delivered:
    """Take in what a consumer sent."""
    about = message.metadata
    source = f"{about.sequence.stream}-{about.timestamp.timestamp():.6f}"
    return Delivered(
        message=message,
        identity=source,
        delivery=about.num_delivered,
        source=source,
        arrived=connection.arrival(),
        epoch=connection.epoch,
        connection=connection,
        settled=settled,
        ack_wait_s=ack_wait_s,
    )
