"""Reading: logs page by page, and rows of runs. Each method is one statement, so each is one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from .. import rows
from ..errors import HookNotFound, RunNotFound
from ..folding import delivery_key
from ..instants import from_us, to_us
from ..records import PAGE, Claim, Fence, Opened
from .asking import Asking, can_be_kept

if TYPE_CHECKING:
    from datetime import datetime

    from ..events import Event
    from ..records import Facts, Hook, Run, RunQuery

COUNTED: Final = ("pending", "running", "stalled", "completed", "failed", "cancelled", "terminated", "continued")
EVENT_COLUMNS: Final = ("seqs", "ticks", "ats", "types", "datas")
CLAIM_COLUMNS: Final = ("ops", "attempts", "dispatches", "tokens", "incarnations", "drainings", "alives")


class Reading(Asking):
    """What is asked without writing."""

    async def facts(self) -> Facts:
        """See World."""
        return self._facts

    async def now(self) -> datetime:
        """See World."""
        return from_us((await self._one("now"))["now"])

    # ---- logs

    async def open(self, run_id: str) -> Opened:
        """See World."""
        row = await self._of_run("open_run", run_id, limit=PAGE)
        claims = tuple(Claim(*claim) for claim in _lines(row, CLAIM_COLUMNS))
        return Opened(Fence(row["tick"], row["last_batch"]), _run(row), claims, _events(run_id, row))

    async def more(self, run_id: str, after: int, limit: int = PAGE) -> tuple[Event, ...]:
        """See World."""
        return _events(run_id, await self._of_run("events_after", run_id, after=after, limit=max(limit, 0)))

    async def position_at(self, run_id: str, time: datetime) -> int:
        """See World."""
        return (await self._of_run("position_before", run_id, at=to_us(time)))["seq"] or 0

    async def hook(self, token: str) -> Hook:
        """See World."""
        row = await self._one("find_hook", token=token) if can_be_kept(token) else None
        if row is None:
            raise HookNotFound(token)
        return rows.hook(row)

    async def received(self, run_id: str, token: str, delivery: str) -> Event | None:
        """See World."""
        key = delivery_key(token, delivery)
        row = await self._one("find_received", run_id=run_id, key=key) if can_be_kept(key) else None
        return None if row is None else rows.events(run_id, [row])[0]

    # ---- rows

    async def find(self, run_or_chain: str) -> Run:
        """See World."""
        row = await self._one("find_run", id=run_or_chain) if can_be_kept(run_or_chain) else None
        if row is None:
            raise RunNotFound(run_or_chain)
        return _run(row)

    async def runs(self, query: RunQuery) -> tuple[Run, ...]:
        """See World."""
        name, value = query.attribute or ("", "")
        asked = {
            "workflow": query.workflow,
            "status": query.status,
            "name": name,
            "value": value,
            "before": query.before,
        }
        if not all(map(can_be_kept, asked.values())):
            return ()
        return tuple(map(_run, await self._all(_leading(query), **asked, limit=max(query.limit, 0))))

    async def count(self) -> dict[str, int]:
        """See World."""
        found: dict[str, int] = dict.fromkeys(COUNTED, 0)
        for row in await self._all("count_all"):
            if row["what"] == "stalled":
                found[row["status"]] -= row["how_many"]
                found["stalled"] += row["how_many"]
            else:
                found[row["status"]] = found.get(row["status"], 0) + row["how_many"]
        return found


def _run(row: Any) -> Run:
    attributes = row["attributes"]
    return rows.run(row, {} if attributes is None else msgspec.json.decode(attributes, type=dict[str, str]))


def _events(run_id: str, row: Any) -> tuple[Event, ...]:
    return rows.events(run_id, cast("Any", _lines(row, EVENT_COLUMNS)))


def _lines(row: Any, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Turn arrays that stand beside each other into lines; an empty page is NULLs."""
    arrays = [row[column] or () for column in columns]
    return list(zip(*arrays, strict=True))


def _leading(query: RunQuery) -> str:
    """Return the list whose index narrows most."""
    if query.attribute is not None:
        return "list_by_attribute"
    match query.status:
        case "":
            return "list_newest"
        case "live":
            return "list_live"
        case "stalled":
            return "list_stalled"
        case _:
            return "list_by_status"
