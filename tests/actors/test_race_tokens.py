"""Tokens, payloads, cancels and wakes that come a moment too early or too late."""

import time

import pytest

from fencepost.actors.define import step, workflow
from fencepost.actors.errors import HookConflict
from fencepost.actors.hooks import hook
from fencepost.actors.replaying import replayed
from fencepost.actors.retry import Retry
from fencepost.actors.run import RunActor
from fencepost.world import UNREAD, Batch, HookNotFound, RunEnded
from fencepost.world import events as ev
from tests.actors.racing import CountedTurn, bodies, lost, racing


@step
async def add(x: int) -> int:
    bodies[f"add {x}"] += 1
    return x + 1


@workflow
async def rival() -> str:
    try:
        return await hook("t", str)
    except HookConflict as conflict:
        return f"{conflict.owner} has it"


@workflow
async def thrice() -> list[str]:
    """One token, disposed and made again in the same breath."""
    read = []
    for _ in range(3):
        async with hook("t", str) as box:
            read.append(await box)
    return read


def holds(*kinds):
    return lambda batch: {type(body) for body in batch.events} >= set(kinds)


hands_on = holds(ev.HookDisposed, ev.HookCreated)


async def ended(race, run_id):
    """Wait for the end of another run than the last one that was started."""
    mine, race.run_id = race.run_id, run_id
    try:
        return await race.result()
    finally:
        race.run_id = mine


# ---- payloads that come too early and too late , line 9


@pytest.mark.parametrize("run_ahead", [True, False])
async def test_there_is_no_hook_before_its_creation_is_durable_although_the_code_waits_for_it(run_ahead):
    @workflow
    async def waits() -> str:
        await add(1)
        return await hook("t", str)

    async with racing(waits, run_ahead=run_ahead) as race:

        async def early(_batch):
            with pytest.raises(HookNotFound):
                await race.payload("t", "too early")()

        race.world.meanwhile(holds(ev.HookCreated), early)
        await race.start(waits)
        await race.saw("hook_created")
        await race.payload("t", "again")()

        assert await race.result() == "again"
        assert (await race.kinds()).count("hook_received") == 1


@pytest.mark.parametrize("run_ahead", [True, False])
async def test_a_payload_that_lands_while_its_hook_is_being_disposed_is_in_the_log_and_changes_nothing(run_ahead):
    @workflow
    async def disposes() -> list:
        box = hook("t", str)
        read = [await add(1)]
        box.dispose()
        read.append(await add(10))
        return read

    async with racing(disposes, run_ahead=run_ahead) as race:
        race.world.meanwhile(holds(ev.HookDisposed), race.payload("t", "late"))
        await race.start(disposes)

        assert await race.result() == [2, 11]
        kinds = await race.kinds()
        assert kinds.index("hook_received") < kinds.index("hook_disposed")
        assert bodies == {"add 1": 1, "add 10": 1}
        with pytest.raises(RunEnded):
            await race.payload("t", "later", delivery="d2")()


# ---- one token, again and again , line 10


async def test_a_token_that_is_disposed_and_made_again_gives_each_hook_its_own_payload():
    async with racing(thrice) as race:
        race.world.meanwhile(hands_on, race.payload("t", "for nobody", delivery="between"))
        await race.start(thrice)
        for number, word in enumerate(("a", "b", "c"), 1):
            await race.saw("hook_created", number)
            await race.payload("t", word, delivery=word)()

        assert await race.result() == ["a", "b", "c"]
        log = [event.body for event in await race.log()]
        made = [body.op for body in log if isinstance(body, ev.HookCreated)]
        came = [(body.op, body.delivery) for body in log if isinstance(body, ev.HookReceived)]
        assert came == [(made[0], "a"), (made[0], "between"), (made[1], "b"), (made[2], "c")]
        assert "hook_conflict" not in await race.kinds()


async def test_who_wants_a_token_while_it_is_made_again_in_one_breath_never_gets_in_between():
    async with racing(thrice, rival) as race:
        await race.start(thrice)
        mine, told = race.run_id, []

        async def another(_batch):
            await race.start(rival)
            told.append(await race.result())
            race.run_id = mine

        for number, word in enumerate(("a", "b", "c"), 1):
            race.world.meanwhile(hands_on, another)
            await race.saw("hook_created", number)
            await race.payload("t", word, delivery=word)()

        assert await race.result() == ["a", "b", "c"]
        assert told == [f"{mine} has it"] * 2


async def test_a_token_that_another_run_claims_right_after_it_was_disposed_is_that_runs():
    @workflow
    async def lets_go() -> list[str]:
        async with hook("t", str) as box:
            read = [await box]
        await add(1)
        try:
            async with hook("t", str) as box:
                read.append(await box)
        except HookConflict as conflict:
            read.append(conflict.owner)
        return read

    async with racing(lets_go, rival) as race:
        await race.start(lets_go)
        mine, others = race.run_id, []

        async def another(_batch):
            await race.start(rival)
            await race.saw("hook_created")
            others.append(race.run_id)
            race.run_id = mine

        await race.saw("hook_created")
        race.world.meanwhile(holds(ev.HookCreated), another)
        await race.payload("t", "mine", delivery="d1")()

        assert await race.result() == ["mine", *others]
        await race.payload("t", "yours", delivery="d2")()
        assert await ended(race, others[0]) == "yours"


