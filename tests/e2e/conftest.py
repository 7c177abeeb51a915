"""Stacks for end-to-end tests: in one process, over a file and a real nats-server, and over Postgres and one."""

import asyncio
import contextlib
import logging
import zlib

import pytest
import structlog

from fencepost.actors import retry
from fencepost.bus import NatsServer
from fencepost.world import PostgresServer
from tests import made_postgres
from tests.e2e.databases import Databases
from tests.e2e.orders_program import Provider
from tests.e2e.world_and_bus import Clock, Gate, Stack, in_file, in_postgres

FORGETS = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}


@pytest.fixture(scope="session")
def nats(tmp_path_factory):
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    asyncio.run(server.start())
    yield server
    asyncio.run(server.kill())


@pytest.fixture(scope="session")
def postgres(tmp_path_factory, postgres_made):
    """A server for worlds of their own, each in a namespace of its own."""
    server = PostgresServer(made_postgres.copied(postgres_made, tmp_path_factory.mktemp("postgres")))
    asyncio.run(server.start())
    yield server
    asyncio.run(server.kill())


@pytest.fixture(autouse=True)
def _nodes_here_are_quiet_and_quick(request, monkeypatch):
    """Nodes of a stack log errors only, and repeat what was lost at once."""
    if not {"stack", "local", "skipping"} & set(request.fixturenames):
        yield
        return
    monkeypatch.setattr(retry, "_LOSS_FIRST_S", 0.005)
    monkeypatch.setattr(retry, "_LOSS_MAX_S", 0.01)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def databases(tmp_path_factory, postgres_made):
    """Databases on a server that forgets with its machine, which a node on its own would warn of."""
    folder = made_postgres.copied(postgres_made, tmp_path_factory.mktemp("databases"))
    server = PostgresServer(folder, settings=FORGETS)
    asyncio.run(server.start())
    made = Databases(server)
    asyncio.run(made.make_template())
    yield made
    asyncio.run(server.kill())


@pytest.fixture
def ways(request):
    """How nodes work in this test: half of the tests dispatch every step, half of them do not run ahead."""
    chance = zlib.crc32(request.node.nodeid.encode())
    return {"dispatch": "bus" if chance & 1 else "auto", "run_ahead": bool(chance & 2)}


@pytest.fixture(params=["memory", "file and jetstream", "postgres and jetstream"])
def place(request, tmp_path):
    """Where the world is, what opens it, and the server of the bus: the three pairs that are supported."""
    if request.param == "memory":
        return ":memory:", in_file, None
    nats = request.getfixturevalue("nats")
    if request.param == "file and jetstream":
        return tmp_path / "world.db", in_file, nats
    return request.getfixturevalue("databases"), in_postgres, nats


@pytest.fixture
async def stack(place, ways):
    where, opened, nats = place
    async with contextlib.AsyncExitStack() as cleanup:
        if opened is in_postgres:
            where = await cleanup.enter_async_context(where.one())
        stack = Stack(where, nats, opened=opened, **ways)
        await stack.open()
        yield stack
        await stack.close()


@pytest.fixture
async def local():
    """In one process only: what the bus makes no difference to."""
    stack = Stack(":memory:")
    await stack.open()
    yield stack
    await stack.close()


@pytest.fixture
async def skipping():
    """In one process, with a clock of the test's."""
    stack = Stack(":memory:", clock=Clock())
    await stack.open()
    yield stack
    await stack.close()


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def stopped(tmp_path):
    """The provider of the orders example, not started."""
    provider = Provider(tmp_path)
    yield provider
    provider.kill()


@pytest.fixture
def provider(stopped):
    """The provider of the orders example, up."""
    return stopped.start("--port", "0", "--slow", "0")
