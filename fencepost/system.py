"""Where the parts meet: from settings to a world, a bus and a node that serves."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import structlog

from fencepost.actors import NodeSettings
from fencepost.bus import BusError, InProcessBus, JetStreamBus
from fencepost.world import SQLiteWorld, WorldError

from .client import Client
from .errors import Unavailable
from .joined import Joined
from .settings import MEMORY, Settings, redacted

if TYPE_CHECKING:
    from pathlib import Path

    from fencepost.actors import App
    from fencepost.bus import Bus
    from fencepost.world import World


log = structlog.get_logger(__name__)

_in_use: Final[set[Path | None]] = set()
"""The world files of the nodes in this process: the lock alone cannot say who holds it."""


async def open_world(settings: Settings) -> World:
    """Open the store that the settings name; its folder is made when it is ours to choose.

    Raises:
        Unavailable: it is in use, read-only, of a newer version, none of ours, or its disk is full.
    """
    if settings.postgres_url:
        return await _open_postgres(settings)
    path = settings.world_path
    try:
        if path is not None and settings.world == "auto":
            path.parent.mkdir(parents=True, exist_ok=True)
        return await SQLiteWorld.connect(path or MEMORY, namespace=settings.namespace, hash_seed=_own_hash_seed())
    except WorldError as error:
        raise Unavailable(_told_whose(path, str(error))) from error
    except OSError as error:
        raise Unavailable(f"{path} cannot be made here: {error.strerror}") from error


async def _open_postgres(settings: Settings) -> World:
    from fencepost.world import PostgresWorld  # noqa: PLC0415  (its driver is loaded where it is used)

    try:
        world = await PostgresWorld.connect(settings.postgres_url, namespace=settings.namespace)
    except WorldError as error:
        raise Unavailable(redacted(str(error))) from error
    for warning in world.warnings:
        log.warning(warning)
    return world


def _own_hash_seed() -> int | None:
    """Return the hash seed this process was given: a world that is made here is to have the same."""
    given = os.environ.get("PYTHONHASHSEED", "")
    return int(given) if given.isdecimal() else None


def _told_whose(path: Path | None, text: str) -> str:
    if path is None or path.resolve() not in _in_use:
        return text
    return f"{path} is in use by another Node of this process: stop that one, or give this one a file of its own"


async def open_bus(settings: Settings) -> Bus:
    """Open the bus that the settings name, with what a node needs on it.

    Raises:
        Unavailable: no NATS server there, or it cannot be used as it is.
    """
    if settings.bus == "inprocess" or (settings.bus == "auto" and not settings.nats_url):
        return InProcessBus(settings.namespace)
    bus = JetStreamBus(
        settings.nats_servers,
        settings.namespace,
        name=settings.node_name,
        credentials=settings.nats_creds,
        inbox_prefix=settings.nats_inbox_prefix,
    )
    try:
        await bus.open()
    except BusError as error:
        raise Unavailable(str(error)) from error
    return bus


def connect(settings: Settings) -> Client:
    """Return a client for the settings; it connects when its `async with` begins."""
    return Client.connect(
        settings.nats_servers,
        settings.namespace,
        credentials=settings.nats_creds,
        inbox_prefix=settings.nats_inbox_prefix,
    )


def node_settings(settings: Settings) -> NodeSettings:
    """Return the part that says how a node behaves."""
    return NodeSettings(
        name=settings.node_name,
        step_slots=settings.step_slots,
        threads=settings.threads,
        queues=settings.queues,
        max_live_runs=settings.max_live_runs,
        grace_s=settings.grace,
        shadow=settings.shadow,
        run_ahead=settings.run_ahead,
        dispatch=settings.dispatch,
        steps_only=settings.steps_only,
        lease_s=settings.lease if settings.postgres_url else None,
    )


def log_sanely(level: str) -> None:
    """Log what matters to stderr, unless the program has set its logging up: the default is all of it, on stdout."""
    if structlog.is_configured():
        return
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # the stderr of that moment: it may be replaced
        cache_logger_on_first_use=False,
    )


class Node:
    """A node in this process. `async with Node(app) as node:` serves until the block ends.

    Without more it keeps its state in `.fencepost/world.db` and its messages to itself; settings say otherwise. A
    world or bus that is given is used and left open.

    With Postgres a thread of this process renews its lease. That is weaker than the supervisor of `fencepost node`: a
    call in C that keeps the GIL for longer than the lease costs the node its claims, and nobody restarts a process
    that hangs. A node that was declared dead joins again by itself.
    """

    def __init__(
        self, app: App, *, world: World | None = None, bus: Bus | None = None, settings: Settings | None = None
    ) -> None:
        self.app = app
        self.settings = settings or Settings.load()
        self._given_world, self._given_bus = world, bus
        self._world, self._bus = world, bus
        self._joined: Joined | None = None
        self._file: Path | None = None

    async def start(self) -> None:
        """Open what is needed and serve.

        Raises:
            Unavailable: the store or NATS cannot be reached or used.
            LifespanError: the app's lifespan failed.
        """
        log_sanely(self.settings.log_level)
        try:
            self._world = self._given_world or await self._opened_world()
            self._bus = self._given_bus or await open_bus(self.settings)
            self._joined = self._joining(self._world, self._bus)
            await self._joined.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Take nothing new, let steps end for a while, close what was opened here. Idempotent."""
        joined, self._joined = self._joined, None
        try:
            if joined is not None:
                await joined.stop()
        finally:
            await self._close()

    def _joining(self, world: World, bus: Bus) -> Joined:
        settings = node_settings(self.settings)
        if self._given_world is not None:
            settings = replace(settings, lease_s=None)  # how that one is reached once more only its owner knows
        return Joined(self.app, world, bus, settings, partial(open_world, self.settings))

    async def _opened_world(self) -> World:
        world, path = await open_world(self.settings), self.settings.world_path
        self._file = path and path.resolve()
        if not self.settings.postgres_url:
            _in_use.add(self._file)
        return world

    async def _close(self) -> None:
        if self._bus is not None and self._given_bus is None:
            bus, self._bus = self._bus, None
            await bus.close()
        if self._world is not None and self._given_world is None:
            world, self._world = self._world, None
            await world.close()
            _in_use.discard(self._file)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def client(self) -> Client:
        """Return a client that asks over the node's own bus.

        Raises:
            RuntimeError: the node has not been started.
        """
        if self._bus is None:
            raise RuntimeError("the node has no bus yet: `async with Node(app) as node:` first")
        return Client(self._bus)

    def facts(self) -> dict[str, Any]:
        """Return what the node is and does now; nothing when it does not serve."""
        actors = None if self._joined is None else self._joined.actors
        return {} if actors is None else actors.facts()
