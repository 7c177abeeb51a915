"""The nats-server of `dev`: on the port it had, else 4222, else a free one; started again when it dies."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Final

from fencepost.bus import BusUnusable, NatsServer

from . import processes
from .exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .devfile import Started

__all__ = ["PORT", "Server"]

PORT: Final = 4222
POLL_S: Final = 0.1
HEALTHY_S: Final = 3.0
PATIENCE_S: Final = 60.0
"""For a store that is large."""

SPOILT: Final = "could not be recovered"
"""What the server's log says of a stream that was cut off while it was written or deleted."""

SLOW: Final = "was not healthy within"
"""What `NatsServer` says of one that runs and may only need longer."""

PAUSE_S_MIN: Final = 0.1
PAUSE_S_MAX: Final = 5.0


class Server:
    """See the module. `noted` is called when its process is another one, `say` with what a person should know."""

    def __init__(
        self,
        folder: Path,
        *,
        asked: int | None,
        last: int | None,
        noted: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        """Say where; `asked` is a port that must be had, `last` one that clients may still know."""
        self._folder = folder
        self._server = NatsServer(folder, port=asked or last or PORT, or_free_port=asked is None)
        self._asked = asked
        self._last = last
        self._noted = noted
        self._say = say
        self.process: Started | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return self._server.url

    @property
    def monitoring(self) -> str:
        """Where it tells about itself."""
        return self._server.monitoring_url or ""

    async def start(self) -> None:
        """Start it.

        Raises:
            CommandError: the asked port is taken, there is no server, or it does not get well.
        """
        if self._last not in {None, PORT} and self._asked is None:
            await self._start_on_last()
        if self.process is not None:
            return
        try:
            await self._start_or_anew()
        except BusUnusable as error:
            raise CommandError(str(error)) from error
        self._note()

    async def _start_on_last(self) -> None:
        """Try the port of the last time; when it is taken by now the usual one is the next to try."""
        server = NatsServer(self._folder, port=self._last or PORT)
        try:
            await server.start()
        except BusUnusable:
            self._server = NatsServer(self._folder, port=PORT, or_free_port=True)
            return
        self._server = server
        self._note()

    async def keep(self) -> None:
        """Start it again whenever it dies, until cancelled."""
        pause_s = PAUSE_S_MIN
        while True:
            if processes.is_running(self.process):
                pause_s = PAUSE_S_MIN
                await asyncio.sleep(POLL_S)
                continue
            pause_s = await self._again(pause_s)

    async def _again(self, pause_s: float) -> float:
        await self._server.kill()  # it is dead: this only forgets it
        # Whoever is connected knows this port: on another one nobody would find it.
        self._server = NatsServer(self._folder, port=self._server.port)
        try:
            await self._start_or_anew()
        except BusUnusable as error:
            self._say(f"nats-server has died and does not start: {error}; again in {pause_s:g} s")
            await asyncio.sleep(pause_s)
            return min(pause_s * 2, PAUSE_S_MAX)
        self._note()
        self._say("nats-server had stopped and runs again; nothing is lost")
        return pause_s

    async def _start_or_anew(self) -> None:
        """Start it; when its store is spoilt, with an empty one: what is true is in the world, not there (L1)."""
        try:
            await self._server.start(timeout_s=HEALTHY_S)
        except BusUnusable as error:
            if SPOILT in str(error):
                self._set_store_aside()
            elif SLOW not in str(error):
                raise
            await self._server.start(timeout_s=PATIENCE_S)

    def _set_store_aside(self) -> None:
        aside = self._server.store.with_name("store-spoilt")
        shutil.rmtree(aside, ignore_errors=True)
        self._server.store.rename(aside)
        self._say(f"the store of nats-server was spoilt: it is moved to {aside}, and begun anew")

    async def stop(self) -> None:
        """Stop it. Idempotent."""
        await self._server.stop()
        self.process = None

    def _note(self) -> None:
        self.process = processes.started("nats-server", self._server.pid or 0)
        self._noted()
