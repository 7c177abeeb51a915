"""What has come for a hook and was not taken, in the order of the log, whether or not somebody waited when it came.

Who waits is woken one at a time and takes for itself: one that is cancelled after it was woken has taken nothing, and
the next one is woken instead (the way of `asyncio.Queue`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from fencepost.world import Read, weight_of

from .errors import InvalidInput, SerializationError
from .models import shown
from .webhooks import Webhook

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from fencepost.world import events as ev

    from .operations import Operation
    from .shape import Shape


class Inbox:
    """What has come for a hook and was not taken, and who waits for more."""

    __slots__ = ("arrived", "disposed", "owner", "shape", "taken", "token", "waiters", "web")

    def __init__(self, token: str, shape: Shape, *, web: bool) -> None:
        self.token, self.shape, self.web = token, shape, web
        self.arrived: deque[ev.HookReceived] = deque()
        self.waiters: deque[asyncio.Future[None]] = deque()
        self.taken = 0
        """How much the code has taken, by weight; the world counts what it has not (`Batch.reads`)."""
        self.owner = ""
        """Whose the token was when this hook was asked for: then it was never made."""
        self.disposed = False

    def put(self, received: ev.HookReceived) -> None:
        """Keep a payload and wake who has waited longest."""
        self.arrived.append(received)
        self.wake()

    def take(self) -> Any:
        """Return the payload that came first, read by its model in the task that takes it.

        It fitted when it was delivered, as far as could be told there. Who may send must not be able to stall the run.

        Raises:
            InvalidInput: it does not fit the model.
        """
        body = self.arrived.popleft()
        self.taken += weight_of(body)
        try:
            payload = self.shape.receive(bytes(body.payload.json))
        except SerializationError as misfit:
            raise InvalidInput(
                f"a payload of hook {shown(self.token)!r} (delivery {body.delivery!r}) does not fit its model: {misfit}"
            ) from misfit
        return Webhook(payload, body.token, body.delivery, dict(body.headers)) if self.web else payload

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
