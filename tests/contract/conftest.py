"""One fixture per seam, so that a test cannot forget a store."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from fencepost.world import SimulatedWorld, SQLiteWorld
from fencepost.world.postgres_server import PostgresServer
from tests import made_postgres
from tests.contract import postgres_stores
from tests.contract.logs import Clock
from tests.contract.pgbouncer import NotToBeHad, PgBouncer

MAX_VALUE_BYTES = 12 * 2**20


@dataclass(frozen=True)
class Store:
    """A kind of world: how one on a clock is opened and done away with, and how a test gets behind its back."""

    opened: Callable[[Any, Clock], AbstractAsyncContextManager[Any]]
    write_newer_event: Callable[[Any, str, int], Awaitable[None]]
    """Given the world, a run and a position: write an event of a type this version does not know."""
    server: str = ""
    """The fixture `opened` takes first; empty for a store without a server."""


@asynccontextmanager
async def closing(world):
    yield world
    await world.close()


@asynccontextmanager
async def sqlite(tmp_path, clock, name="world.db"):
    where = tmp_path / name if name != ":memory:" else name
    world = await SQLiteWorld.connect(where, clock=clock, max_value_bytes=MAX_VALUE_BYTES)
    async with closing(world):
        yield world


def sqlite_memory(tmp_path, clock):
    return sqlite(tmp_path, clock, ":memory:")


def simulated(_tmp_path, clock):
    return closing(SimulatedWorld(clock, max_value_bytes=MAX_VALUE_BYTES))


async def insert_newer_event(world, run_id, seq):
    def body(core):
        core.do("insert_event", run_id=run_id, seq=seq, tick=None, at=0, type="moon_rose", op="", key="", data="{}")

    await world._write("write_newer_event", body)


def postgres(mode, server="postgres_server"):
    opened = partial(postgres_stores.postgres, mode=mode, max_value_bytes=MAX_VALUE_BYTES)
    return Store(opened, postgres_stores.insert_newer_event, server)


WORLDS = {
    "sqlite": Store(sqlite, insert_newer_event),
    "sqlite-memory": Store(sqlite_memory, insert_newer_event),
    "simulated": Store(simulated, insert_newer_event),
    "postgres": postgres("direct"),
    "postgres-pooled": postgres("pooled"),
    "postgres-pgbouncer": postgres("auto", "pgbouncer"),
}


@pytest.fixture
def clock():
    """The only way to move a world's time: what it shows is what the next call sees."""
    return Clock()


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory, postgres_made):
    folder = made_postgres.copied(postgres_made, tmp_path_factory.mktemp("postgres"))
    server = PostgresServer(folder, settings=postgres_stores.FAST)
    asyncio.run(server.start())
    asyncio.run(postgres_stores.make_template(server))
    yield server
    asyncio.run(server.kill())


@pytest.fixture(scope="session")
def pgbouncer(postgres_server):
    pooler = PgBouncer(postgres_server)
    try:
        pooler.start()
    except NotToBeHad as why:
        pooler.stop()
        pytest.skip(str(why))
    yield pooler
    pooler.stop()


BEHIND_A_POOLER = ("test_world_append", "test_world_claims", "test_world_offers", "test_world_runs")
"""What a real pooler is put before: the mode it is spoken to in goes through every test without one."""


def pytest_generate_tests(metafunc):
    if "store" in metafunc.fixturenames:
        is_pooled = metafunc.module.__name__.endswith(BEHIND_A_POOLER)
        names = [name for name in WORLDS if is_pooled or name != "postgres-pgbouncer"]
        metafunc.parametrize("store", names, indirect=True)


@pytest.fixture
def store(request):
    found = WORLDS[request.param]
    if not found.server:
        return found
    return replace(found, opened=partial(found.opened, request.getfixturevalue(found.server)))


@pytest.fixture
async def world(store, tmp_path, clock):
    async with store.opened(tmp_path, clock) as opened:
        yield opened


@pytest.fixture
def write_newer_event(store, world):
    """Write an event of a type this version does not know, behind the world's back."""
    return lambda run_id, seq: store.write_newer_event(world, run_id, seq)
