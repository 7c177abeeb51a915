"""A run while it is awake: its coroutine, the fence it decides under, and one append per decision.

Whatever refuses an append (another decider, a stale log, a lost claim) raises `Reload`: what is in memory no longer
fits the log, and the one remedy is to drop it and load again (L3, L4). Nothing is patched. Nor is what ran ahead and
could not go on: its results are written first, and what is wrong then comes from the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog

from fencepost.world import Accepted, Batch, ClaimLost, RunEnded, StaleLog, Superseded, Taken, Unavailable
from fencepost.world import events as ev

from . import trouble
from .attempts import Progress
from .decide import Decider, Decision
from .grace import Grace
from .inbox import Reads
from .offering import Offered
from .shadow import Shadow
from .stand_ins import standing_in
from .sweeper import AGE
from .values import externalised, hydrated, is_apart, is_large, portions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from fencepost.world import Claim, Opened

    from .ahead import Ahead
    from .define import Workflow
    from .messages import StepEnded
    from .surroundings import Surroundings

log = structlog.get_logger(__name__)

Feed = Callable[[ev.Event], None]

YIELD_EVERY_S = 0.002
SOON_S = 1.0


class Reload(Exception):
    """What is in memory no longer fits the log."""


class Awake:
    """See the module. `ended` is the actor's list of bodies that ended and are not recorded yet."""

    def __init__(
        self,
        workflow: Workflow[Any, Any],
        opened: Opened,
        around: Surroundings,
        ended: list[StepEnded],
        ahead: Ahead,
    ) -> None:
        self.run_id = opened.run.run_id
        self.over = False
        self.moved = False  # it wrote, or was fed what had waited for longer than the sweeper lets it
        self.fence = opened.fence
        decided_seq = opened.run.code_decided_seq
        self.turn = around.turn(workflow, self.run_id, decided_seq=decided_seq, said_seq=ahead.said(decided_seq))
        self._around = around
        self._ended = ended
        self._ahead = ahead
        self._last_at = opened.run.created_at
        self._lost: list[tuple[str, str]] = []
        self._due = opened.run.due
        self._in_band = opened.run.in_band_count
        self._unsettled = True  # what set due to now is settled by the first append that knows the whole log
        self._shadow = Shadow(around.turn, workflow, self.run_id) if around.shadow else None
        self._progress = Progress()
        self._offered = Offered(lambda offer: around.offer(self.run_id, offer))
        self._reads = Reads()
        self._grace = Grace(decided_seq)
        self._decider = Decider(
            turn=self.turn,
            progress=self._progress,
            host=around.host,
            incarnation=around.incarnation,
            take_slot=lambda op: around.bodies.slots.take(self.run_id, op),
            serves=around.serves,
        )

    # ---- feeding

    async def load(self, opened: Opened) -> None:
        """Feed the whole log, page by page, yielding now and then; then see what became of the running attempts."""
        page = opened.events
        while page:
            await self._feed_all(page)
            if page[-1].seq >= opened.run.seq:
                break  # what lands after `open` is refused to us by the fence, or rings
            page = await self._around.world.more(self.run_id, page[-1].seq)
        self._ahead.unsure = False
        self._sort_claims(opened.claims)

    async def catch_up(self, *, swept: bool) -> None:
        """Feed what landed since. `swept`: the row that wakes the run is overdue, whoever set it.

        Raises:
            Reload: another decider wrote (superseded, L3).
        """
        self._unsettled |= swept
        while page := await self._around.world.more(self.run_id, self.turn.seq):
            if any(event.tick is not None for event in page):
                raise Reload
            self.moved |= swept and any(self._around.host.now() - event.at > AGE for event in page)
            await self._feed_all(page)
            self._unsettled = True

    async def _feed_all(self, events: Sequence[ev.Event]) -> None:
        for portion in portions(events):
            fed = [await hydrated(self._around.world, self.run_id, e) if is_apart(e.body) else e for e in portion]
            await self._feed_in_turns(fed, self.turn.feed)
            if self._shadow is not None:
                self._shadow.follow(fed, self.turn)

    async def _feed_in_turns(self, events: list[ev.Event], feed: Feed) -> None:
        left = self._feed_for_a_while(events, feed)
        while left:
            await asyncio.sleep(0)
            left = self._feed_for_a_while(left, feed)

    def _feed_for_a_while(self, events: list[ev.Event], feed: Feed) -> list[ev.Event]:
        """Feed events until the others of this loop should have their turn; return what is left."""
        host = self._around.host
        until_s = host.monotonic_s() + YIELD_EVERY_S
        with standing_in():  # once for many events, not once an event
            for number, event in enumerate(events, 1):
                feed(event)
                self._note(event)
                if host.monotonic_s() > until_s:
                    return events[number:]
        return []

    def _note(self, event: ev.Event) -> None:
        self._last_at = event.at
        self._progress.take(event)
        if isinstance(event.body, ev.RunStarted):
            self._decider.started_at = event.at
        self._decider.cancelled_at = self._grace.take(event, self._around.host.now())
        self.over = self.turn.ended is not None

    def _sort_claims(self, claims: tuple[Claim, ...]) -> None:
        """Find what nobody runs: a dead node's attempts are lost, one of ours that never began is begun."""
        alive = {c.token for c in claims if c.alive}
        for op, state in self._progress.open.items():
            if not state.running:
                continue
            if state.token not in alive:  # also one of ours: whoever declared us dead does it again
                self._lost.append((op, state.token))
            elif state.incarnation == self._around.incarnation and not self._is_known(state.token):
                self._around.bodies.slots.reclaim()
                self._start_body(op)

    def _is_known(self, token: str) -> bool:
        return self._around.bodies.knows(token) or any(e.token == token for e in self._ended)

    # ---- writing

    async def write_next(self) -> bool:
        """Write one batch, if there is something to write. False when the run rests or is over.

        Raises:
            Reload: the append was refused.
            Diverged, Stuck: the run is to be stalled.
        """
        if self.over:
            return False
        if self._out_of_grace():
            await self._terminate()
            return False
        self._let_go_unwanted()
        lost, self._lost = self._lost, []
        results = self._decider.results(list(self._ended), lost, self._in_band)
        if results and self.turn.started and self._ahead.allowed and not self._decider.conflicts:
            decision = await self._decide_ahead(results)
        else:
            decision = self._decider.decide(results, self._in_band)
        self._around.bodies.slots.keep_only(self.run_id, decision.offers)
        offers = decision.offers.values()
        writes = bool(decision.bodies) or self._must_move_due() or self._offered.differs(offers)
        try:
            goes_on = writes and await self._commit(decision)
        except Taken as refusal:  # strict: nothing was fed that is not in the log
            self._decider.conflicts = {refusal.op: refusal.owner}
            self._lost = lost
            return True
        if writes:
            self._let_go_unwanted(recorded=True)
            self._offered.written(offers)
        self._offered.ring(offers, self._around.host.now())
        return goes_on

    def _let_go_unwanted(self, *, recorded: bool = False) -> None:
        """Forget ended bodies whose outcome is recorded; end the claims of those nobody wants."""
        for message in [e for e in self._ended if not self._is_wanted(e)]:
            self._ended.remove(message)
            if not recorded:
                self._around.bodies.let_go(self.run_id, message.token)

    def _is_wanted(self, message: StepEnded) -> bool:
        state = self._progress.open.get(message.op)
        return state is not None and state.token == message.token

    async def _decide_ahead(self, results: list[ev.EventBody]) -> Decision:
        """Feed results as they will stand, and decide on them.

        Raises:
            Reload: the code diverged or got stuck; it will again, when the results are durable.
        """
        at = max(self._around.host.now(), self._last_at)
        try:
            await self._feed_in_turns(self._placed(results, self.turn.seq + 1, at), self.turn.feed_ahead)
            return self._decider.decide_ahead(results, self._in_band, at)
        except Exception as error:
            self._ahead.refused()
            raise Reload from error

    def _placed(self, bodies: Iterable[ev.EventBody], first_seq: int, at: datetime) -> list[ev.Event]:
        """Return events of the next batch as they stand in the log."""
        return [ev.Event(seq, self.fence.tick + 1, at, body) for seq, body in enumerate(bodies, first_seq)]

    async def _commit(self, decision: Decision) -> bool:
        """Write a batch and act on it. False when the code has nothing more to say to what is durable now."""
        around = self._around
        try:
            accepted = await self._append_ahead(decision) if decision.ahead else await self._append_next(decision)
            own = self._placed(decision.bodies, accepted.first_seq, accepted.at)
            self.fence, self.moved = accepted.fence, self.moved or bool(own)
            self._due, self._in_band = decision.due, self._in_band + len(own)
            self._unsettled = any(ev.resumes_code(event.body) for event in accepted.between)
            if decision.ahead:
                await self._confirm(accepted.between, own, decision.ahead)
            else:
                await self._feed_all([*accepted.between, *own])
        except BaseException:
            self._return_slots(decision)
            raise
        self._act(decision)
        await around.announce(self.run_id, self.turn.seq, self.over)
        # What ran ahead has been answered already: to look again would be half of what deciding costs.
        return not decision.ahead or bool(accepted.between)

    async def _append_next(self, decision: Decision) -> Accepted:
        """Write a batch; large values first, so that no event names what is not there."""
        world = self._around.world
        bodies = [await externalised(world, self.run_id, body) if is_large(body) else body for body in decision.bodies]
        batch = Batch(
            self.run_id,
            tuple(bodies),
            self.turn.durable_seq,
            self.fence,
            self._around.host.token(),
            whole_log=decision.whole_log,
            at=decision.at,
            due=decision.due,
            offers=tuple(decision.offers.values()),
            reads=self._reads.news(self.turn.ops.hooks.values()),
        )
        accepted = await self.append(batch)
        # A run that has rested at strict batches goes ahead with the first one that nothing lands before.
        self._ahead.accepted(calm=not any(ev.resumes_code(event.body) for event in accepted.between))
        self._reads.told(batch.reads)
        self._decider.conflicts = {}
        return accepted

    async def _append_ahead(self, decision: Decision) -> Accepted:
        """Write a batch of results and what they led to.

        Raises:
            Reload: it was refused for whatever reason, or the world took it although it must not.
            Unavailable: it may be in the log or not.
        """
        try:
            accepted = await self._append_next(decision)
        except (Unavailable, asyncio.CancelledError):
            self._ahead.unheard()
            raise
        except Exception as error:
            self._ahead.refused(ahead=True)
            raise Reload from error
        if any(ev.resumes_code(event.body) for event in accepted.between):
            raise Reload
        return accepted

    async def _confirm(self, between: tuple[ev.Event, ...], own: list[ev.Event], ahead: int) -> None:
        """Take in what is durable now, of which the code has seen the first `ahead` events."""
        for event in between:
            self._progress.take(event)
        self.turn.confirm(own[:ahead])
        if self._shadow is not None:
            self._shadow.take([*between, *own[:ahead]])
        await self._feed_all(own[ahead:])

    async def append(self, batch: Batch) -> Accepted:
        """Append, or raise `Reload` for whatever refuses it."""
        try:
            return await self._around.world.append(batch)
        except ClaimLost as refusal:
            self._ahead.refused()
            self._ended[:] = [e for e in self._ended if e.op not in refusal.ops]
            raise Reload from refusal
        except (Superseded, StaleLog, RunEnded) as refusal:
            self._ahead.refused()
            log.debug("append refused", run=self.run_id, why=type(refusal).__name__)
            raise Reload from refusal

    def _return_slots(self, decision: Decision) -> None:
        for body in decision.bodies:
            if isinstance(body, ev.StepStarted):
                self._around.bodies.slots.give_back()

    # ---- acting on what committed

    def _act(self, decision: Decision) -> None:
        """Start what was decided and is still wanted, stop what no longer is."""
        bodies = self._around.bodies
        for body in decision.bodies:
            trouble.tell(self.run_id, body, self._name_of(body.op))
            match body:
                case ev.StepStarted(op=op, token=token):
                    self._start_or_let_go(op, token)
                case ev.StepCancelled(op=op) | ev.StepFailed(op=op):
                    bodies.stop(self.run_id, op)
                case _:
                    continue
        if self.over:
            bodies.stop_run(self.run_id)

    def _name_of(self, op: str) -> str:
        operation = self.turn.ops.by_path.get(op)
        return "" if operation is None or operation.step is None else operation.step.name

    def _start_or_let_go(self, op: str, token: str) -> None:
        state = self._progress.open.get(op)
        if not self.over and state is not None and state.token == token:  # else a worker was faster
            self._start_body(op)
        else:
            self._around.bodies.slots.give_back()
            self._around.bodies.let_go(self.run_id, token)

    def _start_body(self, op: str) -> None:
        step = self.turn.ops.by_path[op].step
        assert step is not None  # progress holds steps only
        self._around.bodies.start(self.run_id, step, self._progress.open[op])

    # ---- time

    def due(self) -> datetime | None:
        """Return when the run wants to be looked at next."""
        return self._decider.due()

    def _must_move_due(self) -> bool:
        """Whether the row that wakes this run has to be moved: an event was fed that had set it to now (L12)."""
        due, now = self.due(), self._around.host.now()
        if due is not None and (due - now).total_seconds() < SOON_S:
            return False  # what happens then moves it
        stale = self._due is not None and self._due <= now
        earlier = due is not None and (self._due is None or due < self._due)
        return self._unsettled or stale or earlier

    def _out_of_grace(self) -> bool:
        ends = self._decider.grace_ends
        return ends is not None and ends <= self._around.host.now() and self.turn.terminal is None

    async def _terminate(self) -> None:
        """End a cancelled run that did not end within its grace."""
        end = ev.RunTerminated(reason="it did not end within cancel_grace after a cancel")
        accepted = await self.append(Batch(self.run_id, (end,), self.turn.seq))
        self.over = True
        self._around.bodies.stop_run(self.run_id)
        await self._around.announce(self.run_id, accepted.first_seq, True)  # noqa: FBT003  (over)

    def runs(self, token: str) -> bool:
        """Tell whether the attempt of a claim was fed and runs."""
        return any(state.token == token for state in self._progress.open.values())

    def runs_on(self) -> set[str]:
        """Return the incarnations that attempts run on."""
        return {state.incarnation for state in self._progress.open.values() if state.running}

    def offers(self, op: str) -> bool:
        """Tell whether a step is on offer, as far as was decided."""
        return op in self._offered

    def evict(self) -> None:
        """Forget the coroutine; the log has everything."""
        self._ahead.said_seq = self.turn.durable_seq
        self.turn.evict()
        if self._shadow is not None:
            self._shadow.evict()