@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_a_creation_whose_answer_is_lost_is_no_conflict_with_itself(nth):
    async with racing(thrice) as race:
        usual, made = race.world.after, 0

        async def after(method):
            nonlocal made
            await usual(method)
            if method == "append" and holds(ev.HookCreated)(race.world.sent[-1]) and made < nth:
                made += 1
                if made == nth:
                    await lost(None)

        race.world.after = after
        await race.start(thrice)
        for number, word in enumerate(("a", "b", "c"), 1):
            await race.saw("hook_created", number)
            race.world.sent.append(Batch(race.run_id, (), 0))  # whatever was appended last is no creation any more
            await race.payload("t", word, delivery=word)()

        assert await race.result() == ["a", "b", "c"]
        assert made == nth
        assert (await race.kinds()).count("hook_created") == 3
        assert "Taken" not in {why for _, why in race.world.refused}


# ---- cancels , line 15


@workflow
async def careful() -> str:
    box = hook("t", str)
    try:
        return await box
    finally:
        await add(1)


@workflow
async def at_once() -> str:
    return await hook("t", str)


@pytest.mark.parametrize(
    ("order", "end"), [(("payload", "cancel"), ev.RunCompleted), (("cancel", "payload"), ev.RunCancelled)]
)
async def test_a_cancel_and_a_payload_that_come_together_are_taken_in_the_order_they_have(order, end):
    async with racing(at_once) as race:
        await race.start(at_once)
        await race.saw("hook_created")
        await race.sleep()
        acts = {"payload": race.payload("t", "word"), "cancel": race.cancel}
        for what in order:
            tick, race.node.tick = race.node.tick, lambda *_: None
            await acts[what]()
            race.node.tick = tick
        race.node.tick(race.run_id)

        assert isinstance(await race.ended(), end)


async def test_a_cancel_that_lands_at_the_moment_of_completion_comes_too_late_for_a_body_that_had_returned():
    async with racing(at_once) as race:
        race.world.meanwhile(holds(ev.RunCompleted), race.cancel)
        await race.start(at_once)
        await race.saw("hook_created")
        await race.payload("t", "word")()

        assert await race.result() == "word"
        assert (await race.kinds())[-3:] == ["hook_received", "cancel_requested", "run_completed"]


async def test_a_cancel_that_lands_before_the_result_a_body_would_return_with_wins():
    @workflow
    async def both() -> int:
        box = hook("t", str)
        n = await add(1)
        box.dispose()
        return n

    async with racing(both, rival) as race:
        race.world.meanwhile(holds(ev.StepCompleted, ev.RunCompleted), race.cancel)
        await race.start(both)

        assert isinstance(await race.ended(), ev.RunCancelled)
        await race.start(rival)  # the token is free
        await race.saw("hook_created")


async def test_a_second_cancel_does_not_kill_a_cleanup_that_waits_for_a_payload_and_the_end_frees_the_token():
    @workflow
    async def asks_before_it_goes() -> str:
        box = hook("t", str)
        try:
            return await box
        finally:
            await add(len(await box))

    async with racing(asks_before_it_goes, rival) as race:
        await race.start(asks_before_it_goes)
        await race.saw("hook_created")
        await race.cancel()
        await race.settled()
        again = Batch(race.run_id, (ev.CancelRequested(reason="again", key="k2"),), UNREAD)
        await race.world.append(again)
        race.node.tick(race.run_id)
        await race.settled()
        assert (await race.world.find(race.run_id)).ended_at is None
        await race.payload("t", "four")()

        assert isinstance(await race.ended(), ev.RunCancelled)
        assert bodies == {"add 4": 1}
        await race.start(rival)
        await race.saw("hook_created")


async def test_a_cancel_before_the_first_tick_makes_no_hook():
    async with racing(careful) as race:
        tick, race.node.tick = race.node.tick, lambda *_: None
        await race.start(careful)
        await race.cancel()
        race.node.tick = tick
        race.node.tick(race.run_id)
        await race.saw("run_cancelled")

        assert await race.kinds() == ["run_created", "cancel_requested", "run_cancelled"]
        assert replayed(careful, race.run_id, await race.log()).state == "same"


# ---- wakes , line 16


async def test_wakes_that_come_early_twice_or_after_the_end_write_nothing_and_build_nothing():
    async with racing(careful) as race:

        async def wake(times):
            before = len(race.world.sent), CountedTurn.built, await race.kinds()
            for _ in range(times):
                race.node.tick(race.run_id)
                await race.settled()
            assert (len(race.world.sent), CountedTurn.built, await race.kinds()) == before

        await race.start(careful)
        await race.saw("hook_created")
        await race.settled()
        await wake(3)
        deliver = race.payload("t", "word")
        await deliver()
        await deliver()

        assert await race.result() == "word"
        await race.settled()
        await wake(3)
        await deliver()
        await wake(1)
        assert (await race.kinds()).count("hook_received") == 1
        assert bodies == {"add 1": 1}


async def test_a_retry_that_falls_due_between_deciding_and_resting_is_not_left_to_the_sweeper(monkeypatch):
    @step(retry=Retry(times=1, first=0.03, jitter=0))
    async def shaky() -> int:
        bodies["shaky"] += 1
        if bodies["shaky"] == 1:
            raise ValueError("not yet")
        return bodies["shaky"]

    @workflow
    async def tries() -> int:
        return await shaky()

    usual = RunActor._rest

    def after_a_while(self, awake):
        time.sleep(0.05)  # real time: what a busy machine does to a node in between
        return usual(self, awake)

    monkeypatch.setattr(RunActor, "_rest", after_a_while)

    async with racing(tries) as race:
        await race.start(tries)

        assert await race.result() == 2
        assert race.node.sweeper.repairs == 0
