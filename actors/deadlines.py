"""When a run wants to be looked at next, and what has run out. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from fencepost.world import events as ev

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from .attempts import Attempts, Progress
    from .define import Workflow
    from .turn import Turn


def due_waits(turn: Turn, now: datetime) -> list[ev.EventBody]:
    """Return a `wait_completed` for each timer that ran out, in (due, seq) order."""
    ripe = [(o.due_at, o.logged.seq, o.path) for o in turn.ops.waits() if o.logged and o.is_due(now)]
    return [ev.WaitCompleted(op=path) for _, _, path in sorted(ripe, key=lambda row: (row[0], row[1]))]


def step_deadline(turn: Turn, step: Attempts) -> datetime | None:
    """Return when a step as a whole has taken too long."""
    operation = turn.ops.by_path.get(step.op)
    if operation is None or operation.step is None or operation.step.total_timeout_s is None:
        return None
    return step.created_at + timedelta(seconds=operation.step.total_timeout_s)


def run_deadline(workflow: Workflow[Any, Any], started_at: datetime | None) -> datetime | None:
    """Return when a run as a whole has taken too long."""
    if workflow.timeout_s is None or started_at is None:
        return None
    return started_at + timedelta(seconds=workflow.timeout_s)


def next_due(
    turn: Turn, progress: Progress, batch: Iterable[ev.EventBody], now: datetime, offered: Collection[str]
) -> datetime | None:
    """Return the earliest instant something of the run runs out, counting what `batch` is about to write.

    A retry that is due by now counts too, unless it is `offered`, when it needs a slot and no time: it may have become
    due between the decision and this question.
    """
    bodies = list(batch)
    over = {b.op for b in bodies if isinstance(b, ev.WaitCompleted)}
    times = [o.due_at for o in turn.ops.waits() if o.path not in over]
    times += list(_new_times(bodies, now))
    handled = {b.op for b in bodies if isinstance(b, ev.StepStarted | ev.StepCompleted | ev.StepFailed)}
    for step in progress.open.values():
        if step.op not in handled:
            times += [None if step.op in offered else step.retry_at, step_deadline(turn, step)]
    return min((t for t in times if t is not None), default=None)


def _new_times(bodies: Iterable[ev.EventBody], now: datetime) -> Iterator[datetime]:
    for body in bodies:
        match body:
            case ev.WaitCreated(until=until, delay_s=delay_s):
                yield until or now + timedelta(seconds=delay_s)
            case ev.StepRetrying(delay_s=delay_s):
                yield now + timedelta(seconds=delay_s)
            case _:
                continue
