"""asyncpg, which says nothing about its types: what is used of it, said here once.

`pg` are its errors, as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

import asyncpg  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]
from asyncpg import exceptions as pg  # pyright: ignore[reportMissingTypeStubs]

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

__all__ = ["Connection", "connect", "pg"]

CACHED: int = 256
"""Prepared statements a connection keeps: all we have, for as long as it lives."""


class Connection(Protocol):
    """What is used of a connection."""

    async def fetch(self, query: str, *arguments: object) -> list[Any]:
        """Run a prepared query: rows by name and in order."""
        ...

    async def execute(self, query: str) -> str:
        """Run a text by the simple protocol; no rows come back."""
        ...

    async def copy_from_query(self, query: str, *, output: Callable[[bytes], Awaitable[None]], format: str) -> str:  # noqa: A002  (its name)
        """Run a text by the simple protocol, and hand over its rows."""
        ...

    async def close(self, *, timeout: float) -> None:  # noqa: ASYNC109  (its name)
        """Say good-bye."""
        ...

    def terminate(self) -> None:
        """Leave without."""
        ...

    def is_closed(self) -> bool:
        """Whether it is of no more use."""
        ...

    def get_server_pid(self) -> int:
        """Return the process that the protocol says serves it."""
        ...


async def connect(url: str, *, prepares: bool, timeout_s: float, settings: Mapping[str, str]) -> Connection:
    """Return a new connection; `prepares` is whether statements are prepared and kept on it."""
    connection: Any = await asyncpg.connect(  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        url,
        timeout=timeout_s,  # pyright: ignore[reportArgumentType]  (fractions are fine)
        statement_cache_size=CACHED if prepares else 0,
        max_cached_statement_lifetime=0,
        max_cacheable_statement_size=0,
        server_settings=dict(settings),
    )
    return cast("Connection", connection)
