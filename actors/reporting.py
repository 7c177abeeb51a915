"""Says how a step ended to a run that another node decides for: under its claim, from outside.

The right to record an outcome is the claim, not the ownership of the run (L10): a node that ran a dispatched step, or
lost the partition meanwhile, reports and rings the owner. What nobody wants any more ends its claim.
"""

from __future__ import annotations

import asyncio
from itertools import chain, repeat
from typing import TYPE_CHECKING

import structlog

from fencepost.world import UNREAD, Batch, Refused, Unavailable, World
from fencepost.world import events as ev

from . import bugs, outcomes, trouble
from .values import externalised, is_large

if TYPE_CHECKING:
    from collections.abc import Callable

    from .bodies import Bodies
    from .host import Host
    from .messages import Running, StepEnded

log = structlog.get_logger(__name__)

RETRY_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)


class Reporter:
    """See the module. `ring(run_id, app)` wakes the run's owner."""

    def __init__(self, world: World, host: Host, bodies: Bodies, ring: Callable[[str, str], None], app: str) -> None:
        self._world, self._host, self._bodies, self._ring, self._app = world, host, bodies, ring, app
        self.busy = 0

    def report(self, running: Running, ended: StepEnded) -> None:
        """Record an outcome as soon as the world takes it."""
        self.busy += 1
        self._host.spawn(self._report(running, ended), f"report {running.run_id} {ended.op}")

    def hand_over(self, run_id: str, ended: list[StepEnded]) -> None:
        """Report what an actor had taken and another node is to hear of, and wake the run there.

        The last batch of this node may have landed after the new owner looked for what is due.
        """
        for message in ended:
            if message.running is not None:
                self.report(message.running, message)
        self._ring(run_id, self._app)

    async def _report(self, running: Running, ended: StepEnded) -> None:
        try:
            for delay_s in chain(RETRY_S, repeat(RETRY_S[-1])):
                if await self._is_recorded(running, ended):
                    break
                await asyncio.sleep(delay_s)
        except Exception:  # noqa: BLE001  (reported; the claim ends with the incarnation at the latest)
            bugs.report("an outcome could not be recorded", run=running.run_id, step=running.step.name)
        finally:
            self._bodies.taken(ended.token)
            self.busy -= 1

    async def _is_recorded(self, running: Running, ended: StepEnded) -> bool:
        try:
            await self._record(running, ended)
        except Unavailable as why:
            log.warning("an outcome waits for the world", run=running.run_id, step=running.step.name, why=str(why))
            return False
        return True

    async def _record(self, running: Running, ended: StepEnded) -> None:
        run_id, step, state = running.run_id, running.step, running.state
        body: ev.EventBody | None = outcomes.outcome_of(ended, step, state, self._host.random, now=self._host.now())
        if body is None:
            self._bodies.let_go(run_id, ended.token)
            return
        try:
            if is_large(body):
                body = await externalised(self._world, run_id, body)
            await self._world.append(Batch(run_id, (body,), UNREAD))
            trouble.tell(run_id, body, step.name)
        except Refused as refusal:
            log.debug("an outcome was refused", run=run_id, op=ended.op, why=type(refusal).__name__)
            self._bodies.let_go(run_id, ended.token)
        self._ring(run_id, running.app)  # also when refused: it may be in, and its answer was lost
