"""What a simulated process gives to its node: time, tasks and chance of its own, and where step bodies run."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fencepost.actors.call import Call, Done, Lost, StepInfo, Succeeded, TimedOut, attempt_async, tell
from fencepost.actors.host import WorldClock
from tests.simulation.ledger import Begun

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import datetime
    from random import Random

    from tests.simulation.ledger import Ledger
    from tests.simulation.loop import Proc, SimLoop

CLEANUP_S = 1.0


class SimHost:
    """See `fencepost.actors.host.Host`. Its clock is wrong by `offset_s`; one that `listens`, until the world tells."""

    def __init__(
        self,
        loop: SimLoop,
        proc: Proc,
        random: Random,
        clock: Callable[[], datetime],
        offset_s: float = 0.0,
        *,
        listens: bool = False,
    ) -> None:
        self.random = random
        self._loop, self._proc, self._clock, self._listens = loop, proc, clock, listens
        self._offset = timedelta(seconds=offset_s)
        self._told: WorldClock | None = None

    def now(self) -> datetime:
        if self._told is not None:
            return self._told.at(self._loop.now_s)
        return self._clock() + self._offset

    def tell_time(self, at: datetime, asked_s: float) -> None:
        """Take the world's clock, or keep the wrong one: laws must hold with it."""
        if self._listens:
            self._told = self._told or WorldClock()
            self._told.tell(at, asked_s, self._loop.now_s)

    def monotonic_s(self) -> float:
        return self._loop.time()

    def token(self) -> str:
        return f"{self.random.getrandbits(128):032x}"

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        if self._loop.is_closed():
            coro.close()  # what is put to rest after the seed may still try to start something
            return self._loop.create_future()
        return self._proc.run(lambda: self._loop.create_task(coro, name=name))


class SimExecutor:
    """Runs step bodies as coroutines of the simulated process. `loses` is how often the body's process dies."""

    def __init__(self, loop: SimLoop, proc: Proc, ledger: Ledger, random: Random, *, loses: float) -> None:
        self._loop, self._proc, self._ledger, self._random = loop, proc, ledger, random
        self._loses = loses
        self._bodies: dict[str, tuple[asyncio.Task[Done], StepInfo]] = {}

    async def start(self) -> None:
        """Have nothing to do."""

    async def execute(self, call: Call) -> Done:
        """Run a body; a body that takes too long is told, and given up after a grace."""
        begun = Begun(call.token, call.run_id, call.op, call.attempt, self._proc, self._loop.now_s)
        self._ledger.begin(begun)
        info = StepInfo(call.run_id, call.op, call.step_name, call.attempt, call.idempotency_key)
        body = self._loop.create_task(self._body(call, info, begun), name=f"body {call.run_id} {call.op}")
        self._bodies[call.token] = (body, info)
        body.add_done_callback(lambda _: self._bodies.pop(call.token))
        done, _ = await asyncio.wait([body], timeout=call.timeout_s)
        if done:
            return body.result()
        begun.timed_out = True
        self.cancel(call.token)
        done, _ = await asyncio.wait([body], timeout=CLEANUP_S)
        return TimedOut(still_running=not done)

    async def _body(self, call: Call, info: StepInfo, begun: Begun) -> Done:
        done = await attempt_async(call, info)
        if self._random.random() < self._loses:
            done = Lost("its process died")
        begun.done = "TimedOut" if begun.timed_out else type(done).__name__
        if isinstance(done, Succeeded):
            begun.result = done.result
        return done

    def cancel(self, token: str) -> None:
        """Tell a body to stop, once."""
        if token in self._bodies:
            body, info = self._bodies[token]
            if not info.cancelled:
                tell(info)
                body.cancel()

    async def ended(self, token: str) -> None:
        """Return when a body has ended."""
        if token in self._bodies:
            await asyncio.wait([self._bodies[token][0]])

    async def stop(self, grace_s: float) -> None:
        """Tell all bodies to stop."""
        if grace_s > 0 and self._bodies:
            await asyncio.wait([body for body, _ in self._bodies.values()], timeout=grace_s)
        for token in list(self._bodies):
            self.cancel(token)
        if self._bodies:
            await asyncio.wait([body for body, _ in self._bodies.values()], timeout=CLEANUP_S)
