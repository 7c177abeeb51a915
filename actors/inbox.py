"""What has come for a hook and was not taken, in the order of the log, whether or not somebody waited when it came.

Who waits is woken one at a time and takes for itself: one that is cancelled after it was woken has taken nothing, and
the next one is woken instead (the way of `asyncio.Queue`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.world import Read

from .errors import InvalidInput

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from .operations import Operation
    from .shape import Shape


@dataclass(frozen=True, slots=True)
class Unfit:
    """A payload that does not fit the hook's model, and why."""

    why: str


class Inbox:
    """What has come for a hook and was not taken, and who waits for more."""

    __slots__ = ("arrived", "disposed", "owner", "shape", "taken", "token", "waiters", "web")

    def __init__(self, token: str, shape: Shape, *, web: bool) -> None:
        self.token, self.shape, self.web = token, shape, web
        self.arrived: deque[tuple[Any, int]] = deque()
        self.waiters: deque[asyncio.Future[None]] = deque()
        self.taken = 0
        """How much the code has taken, by weight; the world counts what it has not (`Batch.reads`)."""
        self.owner = ""
        """Whose the token was when this hook was asked for: then it was never made."""
        self.disposed = False

    def put(self, payload: Any, weight: int = 1) -> None:
        """Keep a payload and wake who has waited longest."""
        self.arrived.append((payload, weight))
        self.wake()

    def take(self) -> Any:
        """Return the payload that came first.

        Raises:
            InvalidInput: it does not fit the model.
        """
        payload, weight = self.arrived.popleft()
        self.taken += weight
        if isinstance(payload, Unfit):
            raise InvalidInput(payload.why)
        return payload

    def gave_up(self, waiter: asyncio.Future[None]) -> None:
        """Forget who was cancelled. Had it been woken it takes nothing, and the next one is to have it."""
        if waiter in self.waiters:
            self.waiters.remove(waiter)
        elif self.arrived:
            self.wake()

    def close(self, *, owner: str = "") -> None:
        """Let everybody who waits find that nothing will come any more."""
        self.disposed, self.owner = True, owner
        for waiter in self.waiters:
            _wake(waiter)
        self.waiters.clear()

    def wake(self) -> None:
        """Wake the first that still waits."""
        while self.waiters:
            if _wake(self.waiters.popleft()):
                return


def _wake(waiter: asyncio.Future[None]) -> bool:
    if waiter.done():
        return False
    waiter.set_result(None)
    return True


class Reads:
    """What the world was told of how much the code has taken."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}

    def news(self, hooks: Iterable[Operation]) -> tuple[Read, ...]:
        """Return what to tell it of open hooks."""
        taken = {hook.path: hook.inbox.taken for hook in hooks if hook.inbox is not None and hook.inbox.taken}
        return tuple(Read(op, count) for op, count in taken.items() if self._told.get(op) != count)

    def told(self, reads: Iterable[Read]) -> None:
        """Note what it knows now."""
        self._told.update({read.op: read.count for read in reads})
