"""Nodes that come and go, and what wants to be looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import rows
from ..instants import to_us
from .store import Store, encode, json_list

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..records import Due, Member


class Members(Store):
    """Incarnations and due."""

    def join(self, member: Member) -> str:
        """See World."""
        now = to_us(self.clock())
        before = self.one("code_before", app=member.app)
        incarnation = self._enter(member, now)
        self.do("end_drained")
        self.do("ring_claimed_by_dead", at=now)
        self.do("ring_offered", at=now, queues=json_list(member.queues))
        self._adopt(member, now)
        if before is not None and before["code"] != member.code:
            self.do("ring_stalled", app=member.app, at=now)
            self.do("clear_stalled", app=member.app)
        return incarnation

    def _enter(self, member: Member, now: int) -> str:
        ordinal = self.one("draw_code_ordinal", app=member.app, code=member.code)
        row = self.one(
            "insert_member",
            name=member.name,
            app=member.app,
            code=member.code,
            code_ordinal=ordinal[0] if ordinal else 1,
            workflows=json_list(sorted(member.workflows)),
            queues=json_list(sorted(member.queues)),
            at=now,
        )
        return str(row[0]) if row else ""

    def _adopt(self, member: Member, now: int) -> None:
        workflows = json_list(sorted(member.workflows))
        self.do("adopt_pending", app=member.app, workflows=workflows)
        self.do("ring_pending", app=member.app, workflows=workflows, at=now)

    def leave(self, incarnation: str) -> None:
        """See World."""
        now = to_us(self.clock())
        if self.do("leave_member", incarnation=incarnation, at=now):
            self.do("ring_claimed_by", incarnation=incarnation, at=now)
            self.do("end_drained")

    def leave_all(self) -> None:
        """End every incarnation there is: who opens the file alone knows that none of them lives."""
        if self.do("leave_all", at=to_us(self.clock())):
            self.do("end_drained")

    def due(self, partitions: Sequence[int] | None, before: datetime, limit: int) -> tuple[Due, ...]:
        """See World."""
        bounds = {"before": to_us(before), "limit": max(limit, 0)}
        if partitions is None:
            found = self.all("due_before", **bounds)
        else:
            found = self.all("due_before_of", partitions=encode(list(partitions)), **bounds)
        return tuple(map(rows.due, found))
