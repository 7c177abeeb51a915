"""Everything a round needs, as real processes: nats-server, Postgres, the provider, nodes behind links that break.

Nodes are no superusers of their database: what a superuser may (the last connections, writing where all is read-only)
is ours alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import urllib.request
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncpg

from fencepost import Client
from fencepost.bus import NatsServer
from fencepost.world import PostgresServer, migrate
from tests.chaos.nodes import Node
from tests.chaos.proxies import Proxy
from tests.e2e.orders_program import EXAMPLE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LEASE_S = 3.0
LOOP_DEAD_S = 4.0
GRACE_S = 2.0
NAMESPACE = "chaos"
SCHEMA = f"fencepost_{NAMESPACE}"
ROLE = "orders"
DATABASE = "shop"
SERVER = {"fsync": "off", "log_min_error_statement": "panic", "log_lock_waits": "off"}
"""Processes are killed here, not machines: what a process wrote the kernel has."""


@dataclass
class Links:
    """The two links of one node."""

    nats: Proxy
    postgres: Proxy

    def both(self) -> tuple[Proxy, Proxy]:
        return self.nats, self.postgres


@dataclass
class Stack:
    """See the module; `stacked` makes one."""

    folder: Path
    nats: NatsServer
    postgres: PostgresServer
    settings: dict[str, str]
    provider_url: str = ""
    nodes: list[Node] = field(default_factory=list)
    links: dict[str, Links] = field(default_factory=dict)
    doors: list[Proxy] = field(default_factory=list)
    """The client's two ways to the nats-server."""

    # ---- code

    def app(self, version: int) -> Path:
        """Return the example's app; another version is another digest of the same code."""
        folder = self.folder / f"version{version}"
        if not folder.exists():
            shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(".fencepost", "__pycache__"))
            with (folder / "app.py").open("a") as file:
                file.write(f"\n# version {version}\n")
        return folder / "app.py"

    # ---- nodes

    async def add_node(self, name: str, called: str = "") -> Node:
        """Start a node under a name (of its own, unless it is `called` otherwise) with links of its own."""
        links = Links(Proxy(self.nats.port), Proxy(self.postgres.port))
        for proxy in links.both():
            await proxy.start()
        self.links[name] = links
        node = Node(name, self.folder / f"node-{name}.log", self._environment(called or name, links))
        self.nodes.append(node)
        node.start(self.app(1))
        return node

    def _environment(self, name: str, links: Links) -> dict[str, str]:
        return {
            "FENCEPOST_NATS_URL": f"nats://127.0.0.1:{links.nats.port}",
            "FENCEPOST_DATABASE_URL": self.database_url(links.postgres.port),
            "FENCEPOST_NAMESPACE": NAMESPACE,
            "FENCEPOST_NODE_NAME": name,
            "FENCEPOST_LEASE": f"{LEASE_S}s",
            "FENCEPOST_LOOP_DEAD_AFTER": f"{LOOP_DEAD_S}s",
            "FENCEPOST_GRACE": f"{GRACE_S}s",
            "FENCEPOST_WAIT": "true",
            "PROVIDER_URL": self.provider_url,
            **self.settings,
        }

    def database_url(self, port: int) -> str:
        """Return the nodes' database, by way of a port."""
        return f"postgresql://{ROLE}:secret@127.0.0.1:{port}/{DATABASE}"

    # ---- servers

    async def start_provider(self) -> None:
        """Start the provider and note where it listens."""
        provider = await asyncio.create_subprocess_exec(
            sys.executable, EXAMPLE / "provider.py", "--port", "0", "--ledger", self.folder / "provider.db",
            cwd=self.folder, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert provider.stdout is not None
        self.provider_url = (await provider.stdout.readline()).decode().split()[1].strip(",")

    async def ledger(self) -> dict[str, list[dict[str, Any]]]:
        """Return what the provider remembers."""

        def fetched() -> dict[str, list[dict[str, Any]]]:
            with urllib.request.urlopen(f"{self.provider_url}/ledger", timeout=30) as answer:
                return json.load(answer)

        return await asyncio.to_thread(fetched)

    async def prepare_database(self) -> None:
        """Make the nodes' user, their database and its schema."""
        async with self.superuser("postgres") as connection:
            await connection.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD 'secret'")
            await connection.execute(f"CREATE DATABASE {DATABASE} OWNER {ROLE}")
        await migrate(self.database_url(self.postgres.port), NAMESPACE)

    @asynccontextmanager
    async def superuser(self, database: str = DATABASE) -> AsyncIterator[asyncpg.Connection]:
        """Give a connection that passes by all links and bounds."""
        connection = await asyncpg.connect(self.postgres.socket_url_of(database))
        try:
            yield connection
        finally:
            connection.terminate()

    async def reload(self, setting: str, value: str | None) -> None:
        """Change a setting of the running server; None is its default."""
        async with self.superuser() as connection:
            await connection.execute("SET default_transaction_read_only = off")
            how = f"SET {setting} = {value}" if value is not None else f"RESET {setting}"
            await connection.execute(f"ALTER SYSTEM {how}")
            await connection.execute("SELECT pg_reload_conf()")

    def client(self) -> Client:
        """Return a client that knows two ways to the server."""
        return Client.connect([f"nats://127.0.0.1:{door.port}" for door in self.doors], NAMESPACE)

    async def stop_nodes(self) -> None:
        """Ask all nodes to stop, at the same time."""
        await asyncio.gather(*(node.stop() for node in self.nodes if node.lives))


@asynccontextmanager
async def stacked(
    folder: Path, *, nodes: int, settings: dict[str, str], max_connections: int | None = None
) -> AsyncIterator[Stack]:
    """Start everything and wait until all nodes serve. The round's mark ends it, see `processes`."""
    postgres = PostgresServer(folder / "postgres", settings=SERVER, max_connections=max_connections)
    stack = Stack(folder, NatsServer(folder / "nats"), postgres, settings)
    try:
        await asyncio.gather(stack.nats.start(), postgres.start(), stack.start_provider())
        await stack.prepare_database()
        stack.doors = [Proxy(stack.nats.port), Proxy(stack.nats.port)]
        for door in stack.doors:
            await door.start()
        started = [await stack.add_node(f"n{number}") for number in range(1, nodes + 1)]
        await asyncio.gather(*(node.until_ready() for node in started))
        yield stack
    finally:
        for proxy in [*stack.doors, *(proxy for links in stack.links.values() for proxy in links.both())]:
            await proxy.stop()
        await asyncio.gather(stack.nats.kill(), stack.postgres.kill())
        for node in stack.nodes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.kill("both")
