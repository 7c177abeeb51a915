"""Where a `dev` keeps what is true: a SQLite file, or with `--stack` a Postgres of its own, started again when it dies.

Both stay in the state folder. On a store that nobody can find any more every answer would be a false promise, so a
`dev` whose store was removed or replaced ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, Protocol

from fencepost.world import SQLiteWorld, Unusable, WorldError

from ..errors import Unavailable
from . import processes
from .exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fencepost.world import PostgresServer, World

    from .devfile import DevFile, Started
    from .place import Place

__all__ = ["DatabaseStore", "FileStore", "OtherSeed", "Store"]

WATCH_S: Final = 0.5
POLL_S: Final = 0.1
START_S: Final = 60.0
"""For a database that recovers after a crash."""
PAUSE_S_MIN: Final = 0.1
PAUSE_S_MAX: Final = 5.0
LEASE_S: Final = 10.0


class OtherSeed(Exception):
    """The world wants another hash seed than this process has: only a process begun anew can have it."""

    def __init__(self, seed: int) -> None:
        super().__init__(f"the world's hash seed is {seed}")
        self.seed = seed


class Store(Protocol):
    """See the module."""

    lease_s: float | None
    """How long the node lives without being renewed."""

    @property
    def process(self) -> Started | None:
        """The server of its own, if it has one and that runs."""
        ...

    @property
    def port(self) -> int:
        """Where that server listens, on this machine; 0 when there is none."""
        ...

    async def start(self) -> None:
        """Make it reachable.

        Raises:
            CommandError: it cannot be.
        """
        ...

    async def keep(self) -> None:
        """Keep it running until cancelled.

        Raises:
            CommandError: it was removed or replaced.
        """
        ...

    async def again(self) -> World:
        """Open the world once more, for who renews the lease.

        Raises:
            Unavailable: the database is away.
        """
        ...

    async def connect(self) -> World:
        """Open the world in it, made or brought to this version if need be.

        Raises:
            OtherSeed: see there.
        """
        ...

    async def stop(self) -> None:
        """Stop what `start` started. Idempotent."""
        ...


class FileStore:
    """SQLite. The file lock is what keeps a second node out."""

    lease_s: float | None = None
    process: Started | None = None
    port = 0

    def __init__(self, place: Place, namespace: str, seed: int) -> None:
        self._file, self._namespace, self._seed = place.world, namespace, seed

    async def start(self) -> None:
        """See Store."""

    async def keep(self) -> None:
        """See Store."""
        while not self._file.exists():  # noqa: ASYNC110  (it is made when the world is opened)
            await asyncio.sleep(POLL_S)
        await _until_gone(self._file)

    async def connect(self) -> World:
        """See Store."""
        return await SQLiteWorld.connect(self._file, namespace=self._namespace, hash_seed=self._seed)

    async def again(self) -> World:
        """See Store. Never asked: there is no lease, and the file has one process."""
        return await self.connect()

    async def stop(self) -> None:
        """See Store."""


class DatabaseStore:
    """Postgres, from its wheel. `noted` is called when its process is another one, `say` is for people."""

    lease_s: float | None = LEASE_S

    def __init__(
        self,
        place: Place,
        namespace: str,
        seed: int,
        *,
        last: DevFile | None,
        noted: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._place, self._namespace, self._seed, self._last = place, namespace, seed, last
        self._noted, self._say = noted, say
        self._server = self._on(last.database_port if last else 0)
        self.process: Started | None = None

    def _on(self, port: int) -> PostgresServer:
        from fencepost.world import PostgresServer  # noqa: PLC0415  (with its driver, which SQLite does not need)

        return PostgresServer(self._place.database, port=port)

    @property
    def port(self) -> int:
        """See Store."""
        return self._server.port

    async def start(self) -> None:
        """See Store. On the port it had, else on a free one."""
        try:
            await self._server.start(timeout_s=START_S)
        except Unusable as error:
            if "is taken by another program" not in str(error):
                raise CommandError(str(error)) from error
            self._server = self._on(0)
            await self._server.start(timeout_s=START_S)
        self._note()

    async def keep(self) -> None:
        """See Store."""
        data = asyncio.create_task(_until_gone(self._server.data))
        try:
            while not data.done():
                await (asyncio.sleep(POLL_S) if processes.is_running(self.process) else self._again())
            await data
        finally:
            data.cancel()

    async def _again(self) -> None:
        await self._server.kill()  # it is dead: this ends the children that outlived it, and forgets it
        pause_s = PAUSE_S_MIN
        while True:
            try:
                await self._server.start(timeout_s=START_S)
            except Unusable as error:
                self._say(f"Postgres has died and does not start: {error}; again in {pause_s:g} s")
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, PAUSE_S_MAX)
                continue
            self._note()
            self._say("Postgres had stopped and runs again; nothing is lost")
            return

    async def connect(self) -> World:
        """See Store."""
        from fencepost.world import PostgresWorld, migrate  # noqa: PLC0415  (as above)

        url = self._server.url
        await migrate(url, self._namespace, hash_seed=self._seed)
        world = await PostgresWorld.connect(url, namespace=self._namespace)
        try:
            await self._check_seed(world)
            await self._bury_the_last(world)
        except BaseException:
            await world.close()
            raise
        return world

    async def _check_seed(self, world: World) -> None:
        facts = await world.facts()
        self._place.keep_seed(facts.hash_seed)
        if facts.hash_seed != self._seed:
            raise OtherSeed(facts.hash_seed)

    async def _bury_the_last(self, world: World) -> None:
        """End the incarnation of a `dev` that was killed: it is dead for certain, nobody has to wait for its lease."""
        if self._last and self._last.incarnation and self._last.namespace == self._namespace:
            await world.leave(self._last.incarnation)

    async def again(self) -> World:
        """See Store."""
        from fencepost.world import PostgresWorld  # noqa: PLC0415  (as above)

        try:
            return await PostgresWorld.connect(self._server.url, namespace=self._namespace)
        except WorldError as error:
            raise Unavailable(str(error)) from error

    async def stop(self) -> None:
        """See Store."""
        await self._server.stop()
        self.process = None

    def _note(self) -> None:
        self.process = processes.started("postgres", self._server.pid or 0)
        self._noted()


async def _until_gone(path: Path) -> None:
    """Watch a file or folder.

    Raises:
        CommandError: it was removed or replaced.
    """
    ours = _inode(path)
    while _inode(path) == ours:  # noqa: ASYNC110  (a file rings nobody)
        await asyncio.sleep(WATCH_S)
    raise CommandError(f"{path} was removed or replaced under the running dev: start it again")


def _inode(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_ino
    return 0
