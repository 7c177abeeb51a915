"""One thing at a time per key, several keys at once; what comes meanwhile is handled after, never swallowed.

Both buses end here. A letter is settled when its handler returned and given back when it raised. Letters that wait
for the same key coalesce into one call: they carry no data, or are the same message again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from .interface import Again

__all__ = ["Letter", "Mailboxes", "cancelled", "retry_delay_s"]

log = logging.getLogger("fencepost.bus")

RETRY_FIRST_S = 0.1
RETRY_MAX_S = 5.0
DOUBLINGS_MAX = 10


class Letter(Protocol):
    """One delivery of something that comes again until it is settled."""

    @property
    def identity(self) -> Hashable:
        """The same for every delivery of one message."""
        ...

    @property
    def delivery(self) -> int:
        """Which delivery this is, from 1."""
        ...

    @property
    def expired(self) -> bool:
        """Whether it lay here so long that the sender delivers it again on its own."""
        ...

    async def settle(self) -> None:
        """Never deliver it again."""
        ...

    async def give_back(self, delay_s: float) -> None:
        """Deliver it again, to anyone, after the delay."""
        ...


LetterT = TypeVar("LetterT", bound=Letter)


def retry_delay_s(delivery: int) -> float:
    """Double from a tenth of a second to five, so that a handler that always fails does not spin."""
    return min(RETRY_FIRST_S * 2.0 ** min(delivery - 1, DOUBLINGS_MAX), RETRY_MAX_S)


def cancelled() -> bool:
    """Tell whether it is this task that is to end, and not something a handler awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _nobody() -> None:
    """Tell nobody."""


@dataclass(slots=True)
class _Box(Generic[LetterT]):
    waiting: dict[Hashable, LetterT] = field(default_factory=dict[Hashable, LetterT])
    active: dict[Hashable, LetterT] = field(default_factory=dict[Hashable, LetterT])


class Mailboxes(Generic[LetterT]):
    """A mailbox per key that exists only while it has something in it."""

    def __init__(self, handle: Callable[[LetterT], Awaitable[None]], emptied: Callable[[], None] | None = None) -> None:
        """`emptied` is called whenever a key has nothing under way any more."""
        self._handle = handle
        self._emptied = emptied or _nobody
        self._boxes: dict[Hashable, _Box[LetterT]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._returned: list[LetterT] = []
        self._closed = False

    def __len__(self) -> int:
        """Count the keys that have something under way."""
        return len(self._boxes)

    def put(self, key: Hashable, letter: LetterT) -> None:
        """Queue a letter; after `close`, keep it to be given back."""
        box = self._boxes.get(key)
        if box is not None and letter.identity in box.active:
            box.active[letter.identity] = letter  # delivered again while it is handled: settle this delivery instead
        elif self._closed:
            self._returned.append(letter)
        elif box is not None:
            box.waiting[letter.identity] = letter
        else:
            box = self._boxes[key] = _Box()
            box.waiting[letter.identity] = letter
            task = asyncio.get_running_loop().create_task(self._work(key, box))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def waits(self, key: Hashable) -> bool:
        """Tell whether a letter waits for this key beside the one under way."""
        box = self._boxes.get(key)
        return box is not None and bool(box.waiting)

    def close(self) -> None:
        """Begin nothing new."""
        self._closed = True
        for box in self._boxes.values():
            self._returned.extend(box.waiting.values())
            box.waiting = {}

    async def stop(self) -> None:
        """Give back what waits and wait for what is under way."""
        self.close()
        await self._give_back()
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        await self._give_back()

    async def _give_back(self) -> None:
        while self._returned:
            await self._returned.pop().give_back(0)

    async def _work(self, key: Hashable, box: _Box[LetterT]) -> None:
        while True:
            # Looking and deleting have no await between them: a letter put in between would be lost.
            box.active = {i: letter for i, letter in box.waiting.items() if not letter.expired}
            box.waiting = {}
            if not box.active:
                del self._boxes[key]
                self._emptied()
                return
            await self._one(box)

    async def _one(self, box: _Box[LetterT]) -> None:
        letter = next(reversed(box.active.values()))
        delay_s = await self._try(letter)
        for done in list(box.active.values()):
            await (done.settle() if delay_s is None else done.give_back(delay_s))

    async def _try(self, letter: LetterT) -> float | None:
        """Return None when handled, else the delay after which it should come again."""
        try:
            await self._handle(letter)
        except Again as again:
            return again.delay_s
        except (Exception, asyncio.CancelledError):  # a cancelled handler must not leave its key closed for ever
            if cancelled():
                raise
            log.exception("a handler failed; its message (delivery %d) comes again", letter.delivery)
            return retry_delay_s(letter.delivery)
        return None
