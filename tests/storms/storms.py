"""The storms: how each is played from outside, and what must have come of each of its runs.

A judge yields a sentence for each thing that is wrong with a run: what it returned against its log and what was sent.
That the lower committed position decides a race is read from the log, not from what the code made of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.storms import flows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from fencepost import Workflow
    from tests.storms.outside import Outside, Running
    from tests.storms.read import Reading

ROUNDS, RACES = 6, 8
PATIENCE_S = 0.1
"""A watchdog, a deadline, a heartbeat: what payloads and steps are raced with."""
BURSTS, BURST = 3, 10
LOOP = 20
BRANCHES = 8
RING, LAPS = 4, 3
WIDTH, AT_ONCE = 50, 7


@dataclass(frozen=True)
class Storm:
    """One kind of storm: a play starts `runs` runs and sees them end."""

    name: str
    flow: Workflow[..., Any]
    play: Callable[[Outside], Awaitable[None]]
    judge: Callable[[Reading], Iterator[str]]
    runs: int = 1
    answers: bool = False
    """Whether the code asks for something after each payload."""
    bursts: int = 0
    """In how many bursts each run gets its payloads, where its code says nothing in between."""


# ---- step storm


async def play_steps(outside: Outside) -> None:
    draw = outside.rng.uniform
    rounds = [[round(draw(0.3, 1.5) * PATIENCE_S, 4) for _ in range(RACES)] for _ in range(ROUNDS)]
    await (await outside.start(flows.step_storm, rounds, PATIENCE_S)).end()


def judge_steps(run: Reading) -> Iterator[str]:
    expected = ["settled" if run.step_won(n, PATIENCE_S) else "late" for n in range(ROUNDS * RACES)]
    if run.returned != expected:
        yield f"it returned {run.returned}, by its log {expected}"


# ---- hook storm


async def play_hooks(outside: Outside) -> None:
    token = f"hooks/{outside.rng.getrandbits(64):x}"
    running = await outside.start(flows.hook_storm, token, BURSTS * BURST, PATIENCE_S, token=token)
    await asyncio.gather(running.end(), send_bursts(running, token))


async def send_bursts(running: Running, token: str) -> None:
    """Send bursts around deadlines, one more around the deadline at which the hook goes, and then one at a time."""
    for first in range(0, BURSTS * BURST, BURST):
        await asyncio.gather(*(spread(running, token, first + n) for n in range(BURST)))
    closing = f"{token}/closing"
    await running.deliver(closing, 100)
    await asyncio.gather(*(spread(running, closing, 101 + n, once=True) for n in range(BURST)))
    number = 200
    while not running.over.is_set():
        await running.send(closing, number)
        await running.outside.pause(0.5 * PATIENCE_S, 2 * PATIENCE_S)
        number += 1


async def spread(running: Running, token: str, number: int, *, once: bool = False) -> None:
    """Send a payload a moment before or after a deadline."""
    await running.outside.pause(0.7 * PATIENCE_S, 1.3 * PATIENCE_S)
    await (running.send if once else running.deliver)(token, number)


def judge_hooks(run: Reading) -> Iterator[str]:
    token, made = run.asked["token"], run.returned
    yield from reads_all(run, token, made["read"])
    if sorted(made["read"]) != list(range(BURSTS * BURST)):
        yield f"{BURSTS * BURST} payloads were sent and answered, it read {made['read']}"
    first, second = run.received(f"{token}/closing")
    in_time = [payload for seq, payload in first if seq < run.before_disposal(f"{token}/closing")]
    if made["closing"] != in_time:
        yield f"before the deadline came {in_time}, it read {made['closing']}"
    if made["again"] != [payload for _, payload in second][:1]:
        yield f"the hook made again got {second}, it read {made['again']}"


def reads_all(run: Reading, token: str, read: list[int]) -> Iterator[str]:
    """Yield what is wrong when a hook was to be read to its end: all that came, in the order of the log."""
    (came,) = run.received(token)
    if read != [payload for _, payload in came]:
        yield f"{token} got {[payload for _, payload in came]}, it read {read}"


# ---- blocked branches


async def play_branches(outside: Outside) -> None:
    token = f"branches/{outside.rng.getrandbits(64):x}"
    running = await outside.start(flows.blocked_branches, token, BRANCHES, PATIENCE_S, token=token)
    sending = (nudge(running, f"{token}/{number}", number) for number in range(BRANCHES))
    await asyncio.gather(running.end(), *sending)


async def nudge(running: Running, token: str, number: int) -> None:
    """Send a branch its payload at about the time it stops waiting."""
    begins_s = flows.STAGGER_S * number
    await running.outside.pause(begins_s + 0.5 * PATIENCE_S, begins_s + 2.5 * PATIENCE_S)
    await running.deliver(token, 1000 + number)


def judge_branches(run: Reading) -> Iterator[str]:
    token = run.asked["token"]
    for number, found in enumerate(run.returned):
        ((came),) = run.received(f"{token}/{number}")
        late = run.completed_timer(PATIENCE_S, number)
        answer = came[0][1] if came and came[0][0] < late else None
        if found != [number, answer, 100 + number]:
            yield f"branch {number} is {found}, by the log {[number, answer, 100 + number]}"


# ---- wake loop


async def play_loop(outside: Outside) -> None:
    token = f"loop/{outside.rng.getrandbits(64):x}"
    running = await outside.start(flows.wake_loop, token, LOOP, PATIENCE_S, token=token)
    await asyncio.gather(running.end(), send_in_order(running, token))


async def send_in_order(running: Running, token: str) -> None:
    for number in range(LOOP):
        await running.deliver(token, number)
        await running.outside.pause(0.0, 1.5 * PATIENCE_S)


def judge_loop(run: Reading) -> Iterator[str]:
    yield from reads_all(run, run.asked["token"], run.returned["read"])
    if run.returned["read"] != list(range(LOOP)):
        yield f"payloads were sent one after the other, it read {run.returned['read']}"


# ---- cycle


async def play_cycle(outside: Outside) -> None:
    ring = f"ring/{outside.rng.getrandbits(64):x}"
    places = outside.rng.sample(range(RING), RING)
    runs = [await outside.start(flows.cycle, ring, place, RING, LAPS, ring=ring, place=place) for place in places]
    first = next(run for run, place in zip(runs, places, strict=True) if place == 0)
    await asyncio.gather(first.deliver(f"{ring}/0", 0), *(run.end() for run in runs))


def judge_cycle(run: Reading) -> Iterator[str]:
    place = run.asked["place"]
    yield from reads_all(run, f"{run.asked['ring']}/{place}", run.returned)
    if run.returned != list(range(place, RING * LAPS, RING)):
        yield f"place {place} of the ring saw {run.returned}"


# ---- gather


async def play_gather(outside: Outside) -> None:
    token = f"gather/{outside.rng.getrandbits(64):x}"
    running = await outside.start(flows.gathered, token, WIDTH, token=token)
    await asyncio.gather(running.end(), send_to_all(running, token))


async def send_to_all(running: Running, token: str) -> None:
    """Send to the first hook until it is there, then to the others, burst after burst."""
    await running.deliver(f"{token}/0", 0)
    for first in range(1, WIDTH, AT_ONCE):
        await running.outside.pause(0.02, 0.06)
        await asyncio.gather(*(running.deliver(f"{token}/{n}", n) for n in range(first, first + AT_ONCE)))


def judge_gather(run: Reading) -> Iterator[str]:
    if run.returned != list(range(WIDTH)):
        yield f"it gathered {run.returned}"


STORMS = {
    storm.name: storm
    for storm in (
        Storm("step", flows.step_storm, play_steps, judge_steps),
        Storm("hook", flows.hook_storm, play_hooks, judge_hooks),
        Storm("branches", flows.blocked_branches, play_branches, judge_branches, answers=True),
        Storm("loop", flows.wake_loop, play_loop, judge_loop, answers=True),
        Storm("cycle", flows.cycle, play_cycle, judge_cycle, runs=RING, answers=True),
        Storm("gather", flows.gathered, play_gather, judge_gather, bursts=1 + -(-(WIDTH - 1) // AT_ONCE)),
    )
}
