"""The step bodies that run on this node: started under a claim, stopped when nobody wants them, always accounted for.

`execute → outcome → record`: this part executes. The outcome goes to the run's mailbox, and the run's actor records it.
A slot is given back when the body has ended, not when its outcome is known: a thread that never returns keeps its slot.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from fencepost.world import Unavailable

from . import bugs
from .executor import Call, Done, Executor, Failed, TimedOut
from .failures import describe
from .isolate import why_not
from .messages import RunMessage, Running, SlotReserved, StepEnded
from .slots import Slots
from .values import VALUE_BYTES_MAX, fetched

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from fencepost.world import World

    from .attempts import Attempts
    from .define import Step
    from .host import Host

log = structlog.get_logger(__name__)
ISOLATE_AFTER_LOSSES = 2


class Bodies:
    """See the module. `post` puts a message into a run's mailbox, `ended` passes on that a body ended."""

    def __init__(
        self,
        world: World,
        host: Host,
        executor: Executor,
        slots: int,
        *,
        post: Callable[[str, RunMessage], None],
        ended: Callable[[Running, StepEnded], None],
        app: str = "default",
    ) -> None:
        self._world, self._host, self._executor, self._ended, self._app = world, host, executor, ended, app
        self.slots = Slots(slots, lambda run_id, op: post(run_id, SlotReserved(op)))
        self._running: dict[str, Running] = {}
        self._left_alone: set[str] = set()
        self._by_run: Counter[str] = Counter()
        self._kept: set[str] = set()
        self._awaited: dict[str, asyncio.Event] = {}
        self._ended_meanwhile: dict[str, set[str]] = {}

    def knows(self, token: str) -> bool:
        """Tell whether the body of a claim runs here, is about to, or ended and nobody has taken the message yet."""
        known = token in self._running or token in self._kept
        return known or any(token in ended for ended in self._ended_meanwhile.values())

    @contextmanager
    def remembered(self, run_id: str) -> Iterator[None]:
        """Know bodies that end and are recorded while their run is read: what is read may say that they run."""
        self._ended_meanwhile[run_id] = set(self._kept)
        try:
            yield
        finally:
            del self._ended_meanwhile[run_id]

    def expect(self, token: str) -> None:
        """Note a claim that is being asked for: its body begins when the answer comes."""
        self._kept.add(token)

    def taken(self, token: str) -> None:
        """Note that somebody has the message that a body ended, or that an expected one does not begin."""
        self._kept.discard(token)
        if token in self._awaited:
            self._awaited.pop(token).set()

    def runs_any(self, run_id: str) -> bool:
        """Tell whether a body of a run runs here."""
        return self._by_run.get(run_id, 0) > 0

    @property
    def count(self) -> int:
        """How many bodies run."""
        return len(self._running)

    def start(self, run_id: str, step: Step[Any, Any], state: Attempts, app: str = "") -> None:
        """Start the body of a claim that is durable; the slot is taken already."""
        # A copy: the actor folds on, and who reports the outcome must see the attempt as it was started.
        running = Running(run_id, app or self._app, step, replace(state))
        self._running[state.token] = running
        self._kept.discard(state.token)
        if step.on_cancel == "abandon":
            self._left_alone.add(state.token)
        self._by_run[run_id] += 1
        self._host.spawn(self._run(running), f"step {run_id} {state.op}")

    async def _run(self, running: Running) -> None:
        run_id, step, state = running.run_id, running.step, running.state
        token, op, attempt = state.token, state.op, state.attempt
        isolate = step.isolate or (state.lost >= ISOLATE_AFTER_LOSSES and not why_not(step.fn))
        try:
            args = await fetched(self._world, run_id, state.created.args)
            done = await self._executor.execute(
                Call(
                    run_id=run_id,
                    op=op,
                    step_name=step.name,
                    fn=step.fn,
                    args=bytes(args.json),
                    params=step.params,
                    returns=step.returns,
                    attempt=attempt,
                    token=token,
                    timeout_s=step.timeout_s,
                    isolate=isolate,
                    idempotency_key=f"{run_id}:{op}",
                    value_bytes_max=VALUE_BYTES_MAX,
                )
            )
        except Exception as bug:  # noqa: BLE001  (reported, and the attempt fails)
            bugs.report("step could not be executed", run=run_id, step=step.name)
            done = Failed(error=describe(bug), exception=bug)
        await self._finish(running, StepEnded(op, attempt, token, done, running), done)

    async def _finish(self, running: Running, ended: StepEnded, done: Done) -> None:
        run_id, still_running = running.run_id, isinstance(done, TimedOut) and done.still_running
        self._kept.add(ended.token)
        self._ended_meanwhile.get(run_id, set()).add(ended.token)
        self._ended(running, ended)
        if still_running:
            await self._executor.ended(ended.token)
            await self._until_taken(ended.token)  # a report needs the claim
            await self._end_claim(run_id, ended.token)
        self._running.pop(ended.token, None)
        self._left_alone.discard(ended.token)
        self._by_run[run_id] -= 1
        if not self._by_run[run_id]:
            del self._by_run[run_id]
        self.slots.give_back()

    async def _until_taken(self, token: str) -> None:
        if token in self._kept:
            await self._awaited.setdefault(token, asyncio.Event()).wait()

    def stop(self, run_id: str, op: str) -> None:
        """Tell the bodies of an operation to stop. What they still return is not recorded."""
        for token, running in list(self._running.items()):
            if running.run_id == run_id and running.state.op == op:
                self._executor.cancel(token)

    def stop_claims(self, tokens: Collection[str]) -> None:
        """Tell bodies to stop whose claims drain: the run's decider, wherever it is, has given them up."""
        for token in tokens:
            if token in self._running and token not in self._left_alone:
                self._executor.cancel(token)

    def stop_run(self, run_id: str) -> None:
        """Tell all bodies of a run to stop: it ended. Those of `on_cancel="abandon"` are left alone."""
        self.stop_claims([token for token, running in self._running.items() if running.run_id == run_id])

    def let_go(self, run_id: str, token: str) -> None:
        """End a claim whose outcome nobody wants."""
        self._host.spawn(self._end_claim(run_id, token), f"end claim {run_id}")

    async def _end_claim(self, run_id: str, token: str) -> None:
        try:
            await self._world.end_claim(run_id, token)
        except Unavailable as why:
            # It ends with the incarnation at the latest.
            log.warning("a claim could not be ended", run=run_id, why=str(why))
