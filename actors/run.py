"""The run actor: one run, one message batch at a time, kept with its coroutine alive until it goes to sleep.

    on tick:  events after my cursor → for each: feed one, run to quiet → new orders + results + timers that are due
              → one append → feed what committed → start bodies → again, until there is nothing to write

Refusals, divergence and a world that does not answer each have one arm in `_move`. Bodies that ended stay in memory
until their outcome is recorded or refused, whatever is reloaded meanwhile.
"""

from __future__ import annotations

import asyncio
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, assert_never

import structlog

from fencepost.world import Batch, Refused, RunEnded, RunNotFound, Superseded, Unavailable, UnknownEvent
from fencepost.world import events as ev

from . import bugs
from .ahead import Ahead
from .awake import Awake, Reload
from .messages import HandOver, NodeDied, Passivate, RunMessage, SlotReserved, StepEnded, Tick
from .operations import Diverged
from .settling import Stuck

if TYPE_CHECKING:
    from fencepost.world import Fence, Opened, Run

    from .define import Workflow
    from .surroundings import Surroundings

log = structlog.get_logger(__name__)

RETRY_S = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)


class RunActor:
    """See the module. `handle` gets all waiting messages and is never called twice at once."""

    def __init__(self, run_id: str, around: Surroundings) -> None:
        self.run_id = run_id
        self.idle_since_s = 0.0
        self._around = around
        self._awake: Awake | None = None
        self._ended: list[StepEnded] = []
        self._fence: Fence | None = None
        self._died: set[str] = set()
        self._ended_it = False
        self._ahead = Ahead(wanted=around.run_ahead)

    @property
    def asleep(self) -> bool:
        """Whether it keeps nothing in memory that a new actor would not find in the log."""
        return self._awake is None and not self._ended

    @property
    def idle(self) -> bool:
        """Whether it keeps a coroutine although nothing of it runs here."""
        return self._awake is not None and not self._ended and not self._around.bodies.runs_any(self.run_id)

    def has_no_offer(self, op: str) -> bool:
        """Tell whether a step is known not to be on offer; what sleeps knows nothing."""
        return self._awake is not None and not self._awake.offers(op)

    async def handle(self, messages: list[RunMessage]) -> None:
        """Take all waiting messages, then move the run as far as it goes."""
        if any(isinstance(message, HandOver) for message in messages):
            self._hand_over(messages)
            return
        look, sleep, swept = self._sort(messages)
        if sleep and not look:
            if self.idle:
                self.drop()
            return
        wrote = await self._move(look=look, swept=swept)
        if swept and wrote:
            self._around.repaired()
        self.idle_since_s = self._around.host.monotonic_s()

    def _sort(self, messages: list[RunMessage]) -> tuple[bool, bool, bool]:
        """Return whether to look at the log, whether to sleep, and whether only the sweeper asked."""
        ticks = [m for m in messages if isinstance(m, Tick)]
        sleep = True
        for message in messages:
            match message:
                case StepEnded():
                    self._around.bodies.taken(message.token)
                    self._ended.append(message)
                    sleep = False
                case NodeDied(incarnation=incarnation):
                    self._died.add(incarnation)
                    sleep = False
                case Tick() | SlotReserved():
                    sleep = False
                case Passivate() | HandOver():
                    pass
                case _:
                    assert_never(message)
        look = bool(ticks or self._died) or self._ended_unseen()
        return look, sleep, len(ticks) == len(messages) and all(t.swept for t in ticks)

    def _ended_unseen(self) -> bool:
        """Tell whether a body ended whose start was not fed: a claim from outside rings nobody."""
        return self._awake is not None and any(not self._awake.runs(message.token) for message in self._ended)

    def _hand_over(self, messages: list[RunMessage]) -> None:
        """Decide nothing more: another node does. It hears what ended here, and that it has to look."""
        self._ended += [message for message in messages if isinstance(message, StepEnded)]
        self.drop()
        self._around.bodies.slots.keep_only(self.run_id, ())
        ended, self._ended = self._ended, []
        for message in ended:
            self._around.bodies.expect(message.token)  # else it looks like a claim of ours that never began
        self._around.hand_over(self.run_id, ended)

    async def _move(self, *, look: bool, swept: bool) -> bool:
        """Move the run until it rests; return whether something was written."""
        for delay_s in chain(RETRY_S, repeat(RETRY_S[-1])):
            try:
                return await self._once(look=look, swept=swept)
            except RunNotFound:
                return False
            except Reload:
                self.drop()
            except asyncio.CancelledError:  # what it has in memory may be ahead of the log
                self.drop()
                raise
            except Unavailable as why:
                self._around.world_away(str(why), self._around.host.monotonic_s())
                self.drop()
            except Exception as error:  # noqa: BLE001  (a person decides)
                if await self._stall(self._why(error)):
                    return True
            look = True
            await self._around.pause(delay_s)
        raise AssertionError  # unreachable: the delays never end

    def _why(self, error: Exception) -> str:
        """Say why a run cannot go on. What we did not foresee is a bug of ours: reported, and not tried for ever."""
        if isinstance(error, Diverged | Stuck | UnknownEvent):
            return str(error)
        bugs.report("a run could not be moved", run=self.run_id)
        return f"Fencepost could not go on with it ({type(error).__name__}: {str(error)[:200]}); see the node's log"

    async def _once(self, *, look: bool, swept: bool) -> bool:
        if self._awake is None:
            async with self._around.activations:
                with self._around.bodies.remembered(self.run_id):
                    self._awake = await self._wake_up()
        elif look:
            await self._awake.catch_up(swept=swept)
            self._reload_without_the_dead(swept=swept)
        if self._awake is None:
            ended, self._ended_it = self._ended_it, False
            return ended
        while await self._awake.write_next():
            if self._around.hears(self.run_id):
                break  # a body may have ended: events from outside without end must not keep it waiting
        return self._rest(self._awake)

    def _reload_without_the_dead(self, *, swept: bool) -> None:
        """Load anew if an attempt runs on a node that has died: that it is lost stands in the claims only.

        Raises:
            Reload: it does.
        """
        died, self._died = self._died, set()
        assert self._awake is not None
        others = self._awake.runs_on()
        if others & died or (swept and any(not self._around.is_alive(incarnation) for incarnation in others)):
            raise Reload

    def _rest(self, awake: Awake) -> bool:
        moved, awake.moved = awake.moved, False
        if awake.over:
            self._let_bodies_go()
            self.drop()
        elif (due := awake.due()) is not None:
            self._around.arm(self.run_id, due)
        return moved

    # ---- waking up

    async def _wake_up(self) -> Awake | None:
        """Load the log and feed it. None when there is nothing to decide here."""
        opened = await self._around.world.open(self.run_id)
        self._fence = opened.fence
        if opened.run.ended_at is not None:
            self._let_bodies_go()
            # Whoever ended it may have had no answer, or died, before it could say so.
            await self._around.announce(self.run_id, opened.run.seq, True)  # noqa: FBT003  (over)
            return None
        if await self._ended_without_code(opened):
            return None
        if opened.run.status == "pending" and opened.run.due is not None and opened.run.due > self._around.host.now():
            self._around.arm(self.run_id, opened.run.due)  # it was asked to begin later
            return None
        workflow = self._around.workflows.get(opened.run.workflow)
        if workflow is None or opened.run.stalled:
            await self._leave_waiting(opened, workflow)
            return None
        if self._begins_later(opened.run):
            return None
        awake = self._awake = Awake(workflow, opened, self._around, self._ended, self._ahead)
        await awake.load(opened)
        return awake

    def _begins_later(self, run: Run) -> bool:
        """Tell whether a run was started for later and was woken early; the timer will ring."""
        if run.status != "pending" or run.due is None or run.due <= self._around.host.now():
            return False
        self._around.arm(self.run_id, run.due)
        return True

    async def _ended_without_code(self, opened: Opened) -> bool:
        """End a run that was cancelled before it began, or while it cannot run code. True when it was."""
        began, run = opened.run.status != "pending", opened.run
        if began and not run.stalled:
            return False
        cancel = next((e.body for e in opened.events if isinstance(e.body, ev.CancelRequested)), None)
        if cancel is None:
            return False
        if began:
            reason = f"cancelled while stalled: {cancel.reason}".rstrip(": ")
            batch = Batch(self.run_id, (ev.RunTerminated(reason=reason),), run.seq)
        else:
            end = ev.RunCancelled(reason=cancel.reason)
            batch = Batch(self.run_id, (end,), run.seq, opened.fence, self._around.host.token())
        accepted = await self._append(batch)
        self._ended_it = True
        await self._around.announce(self.run_id, accepted, True)  # noqa: FBT003  (over)
        return True

    async def _leave_waiting(self, opened: Opened, workflow: Workflow[Any, Any] | None) -> None:
        """Leave a run alone that nobody here can move; a person or another node can (`World.join` wakes it)."""
        run = opened.run
        if run.stalled:
            if run.due is not None:  # something came from outside; a batch of ours would say that it was decided on
                await self._stall_again(opened)
            return
        if workflow is None and self._around.lacks_workflow(run.partition):
            log.info("run goes to a node with newer code", run=self.run_id, workflow=run.workflow)
        elif run.status != "pending" and workflow is None:
            await self._stall(f"no node knows workflow {run.workflow!r} any more: start one whose code has it")
        elif run.due is not None:
            log.warning("run waits for a node that knows its workflow", run=self.run_id, workflow=run.workflow)
            await self._append(Batch(self.run_id, (), run.seq, opened.fence, self._around.host.token()))

    async def _stall_again(self, opened: Opened) -> None:
        try:
            await self._around.world.stall(self.run_id, opened.fence, opened.run.stalled)
        except Refused as refusal:
            raise Reload from refusal

    async def _append(self, batch: Batch) -> int:
        try:
            return (await self._around.world.append(batch)).first_seq
        except Refused as refusal:
            raise Reload from refusal

    # ---- leaving

    async def _stall(self, why: str) -> bool:
        """Mark the run as stalled. False when another decider was faster: look again."""
        fence = self._awake.fence if self._awake is not None else self._fence
        self.drop()
        self._around.bodies.slots.keep_only(self.run_id, ())
        try:
            await self._around.world.stall(self.run_id, fence, why)
        except (Superseded, Unavailable):
            return False
        except (RunEnded, RunNotFound):
            return True
        log.warning("run stalled", run=self.run_id, why=why)
        await self._around.announce(self.run_id, 0, False)  # noqa: FBT003  (not over)
        return True

    def _let_bodies_go(self) -> None:
        """The run is over: nobody wants what its bodies still return."""
        for message in self._ended:
            self._around.bodies.let_go(self.run_id, message.token)
        self._ended.clear()
        self._around.bodies.slots.keep_only(self.run_id, ())
        self._around.bodies.stop_run(self.run_id)

    def drop(self) -> None:
        """Forget the coroutine; the log has everything."""
        if self._awake is not None:
            self._awake.evict()
        self._awake = None
