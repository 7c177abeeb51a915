"""Who decides whether a round went well: the provider's ledger, every log, the tables, what the nodes said.

Each judge yields a sentence for each thing that is wrong.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fencepost.world import events as ev
from fencepost.world.instants import from_us
from tests.chaos.stack import SCHEMA
from tests.e2e.orders_program import KINDS, summary
from tests.simulation import checkers
from tests.simulation.checkers import Seen
from tests.simulation.replay import replays_to_the_same_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    import asyncpg

    from tests.chaos.nodes import Node

FROM_THE_LOG = (
    checkers.positions_are_dense,
    checkers.time_never_goes_back,
    checkers.ticks_grow_by_one,
    checkers.a_run_begins_once,
    checkers.operations_are_legal,
    checkers.nothing_follows_the_end,
    checkers.cancelled_before_it_began_means_no_code,
    checkers.waits_are_not_early,
    checkers.outcomes_hold_the_latest_claim,
    checkers.attempts_are_counted,
    checkers.losses_are_counted_in_a_row,
)
CLOCKS_S = 1.1
"""A batch may propose an instant so much ahead of the world's clock."""
SAID = (
    "Traceback (most recent",
    "never retrieved",
    "Exception ignored",
    "never awaited",
    "Fatal Python error",
    "the store answers us, and not the node process",  # both have the same link
)
DIED = "the node process died"


@dataclass(frozen=True)
class Finished:
    """A run as Postgres has it: its row, its log with all values in place, and how its log is written there."""

    row: dict[str, Any]
    log: list[ev.Event]

    @property
    def run_id(self) -> str:
        return self.row["run_id"]


async def read_runs(connection: asyncpg.Connection) -> list[Finished]:
    """Read every run with its log."""
    logs: dict[str, list[ev.Event]] = {}
    kept = {row["ref"]: row["body"] for row in await connection.fetch(f"SELECT ref, body FROM {SCHEMA}.blobs")}
    rows = await connection.fetch(f"SELECT run_id, seq, tick, at, data FROM {SCHEMA}.events ORDER BY run_id, seq")
    for run_id, seq, tick, at, data in rows:
        body = with_values(ev.decode_body(data.encode()), kept)
        logs.setdefault(run_id, []).append(ev.Event(seq, tick, from_us(at), body))
    runs = await connection.fetch(f"SELECT * FROM {SCHEMA}.runs ORDER BY run_id")
    return [Finished(dict(row), logs.get(row["run_id"], [])) for row in runs]


def with_values(body: ev.EventBody, kept: dict[str, bytes]) -> ev.EventBody:
    """Return a body with the value that is kept apart back in place."""
    for name in ("input", "args", "result"):
        value = getattr(body, name, None)
        if isinstance(value, ev.Value) and value.ref:
            whole = ev.Value(json=msgspec.Raw(kept[value.ref]))
            return msgspec.structs.replace(body, **{name: whole})
    return body


# ---- logs


def logs_keep_the_laws(runs: list[Finished]) -> Iterator[str]:
    for run in runs:
        seen = Seen(run.run_id, run.log)
        for check in FROM_THE_LOG:
            yield from (f"{run.run_id}: {check.__name__}: {what}" for what in check(seen))


def rows_say_what_logs_say(runs: list[Finished]) -> Iterator[str]:
    for run in runs:
        end = run.log[-1].body
        status = ev.STATUS_AFTER.get(type(end), "running")
        ticks = len({event.tick for event in run.log if event.tick is not None})
        if (run.row["seq"], run.row["status"]) != (len(run.log), status):
            yield f"{run.run_id}: its row says {run.row['seq']} {run.row['status']}, its log {len(run.log)} {status}"
        if run.row["tick"] < ticks:
            yield f"{run.run_id}: its row is at tick {run.row['tick']}, its log has {ticks}"


def runs_replay(runs: list[Finished], app: Path) -> Iterator[str]:
    """Cold replay of what has ended."""
    for run in runs:
        if run.row["ended_at"] is not None:
            flow = loaded(code_of(run.log[-1].body) or app)
            found = replays_to_the_same_end(flow, run.run_id, run.log, run.row["decided_seq"] - 1)
            yield from (f"{run.run_id}: {what}" for what in found)


def code_of(end: ev.EventBody) -> Path | None:
    """Return the file whose lines the traceback of a failed run names."""
    trace = end.error.traceback if isinstance(end, ev.RunFailed) else ""
    named = re.search(r'File "(.*/app\.py)"', trace)
    return Path(named[1]) if named else None


