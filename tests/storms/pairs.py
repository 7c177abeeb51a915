"""Where storms are played: servers, node processes, and who kills them.

sqlite   a file and a nats-server, one node that nobody kills
stack    Postgres and a nats-server, three nodes, of which one is killed every few seconds
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fencepost import Client
from fencepost.bus import NatsServer
from fencepost.world import PostgresServer, PostgresWorld, SQLiteWorld, migrate
from tests.chaos.nodes import Node
from tests.chaos.processes import marking
from tests.e2e.command import environment

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator

    from fencepost.world import World

Pair = Literal["sqlite", "stack"]
PAIRS: tuple[Pair, ...] = ("sqlite", "stack")
APP = Path(__file__).with_name("flows.py")
NAMESPACE = "storms"
NODES = 3
LEASE_S = 3.0
KILL_AFTER_S = (1.5, 4.5)
STEP_SLOTS = 512
"""More than a storm has steps at a time: on one node too they wait for nothing but each other."""
SERVER = {"fsync": "off", "log_min_error_statement": "panic"}
"""Processes are killed here, not machines: what a process wrote the kernel has."""
REFUSED = "append refused"


@dataclass
class Place:
    """See the module; `placed` makes one. `lives` holds every node there ever was, each with a log of its own."""

    pair: Pair
    folder: Path
    nats: NatsServer
    postgres: PostgresServer | None
    lives: list[Node] = field(default_factory=list)
    kills: int = 0

    @property
    def now(self) -> list[Node]:
        """The nodes that are up."""
        return [node for node in self.lives if node.lives]

    def begin(self, name: str) -> Node:
        """Start a node."""
        node = Node(name, self.folder / f"{name}-{len(self.lives)}.log", self._environment(name))
        self.lives.append(node)
        node.start(APP)
        return node

    def _environment(self, name: str) -> dict[str, str]:
        if self.postgres is None:
            world = {"FENCEPOST_WORLD": f"sqlite:///{self.folder / 'world.db'}"}
        else:
            world = {"FENCEPOST_DATABASE_URL": self.postgres.url, "FENCEPOST_LEASE": f"{LEASE_S}s"}
        return {
            "FENCEPOST_NATS_URL": self.nats.url,
            "FENCEPOST_NAMESPACE": NAMESPACE,
            "FENCEPOST_NODE_NAME": name,
            "FENCEPOST_GRACE": "2s",
            "FENCEPOST_STEP_SLOTS": str(STEP_SLOTS),
            "FENCEPOST_WAIT": "true",
            "FENCEPOST_LOG_LEVEL": "debug",  # refused appends are logged there
            "PYTHONPYCACHEPREFIX": environment()["PYTHONPYCACHEPREFIX"],
            **world,
        }

    def client(self) -> Client:
        """Return a client of the nodes."""
        return Client.connect(self.nats.url, NAMESPACE)

    async def kill_now_and_then(self, rng: random.Random) -> None:
        """Kill -9 a node, or its serving process only, again and again, and replace what its supervisor does not."""
        while True:
            await asyncio.sleep(rng.uniform(*KILL_AFTER_S))  # real time: the moment is what is drawn
            serving = [node for node in self.now if node.child is not None]
            if len(serving) < NODES:
                continue  # the one that was killed before is still on its way
            victim, whom = rng.choice(serving), rng.choice(("child", "both"))
            self.kills += victim.kill(whom)
            if not victim.lives:
                self.begin(victim.name)

    async def stop(self) -> None:
        """Stop all nodes as one would."""
        await asyncio.gather(*(node.stop() for node in self.now))

    @asynccontextmanager
    async def world(self) -> AsyncIterator[World]:
        """Open the world, after the nodes have stopped."""
        if self.postgres is None:
            world: World = await SQLiteWorld.connect(self.folder / "world.db", namespace=NAMESPACE)
        else:
            world = await PostgresWorld.connect(self.postgres.url, namespace=NAMESPACE)
        try:
            yield world
        finally:
            await world.close()

    def refusals(self) -> dict[str, int]:
        """Return how many appends nodes were refused, by run."""
        found: dict[str, int] = {}
        for node in self.lives:
            for line in node.lines():
                if line.get("event") == REFUSED:
                    found[line["run"]] = found.get(line["run"], 0) + 1
        return found


@asynccontextmanager
async def placed(pair: Pair, folder: Path) -> AsyncIterator[Place]:
    """Start the servers and the nodes of a pair; end them all, whatever happens."""
    postgres = PostgresServer(folder / "postgres", settings=SERVER) if pair == "stack" else None
    place = Place(pair, folder, NatsServer(folder / "nats"), postgres)
    with marking(uuid.uuid4().hex):
        try:
            await asyncio.gather(place.nats.start(), *([postgres.start()] if postgres else []))
            if postgres is not None:
                await migrate(postgres.url, NAMESPACE)
            nodes = [place.begin(f"n{number}") for number in range(1, NODES + 1 if postgres else 2)]
            await asyncio.gather(*(node.until_ready() for node in nodes))
            yield place
        finally:
            await asyncio.gather(place.nats.kill(), *([postgres.kill()] if postgres else []))
            for node in place.now:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    node.kill("both")
