"""Running bodies of transactions: one alone, or many in one commit with a verdict each.

A group is one outer transaction with a savepoint per body, so that a refused body takes nothing of the others with
it and all of them share one sync of the disk. A driver's error (full disk) may have rolled back everything, so the
bodies of that group run again, each alone: the one that cannot be done fails, the others do not.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from .core import Core
from .failures import translated

T = TypeVar("T")
Body = Callable[[Core], T]


class Outcome(Generic[T]):
    """What a body led to: its answer, or the error it raised."""

    __slots__ = ("answer", "error")

    def __init__(self, answer: T | None = None, error: BaseException | None = None) -> None:
        self.answer = answer
        self.error = error


def write(core: Core, body: Body[T], where: str) -> T:
    """Run a body in a transaction of its own, durable when this returns."""
    return _transaction(core, body, where, "BEGIN IMMEDIATE")


def read(core: Core, body: Body[T], where: str) -> T:
    """Run a body that only reads, in one snapshot."""
    return _transaction(core, body, where, "BEGIN")


def write_each(core: Core, bodies: Sequence[Body[Any]], where: str) -> list[Outcome[Any]]:
    """Run bodies in one commit, each all or nothing. All verdicts are durable when this returns."""
    if len(bodies) > 1:
        try:
            return _transaction(
                core, lambda core: [_savepoint(core, body) for body in bodies], where, "BEGIN IMMEDIATE"
            )
        except Exception:  # noqa: BLE001, S110  (whatever it was: the bodies tell it again, one by one)
            pass
    return [_outcome(write, core, body, where) for body in bodies]


def read_each(core: Core, bodies: Sequence[Body[Any]], where: str) -> list[Outcome[Any]]:
    """Run bodies that only read, each in its own snapshot."""
    return [_outcome(read, core, body, where) for body in bodies]


def _transaction(core: Core, body: Body[T], where: str, begin: str) -> T:
    connection = core.connection
    try:
        connection.execute(begin)
        answer = body(core)
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise translated(error, where) from error
        raise
    return answer


def _savepoint(core: Core, body: Body[T]) -> Outcome[T]:
    core.connection.execute("SAVEPOINT body")
    try:
        answer = body(core)
    except sqlite3.Error:
        raise
    except Exception as error:  # noqa: BLE001  (a refusal belongs to its caller, not to the group)
        core.connection.execute("ROLLBACK TO body")
        core.connection.execute("RELEASE body")
        return Outcome(error=error)
    core.connection.execute("RELEASE body")
    return Outcome(answer)


def _outcome(run: Callable[[Core, Body[Any], str], Any], core: Core, body: Body[Any], where: str) -> Outcome[Any]:
    try:
        return Outcome(run(core, body, where))
    except Exception as error:  # noqa: BLE001  (as above)
        return Outcome(error=error)
