"""Renews the lease of a node that is embedded in a user's process, from a thread of its own.

Weaker than a supervisor, and said so: a C call that keeps the GIL silences this thread as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Final

import structlog

from fencepost.world import IncarnationDead

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fencepost.world import World

__all__ = ["RENEWALS", "Renewal", "renewed"]

RENEWALS: Final = 4
"""How often a lease is renewed while it runs."""
AGAIN_S: Final = 0.5

log = structlog.get_logger(__name__)


async def renewed(renew: Callable[[str], Awaitable[None]], incarnation: str, within_s: float) -> bool:
    """Renew an incarnation, trying for as long as the world is away. False when it is dead."""
    told = False
    while True:
        try:
            async with asyncio.timeout(within_s):
                await renew(incarnation)
        except IncarnationDead:
            return False
        except Exception as error:  # noqa: BLE001  (whatever it is: the lease has to go on)
            if not told:
                log.warning("the lease cannot be renewed now", why=str(error) or type(error).__name__)
            told = True
            await asyncio.sleep(AGAIN_S)
            continue
        if told:
            log.info("the lease is renewed again", incarnation=incarnation)
        return True


class Renewal:
    """See the module. `connect` opens the world: a connection belongs to the loop it was made on."""

    def __init__(self, lease_s: float, connect: Callable[[], Awaitable[World]], incarnation: str) -> None:
        self._every_s, self._connect, self._incarnation = lease_s / RENEWALS, connect, incarnation
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="fencepost-lease", daemon=True)

    def start(self) -> None:
        """Renew from now on, until stopped or declared dead (which the node finds out by itself)."""
        self._thread.start()

    async def stop(self) -> None:
        """Renew no more. Idempotent."""
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._stopping.set)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._until_stopped())
        finally:
            self._loop.close()

    async def _until_stopped(self) -> None:
        keeping = asyncio.create_task(self._keep())
        stopped = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({keeping, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for task in (keeping, stopped):
            task.cancel()
        await asyncio.gather(keeping, stopped, return_exceptions=True)

    async def _keep(self) -> None:
        world = await self._connected()
        try:
            while await renewed(world.renew, self._incarnation, self._every_s):  # noqa: ASYNC110  (a clock rings nobody)
                await asyncio.sleep(self._every_s)
        finally:
            await world.close()

    async def _connected(self) -> World:
        while True:
            try:
                return await self._connect()
            except Exception as error:  # noqa: BLE001  (as above)
                log.warning("the lease has no connection yet", why=str(error))
                await asyncio.sleep(AGAIN_S)
