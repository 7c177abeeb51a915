"""The asynchronous face of a core: World's methods, each handed over as the body of one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

from ..errors import ClaimLost, IncarnationDead
from ..records import (
    PAGE,
    Accepted,
    Batch,
    Claimed,
    Created,
    Due,
    Facts,
    Fence,
    Hook,
    Letter,
    Member,
    NewLetter,
    NewRun,
    Opened,
    Run,
    RunQuery,
    Share,
)

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from ..events import Event
    from .transactions import Body

T = TypeVar("T")


class Face(ABC):
    """World over `_write` and `_read`, which know where and when a body runs. See World for every method."""

    @abstractmethod
    async def _write(self, method: str, body: Body[T], size_bytes: int = 0) -> T:
        """Run a body and return its answer once it is durable."""

    @abstractmethod
    async def _read(self, method: str, body: Body[T]) -> T:
        """Run a body that only reads."""

    async def facts(self) -> Facts:
        """See World."""
        return await self._read("facts", lambda core: core.facts)

    async def now(self) -> datetime:
        """See World."""
        return await self._read("now", lambda core: core.clock())

    async def create(self, new: NewRun) -> Created:
        """See World."""
        return await self._write("create", lambda core: core.create(new))

    async def open(self, run_id: str) -> Opened:
        """See World."""
        return await self._read("open", lambda core: core.open(run_id))

    async def more(self, run_id: str, after: int, limit: int = PAGE) -> tuple[Event, ...]:
        """See World."""
        return await self._read("more", lambda core: core.more(run_id, after, limit))

    async def append(self, batch: Batch) -> Accepted:
        """See World."""
        return await self._write("append", lambda core: core.append(batch))

    async def claim(self, run_id: str, op: str, token: str, incarnation: str) -> Claimed:
        """See World. Refused outside of the transaction, which may have ended a claim nobody wants any more."""
        claimed = await self._write("claim", lambda core: core.claim(run_id, op, token, incarnation))
        if claimed is None:
            raise ClaimLost(run_id, (op,))
        return claimed

    async def hook(self, token: str) -> Hook:
        """See World."""
        return await self._read("hook", lambda core: core.hook(token))

    async def received(self, run_id: str, token: str, delivery: str) -> Event | None:
        """See World."""
        return await self._read("received", lambda core: core.received(run_id, token, delivery))

    async def position_at(self, run_id: str, time: datetime) -> int:
        """See World."""
        return await self._read("position_at", lambda core: core.position_at(run_id, time))

    async def stall(self, run_id: str, fence: Fence | None, why: str) -> None:
        """See World."""
        return await self._write("stall", lambda core: core.stall(run_id, fence, why))

    async def unstall(self, run_id: str) -> bool:
        """See World."""
        return await self._write("unstall", lambda core: core.unstall(run_id))

    async def end_claim(self, run_id: str, token: str) -> bool:
        """See World."""
        return await self._write("end_claim", lambda core: core.end_claim(run_id, token))

    async def put_value(self, run_id: str, body: bytes) -> str:
        """See World."""
        return await self._write("put_value", lambda core: core.put_value(run_id, body), len(body))

    async def get_value(self, run_id: str, ref: str, offset: int = 0, limit: int | None = None) -> bytes:
        """See World."""
        return await self._read("get_value", lambda core: core.get_value(run_id, ref, offset, limit))

    async def join(self, member: Member) -> str:
        """See World."""
        return await self._write("join", lambda core: core.join(member))

    async def leave(self, incarnation: str) -> None:
        """See World."""
        return await self._write("leave", lambda core: core.leave(incarnation))

    async def renew(self, incarnation: str) -> None:
        """See World."""
        await self._write("renew", lambda core: core.renew(incarnation))

    async def share(
        self,
        incarnation: str,
        give: Collection[int] = (),
        *,
        take: bool = True,
        to_newer: bool = False,
        hears: bool = True,
    ) -> Share:
        """See World. Refused outside of the transaction, which has said who is dead: maybe the caller itself."""
        share = await self._write(
            "share", lambda core: core.share(incarnation, give, take=take, to_newer=to_newer, hears=hears)
        )
        if share is None:
            raise IncarnationDead(incarnation)
        return share

    async def retire(self, incarnation: str) -> None:
        """See World."""
        await self._write("retire", lambda core: core.retire(incarnation))

    async def offers(self, app: str, queue: str, limit: int) -> tuple[tuple[str, str], ...]:
        """See World."""
        return await self._read("offers", lambda core: core.offers(app, queue, limit))

    async def due(
        self, app: str | None, partitions: Collection[int] | None, before: datetime, limit: int
    ) -> tuple[Due, ...]:
        """See World."""
        return await self._read("due", lambda core: core.due(app, partitions, before, limit))

    async def find(self, run_or_chain: str) -> Run:
        """See World."""
        return await self._read("find", lambda core: core.find(run_or_chain))

    async def runs(self, query: RunQuery) -> tuple[Run, ...]:
        """See World."""
        return await self._read("runs", lambda core: core.runs(query))

    async def count(self) -> dict[str, int]:
        """See World."""
        return await self._read("count", lambda core: core.count())

    async def bury(self, letter: NewLetter) -> str:
        """See World."""
        return await self._write("bury", lambda core: core.bury(letter))

    async def letters(self, before: str = "", limit: int = 50) -> tuple[Letter, ...]:
        """See World."""
        return await self._read("letters", lambda core: core.letters(before, limit))

    async def letter(self, letter_id: str) -> Letter | None:
        """See World."""
        return await self._read("letter", lambda core: core.letter(letter_id))

    async def mark_replayed(self, letter_id: str, replayed_as: str) -> bool:
        """See World."""
        return await self._write("mark_replayed", lambda core: core.mark_replayed(letter_id, replayed_as))
