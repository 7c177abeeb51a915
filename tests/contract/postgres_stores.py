"""Postgres worlds for the contract suite: one server, a database for each world at a time, the test's clock in it."""

import asyncio
import inspect
import itertools
from contextlib import asynccontextmanager

import asyncpg

from fencepost.world import instants
from fencepost.world.postgres import PostgresWorld
from fencepost.world.postgres.migrating import migrate
from tests.contract.logs import BEGIN

SCHEMA = "fencepost_default"
FAST = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "max_connections": "200"}
"""A server for tests: it forgets with its machine, and nothing runs in it that a test did not ask for."""

_numbers = itertools.count()


class OnClock:
    """A world that is told the test's time before each call, as another world would read it in each call."""

    def __init__(self, world, clock, behind):
        self.world = world
        self.clock = clock
        self.behind = behind
        """A connection of the test's own."""
        self._told = None
        self._telling = asyncio.Lock()

    def __getattr__(self, name):
        found = getattr(self.world, name)
        return self._timed(found) if inspect.iscoroutinefunction(found) and name != "close" else found

    def _timed(self, method):
        async def call(*given, **named):
            async with self._telling:
                if self._told != self.clock.at:
                    self._told = self.clock.at
                    await self.behind.execute(f"UPDATE {SCHEMA}.clock SET us = {instants.to_us(self._told)}")
            return await method(*given, **named)

        return call


async def make_template(server):
    """Make the database every test's own is a copy of: a migrated one, whose clock is a row."""
    await _do(server.socket_url, "CREATE DATABASE template")
    await migrate(server.socket_url_of("template"))
    await _do(
        server.socket_url_of("template"),
        f"CREATE TABLE {SCHEMA}.clock (us bigint NOT NULL); "
        f"INSERT INTO {SCHEMA}.clock VALUES ({instants.to_us(BEGIN)}); "
        f"UPDATE {SCHEMA}.facts SET created_at = {instants.to_us(BEGIN)}; "
        f"CREATE OR REPLACE FUNCTION {SCHEMA}.now_us_v1() RETURNS bigint LANGUAGE sql VOLATILE "
        f"AS 'SELECT us FROM {SCHEMA}.clock'",
    )


async def _do(url, sql):
    connection = await asyncpg.connect(url)
    await connection.execute(sql)
    await connection.close()


@asynccontextmanager
async def database(server, template="template"):
    """Make a database and give its name."""
    name = f"t{next(_numbers)}"
    await _do(server.socket_url, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    yield name
    await _do(server.socket_url, f"DROP DATABASE {name} WITH (FORCE)")


class Databases:
    """Databases that are used one after another: a new one for each test would take most of the suite's time."""

    def __init__(self):
        self._free = []

    @asynccontextmanager
    async def one(self, server):
        """Give the name of an empty one, and a connection behind the world's back."""
        name = self._free.pop() if self._free else await self._made(server)
        behind = await asyncpg.connect(server.socket_url_of(name))
        await behind.execute(await _emptying(behind))
        yield name, behind
        await behind.close()
        self._free.append(name)

    async def _made(self, server):
        name = f"reused{next(_numbers)}"
        await _do(server.socket_url, f"CREATE DATABASE {name} TEMPLATE template STRATEGY file_copy")
        return name


async def _emptying(connection):
    tables = await connection.fetchval(
        "SELECT string_agg(format('%I.%I', schemaname, tablename), ', ') FROM pg_tables "
        "WHERE schemaname = $1 AND tablename NOT IN ('facts', 'migrations', 'clock', 'pulse')",
        SCHEMA,
    )
    return f"TRUNCATE {tables} RESTART IDENTITY; UPDATE {SCHEMA}.pulse SET at = NULL"


DATABASES = Databases()


@asynccontextmanager
async def postgres(server, _tmp_path, clock, *, mode, max_value_bytes):
    """Open a new world. In mode `auto` a pooler is the way to it, to be found out."""
    async with DATABASES.one(server) as (name, behind):
        url = server.url_of(name) if mode == "auto" else server.socket_url_of(name)
        world = await PostgresWorld.connect(url, mode=mode, max_value_bytes=max_value_bytes)
        yield OnClock(world, clock, behind)
        await world.close()


async def insert_newer_event(world, run_id, seq):
    await world.behind.execute(
        f"INSERT INTO {SCHEMA}.events (run_id, seq, at, type, data) VALUES ($1, $2, 0, 'moon_rose', '{{}}')",
        run_id,
        seq,
    )
