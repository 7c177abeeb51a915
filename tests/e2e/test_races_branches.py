"""Branches, tokens, deadlines, cancels and wakes of runs with hooks, end to end and across crashes."""

import asyncio
from collections import defaultdict

import pytest

from fencepost import errors
from fencepost.world import UNREAD, Batch
from fencepost.world import events as ev
from tests.e2e import raced
from tests.e2e.around_commits import Between, history_of, holds, puts
from tests.e2e.world_and_bus import BEGIN, PATIENCE_S

CREATING = (ev.StepCreated, ev.WaitCreated, ev.HookCreated)
BRANCHES = 6


@pytest.fixture(autouse=True)
def said():
    raced.SAID.clear()
    return raced.SAID


async def nothing():
    """What happens around a commit when only the node dies."""


# ---- names


async def burst(stack, token, run):
    """Put three payloads to each branch at about its deadline; return for each branch what was accepted."""
    accepted = defaultdict(list)

    async def send(number, copy):
        made = await made_for(run, f"{token}/{number}")
        # real time: what is raced with is a timer of the clock
        await asyncio.sleep(max(0.0, made.timestamp() + 0.03 + 0.005 * copy - (await stack.world.now()).timestamp()))
        try:
            await stack.client.resume(f"{token}/{number}", f"{number}.{copy}")
        except errors.HookNotFound:
            return
        accepted[number].append(f"{number}.{copy}")

    await asyncio.gather(*(send(number, copy) for number in range(BRANCHES) for copy in range(3)))
    return accepted


async def made_for(run, token):
    """Return when the hook with this token was made."""
    async with asyncio.timeout(PATIENCE_S):
        async for event in run.events(follow=True):
            if event.type == "hook_created" and event.data["token"] == token:
                return event.at
    raise AssertionError(token)


async def test_no_operation_id_of_staggered_branches_ever_names_two_things_in_a_burst_and_a_crash(stack, said):
    stack.app.add(raced.staggered)
    run = await stack.start(raced.staggered, "t", BRANCHES)
    sending = asyncio.create_task(burst(stack, "t", run))
    await stack.saw(run, "hook_created", 2)
    await stack.restart()
    accepted = await sending

    found = await run.result(PATIENCE_S)
    history = await history_of(stack, run, raced.staggered)
    named = defaultdict(set)
    for event in history.events:
        if isinstance(event.body, CREATING):
            named[event.body.op].add(ev.encode_body(event.body))
    assert {len(things) for things in named.values()} == {1}
    assert {len({*texts}) for texts in said.values()} == {1}
    for number, (launched, won, finished) in enumerate(found):
        assert (launched, finished) == (f"launch {number}", f"finish {number}")
        assert won in {"word", f"late {number}"}
        assert won != "word" or accepted[number]
    came = [e.body.delivery for e in history.events if isinstance(e.body, ev.HookReceived)]
    assert len(came) == len({*came}) == sum(map(len, accepted.values()))


@pytest.mark.parametrize("cut", [1, 2, 4])
async def test_two_branches_that_map_one_step_over_two_lists_never_swap_results(local, said, cut):
    one, other = [f"one {n}" for n in range(4)], [f"other {n}" for n in range(4)]
    local.app.add(raced.mapped)
    results = set()

    def nth(batch):
        results.update(body.op for body in batch.events if isinstance(body, ev.StepCompleted))
        return len(results) >= cut

    async def both_may_go_on():
        for number in range(2):
            await puts(local, "t", str(number), delivery=f"d{number}")()

    between = Between(local, nth, both_may_go_on, first=cut == 2, dies=True)
    run = await local.start(raced.mapped, "t", one, other)
    async with asyncio.timeout(PATIENCE_S):
        await between.done.wait()
    await local.restart()

    assert await run.result(PATIENCE_S) == {"one": one, "other": other}
    await history_of(local, run, raced.mapped)
    assert {len({*texts}) for texts in said.values()} == {1}
    assert {text for texts in said.values() for text in texts} == {*one, *other}


# ---- one token


async def test_a_hook_made_by_a_node_that_died_before_it_heard_so_is_no_conflict_with_itself(stack):
    stack.app.add(raced.again)
    run = await stack.start(raced.again, "t", 3)
    await stack.client.resume("t", "a", wait=PATIENCE_S)
    await stack.saw(run, "hook_created", 2)
    between = Between(stack, holds(ev.HookCreated), nothing, first=False, dies=True)
    sending = asyncio.create_task(stack.client.resume("t", "b"))
    async with asyncio.timeout(PATIENCE_S):
        await between.done.wait()
    await stack.restart()
    await sending
    await stack.saw(run, "hook_created", 3)
    await stack.client.resume("t", "c")

    assert await run.result(PATIENCE_S) == ["a", "b", "c"]
    history = await history_of(stack, run, raced.again)
    assert not any(isinstance(event.body, ev.HookConflict) for event in history.events)


