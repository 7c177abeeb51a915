"""Making a namespace's schema, by command and never by a node: numbered files, forward only, all or nothing.

Files of one number are one migration, in the order of their names.

A node compares what was applied with what it brings. One newer is fine: the command runs before the nodes are
exchanged, so every version works with its own schema and with the next one.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .. import queries
from ..errors import Unusable
from ..instants import from_us
from ..records import Facts
from .connecting import Address, ask
from .failures import read_only, translated
from .placing import schema_of, where_of
from .statements import Statement, load, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .driver import Connection

FOLDER: Final = queries.FOLDER / "postgres"
OLDEST_SERVER: Final = 15
ENCODING: Final = "UTF8"


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a namespace is after a migration, and the numbers of the files that were applied now."""

    facts: Facts
    applied: tuple[int, ...]


async def migrate(
    url: str,
    namespace: str = "default",
    *,
    partitions: int = 32,
    hash_seed: int | None = None,
    dry_run: bool = False,
    folder: Path = FOLDER,
) -> Migrated:
    """Bring a namespace to this version. Nothing to do is fine; two at once take turns; never half done.

    `partitions` and `hash_seed` (None draws one) count when it is made; afterwards its facts do. `dry_run` does it all
    and takes it back, so that what it returns is what would happen.

    Raises:
        Unusable: the server is too old or read-only, the schema is newer, or this user may not.
    """
    where, schema = where_of(url), schema_of(namespace)
    connection = await Address(url, where).connect()
    try:
        migration = _Migration(connection, where, schema, files(folder))
        await migration.check_server()
        await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        applied = await migration.apply({"namespace": namespace, "partitions": partitions, "hash_seed": hash_seed})
        facts = await migration.facts()
        await connection.execute("ROLLBACK" if dry_run else "COMMIT")
    except Exception as error:
        raise translated(error, where) from error
    finally:
        connection.terminate()
    return Migrated(facts, applied)


def files(folder: Path = FOLDER) -> dict[int, tuple[Path, ...]]:
    """Return the migrations by number."""
    found: dict[int, tuple[Path, ...]] = {}
    for file in sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.sql")):
        number = int(file.name[:4])
        found[number] = (*found.get(number, ()), file)
    return found


class _Migration:
    """The steps, all on one connection, whatever stands before the server."""

    def __init__(
        self, connection: Connection, where: str, schema: str, numbered: Mapping[int, tuple[Path, ...]]
    ) -> None:
        self._connection = connection
        self._where = where
        self._schema = schema
        self._files = numbered
        self._statements = load(schema)

    async def check_server(self) -> None:
        check_server(await self.one("examine"), self._where)

    async def apply(self, constants: Mapping[str, Any]) -> tuple[int, ...]:
        await self.one("lock_migrating")
        for name in ("make_schema", "make_migrations"):
            await self._connection.execute(self._statements[name].text)
        done = {row["number"] for row in await self.all("migrated")}
        check_version(max(done, default=0), max(self._files), self._where, self._schema, behind=True)
        missing = tuple(number for number in self._files if number not in done)
        for number in missing:
            await self._apply(number, self._files[number])
        if not done:
            seed = constants["hash_seed"]
            await self._write(
                "insert_facts", {**constants, "hash_seed": secrets.randbelow(2**32) if seed is None else seed}
            )
        return missing

    async def _apply(self, number: int, migration: tuple[Path, ...]) -> None:
        for file in migration:
            await self._connection.execute(queries.read(file).replace("{schema}", quoted(self._schema)))
        await self._write("note_migration", {"number": number, "file": migration[0].name})

    async def facts(self) -> Facts:
        return facts_of(await self.one("read_facts"))

    async def _write(self, name: str, values: Mapping[str, object]) -> None:
        await self._connection.execute(self._statements[name].with_literals(values))

    async def one(self, name: str) -> Any:
        return (await self.all(name))[0]

    async def all(self, name: str) -> list[Any]:
        return list(await ask(self._connection, "pooled", self._statements[name], {}))


# ---- what a database has to be, for a migration and for a node


def check_server(found: Any, where: str) -> None:
    """Refuse a server that cannot hold a world.

    Raises:
        Unusable: it is too old, read-only, or keeps text in another encoding.
    """
    if found["server"] < OLDEST_SERVER * 10_000:
        raise Unusable(f"{where} runs Postgres {found['server'] // 10_000}: {OLDEST_SERVER} or newer is needed")
    if found["encoding"] != ENCODING:
        raise Unusable(f"{where} keeps text as {found['encoding']}: create a database with ENCODING 'UTF8'")
    if found["is_read_only"]:
        raise read_only(where)


def check_version(found: int, ours: int, where: str, schema: str, *, behind: bool = False) -> None:
    """Refuse a schema this version cannot work with; `behind` is fine for the one who will bring it forward.

    Raises:
        Unusable: it is older, or more than one newer (for a migration: newer at all).
    """
    if found > ours + (not behind):
        raise Unusable(f"{schema} in {where} has version {found}, newer than this one's {ours}: upgrade fencepost")
    if found < ours and not behind:
        raise Unusable(
            f"{schema} in {where} has version {found}, older than this one's {ours}: run `fencepost migrate`"
        )


def facts_of(row: Any) -> Facts:
    """Return a namespace's constants."""
    return Facts(row["namespace"], row["schema"], row["partitions"], row["hash_seed"], from_us(row["created_at"]))


def newest() -> int:
    """Return the version this one brings."""
    return max(files())


async def examine(connection: Connection, statements: Mapping[str, Statement]) -> Any:
    """Return what the server says of itself, in a way that works behind a pooler too."""
    return (await ask(connection, "pooled", statements["examine"], {}))[0]
