"""Nodes that come and go, whose the partitions are, and what wants to be looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import rows
from ..errors import IncarnationDead
from ..folding import OLDER_AFTER, PULSE, check_member
from ..instants import from_us, span_us, to_us
from ..records import Share
from .asking import Asking, can_be_kept

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from ..records import Due, Member


class Members(Asking):
    """Incarnations, partitions and due."""

    async def join(self, member: Member) -> str:
        """See World."""
        check_member(member)
        row = await self._one(
            "join",
            name=member.name,
            app=member.app,
            code=member.code,
            workflows=sorted(member.workflows),
            queues=sorted(member.queues),
            lease=None if member.lease is None else span_us(member.lease),
            takes=member.takes,
            follows=member.follows,
        )
        return str(row["incarnation"])

    async def leave(self, incarnation: str) -> None:
        """See World. Two transactions; who comes next does the second if this one does not get to it."""
        if (await self._one("end_incarnation", incarnation=incarnation))["has_left"]:
            await self._one("settle")

    async def renew(self, incarnation: str) -> None:
        """See World."""
        if not (await self._one("renew", incarnation=incarnation))["is_alive"]:
            raise IncarnationDead(incarnation)

    async def share(
        self,
        incarnation: str,
        give: Collection[int] = (),
        *,
        take: bool = True,
        to_newer: bool = False,
        hears: bool = True,
    ) -> Share:
        """See World. Runs of those who were declared dead are made due in a transaction of their own."""
        row = await self._one(
            "share",
            incarnation=incarnation,
            give=sorted(give),
            take=take,
            to_newer=to_newer,
            hears=hears,
            older_after=span_us(OLDER_AFTER),
            pulse=span_us(PULSE),
        )
        if row["unsettled"]:
            await self._one("settle")
        if not row["is_alive"]:
            raise IncarnationDead(incarnation)
        return Share(
            owned=frozenset(row["owned"]),
            surplus=frozenset(row["surplus"]),
            alive=frozenset(row["living"]),
            stopping=frozenset(row["stopping"]),
            newer=row["newer"],
            heard=row["heard"],
            now=from_us(row["now"]),
        )

    async def retire(self, incarnation: str) -> None:
        """See World."""
        await self._one("retire", incarnation=incarnation)

    # ---- what wants to be looked at

    async def offers(self, app: str, queue: str, limit: int) -> tuple[tuple[str, str], ...]:
        """See World."""
        found = await self._all("list_offers", app=app, queue=queue, limit=max(limit, 0))
        return tuple((row["run_id"], row["op"]) for row in found)

    async def due(
        self, app: str | None, partitions: Collection[int] | None, before: datetime, limit: int
    ) -> tuple[Due, ...]:
        """See World."""
        if app is not None and not can_be_kept(app):
            return ()
        numbers = None if partitions is None else sorted(partitions)
        found = await self._all("due_before", app=app, partitions=numbers, before=to_us(before), limit=max(limit, 0))
        return tuple(map(rows.due, found))
