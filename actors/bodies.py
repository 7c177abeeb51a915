"""The step bodies that run on this node: started under a claim, stopped when nobody wants them, always accounted for.

`execute → outcome → record`: this part executes. The outcome goes to the run's mailbox, and the run's actor records it.
A slot is given back when the body has ended, not when its outcome is known: a thread that never returns keeps its slot.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import structlog

from fencepost.world import Unavailable

from . import bugs
from .executor import Call, Done, Executor, Failed, TimedOut
from .failures import describe
from .isolate import why_not
from .messages import RunMessage, SlotReserved, StepEnded
from .slots import Slots
from .values import VALUE_BYTES_MAX, fetched

if TYPE_CHECKING:
    from collections.abc import Callable

    from fencepost.world import World

    from .attempts import Attempts
    from .define import Step
    from .host import Host

log = structlog.get_logger(__name__)
ISOLATE_AFTER_LOSSES = 2


class Bodies:
    """See the module. `post` puts a message into a run's mailbox."""

    def __init__(
        self,
        world: World,
        host: Host,
        executor: Executor,
        slots: int,
        post: Callable[[str, RunMessage], None],
    ) -> None:
        self._world, self._host, self._executor, self._post = world, host, executor, post
        self.slots = Slots(slots, lambda run_id, op: post(run_id, SlotReserved(op)))
        self._running: dict[str, tuple[str, str]] = {}
        self._left_alone: set[str] = set()
        self._by_run: Counter[str] = Counter()
        self._posted: set[str] = set()

    def knows(self, token: str) -> bool:
        """Tell whether the body of a claim runs here, or ended and its actor has not taken the message yet."""
        return token in self._running or token in self._posted

    def taken(self, token: str) -> None:
        """Note that the actor has the message that a body ended."""
        self._posted.discard(token)

    def runs_any(self, run_id: str) -> bool:
        """Tell whether a body of a run runs here."""
        return self._by_run.get(run_id, 0) > 0

    @property
    def count(self) -> int:
        """How many bodies run."""
        return len(self._running)

    def start(self, run_id: str, step: Step[Any, Any], state: Attempts) -> None:
        """Start the body of a claim that is durable; the slot is taken already."""
        self._running[state.token] = (run_id, state.op)
        if step.on_cancel == "abandon":
            self._left_alone.add(state.token)
        self._by_run[run_id] += 1
        self._host.spawn(self._run(run_id, step, state), f"step {run_id} {state.op}")

    async def _run(self, run_id: str, step: Step[Any, Any], state: Attempts) -> None:
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
        await self._finish(run_id, StepEnded(op, attempt, token, done), done)

    async def _finish(self, run_id: str, ended: StepEnded, done: Done) -> None:
        still_running = isinstance(done, TimedOut) and done.still_running
        self._posted.add(ended.token)
        self._post(run_id, ended)
        if still_running:
            await self._executor.ended(ended.token)
            await self._end_claim(run_id, ended.token)
        self._running.pop(ended.token, None)
        self._left_alone.discard(ended.token)
        self._by_run[run_id] -= 1
        if not self._by_run[run_id]:
            del self._by_run[run_id]
        self.slots.give_back()

    def stop(self, run_id: str, op: str) -> None:
        """Tell the bodies of an operation to stop. What they still return is not recorded."""
        for token, (owner, running_op) in list(self._running.items()):
            if owner == run_id and running_op == op:
                self._executor.cancel(token)

    def stop_run(self, run_id: str) -> None:
        """Tell all bodies of a run to stop: it ended. Those of `on_cancel="abandon"` are left alone."""
        for token, (owner, _) in list(self._running.items()):
            if owner == run_id and token not in self._left_alone:
                self._executor.cancel(token)

    def let_go(self, run_id: str, token: str) -> None:
        """End a claim whose outcome nobody wants."""
        self._host.spawn(self._end_claim(run_id, token), f"end claim {run_id}")

    async def _end_claim(self, run_id: str, token: str) -> None:
        try:
            await self._world.end_claim(run_id, token)
        except Unavailable as why:
            # It ends with the incarnation at the latest.
            log.warning("a claim could not be ended", run=run_id, why=str(why))
