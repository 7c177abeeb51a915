"""The workflows of the storms: small, and each race in them goes on differently by who won. Nodes load this file.

`numbered` gives each timer a duration of its own, so that a judge finds in the log which timer was whose.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from fencepost import App, Client, Retry, hook, sleep, step, timeout, workflow
from fencepost.errors import HookNotFound, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

GRAIN_S = 1e-4
STAGGER_S = 0.017
"""Between the beginnings of branches; no multiple of it is the duration of a numbered timer."""
PATIENT = Retry(times=1000, first=0.1, max=1.0)

outside: ContextVar[Client] = ContextVar("outside")


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    """Connect steps to the nodes: runs hand work to each other."""
    async with Client.connect(os.environ["FENCEPOST_NATS_URL"], os.environ["FENCEPOST_NAMESPACE"]) as client:
        outside.set(client)
        yield


def numbered(seconds: float, number: int) -> float:
    """Return a duration that tells its number."""
    return round(seconds + number * GRAIN_S, 6)


@step(retry=PATIENT)
async def settle(number: int, pause_s: float) -> int:
    """Take a moment and return the number."""
    await asyncio.sleep(pause_s)  # real time: a body that is raced
    return number


@step(retry=PATIENT)
async def hand_on(token: str, baton: int) -> None:
    """Put a baton where another run waits for it, or will."""
    try:
        await outside.get().resume(token, baton, delivery=f"baton {baton}", wait="5s")
    except (HookNotFound, Unavailable) as why:  # it has not begun yet, or nobody answers
        raise RuntimeError(f"the baton was not taken: {why}") from why


async def first_of(one: Awaitable[Any], other: Awaitable[Any]) -> tuple[bool, Any]:
    """Return whether the first awaitable won, and what it gave. The other one is cancelled."""
    tasks = [asyncio.ensure_future(one), asyncio.ensure_future(other)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    if len(done) != 1:
        raise RuntimeError("two events were fed at once")
    for task in pending:
        task.cancel()
    return tasks[0] in done, done.pop().result()


# ---- step storm


@workflow
async def step_storm(rounds: list[list[float]], patience_s: float) -> list[str]:
    """Race settling steps with watchdogs, all races of a round at once."""
    found: list[str] = []
    for pauses_s in rounds:
        first = len(found)
        races = (watched(first + n, pause_s, patience_s) for n, pause_s in enumerate(pauses_s))
        found += await asyncio.gather(*races)
    return found


async def watched(number: int, pause_s: float, patience_s: float) -> str:
    """Return whether a step settled before its watchdog."""
    settled, value = await first_of(settle(number, pause_s), sleep(numbered(patience_s, number)))
    if not settled:
        await sleep(0.01)
        await settle(-number, 0.0)
        return "late"
    if value != number:
        raise RuntimeError(f"race {number} got the result of {value}")
    if number % 3 == 0:
        await settle(-number, 0.0)
    return "settled"


# ---- hook storm


@workflow
async def hook_storm(token: str, count: int, deadline_s: float) -> dict[str, Any]:
    """Read payloads that come around deadlines: first all there are, then those before one, then one more."""
    read, late = await read_all(token, count, deadline_s)
    closing: list[int] = []
    async with hook(f"{token}/closing", int) as inbox:
        try:
            async with timeout(deadline_s):
                while True:
                    closing.append(await inbox)
        except TimeoutError:
            pass
    async with hook(f"{token}/closing", int) as inbox:
        again = await inbox
    return {"read": read, "late": late, "closing": closing, "again": [again]}


async def read_all(token: str, count: int, deadline_s: float) -> tuple[list[int], int]:
    """Read so many payloads, each raced with a deadline that stands until it has passed."""
    read: list[int] = []
    late = 0
    async with hook(token, int) as inbox:
        deadline = asyncio.ensure_future(sleep(deadline_s))
        while len(read) < count:
            arrived, number = await first_of(inbox, asyncio.shield(deadline))
            if arrived:
                read.append(number)
                continue
            late += 1
            await settle(late, 0.0)
            deadline = asyncio.ensure_future(sleep(deadline_s))
        deadline.cancel()
    return read, late


# ---- blocked branches


@workflow
async def blocked_branches(token: str, branches: int, patience_s: float) -> list[Any]:
    """Launch staggered branches; each waits for a payload or not long, then finishes."""
    return list(await asyncio.gather(*(branch(token, number, patience_s) for number in range(branches))))


async def branch(token: str, number: int, patience_s: float) -> list[Any]:
    """Launch, wait, finish."""
    await sleep(STAGGER_S * number)
    launched = await settle(number, 0.01)
    async with hook(f"{token}/{number}", int) as inbox:
        arrived, payload = await first_of(inbox, sleep(numbered(patience_s, number)))
    if not arrived:
        await sleep(0.01)
    finished = await settle(100 + number, 0.0)
    return [launched, payload if arrived else None, finished]


# ---- wake loop


@workflow
async def wake_loop(token: str, count: int, heartbeat_s: float) -> dict[str, Any]:
    """Wait for the next payload of one hook, and beat when none comes."""
    read: list[int] = []
    beats = 0
    async with hook(token, int) as inbox:
        while len(read) < count:
            try:
                async with timeout(heartbeat_s):
                    read.append(await inbox)
            except TimeoutError:
                beats += 1
                await settle(beats, 0.0)
    return {"read": read, "beats": beats}


# ---- cycle


@workflow
async def cycle(ring: str, number: int, size: int, laps: int) -> list[int]:
    """Wait for the baton and hand it on, until it has gone round so often."""
    seen: list[int] = []
    async with hook(f"{ring}/{number}", int) as inbox:
        for _ in range(laps):
            baton = await inbox
            await sleep(0.005)
            seen.append(baton)
            if baton + 1 < size * laps:
                await hand_on(f"{ring}/{(number + 1) % size}", baton + 1)
    return seen


# ---- gather


@workflow
async def gathered(token: str, width: int) -> list[int]:
    """Wait for many hooks at once."""
    inboxes = [hook(f"{token}/{number}", int) for number in range(width)]
    return list(await asyncio.gather(*inboxes))


app = App(
    workflows=[step_storm, hook_storm, blocked_branches, wake_loop, cycle, gathered],
    lifespan=lifespan,
)
