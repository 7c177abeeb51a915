"""Making a database ours, and refusing one that is not: another program's, or of a newer version.

`application_id` says whose it is, `user_version` which schema it has. Migrations go forward only, by number, each
in one transaction with the version it leads to.
"""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .. import queries
from ..errors import Unusable
from ..instants import from_us, to_us
from ..records import Facts
from .store import SQL, Clock

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

APPLICATION: Final = 0x46505354
SCHEMA: Final = 3
MIGRATIONS: Final[Mapping[int, Path]] = {
    1: queries.FOLDER / "sqlite" / "schema.sql",
    2: queries.FOLDER / "sqlite" / "0002_nodes.sql",
    3: queries.FOLDER / "sqlite" / "0003_hooks.sql",
}
"""What leads to a version from the one before it. Version 1 begins with an empty database."""

OLDEST_SQLITE: Final = (3, 37)
"""STRICT tables."""


@dataclass(frozen=True, slots=True)
class Constants:
    """What a namespace is made with, for a database that is new."""

    namespace: str = "default"
    partitions: int = 32
    hash_seed: int | None = None
    """None draws one."""


def prepare(
    connection: sqlite3.Connection,
    where: str,
    constants: Constants,
    clock: Clock,
    migrations: Mapping[int, Path] = MIGRATIONS,
) -> Facts:
    """Bring a database to this version, or refuse it untouched, and return its facts.

    Raises:
        Unusable: SQLite is too old, or the database is another's (program, namespace) or newer.
    """
    _check_sqlite()
    version = _version(connection, where)
    newest = max(migrations)
    if version > newest:
        raise Unusable(f"{where} has schema {version}, newer than this version's {newest}: upgrade fencepost")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    for number in range(version + 1, newest + 1):
        _migrate(connection, number, migrations[number], constants, clock)
    facts = _facts(connection, newest)
    if facts.namespace != constants.namespace:
        raise Unusable(
            f"{where} holds the namespace {facts.namespace!r}, not {constants.namespace!r}: "
            "use its name, or another file"
        )
    return facts


def _check_sqlite() -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise Unusable(f"SQLite {sqlite3.sqlite_version} is too old: {needed} is needed, use a newer Python")


def _version(connection: sqlite3.Connection, where: str) -> int:
    """Return the schema version of a database of ours, 0 for an empty one."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if tables and application != APPLICATION:
        raise Unusable(f"{where} is the database of another program: give fencepost a file of its own")
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version if tables else 0


def _migrate(connection: sqlite3.Connection, number: int, file: Path, constants: Constants, clock: Clock) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements(queries.read(file)):
            connection.execute(statement)
        if number == 1:
            _insert_facts(connection, constants, clock)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def statements(script: str) -> list[str]:
    """Cut a script into its statements: `executescript` would end the transaction they have to share."""
    found, current = list[str](), ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    return found


def _insert_facts(connection: sqlite3.Connection, constants: Constants, clock: Clock) -> None:
    seed = secrets.randbelow(2**32) if constants.hash_seed is None else constants.hash_seed
    parameters = {
        "namespace": constants.namespace,
        "partitions": constants.partitions,
        "hash_seed": seed,
        "at": to_us(clock()),
    }
    connection.execute(SQL["insert_facts"], parameters)


def _facts(connection: sqlite3.Connection, schema: int) -> Facts:
    namespace, partitions, hash_seed, created_at = connection.execute(SQL["read_facts"]).fetchone()
    return Facts(namespace, schema, partitions, hash_seed, from_us(created_at))
