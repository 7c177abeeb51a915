"""The workflows that are measured: as little of their own as can be, so that what is left is ours."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fencepost.actors import App, hook, now, run_info, sleep, step, workflow

if TYPE_CHECKING:
    from fencepost.actors import Workflow

PAYLOAD = "x" * 10_240

woke_late_ms: dict[str, float] = {}
"""By run: how much later than asked its code went on after a sleep. Seen from outside, so it is no part of the run."""


@step
async def nothing() -> None:
    """Do nothing, durably."""


@step
async def hand_on(text: str) -> str:
    """Return what came."""
    return text


@step
async def tell_time() -> float:
    """Return when the step ran: what lies between two of them is the cost of a step."""
    return asyncio.get_running_loop().time()


@step
def spin(seconds: float) -> int:
    """Use a whole core for a while, as pure Python does, and return how often it went round."""
    until_s, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < until_s:
        rounds += sum(range(1000)) > 0
    return rounds


@step
async def beat(pause_s: float) -> tuple[float, int]:
    """Return when the step began, by the machine's clock, and in which process, after a moment."""
    began_s = time.time()
    await asyncio.sleep(pause_s)
    return began_s, os.getpid()


@workflow
async def noop() -> str:
    """End at once."""
    return "done"


@workflow
async def sequence(steps: int) -> int:
    """Do steps one after the other."""
    for _ in range(steps):
        await nothing()
    return steps


@workflow
async def fan(width: int) -> int:
    """Do steps all at once."""
    await asyncio.gather(*(nothing() for _ in range(width)))
    return width


@workflow
async def race(width: int) -> int:
    """Begin steps all at once and take whichever is first, until none is left."""
    left = {asyncio.create_task(nothing()) for _ in range(width)}
    while left:
        _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
    return width


@workflow
async def payload_sequence(steps: int) -> int:
    """Do steps one after the other that take and return 10 KB."""
    text = PAYLOAD
    for _ in range(steps):
        text = await hand_on(text)
    return len(text)


@workflow
async def payload_fan(width: int) -> int:
    """Do steps all at once that take and return 10 KB."""
    return len(await asyncio.gather(*(hand_on(PAYLOAD) for _ in range(width))))


@workflow
async def clocked(steps: int) -> list[float]:
    """Do steps one after the other and return when each ran."""
    return [await tell_time() for _ in range(steps)]


@workflow(cancel_grace="1h")
async def clocked_cleanup(steps: int) -> list[float]:
    """Wait to be cancelled, then do as `clocked`: further cancels are news that change nothing."""
    try:
        await sleep(3600)
    except asyncio.CancelledError:
        return [await tell_time() for _ in range(steps)]
    return []


@workflow
async def spinner(seconds: float) -> int:
    """Do one step that computes all the while."""
    return await spin(seconds)


@workflow
async def pulse(beats: int, pause_s: float) -> list[tuple[float, int]]:
    """Do steps that take a moment each, and return when and where each began."""
    return [await beat(pause_s) for _ in range(beats)]


@workflow
async def sleeper(seconds: float) -> str:
    """Sleep once."""
    began = now()
    await sleep(seconds)
    note_wake_up(run_info().run_id, began, seconds)
    return "awake"


def note_wake_up(run_id: str, began: datetime, slept_s: float) -> None:
    """Note how late the code went on, by the machine's clock."""
    woke_late_ms[run_id] = 1e3 * ((datetime.now(UTC) - began).total_seconds() - slept_s)


@workflow
async def waiting() -> int:
    """Wait for one payload."""
    return await hook(run_info().run_id, int)


@workflow
async def branches(width: int) -> int:
    """Wait in many branches at once, each for a payload of its own, and do a step after it."""

    async def branch(number: int) -> None:
        await hook(f"{run_info().run_id}/{number}", int)
        await nothing()

    await asyncio.gather(*(branch(number) for number in range(width)))
    return width


def new_app() -> App:
    """Return an app with all of them."""
    plain: list[Workflow[..., Any]] = [
        noop,
        sequence,
        fan,
        race,
        payload_sequence,
        payload_fan,
        clocked,
        clocked_cleanup,
        sleeper,
        waiting,
        branches,
    ]
    return App(workflows=[*plain, spinner, pulse])