async def test_a_token_goes_from_run_to_run_as_each_lets_it_go(local):
    first = await local.start(raced.again, "t", 1)
    await local.saw(first, "hook_created")
    refused = await local.start(raced.again, "t", 1)

    assert await refused.result(PATIENCE_S) == [f"conflict with {first.run_id}"]
    await local.client.resume("t", "a")
    assert await first.result(PATIENCE_S) == ["a"]
    second = await local.start(raced.again, "t", 1)
    delivered = await local.client.resume("t", "b", wait=PATIENCE_S)
    assert delivered.run_id == second.run_id
    assert await second.result(PATIENCE_S) == ["b"]


# ---- deadlines


async def test_no_beat_no_restart_and_no_lost_answer_moves_the_deadline_of_a_hook(skipping):
    skipping.app.add(raced.patient)
    skipping.cable.fail_once("append", holds(ev.WaitCreated), after=True)
    run = await skipping.start(raced.patient, "t")
    made = await skipping.saw(run, "wait_created")
    for day in range(3):
        await skipping.skip(days=3)
        if day == 1:
            skipping.cable.fail_once("append", lambda batch: batch.fence is not None, after=True)
        await skipping.client.resume("t/beat", "still here")
        await skipping.idle()
        await skipping.restart()
        await skipping.idle()
        assert (await run.status()).due == made.at.replace(day=made.at.day + 10)
    await skipping.skip(hours=23)
    await skipping.idle()
    assert (await run.status()).ended_at is None
    await skipping.skip(hours=1)

    assert await run.result(PATIENCE_S) == "late after 3 beats"
    assert made.at == BEGIN
    history = await history_of(skipping, run, raced.patient)
    assert sum(isinstance(event.body, ev.WaitCreated) for event in history.events) == 1
    assert next(e.at for e in history.events if isinstance(e.body, ev.WaitCompleted)) == BEGIN.replace(day=11)


# ---- cancels


async def test_code_that_swallows_a_cancel_and_waits_for_payloads_again_is_terminated_and_its_token_is_free(skipping):
    run = await skipping.start(raced.stubborn, "t")
    await skipping.client.resume("t", "first", wait=PATIENCE_S)
    await run.cancel("enough")
    await skipping.client.resume("t", "after the cancel")
    await skipping.restart()
    await skipping.skip(minutes=59)
    await skipping.client.resume("t", "just in time")
    await skipping.idle()
    assert (await run.status()).ended_at is None
    await skipping.skip(minutes=1)

    assert isinstance(await skipping.ended(run), errors.RunTerminated)
    with pytest.raises(errors.HookNotFound):
        await skipping.client.resume("t", "too late")
    other = await skipping.start(raced.again, "t", 1)
    await skipping.client.resume("t", "yours", wait=PATIENCE_S)
    assert await other.result(PATIENCE_S) == ["yours"]


async def test_a_cancel_and_a_payload_while_no_node_is_there_are_taken_in_the_order_they_have(local):
    local.app.add(raced.again)
    runs = [await local.start(raced.again, f"t{n}", 1) for n in range(2)]
    for run in runs:
        await local.saw(run, "hook_created")

    async def both():
        cancels = [Batch(run.run_id, (ev.CancelRequested(reason="enough", key="k"),), UNREAD) for run in runs]
        await local.world.append(cancels[0])
        await puts(local, "t0", "word")()
        await puts(local, "t1", "word")()
        await local.world.append(cancels[1])

    await local.idle()
    await both()
    await local.restart()

    assert isinstance(await local.ended(runs[0]), errors.RunCancelled)
    assert await runs[1].result(PATIENCE_S) == ["word"]
    for run in runs:
        await history_of(local, run, raced.again)


# ---- wakes


async def test_a_payload_whose_bell_is_lost_is_found_by_the_sweeper(skipping):
    run = await skipping.start(raced.again, "t", 1)
    await skipping.saw(run, "hook_created")
    await skipping.idle()
    await puts(skipping, "t", "unheard")()
    skipping.turn(seconds=3)
    await skipping.node.sweeper.sweep()

    assert await run.result(PATIENCE_S) == ["unheard"]
    assert (await skipping.client.info())["repairs"] == 1


async def test_a_delivery_sent_again_rings_by_itself(skipping):
    run = await skipping.start(raced.again, "t", 1)
    await skipping.saw(run, "hook_created")
    await skipping.idle()
    await puts(skipping, "t", "unheard", delivery="mail-7")()
    delivered = await skipping.client.resume("t", "unheard", delivery="mail-7")

    assert await run.result(PATIENCE_S) == ["unheard"]
    assert delivered.repeated
    assert (await skipping.client.info())["repairs"] == 0


async def test_wakes_and_deliveries_after_the_end_of_a_run_change_nothing(local):
    run = await local.start(raced.again, "t", 1)
    first = await local.client.resume("t", "a", delivery="mail-7", wait=PATIENCE_S)
    await run.result(PATIENCE_S)
    before = await local.kinds(run)
    for _ in range(3):
        local.node.tick(run.run_id)
        assert (await local.client.resume("t", "a", delivery="mail-7")).id == first.id
    await local.restart()
    local.node.tick(run.run_id)
    await local.idle()

    assert await local.kinds(run) == before
    assert await run.result(PATIENCE_S) == ["a"]
