"""A finished run, read: its row, its log with all values in place, and what the outside knows of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Any

from fencepost.actors.values import hydrated, is_apart
from fencepost.world import RunQuery
from fencepost.world import events as ev
from tests.storms.flows import numbered

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from datetime import datetime

    from fencepost.world import Run, World
    from tests.storms.outside import Told

PAGE = 500
INPUTS = (*ev.OUTCOMES, ev.WaitCompleted, ev.HookReceived)
"""What comes in and wants an answer of the code, or of its decider."""


@dataclass(frozen=True)
class Reading:
    """See the module."""

    row: Run
    log: list[ev.Event]
    told: Told

    @property
    def asked(self) -> dict[str, Any]:
        return self.told.asked

    @property
    def returned(self) -> Any:
        return self.told.returned

    @property
    def inputs(self) -> int:
        """How many events came in."""
        return sum(isinstance(event.body, INPUTS) for event in self.log)

    # ---- whose event is whose

    def first(self, kind: type[ev.Body], op: str) -> float:
        """Return the position of an operation's first event of a kind; infinity when there is none."""
        return next((e.seq for e in self.log if isinstance(e.body, kind) and e.body.op == op), inf)

    def completed_timer(self, seconds: float, number: int) -> float:
        """Return where the timer with a number ran out, see `flows.numbered`."""
        delay_s = numbered(seconds, number)
        ops = (e.body.op for e in self.log if isinstance(e.body, ev.WaitCreated) and e.body.delay_s == delay_s)
        return self.first(ev.WaitCompleted, next(ops, "never"))

    def step_won(self, number: int, seconds: float) -> bool:
        """Tell whether the step with a number settled before its timer ran out, by their positions."""
        ops = (
            e.body.op
            for e in self.log
            if isinstance(e.body, ev.StepCreated) and arguments(e.body).get("number") == number
        )
        return self.first(ev.StepCompleted, next(ops, "never")) < self.completed_timer(seconds, number)

    def received(self, token: str) -> list[list[tuple[int, Any]]]:
        """Return the payloads of a token with their positions, for each hook that was made with it."""
        made = [e.body.op for e in self.log if isinstance(e.body, ev.HookCreated) and e.body.token == token]
        found: dict[str, list[tuple[int, Any]]] = {op: [] for op in made}
        for event in self.log:
            if isinstance(event.body, ev.HookReceived) and event.body.token == token:
                found[event.body.op].append((event.seq, json.loads(bytes(event.body.payload.json))))
        return list(found.values())

    def before_disposal(self, token: str) -> int:
        """Return where the timer ran out that made the code dispose of a token's first hook."""
        timer = 0
        for event in self.log:
            if isinstance(event.body, ev.HookDisposed) and event.body.token == token:
                break
            timer = event.seq if isinstance(event.body, ev.WaitCompleted) else timer
        return timer

    def deliveries(self) -> list[str]:
        """Return the ids of all deliveries, as often as the log holds them."""
        return [event.body.delivery for event in self.log if isinstance(event.body, ev.HookReceived)]

    # ---- time

    def delays(self, *, answers: bool) -> Iterator[tuple[float, str]]:
        """Yield how much later than it could have the run went on, each time something came.

        With `answers` the code asks for something after each payload, and how soon it did counts, too.
        """
        ready: dict[str, datetime] = {}
        came: ev.Event | None = None
        for event in self.log:
            body = event.body
            if came is not None and event.tick is not None:
                yield (event.at - came.at).total_seconds(), f"{self.row.run_id}: payload at {came.seq}"
                came = None
            if answers and isinstance(body, ev.HookReceived):
                came = came or event
            elif isinstance(body, ev.WaitCreated | ev.StepCreated | ev.StepRetrying):
                ready[body.op] = event.at + timedelta(seconds=own_s(body))
            elif isinstance(body, ev.WaitCompleted | ev.StepCompleted):
                late = event.at - ready[body.op]
                yield late.total_seconds(), f"{self.row.run_id}: {ev.kind_of(body)} at {event.seq}"


def own_s(body: ev.WaitCreated | ev.StepCreated | ev.StepRetrying) -> float:
    """Return how long a timer or a step takes at least."""
    return arguments(body).get("pause_s", 0.0) if isinstance(body, ev.StepCreated) else body.delay_s


def arguments(body: ev.StepCreated) -> dict[str, Any]:
    """Return what a step was called with."""
    return json.loads(bytes(body.args.json))


# ---- out of a world


async def rows(world: World) -> AsyncIterator[Run]:
    """Yield the rows of all runs."""
    before = ""
    while page := await world.runs(RunQuery(before=before, limit=PAGE)):
        for row in page:
            yield row
        before = page[-1].run_id


async def read(world: World, row: Run, told: Told) -> Reading:
    """Read the log of a run."""
    log: list[ev.Event] = []
    while page := await world.more(row.run_id, len(log)):
        log += [await hydrated(world, row.run_id, e) if is_apart(e.body) else e for e in page]
    return Reading(row, log, told)
