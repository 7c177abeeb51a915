"""Connections to Postgres: few, opened when needed, again and again without end. And what is found at the first one.

A statement has a connection for as long as it runs, never longer: nothing is reset between uses because nothing is
ever set. A statement whose caller goes away takes its connection with it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from ..errors import Unavailable
from .driver import connect, pg
from .failures import ends_connection, lost, translated
from .placing import bad_url
from .statements import as_json_rows, rows_of_copy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .driver import Connection
    from .statements import Statement

Mode = Literal["direct", "pooled"]

CONNECT_S: Final = 10.0
ANSWER_S: Final = 15.0
"""How long a statement may take before its connection counts as gone."""

PAUSE_S: Final = 0.05
"""How long after a connection failed nobody tries another one: a hundred callers are one knock."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the database is, and how it is spoken to. `where` is what people are told: no password in it."""

    url: str
    where: str
    mode: Mode = "direct"
    settings: Mapping[str, str] | None = None
    """What is asked of the server with the connection itself; a pooler knows none of it."""

    async def connect(self) -> Connection:
        """Return a new connection.

        Raises:
            Unavailable, Unusable: there is none to be had; the sentence says why.
        """
        try:
            return await connect(
                self.url, prepares=self.mode == "direct", timeout_s=CONNECT_S, settings=self.settings or {}
            )
        except (ValueError, pg.ClientConfigurationError) as error:
            raise bad_url(str(error)) from None
        except Exception as error:
            raise translated(error, self.where) from error

    def in_mode(self, mode: Mode, settings: Mapping[str, str] | None = None) -> Address:
        """Return the same place, spoken to in another way."""
        return replace(self, mode=mode, settings=settings)


class Connections:
    """Up to `size` connections. Who needs one while all are used waits in line."""

    def __init__(self, address: Address, size: int) -> None:
        self.address = address
        self._free = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._failed: tuple[float, Unavailable] | None = None
        self._closed = False

    async def all(self, statement: Statement, /, **parameters: object) -> list[Any]:
        """Run a statement, which is a transaction of its own, and return its rows.

        Raises:
            Unavailable: nothing was written; or `Lost`, and nobody knows.
            pg.PostgresError: a bug of ours.
        """
        async with self._free:
            connection = await self._take()
            try:
                async with asyncio.timeout(ANSWER_S):
                    rows = await ask(connection, self.address.mode, statement, parameters)
            except BaseException as error:
                self._after(connection, error)
                if isinstance(error, Exception):
                    raise lost(error, self.address.where) from error
                raise
            self._give(connection)
            return rows

    async def one(self, statement: Statement, /, **parameters: object) -> Any:
        """As `all`, for a statement of one row or none."""
        rows = await self.all(statement, **parameters)
        return rows[0] if rows else None

    async def close(self) -> None:
        """End every connection, those in use as soon as their statement is over. Idempotent."""
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await _end(connection)

    # ---- taking and giving

    async def _take(self) -> Connection:
        """Return an idle connection or a new one. One that failed a moment ago answers for the next."""
        if self._closed:
            raise Unavailable(f"the world at {self.address.where} was closed")
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        if self._failed is not None and time.monotonic() < self._failed[0]:
            raise Unavailable(str(self._failed[1])) from self._failed[1]
        try:
            connection = await self.address.connect()
        except Unavailable as error:
            self._failed = (time.monotonic() + PAUSE_S, error)
            raise
        self._failed = None
        return connection

    def _give(self, connection: Connection) -> None:
        if self._closed:
            connection.terminate()
        elif not connection.is_closed():
            self._idle.append(connection)

    def _after(self, connection: Connection, error: BaseException) -> None:
        """Keep a connection whose statement was refused; a caller that left may have left it anywhere."""
        if isinstance(error, Exception) and not ends_connection(error) and not connection.is_closed():
            self._give(connection)
        else:
            connection.terminate()


async def ask(connection: Connection, mode: Mode, statement: Statement, parameters: Mapping[str, object]) -> list[Any]:
    """Run a statement on a connection, in one round trip once it is known there."""
    if mode == "direct":
        return await connection.fetch(statement.text, *statement.arguments(parameters))
    chunks = list[bytes]()

    async def keep(chunk: bytes) -> None:
        chunks.append(chunk)

    text = as_json_rows(statement.with_literals(parameters))
    await connection.copy_from_query(text, output=keep, format="binary")
    return rows_of_copy(b"".join(chunks))


async def _end(connection: Connection) -> None:
    """Say good-bye, or leave without."""
    try:
        await connection.close(timeout=1.0)
    except Exception:  # noqa: BLE001  (it is over either way)
        connection.terminate()
