"""Databases of a real Postgres for end-to-end tests: used again one after the other, empty each time."""

import itertools
from contextlib import asynccontextmanager

import asyncpg

from fencepost.world.postgres.migrating import migrate

SCHEMA = "fencepost_default"
KEPT = ("facts", "migrations", "pulse")


class Databases:
    """See the module."""

    def __init__(self, server):
        self._server = server
        self._free = []
        self._numbers = itertools.count()

    async def make_template(self):
        await self._do("postgres", "CREATE DATABASE template")
        await migrate(self._server.socket_url_of("template"))

    @asynccontextmanager
    async def one(self):
        """Give the URL of an empty one."""
        name = self._free.pop() if self._free else await self._made()
        await self._do(name, await self._emptying(name))
        yield self._server.socket_url_of(name)
        self._free.append(name)

    async def _made(self):
        name = f"e2e{next(self._numbers)}"
        await self._do("postgres", f"CREATE DATABASE {name} TEMPLATE template STRATEGY file_copy")
        return name

    async def _emptying(self, name):
        tables = await self._do(
            name,
            "SELECT string_agg(format('%I.%I', schemaname, tablename), ', ') FROM pg_tables "
            f"WHERE schemaname = '{SCHEMA}' AND NOT tablename = ANY ('{{{','.join(KEPT)}}}')",
        )
        return f"TRUNCATE {tables} RESTART IDENTITY; UPDATE {SCHEMA}.pulse SET at = NULL"

    async def _do(self, database, sql):
        connection = await asyncpg.connect(self._server.socket_url_of(database))
        try:
            return await connection.fetchval(sql) if sql.startswith("SELECT") else await connection.execute(sql)
        finally:
            await connection.close()
