"""What every subject of the world stands on: the connections, the queries, the namespace's constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import RunNotFound, ValueTooLarge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..records import Facts
    from .connecting import Connections
    from .statements import Statement


class Asking:
    """A world's queries by name. Each is one transaction and one round trip."""

    def __init__(
        self, connections: Connections, statements: Mapping[str, Statement], facts: Facts, max_value_bytes: int
    ) -> None:
        self._connections = connections
        self._statements = statements
        self._facts = facts
        self._max_value_bytes = max_value_bytes

    async def _all(self, name: str, /, **parameters: object) -> list[Any]:
        """Return all rows of a query."""
        return await self._connections.all(self._statements[name], **parameters)

    async def _one(self, name: str, /, **parameters: object) -> Any:
        """Return the first row of a query, or None."""
        return await self._connections.one(self._statements[name], **parameters)

    async def _of_run(self, name: str, run_id: str, /, **parameters: object) -> Any:
        """Return the row of a query that has one for every run there is.

        Raises:
            RunNotFound: no run has this id.
        """
        row = await self._one(name, run_id=run_id, **parameters) if can_be_kept(run_id) else None
        if row is None:
            raise RunNotFound(run_id)
        return row

    def _check_size(self, what: str, size_bytes: int) -> None:
        """Refuse what is over the bound, before it is sent.

        Raises:
            ValueTooLarge: it is.
        """
        if size_bytes > self._max_value_bytes:
            raise ValueTooLarge(what, size_bytes, self._max_value_bytes)


def can_be_kept(text: str) -> bool:
    """Tell whether Postgres can hold a text at all: what it cannot is the name of nothing there."""
    return "\0" not in text and text.encode(errors="replace").decode() == text
