"""What is measured: a world, a bus, a node and a client, all in this process but the servers.

embedded   SQLite file, bus in the process
dev        SQLite file, nats-server: what `fencepost dev` runs, with node and client on one loop
stack      Postgres and nats-server: what `fencepost node` runs on, with node and client on one loop
"""

from __future__ import annotations

import contextlib
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fencepost.actors import Node, NodeSettings
from fencepost.bus import InProcessBus, JetStreamBus, NatsServer
from fencepost.client import Client
from fencepost.world import PostgresServer, PostgresWorld, SQLiteWorld, migrate

from .flows import new_app

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from pathlib import Path

    from fencepost.bus import Bus
    from fencepost.world import World

PAIRS: Final = ("embedded", "dev", "stack")
NAMESPACE: Final = "bench"
SETTINGS: Final = NodeSettings(name="bench")


@dataclass(slots=True)
class Servers:
    """The processes of a pair; None for those it does without."""

    nats: NatsServer | None = None
    postgres: PostgresServer | None = None

    @property
    def pids(self) -> list[int]:
        """Those that run."""
        return [one.pid for one in (self.nats, self.postgres) if one is not None and one.pid is not None]


@dataclass(slots=True)
class Stack:
    """See the module."""

    pair: str
    store: SQLiteWorld | PostgresWorld
    node: Node
    client: Client
    servers: Servers


@asynccontextmanager
async def serving(pair: str, folder: Path, settings: Mapping[str, str] | None = None) -> AsyncGenerator[Servers]:
    """Start the servers of a pair on what is in a folder; `settings` are more of Postgres's."""
    async with contextlib.AsyncExitStack() as cleanup:
        servers = Servers()
        if pair != "embedded":
            servers.nats = await cleanup.enter_async_context(NatsServer(folder / "nats"))
        if pair == "stack":
            servers.postgres = PostgresServer(folder / "postgres", settings=settings)
            await cleanup.enter_async_context(servers.postgres)
            await migrate(servers.postgres.url, NAMESPACE)
        yield servers


@asynccontextmanager
async def opened(
    pair: str,
    folder: Path,
    between: Callable[[SQLiteWorld | PostgresWorld], World] | None = None,
    settings: NodeSettings = SETTINGS,
    servers: Servers | None = None,
) -> AsyncGenerator[Stack]:
    """Open a pair in a folder; `between` may put something between the node and its world."""
    async with contextlib.AsyncExitStack() as cleanup:
        running = servers if servers is not None else await cleanup.enter_async_context(serving(pair, folder))
        store = await _store(running, folder)
        cleanup.push_async_callback(store.close)
        inside, outside = await _buses(running.nats, cleanup)
        world: World = between(store) if between else store
        node = await cleanup.enter_async_context(Node(new_app(), world, inside, settings))
        yield Stack(pair, store, node, Client(outside), running)


async def _store(servers: Servers, folder: Path) -> SQLiteWorld | PostgresWorld:
    if servers.postgres is None:
        return await SQLiteWorld.connect(folder / "world.db")
    return await PostgresWorld.connect(servers.postgres.url, namespace=NAMESPACE)


async def _buses(server: NatsServer | None, cleanup: contextlib.AsyncExitStack) -> tuple[Bus, Bus]:
    """Return the node's bus and the client's: one object in the process, two connections to a server."""
    if server is None:
        bus = InProcessBus(NAMESPACE)
        cleanup.push_async_callback(bus.close)
        return bus, bus
    inside, outside = JetStreamBus(server.url, NAMESPACE), JetStreamBus(server.url, NAMESPACE, role="client")
    for one in (inside, outside):
        await one.open()
        cleanup.push_async_callback(one.close)
    return inside, outside
