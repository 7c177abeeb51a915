"""Hooks under all asyncio has for several things at once: the same live, cold and cut anywhere."""

# workflow time: no real time passes in this file

import asyncio
import random
from itertools import groupby

import pytest

from fencepost.actors.author import sleep, timeout
from fencepost.actors.define import step, workflow
from fencepost.actors.hooks import Hook, hook
from fencepost.world import events as ev
from tests.actors.tape import Tape

ORDERS = (ev.RunStarted, ev.StepCreated, ev.WaitCreated, ev.HookCreated, ev.StepCancelled, ev.HookDisposed)
TOKENS = ("a", "b", "c")


@step
async def note(what: str) -> str:
    return what


@workflow
async def everything() -> list:
    a, b, c = (hook(token, str) for token in TOKENS)
    seen = []

    async def take(box: Hook, name: str) -> str:
        seen.append([name, await box])
        return name

    async def fails(box: Hook) -> None:
        raise ValueError(await box)

    racing = {asyncio.create_task(take(a, "a1")), asyncio.create_task(take(b, "b1"))}
    _, pending = await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    seen.append(await asyncio.gather(take(a, "a2"), note("beside"), take(b, "b2"), *pending, return_exceptions=True))
    seen[-1] = [str(found) for found in seen[-1]]
    seen.extend([await found for found in asyncio.as_completed([take(a, "a3"), take(b, "b3"), sleep("1h"), note("x")])])
    shielded = asyncio.create_task(take(c, "c1"))
    try:
        async with timeout("2h"), timeout("1h"):
            await asyncio.shield(shielded)
    except TimeoutError:
        seen.append(await note("late"))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(take(a, "a4"))
            group.create_task(fails(b))
            group.create_task(note("in the group"))
    except* ValueError as errors:
        seen.append([str(error) for error in errors.exceptions])
    return [*seen, shielded.done()]


@workflow
async def careful() -> list:
    a, b, c = (hook(token, str) for token in TOKENS)
    seen = []
    try:
        async with asyncio.TaskGroup() as group:
            for box in (a, b):
                group.create_task(asyncio.wait_for(box, 7200))
    except* TimeoutError:
        seen.append(await note("late"))
    finally:
        try:
            async with timeout("1h"):
                seen.append(await c)
        except TimeoutError:
            seen.append("no word")
        finally:
            seen.append(await note("cleaned up"))
            a.dispose()
    return seen


def played(flow, seed, *, cancels):
    """Let things happen in any order until the run has ended."""
    rng, tape, cancelled = random.Random(seed), Tape(flow), False
    for number in range(300):
        if tape.turn.ended is not None:
            return tape
        what = rng.choice(["payload", "payload", "step", "timer", "cancel"])
        if what == "payload":
            tape.payload(rng.choice(open_tokens(tape)), f"word {number}")
        elif what == "step" and tape.open_steps:
            tape.step(rng.choice([o.path for o in tape.turn.ops.open.values() if o.step]), f"noted {number}")
        elif what == "timer" and list(tape.turn.ops.waits()):
            tape.fire()
        elif what == "cancel" and cancels and not cancelled and rng.random() < 0.3:
            tape.cancel("enough")
            cancelled = True
    raise AssertionError([ev.kind_of(event.body) for event in tape.log])


def open_tokens(tape):
    return [operation.inbox.token for operation in tape.turn.ops.hooks.values()]


def assert_cut_anywhere_it_asks_for_the_same(tape):
    """Replay each beginning of the log that a decision followed: the same decision comes out, body for body."""
    for tick, events in groupby(tape.log, key=lambda event: event.tick):
        batch = list(events)
        orders = [ev.encode_body(event.body) for event in batch if isinstance(event.body, ORDERS)]
        if tick is None or len(orders) < len(batch):
            continue
        again = tape.replay(upto=batch[0].seq - 1)
        assert [ev.encode_body(body) for body in again.orders()] == orders
        again.evict()


@pytest.mark.parametrize(("flow", "cancels"), [(everything, False), (everything, True), (careful, True)])
def test_whatever_the_order_of_payloads_timers_and_steps_a_replay_from_anywhere_comes_to_the_same(flow, cancels):
    ends = set()
    for seed in range(25):
        tape = played(flow, seed, cancels=cancels)
        tape.assert_replays()
        assert_cut_anywhere_it_asks_for_the_same(tape)
        ends.add(ev.encode_body(tape.turn.ended))

    assert len(ends) > 10 if flow is everything and not cancels else ends


def test_a_payload_nobody_awaits_and_a_long_sleep_beside_three_steps_hold_nothing_up():
    @workflow
    async def left_over() -> str:
        boxes = [asyncio.create_task(sleep("1d")), asyncio.ensure_future(hook("never", str))]
        for number in range(3):
            await note(f"{number}")
        return f"{sum(box.done() for box in boxes)} came"

    tape = Tape(left_over)
    for _ in range(3):
        tape.step("note", "x")

    assert tape.result == "0 came"
    tape.assert_replays()
