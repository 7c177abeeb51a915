"""The write path of the world in Postgres: everything that locks a run's row, or makes one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ..errors import Unavailable
from . import appending, creating
from .appending import Append, Appends
from .claiming import Take, Takes
from .creating import Creation, Creations
from .driver import pg
from .flushing import refusal_of
from .journal import Bounds, Journal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..records import Accepted, Batch, Claimed, Created, Fence, NewRun
    from .connecting import Connections
    from .statements import Statement

BOUNDS: Final = Bounds()


class Writing:
    """`append`, `create`, `claim` and what is done to one run. Each kind has a journal of its own."""

    def __init__(
        self,
        connections: Connections,
        statements: Mapping[str, Statement],
        *,
        partitions: int,
        max_value_bytes: int,
        bounds: Bounds = BOUNDS,
    ) -> None:
        where = f"the world at {connections.address.where}"
        self._connections = connections
        self._statements = statements
        self._max_value_bytes = max_value_bytes
        self._pauses_s = bounds.pauses_s
        self._appends = Journal[Append, "Accepted"](Appends(connections, statements), where, bounds)
        self._takes = Journal[Take, "Claimed"](Takes(connections, statements), where, bounds)
        creations = Creations(connections, statements, partitions)
        once = replace(bounds, of_a_run=1)  # a call of `create_v1` has each id once
        self._creations = Journal[Creation, "Created"](creations, where, once)

    async def append(self, batch: Batch) -> Accepted:
        """See World."""
        ask = appending.prepare(batch, self._max_value_bytes)
        return await self._appends.write(batch.run_id, ask, ask.size_bytes, first=batch.fence is not None)

    async def claim(self, run_id: str, op: str, token: str, incarnation: str) -> Claimed:
        """See World."""
        if not token:
            raise ValueError("a claim needs a token")
        return await self._takes.write(run_id, Take(run_id, op, token, incarnation))

    async def create(self, new: NewRun) -> Created:
        """See World."""
        ask = creating.prepare(new, self._max_value_bytes)
        return await self._creations.write(new.run_id, ask, len(ask.line))

    # ---- one run

    async def stall(self, run_id: str, fence: Fence | None, why: str) -> None:
        """See World."""
        if not why:
            raise ValueError("a run stalls for a reason")
        tick, last_batch = (None, None) if fence is None else (fence.tick, fence.last_batch)
        await self._one("stall", run_id, tick=tick, last_batch=last_batch, why=why)

    async def unstall(self, run_id: str) -> bool:
        """See World."""
        return await self._one("unstall", run_id)

    async def end_claim(self, run_id: str, token: str) -> bool:
        """See World."""
        return await self._one("end_claim", run_id, token=token)

    async def close(self) -> None:
        """Let finish what was asked for. Idempotent."""
        for journal in (self._appends, self._takes, self._creations):
            await journal.close()

    async def _one(self, name: str, run_id: str, **parameters: object) -> bool:
        row = await self._insist(name, run_id=run_id, **parameters)
        if row["verdict"] in ("done", "nothing"):
            return bool(row["verdict"] == "done")
        raise refusal_of(row, run_id) or AssertionError("these wait for the run")

    async def _insist(self, name: str, **parameters: object) -> Any:
        """Call a function of one run, again while somebody else holds its row."""
        for pause_s in self._pauses_s:
            try:
                return await self._connections.one(self._statements[name], **parameters)
            except Unavailable as error:
                if not isinstance(error.__cause__, pg.LockNotAvailableError):
                    raise
                await asyncio.sleep(pause_s)
        return await self._connections.one(self._statements[name], **parameters)
