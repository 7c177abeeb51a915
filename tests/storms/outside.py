"""Who starts runs and sends payloads: a client that is patient with nodes that die, and keeps book of all it did."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost import errors

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from fencepost import Client, RunHandle, Workflow

T = TypeVar("T")

AGAIN_S = 0.1
SOON_S = 0.05
LATER_S = 0.8
ASK_S = 4.0
"""How long one question for the end waits: who asked a node that is then killed hears nothing of it for so long."""
FINISH_S = 120.0
"""How long a run may take from its start, whoever is killed meanwhile."""


@dataclass
class Delivery:
    """One payload, and what its sender was answered in the end."""

    token: str
    payload: int
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    answered: bool = False
    run_id: str = ""
    """Whose hook took it; empty when none did."""


@dataclass
class Told:
    """One run as the outside knows it. `asked` is what its play has to remember for the judge."""

    run_id: str
    workflow: str
    asked: dict[str, Any]
    deliveries: list[Delivery] = field(default_factory=list)
    returned: Any = None
    trouble: str = ""
    """How it ended, when it did not complete in time."""


@dataclass
class Outside:
    """See the module. `told` is the book."""

    client: Client
    rng: random.Random
    told: list[Told] = field(default_factory=list)

    async def pause(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(self.rng.uniform(least_s, most_s))  # real time: the moment is what is drawn

    async def start(self, flow: Workflow[..., Any], *given: Any, **asked: Any) -> Running:
        """Start a run; what nobody answers is asked again under the same id."""
        name = f"{flow.name}-{uuid.uuid4().hex}"
        handle = await patiently(lambda: self.client.start(flow, *given, id=name))
        told = Told(handle.run_id, flow.name, asked)
        self.told.append(told)
        return Running(self, handle, told)


@dataclass
class Running:
    """A run under way. `over` is set when its end is known."""

    outside: Outside
    handle: RunHandle[Any]
    told: Told
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def end(self) -> None:
        """Wait for the end, for as long as a run may take."""
        try:
            async with asyncio.timeout(FINISH_S):
                self.told.returned = await self._result()
        except TimeoutError:
            self.told.trouble = f"not finished after {FINISH_S:g} s"
        except errors.FencepostError as error:
            self.told.trouble = f"ended with {type(error).__name__}: {error}"
        finally:
            self.over.set()

    async def _result(self) -> Any:
        while True:
            with contextlib.suppress(TimeoutError):
                return await patiently(lambda: self.handle.result(ASK_S))
            if (status := await patiently(self.handle.status)).stalled:
                raise errors.FencepostError(f"stalled: {status.stalled}")

    async def send(self, token: str, payload: int) -> bool:
        """Send a payload once, however often it takes to hear the answer. False when no hook was there."""
        delivery = Delivery(token, payload)
        self.told.deliveries.append(delivery)
        client = self.outside.client
        with contextlib.suppress(errors.HookNotFound):
            delivery.run_id = (await patiently(lambda: client.resume(token, payload, delivery=delivery.id))).run_id
        delivery.answered = True
        return bool(delivery.run_id)

    async def deliver(self, token: str, payload: int) -> None:
        """Send a payload until a hook takes it or the run is over."""
        pause_s = SOON_S
        while not self.over.is_set() and not await self.send(token, payload):
            await asyncio.sleep(pause_s)  # real time: nobody rings when a hook is made
            pause_s = min(2 * pause_s, LATER_S)


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until somebody answers, for as long as a run may take.

    Raises:
        Unavailable: nobody did.
    """
    until_s = time.monotonic() + FINISH_S
    while True:
        try:
            return await ask()
        except errors.Unavailable:
            if time.monotonic() > until_s:
                raise
            await asyncio.sleep(AGAIN_S)  # real time: nodes are killed, by intent
