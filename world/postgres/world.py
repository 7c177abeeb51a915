"""The world many nodes share: a schema in Postgres, spoken to directly or through a pooler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from ..errors import Unusable
from . import migrating
from .connecting import Address, Connections, Mode, ask
from .failures import translated
from .keeping import Keeping
from .members import Members
from .placing import schema_of, where_of
from .reading import Reading
from .statements import Statement, load
from .writing import Writing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..records import Accepted, Batch, Claimed, Created, Facts, Fence, NewRun
    from .driver import Connection

MAX_VALUE_BYTES: Final = 16 * 2**20
READERS: Final = 4
WRITERS: Final = 6

READ_COMMITTED: Final = "read committed"
ISOLATION: Final = "default_transaction_isolation"


class PostgresWorld(Reading, Members, Keeping):
    """A namespace in a database. Made by `connect`, for a schema that `migrate` has made.

    `warnings` says in sentences what the server is set to that a durable world should not have.
    """

    def __init__(
        self,
        address: Address,
        statements: Mapping[str, Statement],
        facts: Facts,
        warnings: tuple[str, ...],
        max_value_bytes: int,
    ) -> None:
        super().__init__(Connections(address, READERS), statements, facts, max_value_bytes)
        self.warnings = warnings
        self._writers = Connections(address, WRITERS)
        self._writing = Writing(self._writers, statements, partitions=facts.partitions, max_value_bytes=max_value_bytes)

    @property
    def mode(self) -> Mode:
        """Whether the server is spoken to directly, or as behind a transaction pooler."""
        return self._connections.address.mode

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        namespace: str = "default",
        mode: Literal["auto", "direct", "pooled"] = "auto",
        max_value_bytes: int = MAX_VALUE_BYTES,
    ) -> PostgresWorld:
        """Open a namespace. Whether a pooler stands before the server is found out, unless `mode` says it.

        Raises:
            Unavailable: there is no connection to be had now.
            Unusable: the URL, the server or the schema will not do; the sentence says what to do.
        """
        schema = schema_of(namespace)
        statements = load(schema)
        address = Address(url, where_of(url))
        connection = await address.connect()
        try:
            found = await migrating.examine(connection, statements)
            facts = await _checked(connection, statements, found, address.where, schema)
            behind_pooler = connection.get_server_pid() != found["pid"]
        except Exception as error:
            raise translated(error, address.where) from error
        finally:
            connection.terminate()
        chosen: Mode = mode if mode != "auto" else "pooled" if behind_pooler else "direct"
        warnings = _warnings(found, address.where, chosen)
        spoken = address.in_mode(chosen, _settings(found, chosen))
        return cls(spoken, statements, facts, warnings, max_value_bytes)

    # ---- writing

    async def create(self, new: NewRun) -> Created:
        """See World."""
        return await self._writing.create(new)

    async def append(self, batch: Batch) -> Accepted:
        """See World."""
        return await self._writing.append(batch)

    async def claim(self, run_id: str, op: str, token: str, incarnation: str) -> Claimed:
        """See World."""
        return await self._writing.claim(run_id, op, token, incarnation)

    async def stall(self, run_id: str, fence: Fence | None, why: str) -> None:
        """See World."""
        await self._writing.stall(run_id, fence, why)

    async def unstall(self, run_id: str) -> bool:
        """See World."""
        return await self._writing.unstall(run_id)

    async def end_claim(self, run_id: str, token: str) -> bool:
        """See World."""
        return await self._writing.end_claim(run_id, token)

    async def close(self) -> None:
        """See World. What was asked to be written is, as far as the server answers."""
        await self._writing.close()
        await self._writers.close()
        await self._connections.close()


async def _checked(
    connection: Connection, statements: Mapping[str, Statement], found: Any, where: str, schema: str
) -> Facts:
    """Return the facts of a namespace this version can work with.

    Raises:
        Unusable: it cannot, or there is none.
    """
    migrating.check_server(found, where)
    if not found["is_migrated"]:
        raise Unusable(f"{where} holds no {schema}: run `fencepost migrate`")
    rows = await ask(connection, "pooled", statements["read_facts"], {})
    if not rows:
        raise Unusable(f"{schema} in {where} was made only half: drop it, and run `fencepost migrate`")
    facts = migrating.facts_of(rows[0])
    migrating.check_version(facts.schema, migrating.newest(), where, schema)
    return facts


def _settings(found: Any, mode: Mode) -> dict[str, str]:
    """Return what a connection is opened with: the isolation that locks and looks need, where it is not the default."""
    if mode == "pooled" or found["isolation"] == READ_COMMITTED:
        return {}
    return {ISOLATION: READ_COMMITTED}


def _warnings(found: Any, where: str, mode: Mode) -> tuple[str, ...]:
    said = list[str]()
    if found["synchronous_commit"] == "off":
        said.append(
            f"{where} has synchronous_commit=off: a crash of the server loses what it has confirmed; set it to on"
        )
    if found["fsync"] != "on":
        said.append(f"{where} has fsync=off: a crash of its machine can ruin everything; set it to on")
    if found["isolation"] != READ_COMMITTED:
        remedy = "fencepost asks for read committed" if mode == "direct" else f"reset {ISOLATION}, nothing is written"
        said.append(f"{where} has {ISOLATION}={found['isolation']!r}: {remedy}")
    return tuple(said)
