"""Questions to a node: asked again while nobody answers, refusals raised as their type.

Every question may be asked twice: one that changes something carries an id or a key. So a lost answer costs time only.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from fencepost.bus import BusError, BusUnusable, NoResponder, PayloadTooLarge, Reply, Unreachable

from .answers import read
from .errors import (
    FencepostError,
    HookFull,
    HookNotFound,
    InvalidInput,
    RequestRefused,
    RunExists,
    RunNotFound,
    Unavailable,
    ValueTooLarge,
    WorkflowUnknown,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fencepost.bus import Bus

T = TypeVar("T")

ANSWER_S: Final = 8.0
"""What a node may take for an answer, beside the time it was asked to wait."""
UNREACHABLE_S: Final = 20.0
"""How long a question is repeated while the server is away or nothing is answered."""
NO_NODE_S: Final = 1.0
"""The same while the server says that nobody serves it and nobody ever did: most likely none runs."""
NODE_AWAY_S: Final = 10.0
"""The same when somebody did: a client may be at another server of the cluster sooner than the nodes are."""
STORE_AWAY_S: Final = 3.0
PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 1.0

_BY_NAME: Final[dict[str, Callable[[str, str], FencepostError]]] = {
    "InvalidInput": lambda message, _about: InvalidInput(message),
    "RunNotFound": RunNotFound,
    "HookNotFound": HookNotFound,
    "HookFull": HookFull,
    "RunExists": RunExists,
    "ValueTooLarge": lambda message, _about: ValueTooLarge(message),
    "too_large": lambda message, _about: ValueTooLarge(message),
    "WorkflowUnknown": WorkflowUnknown,
    "Unavailable": lambda message, _about: Unavailable(message),
    "busy": lambda message, _about: Unavailable(message),
}


class _Refusal(msgspec.Struct, frozen=True):
    error: str = ""
    message: str = ""


class Asking:
    """Asks the nodes of a namespace over a bus."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.answered = False
        """Whether anybody ever answered: then an absence is one, and not a wrong address or namespace."""
        self.closed = ""
        """Why nothing can be asked now, when that is so: the bus has not been opened."""

    def opened(self) -> Bus:
        """Return the bus.

        Raises:
            RuntimeError: it is not open. To wait for that, as for a server that went away, would be in vain.
        """
        if self.closed:
            raise RuntimeError(self.closed)
        return self.bus

    async def ask(self, endpoint: str, kind: type[T], *, rest: str = "", wait_s: float = 0.0, **question: Any) -> T:
        """Ask and return the answer. `wait_s` is how long the node may wait for news.

        Raises:
            Unavailable: nobody answers.
            FencepostError: the node refuses, as the type of its reason.
        """
        if wait_s:
            question["wait_s"] = wait_s
        body = msgspec.json.encode(question)
        return read(await self.send(endpoint, body, rest=rest, wait_s=wait_s, about=question.get("id", "")), kind)

    async def send(
        self, endpoint: str, body: bytes, *, rest: str = "", wait_s: float = 0.0, about: str = "", once: bool = False
    ) -> bytes:
        """Send a question as it is; with `once` never a second time unless it surely did not arrive."""
        bus = self.opened()

        async def request() -> bytes:
            reply = await bus.request(endpoint, body, rest=rest, timeout_s=wait_s + ANSWER_S)
            self.answered = True
            return _accepted(reply, about)

        return await patiently(request, once=once, no_node_s=NODE_AWAY_S if self.answered else NO_NODE_S)


async def patiently(attempt: Callable[[], Awaitable[T]], *, once: bool = False, no_node_s: float = NO_NODE_S) -> T:
    """Do it until it is answered, as long as the reason it was not deserves; bus errors leave as ours."""
    loop = asyncio.get_running_loop()
    began, pause_s = loop.time(), PAUSE_S_MIN
    while True:
        try:
            return await attempt()
        except (Unreachable, NoResponder, Unavailable) as error:
            waited_s = loop.time() - began + pause_s
            if waited_s > (no_node_s if isinstance(error, NoResponder) else _patience_s(error, once=once)):
                raise _unavailable(error, once=once) from error
        except BusError as error:
            raise _translated(error) from error
        except ValueError as error:  # what cannot be part of a subject
            raise InvalidInput(str(error)) from error
        await asyncio.sleep(pause_s * random.uniform(0.7, 1.0))  # noqa: S311  (spreads a crowd, hides nothing)
        pause_s = min(2 * pause_s, PAUSE_S_MAX)


def _patience_s(error: Exception, *, once: bool) -> float:
    if isinstance(error, Unreachable):
        return 0.0 if once else UNREACHABLE_S
    return STORE_AWAY_S


def _unavailable(error: Exception, *, once: bool) -> FencepostError:
    if isinstance(error, Unavailable):
        return error
    if isinstance(error, Unreachable) and once:
        return Unavailable(f"{error}; it may have happened all the same: look before you do it again")
    if isinstance(error, NoResponder):
        return Unavailable("no node answers: start a node of this namespace, or give the namespace of one that runs")
    return Unavailable(str(error))


def _translated(error: BusError) -> FencepostError:
    match error:
        case PayloadTooLarge(size_bytes=size, limit_bytes=limit):
            return ValueTooLarge(str(error), size, limit)
        case BusUnusable():
            return Unavailable(str(error))
        case _:
            return RequestRefused(str(error), type(error).__name__)


def _accepted(reply: Reply, about: str) -> bytes:
    """Return the body of an answer that is no refusal."""
    if not reply.error:
        return reply.body
    message = reply.description
    with contextlib.suppress(msgspec.MsgspecError):  # no node of ours wrote it: the header is all there is
        message = msgspec.json.decode(reply.body, type=_Refusal).message or message
    make = _BY_NAME.get(reply.error)
    raise make(message, about) if make else RequestRefused(message or reply.error, reply.error)
