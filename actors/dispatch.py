"""Dispatched steps: offered to every node that serves their queue, claimed by one, run there.

The bell is not the fact: what counts is the offer's row, which the claim takes away. A slot is taken before the claim
is asked for, so that a node never holds a step that it cannot run.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import structlog

from fencepost.bus import Again, Bus, Offering
from fencepost.world import UNREAD, Batch, Claimed, Refused, Unavailable, World
from fencepost.world import events as ev

from . import define, failures
from .attempts import Progress
from .errors import StepLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from fencepost.bus import Steps

    from .app import App
    from .attempts import Attempts
    from .bodies import Bodies
    from .define import Step
    from .host import Host

log = structlog.get_logger(__name__)

NO_ROOM_S = 0.05
LOOK_S = 2.0
ADOPTED_MAX = 1000
RETRY_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
UNKNOWN_FIRST_S = 5.0
UNKNOWN_MAX_S = 300.0


@dataclass(slots=True)
class Worker:
    """Takes offers of an app's queues. `is_stale(run_id, op)` tells what this node knows to be over already.

    `ring(run_id)` looks at a run that this node owns.
    """

    app: App
    world: World
    bus: Bus
    host: Host
    bodies: Bodies
    queues: frozenset[str]
    is_stale: Callable[[str, str], bool]
    ring: Callable[[str], None]
    _incarnation: str = ""
    _stopping: bool = False
    _taking: list[Steps] = field(default_factory=list["Steps"])
    _asked: asyncio.Event = field(default_factory=asyncio.Event)
    _adopts: bool = False

    async def start(self, incarnation: str) -> None:
        """Serve the queues under an incarnation."""
        self._incarnation = incarnation
        slots = self.bodies.slots
        for queue in sorted(self.queues):
            self._taking.append(await self.bus.steps(self.app.name, queue, self.take, lambda: slots.room))
        slots.grew = self._room_grew

    def _room_grew(self) -> None:
        for steps in self._taking:
            steps.room_grew()

    async def run(self) -> None:
        """Look into the world for offers whose bells are late or lost, until there are none, again and again."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), LOOK_S)
            self._asked.clear()
            if self._adopts:
                await self._adopt()
            while self.bodies.slots.room and await self._look():
                pass

    def adopt(self) -> None:
        """Look at once: a node has died, or partitions came. What waited there in line for a slot is on offer."""
        self._adopts = True
        self._asked.set()

    async def _adopt(self) -> None:
        """Ring the runs whose steps are on offer, to be loaded by their owner.

        Else nobody who is full would ever take them: those of its own line come first, and a run that waits for
        nothing but an offer is not due.
        """
        try:
            for queue in sorted(self.queues):
                offers = await self.world.offers(self.app.name, queue, ADOPTED_MAX)
                for run_id in dict.fromkeys(run_id for run_id, _ in offers):
                    self.ring(run_id)
            self._adopts = False
        except Unavailable as why:
            log.warning("what is on offer cannot be read", why=str(why))

    async def _look(self) -> int:
        """Take what is on offer and fits in; return how many were taken."""
        taken = 0
        for queue in sorted(self.queues):
            try:
                offers = await self.world.offers(self.app.name, queue, self.bodies.slots.room)
                for run_id, op in offers:
                    taken += await self._took(Offering(queue, run_id, op, self.app.name))
            except Unavailable as why:
                log.warning("what is on offer cannot be read", queue=queue, why=str(why))
            except Again:
                break
        return taken

    async def stop(self) -> None:
        """Take no more."""
        self._stopping = True
        taking, self._taking = self._taking, []
        await asyncio.gather(*(steps.stop() for steps in taking))

    async def take(self, offering: Offering) -> None:
        """Claim what is offered and start its body. What is not on offer any more is settled.

        Raises:
            Again: there is no slot, or the world does not answer.
        """
        await self._took(offering)

    async def _took(self, offering: Offering) -> bool:
        if self.is_stale(offering.run_id, offering.op):
            return False
        if not self.bodies.slots.take_room():
            raise Again(NO_ROOM_S)
        token = self.host.token()
        self.bodies.expect(token)
        try:
            claimed = await self._claimed(offering, token)
        except BaseException as error:
            self.bodies.taken(token)
            self.bodies.slots.give_back()
            if isinstance(error, Refused):
                return False
            raise
        await self._begin(offering, claimed, token)
        return True

    async def _claimed(self, offering: Offering, token: str) -> Claimed:
        """Ask for the claim until there is an answer: one that is lost may stand, and nobody else would begin it.

        Asked again with the same token it is the same claim.
        """
        for delay_s in chain(RETRY_S, repeat(RETRY_S[-1])):
            try:
                return await self.world.claim(offering.run_id, offering.op, token, self._incarnation)
            except Unavailable as why:
                if self._stopping:  # the claim, if there is one, dies with the incarnation
                    raise Again(NO_ROOM_S) from why
                log.warning("a step waits to be claimed", run=offering.run_id, op=offering.op, why=str(why))
            await asyncio.sleep(delay_s)
        raise AssertionError  # unreachable: the delays never end

    async def _begin(self, offering: Offering, claimed: Claimed, token: str) -> None:
        state = _folded(claimed, offering.op)
        step = self.app.steps.get(state.created.name) or define.find_step(state.created.name)
        if step is None:
            self.bodies.taken(token)
            self.bodies.slots.give_back()
            await self._give_back(offering.run_id, state)
        else:
            self.bodies.start(offering.run_id, _any(step), state, claimed.app)

    async def _give_back(self, run_id: str, state: Attempts) -> None:
        """Give back an attempt whose step this node does not have: its code is another version."""
        name, delay_s = state.created.name, min(UNKNOWN_FIRST_S * 2 ** min(state.dispatch, 10), UNKNOWN_MAX_S)
        log.warning("this node serves the queue of a step it does not have", run=run_id, step=name, in_s=delay_s)
        error = failures.describe(StepLost(f"the node that took it has no step {name!r}", step=name))
        body = ev.StepRetrying(
            op=state.op, attempt=state.attempt, delay_s=delay_s, token=state.token, error=error, deferred=True
        )
        await self.world.append(Batch(run_id, (body,), UNREAD))


def _folded(claimed: Claimed, op: str) -> Attempts:
    progress = Progress()
    for event in claimed.events:
        progress.take(event)
    return progress.open[op]


def _any(step: Step[..., Any]) -> Step[Any, Any]:
    return step
