"""A node in this process that stays joined: a thread renews its lease, and when it was declared dead it joins again."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from fencepost.actors import Node as Actors
from fencepost.bus import BusError
from fencepost.world import WorldError

from .renewal import Renewal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fencepost.actors import App, NodeSettings
    from fencepost.bus import Bus
    from fencepost.world import World

__all__ = ["Joined"]

AGAIN_S: Final = 1.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Joined:
    """See the module. Where settings have a lease, `connect` opens the world once more, for the thread.

    `joined` is called when it has a new incarnation.
    """

    app: App
    world: World
    bus: Bus
    settings: NodeSettings
    connect: Callable[[], Awaitable[World]]
    joined: Callable[[], None] = lambda: None
    actors: Actors | None = None
    _renewal: Renewal | None = None
    _keeper: asyncio.Task[None] | None = None

    @property
    def incarnation(self) -> str:
        """What it has joined as; empty before."""
        return self.actors.incarnation if self.actors else ""

    async def start(self) -> None:
        """Join and serve. What was begun by one that fails is ended by `stop`."""
        await self._join()
        if self.settings.lease_s is not None:
            self._keeper = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """Let steps end for the grace, and leave. Idempotent."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        actors, self.actors = self.actors, None
        try:
            if actors is not None:
                await actors.stop()
        finally:
            await self._renew_no_more()

    async def _join(self) -> None:
        actors = self.actors = Actors(self.app, self.world, self.bus, self.settings)
        await actors.start()
        if self.settings.lease_s is not None:
            self._renewal = Renewal(self.settings.lease_s, self.connect, actors.incarnation)
            self._renewal.start()
        self.joined()

    async def _renew_no_more(self) -> None:
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            await renewal.stop()

    async def _keep(self) -> None:
        """Join again whenever the present incarnation was declared dead."""
        while self.actors is not None:
            await self.actors.died.wait()
            log.warning("the node joins again", after=self.actors.incarnation)
            await self._renew_no_more()
            with contextlib.suppress(WorldError):  # it leaves last of all, and has left
                await self.actors.stop()
            await self._join_at_last()

    async def _join_at_last(self) -> None:
        while True:
            try:
                await self._join()
            except (WorldError, BusError) as error:
                log.warning("the node cannot join again yet", why=str(error))
                if self.actors is not None:
                    with contextlib.suppress(WorldError):
                        await self.actors.stop()
                await asyncio.sleep(AGAIN_S)
            else:
                return