def loaded(app: Path) -> Any:
    """Return the workflow of an app's file, loaded under the name nodes give it: types are named in logs."""
    module = sys.modules.get("app")
    if module is None or module.__file__ != str(app):
        spec = importlib.util.spec_from_file_location("app", app)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules["app"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module.checkout


def the_dead_write_nothing(runs: list[Finished], left: dict[str, datetime | None]) -> Iterator[str]:
    """No start and no outcome of an incarnation after it had left, and no loss of one that had not (L10, L14)."""
    for run in runs:
        of: dict[str, str] = {}
        for event in run.log:
            match event.body:
                case ev.StepStarted(op=op, token=token, incarnation=incarnation):
                    of[token] = of[op] = incarnation
                    yield from _after_its_end(run, event, incarnation, left)
                case ev.StepCompleted(token=token) | ev.StepRetrying(token=token) | ev.StepFailed(token=token) if token:
                    yield from _after_its_end(run, event, of.get(token, ""), left)
                case ev.StepRetrying(op=op, lost=lost) if lost:
                    end = left.get(of.get(op, ""))
                    if end is None or event.at + timedelta(seconds=CLOCKS_S) < end:
                        yield f"{run.run_id}: {op} is called lost at {event.seq}, before {of.get(op)} had left"
                case _:
                    pass


def _after_its_end(run: Finished, event: ev.Event, who: str, left: dict[str, datetime | None]) -> Iterator[str]:
    end = left.get(who, event.at)
    if end is not None and event.at > end + timedelta(seconds=CLOCKS_S):
        yield f"{run.run_id}: {ev.kind_of(event.body)} at {event.seq} is {who}'s, who had left"


# ---- the world outside


def the_ledger_agrees(
    lines: list[Any], runs: list[Finished], ids: dict[str, str], ledger: dict[str, list[dict[str, Any]]]
) -> Iterator[str]:
    """Every good order is charged, shipped and notified once, no other is, and all ended as they should."""
    by_id = {run.run_id: run for run in runs}
    said = {
        "runs": [_told(order, by_id[run_id]) for order, run_id in ids.items() if run_id in by_id],
        "dead": [], "refused": [], "fed": len(lines), "repeated": 0,
    }  # fmt: skip
    facts = summary.facts_of(said, ledger)
    summary.prove(lines, facts)
    yield from (problem.text for problem in facts.problems)
    for extra in by_id.keys() - set(ids.values()):
        yield f"{extra} is a run of no order"


def _told(order: str, run: Finished) -> dict[str, Any]:
    end = run.log[-1].body
    error = f"{end.error.type}: {end.error.message}" if isinstance(end, ev.RunFailed) else None
    return {"id": order, "status": run.row["status"], "error": error}


def bodies_began_under_their_starts(runs: list[Finished], ledger: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """The provider was asked at most once for each start in the log: every body asks once (L10)."""
    starts = Counter(
        f"{run.run_id}:{event.body.op}" for run in runs for event in run.log if isinstance(event.body, ev.StepStarted)
    )
    for kind in KINDS:
        for entry in ledger[kind]:
            if entry["asked"] > starts[entry["key"]]:
                yield f"{kind} {entry['key']}: asked {entry['asked']} times, started {starts[entry['key']]} times"


# ---- tables


async def tables_are_tidy(connection: asyncpg.Connection) -> list[str]:
    """Return what finished runs have left behind, and what is not shared out."""
    wrong = []
    for what, query in LEFTOVERS.items():
        count = await connection.fetchval(query.format(schema=SCHEMA))
        wrong += [f"{count} {what}"] * bool(count)
    return wrong


LEFTOVERS = {
    "claims are left after the end": "SELECT count(*) FROM {schema}.claims",
    "offers are left after the end": "SELECT count(*) FROM {schema}.offers",
    "dues are left after the end": "SELECT count(*) FROM {schema}.due",
    "runs are stalled": "SELECT count(*) FROM {schema}.runs WHERE stalled <> ''",
    "dead letters": "SELECT count(*) FROM {schema}.letters",
    "partitions belong to nobody that lives": """SELECT count(*) FROM {schema}.partitions p WHERE NOT EXISTS (
        SELECT FROM {schema}.members m WHERE m.incarnation = p.owner AND m.left_at IS NULL)""",
    "partitions more than its share has a node": """SELECT max(n) - ceil(sum(n) / count(*)) FROM (
        SELECT count(*) AS n FROM {schema}.partitions GROUP BY owner) HAVING max(n) > ceil(sum(n) / count(*))""",
}


async def departures(connection: asyncpg.Connection) -> dict[str, datetime | None]:
    """Return when each incarnation left; None for one that lives."""
    rows = await connection.fetch(f"SELECT incarnation, left_at FROM {SCHEMA}.members")
    return {row["incarnation"]: None if row["left_at"] is None else from_us(row["left_at"]) for row in rows}


# ---- what was said


def nodes_said_nothing_odd(nodes: list[Node], may_say: tuple[str, ...]) -> Iterator[str]:
    """No traceback in any log, and no error but those that belong to the faults."""
    for node in nodes:
        for line in node.lines():
            text = str(line)
            odd = next((what for what in SAID if what in text), "")
            is_error = line.get("level") in {"error", "critical"} and not any(
                str(line.get("event")).startswith(known) for known in may_say
            )
            if odd or is_error:
                yield f"node {node.name} said {text[:3000]}"


def no_node_process_died(nodes: list[Node]) -> Iterator[str]:
    for node in nodes:
        died = sum(line.get("event", "").startswith(DIED) for line in node.lines())
        if died:
            yield f"{died} processes of node {node.name} died, and nobody killed them:\n{node.tail(8)}"


def postgres_said_nothing_odd(log: str) -> Iterator[str]:
    for line in log.splitlines():
        if "deadlock detected" in line or "PANIC" in line or "invalid memory" in line:
            yield f"Postgres said {line}"
