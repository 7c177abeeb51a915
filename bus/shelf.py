"""What waits inside one process until somebody takes it: bounded, the oldest falls off."""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field, replace

from .interface import Bell, Offering, StartMessage
from .mailbox import Mailboxes

__all__ = ["Letter", "Shelf", "StepShelf", "StepTaker", "Taker"]


@dataclass(slots=True)
class Letter:
    """What is on its way; what is given back is kept for the next who takes."""

    what: Bell | StartMessage | Offering
    keep: Callable[[Letter], None]
    identity: int
    """A new one per ring: a ring during handling is another message, not the same one again."""

    delivery: int = 1
    expired: bool = False

    @property
    def key(self) -> Hashable:
        """What letters that carry no data coalesce by."""
        return self.identity if isinstance(self.what, StartMessage) else self.what

    async def settle(self) -> None:
        """Nothing is kept of it."""

    async def give_back(self, delay_s: float) -> None:
        """See mailbox.Letter."""
        again = replace(self, delivery=self.delivery + 1)
        if delay_s > 0:
            asyncio.get_running_loop().call_later(delay_s, self.keep, again)
        else:
            self.keep(again)


Handle = Callable[[Letter], Awaitable[None]]
Place = tuple[Hashable, Hashable]
"""A topic and the key of a letter."""


@dataclass(slots=True, eq=False)
class Taker:
    """Who takes from a shelf."""

    boxes: Mailboxes[Letter]
    forget: Callable[[Taker], None]
    topics: frozenset[Hashable]
    stopped: bool = False

    async def stop(self) -> None:
        """See Subscription."""
        if not self.stopped:
            self.stopped = True
            self.forget(self)
        await self.boxes.stop()


@dataclass(slots=True)
class Shelf:
    """What nobody takes yet, by topic, and who takes it."""

    limit: int
    kept: OrderedDict[Place, Letter] = field(default_factory=OrderedDict["Place", Letter])
    takers: list[Taker] = field(default_factory=list[Taker])
    turn: itertools.count[int] = field(default_factory=itertools.count)

    def put(self, topic: Hashable, letter: Letter) -> None:
        """Hand over to who takes the topic, else keep."""
        takers = [taker for taker in self.takers if topic in taker.topics]
        boxes = takers[next(self.turn) % len(takers)].boxes if takers else None
        if boxes is None:
            self.kept[topic, letter.key] = letter
            if len(self.kept) > self.limit:
                self.kept.popitem(last=False)
        elif not boxes.waits(letter.key):
            boxes.put(letter.key, letter)

    def take(self, topics: frozenset[Hashable], handle: Handle) -> Taker:
        """Take the topics from now on, and what is kept of them."""
        taker = Taker(Mailboxes(handle), self.takers.remove, topics)
        self.takers.append(taker)
        for place in [place for place in self.kept if place[0] in topics]:
            letter = self.kept.pop(place)
            letter.keep(letter)
        return taker

    async def stop(self) -> None:
        """Stop who takes."""
        for taker in list(self.takers):
            await taker.stop()


@dataclass(slots=True, eq=False)
class StepTaker:
    """See Steps."""

    boxes: Mailboxes[Letter]
    room: Callable[[], int]
    room_grew: Callable[[], None]
    forget: Callable[[StepTaker], None]
    stopped: bool = False

    @property
    def has_room(self) -> bool:
        """Whether it may be handed one more."""
        return self.room() > len(self.boxes)

    async def stop(self) -> None:
        """See Subscription."""
        if not self.stopped:
            self.stopped = True
            self.forget(self)
        await self.boxes.stop()


class StepShelf:
    """An app's offerings of one queue: handed over in turn to who has room, the others wait."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[Hashable, Letter] = OrderedDict()
        self._takers: list[StepTaker] = []
        self._turn = itertools.count()

    def put(self, letter: Letter) -> None:
        """Keep it, and hand over what can be; offered again it waits once."""
        self._kept[letter.key] = letter
        if len(self._kept) > self._limit:
            self._kept.popitem(last=False)
        self._hand_over()

    def take(self, handle: Handle, room: Callable[[], int]) -> StepTaker:
        """Take offerings from now on, and what is kept of them."""
        taker = StepTaker(Mailboxes(handle, self._hand_over), room, self._hand_over, self._takers.remove)
        self._takers.append(taker)
        self._hand_over()
        return taker

    def _hand_over(self) -> None:
        while self._kept and (taker := self._next()) is not None:
            taker.boxes.put(*self._kept.popitem(last=False))

    def _next(self) -> StepTaker | None:
        """Return who has room, beginning after who was asked last."""
        first = next(self._turn)
        for number in range(len(self._takers)):
            taker = self._takers[(first + number) % len(self._takers)]
            if taker.has_room:
                return taker
        return None

    async def stop(self) -> None:
        """Stop who takes."""
        for taker in list(self._takers):
            await taker.stop()
