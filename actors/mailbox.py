"""Mailboxes: one per key, one message handler at a time per key, any number of keys at once.

The loop of a mailbox ends when it is empty. Emptiness is tested and the mailbox removed with no await in between: a
message that comes in that moment would otherwise be lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from . import bugs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .host import Host

M = TypeVar("M")


class Mailboxes(Generic[M]):
    """Delivers all waiting messages of a key at once to `handle(key, messages)`."""

    def __init__(self, host: Host, handle: Callable[[str, list[M]], Awaitable[None]]) -> None:
        self._host = host
        self._handle = handle
        self._boxes: dict[str, list[M]] = {}
        self.closed = False

    def post(self, key: str, message: M) -> None:
        """Put a message into a key's mailbox."""
        if self.closed:
            return
        box = self._boxes.get(key)
        if box is not None:
            box.append(message)
            return
        self._boxes[key] = [message]
        self._host.spawn(self._work(key), f"mailbox {key}")

    def waiting(self, key: str) -> list[M]:
        """Return what has come for a key since its handler was called."""
        return self._boxes.get(key, [])

    @property
    def busy(self) -> int:
        """How many keys have messages, waiting or being handled."""
        return len(self._boxes)

    async def _work(self, key: str) -> None:
        try:
            while box := self._boxes[key]:
                self._boxes[key] = []
                try:
                    await self._handle(key, box)
                except Exception:  # noqa: BLE001  (reported)
                    # The handler settles everything it can foresee; what is left is a bug of ours. The sweeper wakes
                    # the run again, so nothing is lost by going on.
                    bugs.report("actor failed", key=key)
        finally:
            del self._boxes[key]
