"""Whose the partitions are: what is free is taken, what is too much is told. The rules are in `sharing.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import rows
from ..instants import to_us
from ..records import Share
from ..sharing import Division, Taker, divide
from .members import Members
from .store import json_list

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ..sharing import Part


class Partitions(Members):
    """Partitions of apps."""

    def share(
        self, incarnation: str, give: Collection[int], *, take: bool, to_newer: bool, hears: bool
    ) -> Share | None:
        """See World. None for a dead one: that others are dead is written all the same."""
        self.declare_dead()
        member = self.living(incarnation)
        if member is None:
            return None
        self.do("set_hears", incarnation=incarnation, hears=hears)
        taker = Taker(incarnation, member["code_ordinal"], hears)
        others = [rows.taker(row) for row in self.all("other_takers", app=member["app"], incarnation=incarnation)]
        if give:
            newest = max(node.ordinal for node in (taker, *others))
            self._give(member["app"], incarnation, give, newest if to_newer else 0)
        division = self._divide(member["app"], taker, others, take=take) if member["takes"] else Division()
        return self._share(division, taker, others)

    def retire(self, incarnation: str) -> None:
        """See World."""
        self.do("retire_member", incarnation=incarnation)
        self.do("free_partitions_of", incarnation=incarnation, at=to_us(self.clock()))

    def _share(self, division: Division, taker: Taker, others: Sequence[Taker]) -> Share:
        return Share(
            owned=division.owned,
            surplus=division.surplus,
            alive=frozenset(row["incarnation"] for row in self.all("live_members")),
            stopping=frozenset(row["token"] for row in self.all("draining_of", incarnation=taker.incarnation)),
            newer=any(other.ordinal > taker.ordinal for other in others),
            heard=any(other.hears for other in others),
            now=self.clock(),
        )

    def _give(self, app: str, incarnation: str, given: Collection[int], asked: int) -> None:
        """Free partitions; `asked` is the code they ask for from now on, 0 for what they asked for before."""
        partitions, now = json_list(sorted(given)), to_us(self.clock())
        self.do("give_partitions", app=app, partitions=partitions, incarnation=incarnation, at=now, asked=asked)

    def _divide(self, app: str, taker: Taker, others: Sequence[Taker], *, take: bool) -> Division:
        division = divide(self._parts(app), taker, others, self.clock(), take=take)
        if division.takes:
            self._take(app, taker, division.takes)
        return division

    def _parts(self, app: str) -> list[Part]:
        """Return an app's partitions, made on first sight."""
        found = self.all("partitions_of_app", app=app)
        if len(found) < self.facts.partitions:
            self.do("make_partitions", app=app, partitions=json_list(list(range(self.facts.partitions))))
            found = self.all("partitions_of_app", app=app)
        return list(map(rows.part, found))

    def _take(self, app: str, taker: Taker, taken: Iterable[int]) -> None:
        self.do(
            "take_partitions",
            app=app,
            partitions=json_list(sorted(taken)),
            incarnation=taker.incarnation,
            ordinal=taker.ordinal,
        )
