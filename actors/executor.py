"""Makes attempts: async bodies on the step loop, sync ones in threads, isolated ones in processes.

Called from the actors' loop only; results come back to it. A body is accounted for from `execute` until it has
really ended, whatever becomes of who waits for it: a claim drains, a slot is held, until then.

    execute ─ begin ─ body runs ─ ended ─→ Done
                │        ├ timeout ─ told ─ grace ─→ TimedOut(still_running?)      threads: at once
                │        └ cancel  ─ told ─ (isolated: killed) ─→ Cancelled, or what it still returns
                └ waits for a thread: a cancel withdraws it, the timeout has not begun
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import structlog

from .call import (
    Call,
    Cancelled,
    Done,
    Failed,
    Lost,
    StepInfo,
    Succeeded,
    TimedOut,
    attempt_sync,
    current_step,
    failed,
    is_async,
    step_info,
    tell,
)
from .errors import DefinitionError
from .isolate import Isolated
from .steploop import Lifespan, StepLoop
from .threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = [
    "Call",
    "Cancelled",
    "Done",
    "Executor",
    "Failed",
    "Lifespan",
    "Lost",
    "StepInfo",
    "Succeeded",
    "TimedOut",
    "current_step",
    "step_info",
]

CLEANUP_S: Final = 1.0
"""How long a body that was told to stop may take to clean up."""
SILENCE_S: Final = 1.0
"""After this long without a sign of the step loop it is reported as blocked."""

_log = structlog.get_logger("fencepost.steps")


@dataclass(slots=True, eq=False)
class _Body:
    """One attempt from `execute` until its body has ended."""

    call: Call
    info: StepInfo
    place: Literal["loop", "thread", "process"]
    done: asyncio.Future[Done]
    ended: asyncio.Future[None]
    timed_out: bool = False
    timers: list[asyncio.TimerHandle] = field(default_factory=list[asyncio.TimerHandle])

    def settle(self, done: Done) -> None:
        """Give who waits an answer; the first one counts, and nobody may be waiting any more."""
        if not self.done.done():
            self.done.set_result(done)


class Executor:
    """See the module."""

    def __init__(
        self,
        *,
        threads: int = 32,
        processes: int = 4,
        lifespan: Lifespan | None = None,
        cleanup_s: float = CLEANUP_S,
        silence_s: float = SILENCE_S,
        tell: Callable[[str, bytes], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._steps = StepLoop(lifespan)
        self._threads = Threads(threads, "fencepost-step")
        self._isolated = Isolated(processes, lifespan)
        self._cleanup_s = cleanup_s
        self._silence_s = silence_s
        self._tell = tell
        self._bodies: dict[str, _Body] = {}
        self._watch: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def busy(self) -> int:
        """How many bodies run or wait to, those that were given up included."""
        return len(self._bodies)

    @property
    def app(self) -> Any:
        """What the lifespan yielded."""
        return self._steps.app

    async def start(self) -> None:
        """Enter the lifespan and be ready.

        Raises:
            LifespanError: it failed; nothing is left running.
        """
        self._loop = asyncio.get_running_loop()
        await self._steps.start()

    async def execute(self, call: Call) -> Done:
        """Make an attempt and say how it ended. A cancelled caller changes nothing for the body.

        Raises:
            ValueError: the token is in use (a bug of the caller).
        """
        if call.token in self._bodies:
            raise ValueError(f"an attempt with token {call.token!r} runs already")
        if self._stopping:
            return Cancelled()
        try:
            place = self._place(call)
        except DefinitionError as exc:
            return failed(exc)
        info = StepInfo(
            call.run_id,
            call.op,
            call.step_name,
            call.attempt,
            call.idempotency_key,
            self.app,
            _tell_others=self._tell_others if self._tell else None,
        )
        body = _Body(call, info, place, self._loop.create_future(), self._loop.create_future())
        self._bodies[call.token] = body
        self._begin(body)
        return await body.done

    def cancel(self, token: str) -> None:
        """Tell a body to stop: CancelledError, `step_info().cancelled`, or a kill after a grace. Idempotent."""
        body = self._bodies.get(token)
        if body is None or body.info.cancelled:
            return
        tell(body.info)
        match body.place:
            case "loop":
                self._steps.tell(token)
            case "thread":
                self._withdraw(body, self._threads.withdraw)
            case "process" if not self._withdraw(body, self._isolated.withdraw):
                # The kill first: it must come whatever becomes of the telling.
                body.timers.append(self._loop.call_later(self._cleanup_s, self._isolated.kill, token))
                self._isolated.tell(token)
            case "process":
                pass

    async def ended(self, token: str) -> None:
        """Return when the body of an attempt has really ended; at once when there is none."""
        if body := self._bodies.get(token):
            await asyncio.shield(body.ended)

    async def stop(self, grace_s: float) -> None:
        """Let bodies end for `grace_s`, tell the rest to stop, leave the lifespan. Idempotent; never raises.

        Who still waits in `execute` gets `Cancelled`; a thread that never returns is left behind.
        """
        if self._stopping:
            return
        self._stopping = True
        await self._all_ended(grace_s)
        for token in list(self._bodies):
            self.cancel(token)
        await self._all_ended(self._cleanup_s)
        for body in self._bodies.values():
            body.settle(Cancelled())
        if self._watch is not None:
            self._watch.cancel()
        self._threads.close()
        await asyncio.to_thread(self._isolated.close)
        await self._steps.stop()

    # ---- one body

    def _place(self, call: Call) -> Literal["loop", "thread", "process"]:
        if call.isolate:
            self._isolated.check(call.fn)
            return "process"
        return "loop" if is_async(call.fn) else "thread"

    def _begin(self, body: _Body) -> None:
        call, info = body.call, body.info
        match body.place:
            case "loop":
                self._steps.begin(call, info, self._ends(body))
                self._arm(body)
                self._look_after()
            case "thread":
                self._threads.submit(call.token, self._job(body))
            case "process":
                self._isolated.begin(call, info, self._begins(body), self._ends(body))

    def _job(self, body: _Body) -> Callable[[], None]:
        """Return what a thread does. The timeout counts from here, not from when it got in line."""
        context, begins, ends = self._steps.context.copy(), self._begins(body), self._ends(body)

        def job() -> None:
            begins()
            ends(context.run(attempt_sync, body.call, body.info))

        return job

    def _begins(self, body: _Body) -> Callable[[], None]:
        """Return what other threads call when the body begins."""
        if body.call.timeout_s is None:
            return _nothing
        return lambda: self._post(self._arm, body)

    def _ends(self, body: _Body) -> Callable[[Done], None]:
        """Return what other threads call when the body has ended."""
        return lambda done: self._post(self._end, body, done)

    def _post(self, callback: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the actors' loop is closed: nobody is interested any more
            _log.debug("step_ended_after_its_node")

    def _arm(self, body: _Body) -> None:
        if body.call.timeout_s is not None and not body.ended.done():
            body.timers.append(self._loop.call_later(body.call.timeout_s, self._expire, body))

    def _expire(self, body: _Body) -> None:
        """The attempt took too long: tell the body, and give up on it now (a thread) or after its grace."""
        if body.ended.done():
            return
        body.timed_out = True
        self.cancel(body.call.token)
        match body.place:
            case "thread":
                self._threads.write_off(body.call.token)
                body.settle(TimedOut(still_running=True))
            case "loop":
                body.timers.append(self._loop.call_later(self._cleanup_s, body.settle, TimedOut(still_running=True)))
            case "process":  # killed after the grace: it ends for certain
                pass

    def _end(self, body: _Body, done: Done) -> None:
        for timer in body.timers:
            timer.cancel()
        del self._bodies[body.call.token]
        body.settle(TimedOut(still_running=False) if body.timed_out else done)
        body.ended.set_result(None)

    def _tell_others(self, topic: str, body: bytes) -> Future[None]:
        """Tell the live feed, from any thread: the bus is used on the actors' loop only."""
        if self._tell is None or self._loop.is_closed():  # a thread that was left behind: nobody is interested
            nobody: Future[None] = Future()
            nobody.set_result(None)
            return nobody
        return asyncio.run_coroutine_threadsafe(self._tell(topic, body), self._loop)

    def _withdraw(self, body: _Body, withdraw: Callable[[str], bool]) -> bool:
        """End an attempt that has not begun."""
        if not withdraw(body.call.token):
            return False
        self._end(body, Cancelled())
        return True

    async def _all_ended(self, within_s: float) -> None:
        waiting = [body.ended for body in self._bodies.values()]
        if waiting and within_s > 0:
            await asyncio.wait(waiting, timeout=within_s)

    # ---- the step loop's health

    def _look_after(self) -> None:
        """Watch the step loop while it has bodies; an idle node should not wake up for it."""
        if self._watch is None or self._watch.done():
            self._watch = self._loop.create_task(self._watch_steps(), name="fencepost-watch-steps")

    async def _watch_steps(self) -> None:
        while any(body.place == "loop" for body in self._bodies.values()):
            sign = asyncio.wrap_future(self._steps.sign())
            await asyncio.wait([sign], timeout=self._silence_s)
            if not sign.done():
                step, at = self._steps.doing()
                _log.warning("step_blocks_its_loop", step=step, at=at, remedy="make it a plain def, or await")
                await sign
                _log.info("step_loop_is_back", step=step)
            await asyncio.sleep(self._silence_s)


def _nothing() -> None:
    pass
