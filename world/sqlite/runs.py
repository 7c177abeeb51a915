"""Rows of runs: created, found, listed, stalled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .. import rows
from ..errors import RunExists, RunNotFound
from ..events import RunCreated, encode_body, kind_of
from ..instants import to_us
from ..partitions import partition_of
from ..records import Created, Fence, NewRun, Run, RunQuery
from .log import Log

if TYPE_CHECKING:
    import sqlite3

COUNTED: Final = (
    "pending",
    "running",
    "stalled",
    "completed",
    "failed",
    "cancelled",
    "terminated",
    "continued",
)
AFTER_ALL: Final = 2**62
"""Later than every instant a run can have."""


class Runs(Log):
    """Rows of runs."""

    def create(self, new: NewRun) -> Created:
        """See World."""
        found = self._started_before(new)
        if found is not None:
            return self._attach(new, found)
        app = new.app or self._app_that_knows(new.workflow)
        self._insert_run(new, app)
        return Created(new.run_id, existing=False, app=app)

    def _app_that_knows(self, workflow: str) -> str:
        row = self.one("app_that_knows", workflow=workflow)
        return "" if row is None else str(row["app"])

    def _started_before(self, new: NewRun) -> sqlite3.Row | None:
        by_chain = self.one("starter_by_chain", chain_id=new.chain_id) if new.chain_id else None
        return by_chain or self.one("starter_by_run", run_id=new.run_id)

    def _attach(self, new: NewRun, found: sqlite3.Row) -> Created:
        is_same = (found["chain_id"], found["workflow"], found["input_digest"]) == (
            new.chain_id,
            new.workflow,
            new.input_digest,
        )
        if not is_same:
            raise RunExists(new.chain_id or new.run_id, found["run_id"])
        return Created(found["run_id"], existing=True, app=found["app"])

    def _insert_run(self, new: NewRun, app: str) -> None:
        body = _created(new)
        line = encode_body(body)
        self.check_size("run_created", len(line))
        now, partition = to_us(self.clock()), partition_of(new.run_id, self.facts.partitions)
        self.do(
            "insert_run",
            run_id=new.run_id,
            chain_id=new.chain_id,
            app=app,
            workflow=new.workflow,
            partition=partition,
            parent=new.parent,
            input_digest=new.input_digest,
            at=now,
        )
        self.do(
            "insert_event",
            run_id=new.run_id,
            seq=1,
            tick=None,
            at=now,
            type=kind_of(body),
            op="",
            key="",
            data=line.decode(),
        )
        if new.chain_id:
            self.do("insert_chain", chain_id=new.chain_id, run_id=new.run_id)
        for name, value in new.attributes.items():
            self.do("insert_attribute", run_id=new.run_id, name=name, value=value)
        due = now if new.due is None else to_us(new.due)
        self.do("set_due", run_id=new.run_id, app=app, partition=partition, at=due)

    # ---- stalled

    def stall(self, run_id: str, fence: Fence | None, why: str) -> None:
        """See World."""
        run = self.hold_live(run_id)
        if fence is not None:
            self._check_tick(run, fence)
            self._check_last_batch(run, fence)
        if not why:
            raise ValueError("a run stalls for a reason")
        self.do("set_stalled", run_id=run_id, why=why)
        self.do("delete_due", run_id=run_id)

    def unstall(self, run_id: str) -> bool:
        """See World."""
        run = self.hold_live(run_id)
        if not run.stalled:
            return False
        self.do("set_stalled", run_id=run_id, why="")
        self.ring(run)
        return True

    # ---- asking

    def find(self, run_or_chain: str) -> Run:
        """See World."""
        row = self.one("find_run", id=run_or_chain)
        if row is None:
            raise RunNotFound(run_or_chain)
        run_id = row["run_id"]
        return rows.run(row, self.attributes([run_id]).get(run_id, {}))

    def runs(self, query: RunQuery) -> tuple[Run, ...]:
        """See World."""
        run_ids = [row["run_id"] for row in self._list(query)]
        attributes = self.attributes(run_ids)
        found = [(run_id, self.one("read_run", run_id=run_id)) for run_id in run_ids]
        return tuple(rows.run(row, attributes.get(run_id, {})) for run_id, row in found if row is not None)

    def _list(self, query: RunQuery) -> list[sqlite3.Row]:
        cursor = self.one("cursor_of", run_id=query.before) if query.before else None
        if query.before and cursor is None:
            return []
        name, value = query.attribute or ("", "")
        return self.all(
            _leading(query),
            workflow=query.workflow,
            status=query.status,
            name=name,
            value=value,
            before_at=cursor["created_at"] if cursor else AFTER_ALL,
            before_id=query.before,
            limit=max(query.limit, 0),
        )

    def count(self) -> dict[str, int]:
        """See World."""
        found: dict[str, int] = dict.fromkeys(COUNTED, 0)
        for row in self.all("count_runs"):
            found[row["status"]] = row["runs"]
        for row in self.all("count_stalled"):
            found[row["status"]] -= row["runs"]
            found["stalled"] += row["runs"]
        return found | {row["status"]: row["letters"] for row in self.all("count_letters")}


def _created(new: NewRun) -> RunCreated:
    return RunCreated(
        workflow=new.workflow,
        input=new.input,
        seed=new.seed,
        app=new.app,
        code=new.code,
        python=new.python,
        chain=new.chain_id,
        parent=new.parent,
        attributes=new.attributes,
    )


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
