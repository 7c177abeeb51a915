"""Races of payloads with timers, steps and crashes, on every pair: the position in the log decides, for ever."""

import asyncio
import json

import pytest

from fencepost import errors, histories
from fencepost.world import events as ev
from tests.e2e import raced
from tests.e2e.around_commits import Between, history_of, holds, puts
from tests.e2e.command import fencepost
from tests.e2e.world_and_bus import PATIENCE_S

SIZES = (3, 200_000)
SETTLING = (ev.StepCompleted, ev.WaitCompleted)


def word_won(history):
    """Tell whether the payload has a lower position than what it was raced with."""
    racing = (e.body for e in history.events if isinstance(e.body, (ev.HookReceived, *SETTLING)))
    return isinstance(next(racing), ev.HookReceived)


def said(length=None, *, rival="late"):
    """Return the result of a race."""
    if length is not None:
        return ["word", length, "ship", "invoice", "thank"]
    return ["late", "refund"] if rival == "late" else ["step", 1, "refund"]


# ---- who wins


@pytest.mark.parametrize("first", [True, False], ids=["word first", "timer first"])
async def test_a_payload_and_a_deadline_side_by_side_are_decided_by_position_after_a_crash(stack, first):
    stack.app.add(raced.deadline)
    size = SIZES[first]
    between = Between(stack, holds(ev.WaitCompleted), puts(stack, "t", "x" * size), first=first, dies=True)
    run = await stack.start(raced.deadline, "t", 0.03)
    async with asyncio.timeout(PATIENCE_S):
        await between.done.wait()
    await stack.restart()

    assert await run.result(PATIENCE_S) == said(size if first else None)
    assert word_won(await history_of(stack, run, raced.deadline)) is first


@pytest.mark.parametrize("first", [True, False], ids=["word first", "step first"])
async def test_a_payload_and_a_step_side_by_side_are_decided_by_position_after_a_crash(stack, first):
    stack.app.add(raced.step_or_word)
    size = SIZES[not first]
    between = Between(stack, holds(ev.StepCompleted), puts(stack, "t", "x" * size), first=first, dies=True)
    run = await stack.start(raced.step_or_word, "t")
    async with asyncio.timeout(PATIENCE_S):
        await between.done.wait()
    await stack.restart()

    assert await run.result(PATIENCE_S) == said(size if first else None, rival="step")
    assert word_won(await history_of(stack, run, raced.step_or_word)) is first


async def test_payloads_and_deadlines_due_within_a_millisecond_are_decided_by_position_also_across_a_crash(stack):
    stack.app.add(raced.deadline)
    runs = [await stack.start(raced.deadline, f"t{n}", 0.1 + 0.002 * n) for n in range(12)]

    async def send(number, run):
        made = await stack.saw(run, "hook_created")
        due = made.at.timestamp() + 0.1 + 0.002 * number
        # real time: what is raced with is a deadline of the clock
        await asyncio.sleep(max(0.0, due - (await stack.world.now()).timestamp() - 0.004))
        try:
            await stack.client.resume(f"t{number}", "x" * SIZES[number % 2])
        except errors.HookNotFound:
            return None
        return number

    sending = [asyncio.create_task(send(n, run)) for n, run in enumerate(runs)]
    await sending[4]
    await stack.restart()
    accepted = {number for number in await asyncio.gather(*sending) if number is not None}

    for number, run in enumerate(runs):
        result = await run.result(PATIENCE_S)
        history = await history_of(stack, run, raced.deadline)
        won = word_won(history)
        assert result == said(SIZES[number % 2] if won else None)
        came = [e for e in history.events if isinstance(e.body, ev.HookReceived)]
        assert len(came) == (number in accepted)


async def test_a_race_is_decided_the_same_by_a_process_that_has_seen_nothing_but_the_history(local, tmp_path):
    local.app.add(raced.deadline)
    for number, (first, size) in enumerate([(True, 3), (True, 200_000), (False, 3), (False, 200_000)]):
        token = f"t{number}"
        Between(local, holds(ev.WaitCompleted), puts(local, token, "x" * size), first=first, dies=False)
        run = await local.start(raced.deadline, token, 0.02)
        assert await run.result(PATIENCE_S) == said(size if first else None)
        history = await history_of(local, run, raced.deadline)
        (tmp_path / f"{number}.json").write_bytes(histories.dumped(history))
        other = tmp_path / f"swapped {number}.json"
        other.write_bytes(histories.dumped(histories.History(history.run, swapped(history.events))))

    done = fencepost("replay", raced.__file__, str(tmp_path), "--hash-seed", "7", "--json", folder=tmp_path)

    states = {line["source"].rpartition("/")[2]: line["state"] for line in map(json.loads, done.stdout.splitlines())}
    assert {states[f"{number}.json"] for number in range(4)} == {"same"}, done.stdout
    assert {states[f"swapped {number}.json"] for number in (2, 3)} == {"diverged"}, done.stdout


def swapped(log):
    """Return a log in which the payload and what it was raced with have changed places."""
    at = [n for n, event in enumerate(log) if isinstance(event.body, (ev.HookReceived, ev.WaitCompleted))][:2]
    if len(at) < 2:
        return log
    (one, other), log = at, [*log]
    log[one], log[other] = (
        ev.Event(log[one].seq, log[one].tick, log[one].at, log[other].body),
        ev.Event(log[other].seq, log[other].tick, log[other].at, log[one].body),
    )
    return log
