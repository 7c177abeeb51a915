"""Nodes that come and go, and what wants to be looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import rows
from ..errors import IncarnationDead
from ..folding import check_member, was_away
from ..instants import maybe_from_us, span_us, to_us
from .store import Store, json_list

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection
    from datetime import datetime

    from ..records import Due, Member


class Members(Store):
    """Incarnations and due."""

    def join(self, member: Member) -> str:
        """See World."""
        check_member(member)
        now = to_us(self.clock())
        before = self.one("code_before", app=member.app)
        if member.lease is not None and self.one("has_lease") is None:
            self.do("note_asked", at=now)  # before the first lease nobody had to ask
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
        ordinal = self.one("draw_code_ordinal", app=member.app, code=member.code, follows=member.follows)
        row = self.one(
            "insert_member",
            name=member.name,
            app=member.app,
            code=member.code,
            code_ordinal=ordinal[0] if ordinal else 1,
            workflows=json_list(sorted(member.workflows)),
            queues=json_list(sorted(member.queues)),
            at=now,
            lease_us=None if member.lease is None else span_us(member.lease),
            takes=member.takes,
        )
        return str(row[0]) if row else ""

    def _adopt(self, member: Member, now: int) -> None:
        workflows = json_list(sorted(member.workflows))
        self.do("adopt_pending", app=member.app, workflows=workflows)
        self.do("adopt_due", app=member.app, workflows=workflows)
        self.do("ring_pending", app=member.app, workflows=workflows, at=now)

    def leave(self, incarnation: str) -> None:
        """See World."""
        now = to_us(self.clock())
        if self.do("leave_member", incarnation=incarnation, at=now):
            self.do("free_partitions_of", incarnation=incarnation, at=now)
            self.do("ring_claimed_by", incarnation=incarnation, at=now)
            self.do("end_drained")

    def leave_all(self) -> None:
        """End every incarnation there is: who opens the file alone knows that none of them lives."""
        now = to_us(self.clock())
        if self.do("leave_all", at=now):
            self.do("free_all_partitions", at=now)
            self.do("end_drained")

    def renew(self, incarnation: str) -> None:
        """See World."""
        member = self.living(incarnation)
        if member is None:
            raise IncarnationDead(incarnation)
        if member["lease_us"] is not None:
            self.do("renew_member", incarnation=incarnation, at=to_us(self.clock()))

    # ---- who lives

    def living(self, incarnation: str) -> sqlite3.Row | None:
        """Return an incarnation's row, None once it is dead. One whose lease has run out lives until somebody says so.

        Were it dead by the clock alone, two transactions could disagree about one claim.
        """
        row = self.one("read_member", incarnation=incarnation)
        return row if row is not None and self._lives(row) else None

    def _lives(self, member: sqlite3.Row) -> bool:
        return member["left_at"] is None

    def declare_dead(self) -> None:
        """End every incarnation whose lease has run out, unless the world was away: then nobody could renew.

        Where nobody has a lease nothing is written: an idle world writes nothing.
        """
        if self.one("has_lease") is None:
            return
        row, now = self.one("last_asked"), self.clock()
        asked_at = maybe_from_us(row["asked_at"]) if row else None
        if was_away(asked_at, now):
            self.do("renew_all", at=to_us(now))
        else:
            self._end_lapsed(to_us(now))
        self.do("note_asked", at=to_us(now))

    def _end_lapsed(self, now: int) -> None:
        for row in self.all("lapsed_members", at=now):
            self.leave(row["incarnation"])

    # ---- due

    def due(self, app: str | None, partitions: Collection[int] | None, before: datetime, limit: int) -> tuple[Due, ...]:
        """See World."""
        bounds = {
            "partitions": None if partitions is None else json_list(sorted(partitions)),
            "before": to_us(before),
            "limit": max(limit, 0),
        }
        found = self.all("due_before", **bounds) if app is None else self.all("due_before_of", app=app, **bounds)
        return tuple(map(rows.due, found))
