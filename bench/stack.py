"""What is measured: a world in a file, a bus, a node and a client, all in this process but the NATS server.

embedded   SQLite file, bus in the process
dev        SQLite file, nats-server: what `fencepost dev` runs, with node and client on one loop
"""

from __future__ import annotations

import contextlib
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fencepost.actors import Node, NodeSettings
from fencepost.bus import InProcessBus, JetStreamBus, NatsServer
from fencepost.client import Client
from fencepost.world import SQLiteWorld

from .flows import new_app

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from fencepost.bus import Bus
    from fencepost.world import World

PAIRS: Final = ("embedded", "dev")


@dataclass(slots=True)
class Stack:
    """See the module."""

    pair: str
    store: SQLiteWorld
    node: Node
    client: Client
    server: NatsServer | None


@asynccontextmanager
async def opened(
    pair: str, folder: Path, between: Callable[[SQLiteWorld], World] | None = None
) -> AsyncGenerator[Stack]:
    """Open a pair in a folder; `between` may put something between the node and its world."""
    async with contextlib.AsyncExitStack() as cleanup:
        store = await SQLiteWorld.connect(folder / "world.db")
        cleanup.push_async_callback(store.close)
        server = NatsServer(folder / "nats") if pair == "dev" else None
        if server is not None:
            await cleanup.enter_async_context(server)
        inside, outside = await _buses(server, cleanup)
        world: World = between(store) if between else store
        node = await cleanup.enter_async_context(Node(new_app(), world, inside, NodeSettings(name="bench")))
        yield Stack(pair, store, node, Client(outside), server)


async def _buses(server: NatsServer | None, cleanup: contextlib.AsyncExitStack) -> tuple[Bus, Bus]:
    """Return the node's bus and the client's: one object in the process, two connections to a server."""
    if server is None:
        bus = InProcessBus("bench")
        cleanup.push_async_callback(bus.close)
        return bus, bus
    inside, outside = JetStreamBus(server.url, "bench"), JetStreamBus(server.url, "bench", role="client")
    for one in (inside, outside):
        await one.open()
        cleanup.push_async_callback(one.close)
    return inside, outside
