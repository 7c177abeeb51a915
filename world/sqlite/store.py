"""What every subject of the core stands on: one connection, the clock, the namespace's constants, the queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .. import queries, rows
from ..errors import RunEnded, RunNotFound, ValueTooLarge
from ..instants import to_us

if TYPE_CHECKING:
    import sqlite3

    from ..records import Facts
    from ..rows import Held

SQL: Final = queries.load(queries.FOLDER / "sqlite")
ALL: Final = -1
"""No limit, as SQLite spells it."""

MAX_VALUE_BYTES: Final = 16 * 2**20

Clock = Callable[[], datetime]


class Store:
    """A world over one connection, without threads and without transactions: those belong to who calls it.

    Each public method of its subclasses is the body of one transaction. It looks before it writes.
    """

    def __init__(
        self, connection: sqlite3.Connection, facts: Facts, clock: Clock, max_value_bytes: int = MAX_VALUE_BYTES
    ) -> None:
        self.connection = connection
        self.facts = facts
        self.clock = clock
        self.max_value_bytes = max_value_bytes

    def do(self, query: str, **parameters: object) -> int:
        """Run a write and return how many rows it changed."""
        return self.connection.execute(SQL[query], parameters).rowcount

    def do_each(self, query: str, parameters: Sequence[Mapping[str, object]]) -> None:
        """Run a write once for each set of parameters."""
        self.connection.executemany(SQL[query], parameters)

    def one(self, query: str, **parameters: object) -> sqlite3.Row | None:
        """Return the first row, if there is one."""
        row: sqlite3.Row | None = self.connection.execute(SQL[query], parameters).fetchone()
        return row

    def all(self, query: str, **parameters: object) -> list[sqlite3.Row]:
        """Return all rows."""
        return self.connection.execute(SQL[query], parameters).fetchall()

    # ---- what several subjects need

    def hold(self, run_id: str) -> Held:
        """Return a run's row under its lock. In SQLite the lock is the transaction: there is one writer.

        Raises:
            RunNotFound: there is no such run.
        """
        row = self.one("lock_run", run_id=run_id)
        if row is None:
            raise RunNotFound(run_id)
        return rows.held(row)

    def hold_live(self, run_id: str) -> Held:
        """As `hold`, for what only a run without an end can be asked for.

        Raises:
            RunEnded: it has its terminal event.
        """
        run = self.hold(run_id)
        if not run.is_live:
            raise RunEnded(run_id, run.status)
        return run

    def ring(self, run: Held) -> None:
        """Make a run due now, unless it was due before."""
        self.do("ring_run", run_id=run.run_id, app=run.app, partition=run.partition, at=to_us(self.clock()))

    def check_size(self, what: str, size_bytes: int) -> None:
        """Refuse what is over the bound, before anything is written.

        Raises:
            ValueTooLarge: it is.
        """
        if size_bytes > self.max_value_bytes:
            raise ValueTooLarge(what, size_bytes, self.max_value_bytes)


def json_list(values: object) -> str:
    """Write a list for a query that takes one (`json_each`)."""
    return encode(list(values) if isinstance(values, (set, frozenset, tuple)) else values)  # pyright: ignore[reportUnknownArgumentType]


def encode(value: Any) -> str:
    """Write plain data as JSON text."""
    return msgspec.json.encode(value).decode()
