"""Reading logs: pages, one operation's events, the position of a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import rows
from ..errors import RunNotFound
from ..instants import to_us
from ..records import PAGE, Fence, Opened
from .store import Store, json_list

if TYPE_CHECKING:
    from datetime import datetime

    from ..events import Event


class Pages(Store):
    """Reads of logs. `open` is one snapshot because its transaction is one."""

    def open(self, run_id: str) -> Opened:
        """See World."""
        row = self.one("read_run", run_id=run_id)
        if row is None:
            raise RunNotFound(run_id)
        run = rows.run(row, self.attributes([run_id]).get(run_id, {}))
        claims = tuple(map(rows.claim, self.all("claims_of_run", run_id=run_id)))
        return Opened(Fence(run.tick, row["last_batch"]), run, claims, self.events_after(run_id, 0, PAGE))

    def more(self, run_id: str, after: int, limit: int) -> tuple[Event, ...]:
        """See World."""
        found = self.events_after(run_id, after, max(limit, 0))
        if not found:
            self.check_exists(run_id)
        return found

    def position_at(self, run_id: str, time: datetime) -> int:
        """See World."""
        row = self.one("position_before", run_id=run_id, at=to_us(time))
        if row is None:
            self.check_exists(run_id)
        return row["seq"] if row else 0

    def events_after(self, run_id: str, after: int, limit: int) -> tuple[Event, ...]:
        """Return what follows a position, in order."""
        return rows.events(run_id, self.all("events_after", run_id=run_id, after=after, limit=limit))

    def history(self, run_id: str, op: str, before: int | None = None) -> tuple[Event, ...]:
        """Return an operation's events, in order, up to a position or all of them."""
        bound = 2**62 if before is None else before
        return rows.events(run_id, self.all("events_of_op", run_id=run_id, op=op, before=bound))

    def check_exists(self, run_id: str) -> None:
        """Tell an empty answer from a wrong id.

        Raises:
            RunNotFound: no run has this id.
        """
        if self.one("run_exists", run_id=run_id) is None:
            raise RunNotFound(run_id)

    def attributes(self, run_ids: list[str]) -> dict[str, dict[str, str]]:
        """Return the attributes of runs that have some, by run."""
        found: dict[str, dict[str, str]] = {}
        for run_id, name, value in self.all("attributes_of", run_ids=json_list(run_ids)):
            found.setdefault(run_id, {})[name] = value
        return found
