"""The durable world of one process: a file, its lock, a lane that writes and one that reads."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

from filelock import FileLock, Timeout

from ..errors import Unusable
from . import schema
from .core import Core
from .face import Face
from .failures import translated
from .lane import Lane
from .store import MAX_VALUE_BYTES, Clock
from .transactions import Body, read_each, write, write_each

T = TypeVar("T")

MEMORY: Final = ":memory:"
BUSY_TIMEOUT_S: Final = 5.0
"""How long to wait for a program that looks into the file and holds it; nodes never hold it from each other."""


def utc_now() -> datetime:
    """Return the clock of this machine."""
    return datetime.now(UTC)


class SQLiteWorld(Face):
    """Everything in one SQLite file, durable with every answer. Made by `connect`.

    One process at a time: the file's lock is the incarnation, so whoever opens it ends the ones that were there.
    """

    def __init__(self, writer: Lane, reader: Lane, lock: FileLock | None) -> None:
        self._writer = writer
        self._reader = reader
        self._lock = lock

    @classmethod
    async def connect(
        cls,
        path: str | Path,
        *,
        namespace: str = "default",
        clock: Clock = utc_now,
        partitions: int = 32,
        hash_seed: int | None = None,
        max_value_bytes: int = MAX_VALUE_BYTES,
    ) -> SQLiteWorld:
        """Open the world in a file, or make one there. `:memory:` is a world that ends with the process.

        `partitions` and `hash_seed` (None draws one) count when it is made; afterwards its facts do.

        Raises:
            Unusable: the file is none of ours, damaged, read-only, of a newer version, or in use.
        """
        constants = schema.Constants(namespace, partitions, hash_seed)
        return await asyncio.to_thread(cls._connect, str(path), constants, clock, max_value_bytes)

    @classmethod
    def _connect(cls, path: str, constants: schema.Constants, clock: Clock, max_value_bytes: int) -> SQLiteWorld:
        lock = None if path == MEMORY else _locked(path)
        with ExitStack() as opened:  # closed again, last first, when anything after it fails
            if lock is not None:
                opened.callback(lock.release)
            core = _prepared(path, constants, clock, max_value_bytes)
            opened.callback(core.connection.close)
            writer = reader = Lane("fencepost-write", core, write_each, path)
            opened.callback(writer.close)
            if lock is not None:
                looking = Core(_connection(path), core.facts, clock, max_value_bytes)
                opened.callback(looking.connection.close)
                reader = Lane("fencepost-read", looking, read_each, path)
            opened.pop_all()
            return cls(writer, reader, lock)

    async def _write(self, method: str, body: Body[T], size_bytes: int = 0) -> T:  # noqa: ARG002  (faults need it)
        return await self._writer.run(body, size_bytes)

    async def _read(self, method: str, body: Body[T]) -> T:  # noqa: ARG002  (faults need it)
        return await self._reader.run(body)

    async def now(self) -> datetime:
        """See World."""
        return self._writer.core.clock()

    async def close(self) -> None:
        """See World."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._reader.close()
        self._writer.close()
        if self._lock is not None:
            self._lock.release()


def _prepared(path: str, constants: schema.Constants, clock: Clock, max_value_bytes: int) -> Core:
    """Return a core whose database is ours, with nobody alive in it."""
    connection = _connection(path)
    try:
        facts = schema.prepare(connection, path, constants, clock)
        core = Core(connection, facts, clock, max_value_bytes)
        write(core, Core.leave_all, path)
    except sqlite3.Error as error:
        connection.close()
        raise translated(error, path) from error
    except BaseException:
        connection.close()
        raise
    return core


def _connection(path: str) -> sqlite3.Connection:
    """Return a connection that begins and ends transactions when told to, and is used by one thread at a time."""
    try:
        connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=256
        )
    except sqlite3.Error as error:
        raise translated(error, path) from error
    connection.row_factory = sqlite3.Row
    return connection


def _locked(path: str) -> FileLock:
    """Take the lock beside the file. The system frees it when the process ends, however it ends.

    Raises:
        Unusable: the place is not one for a file, or another process has it.
    """
    _check_place(Path(path))
    lock = FileLock(f"{path}.lock", timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise Unusable(f"{path} is in use by another process: stop it, or give this one a file of its own") from error
    except OSError as error:
        raise Unusable(f"{path} cannot be locked ({error.strerror}): make its folder writable for this user") from error
    return lock


def _check_place(path: Path) -> None:
    if path.is_dir():
        raise Unusable(f"{path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise Unusable(f"the folder {path.parent} does not exist: create it, or name another file")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise Unusable(f"{path} cannot be written: make the file and its folder writable for this user")
