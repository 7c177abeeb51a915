"""What a supervisor does to the world in the name of its node: it alone keeps the incarnation, and ends it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Protocol

from .renewal import RENEWALS
from .system import open_world

if TYPE_CHECKING:
    from fencepost.world import World

    from .settings import Settings

__all__ = ["FileUpkeep", "LeaseUpkeep", "Upkeep", "upkeep_of"]


class Upkeep(Protocol):
    """See the module. `renew_every_s` is None when there is no lease: a file lock ends with the process."""

    @property
    def renew_every_s(self) -> float | None:
        """How long to wait between two renewals."""
        ...

    async def open(self) -> int:
        """Reach the world and return its hash seed.

        Raises:
            Unavailable: it cannot be reached, or cannot be used as it is.
        """
        ...

    async def renew(self, incarnation: str) -> None:
        """See World."""
        ...

    async def leave(self, incarnation: str) -> None:
        """See World."""
        ...

    async def stall(self, run_id: str, why: str) -> None:
        """Mark a run whose code no node survives. Called while the node process is dead."""
        ...

    async def close(self) -> None:
        """Let go of the world. Idempotent."""
        ...


def upkeep_of(settings: Settings) -> Upkeep:
    """Return what the settings' world needs."""
    return LeaseUpkeep(settings) if settings.postgres_url else FileUpkeep(settings)


class LeaseUpkeep:
    """Over a connection of its own, never the node's."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._world: World | None = None

    @property
    def renew_every_s(self) -> float | None:
        """See Upkeep."""
        return self._settings.lease / RENEWALS

    async def open(self) -> int:
        """See Upkeep."""
        world = self._world = self._world or await open_world(self._settings)
        return (await world.facts()).hash_seed

    async def renew(self, incarnation: str) -> None:
        """See Upkeep."""
        await self._opened.renew(incarnation)

    async def leave(self, incarnation: str) -> None:
        """See Upkeep."""
        await self._opened.leave(incarnation)

    async def stall(self, run_id: str, why: str) -> None:
        """See Upkeep."""
        await self._opened.stall(run_id, None, why)

    @property
    def _opened(self) -> World:
        assert self._world is not None
        return self._world

    async def close(self) -> None:
        """See Upkeep."""
        if self._world is not None:
            await self._world.close()


class FileUpkeep:
    """SQLite: the file lock is the incarnation. Who opens the file knows that nobody else lives."""

    renew_every_s: float | None = None

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def open(self) -> int:
        """See Upkeep. A world that is not there yet is made with the seed that its first process runs with."""
        from .cli.place import seed_in  # noqa: PLC0415  (it is the command's)

        path = self._settings.world_path
        seed = seed_in(path) if path is not None else None
        return secrets.randbelow(2**32) if seed is None else seed

    async def renew(self, incarnation: str) -> None:
        """See Upkeep."""

    async def leave(self, incarnation: str) -> None:
        """See Upkeep."""

    async def stall(self, run_id: str, why: str) -> None:
        """See Upkeep."""
        world = await open_world(self._settings)
        try:
            await world.stall(run_id, None, why)
        finally:
            await world.close()

    async def close(self) -> None:
        """See Upkeep."""
