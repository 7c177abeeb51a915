"""The position in the log tells who wins a race, whatever lands in between and at any size."""

import asyncio

import pytest

from fencepost.actors.author import sleep
from fencepost.actors.define import step, workflow
from fencepost.actors.hooks import hook
from fencepost.actors.replaying import replayed
from fencepost.actors.values import INLINE_BYTES_MAX, hydrated, is_apart
from fencepost.world import UNREAD, Batch, Member
from fencepost.world import events as ev
from tests.actors.racing import bodies, lost, racing
from tests.simulation.replay import replays_to_the_same_end

SMALL, LARGE = 3, 200_000
SETTLING = (ev.StepCompleted, ev.WaitCompleted)


@step
async def add(x: int) -> int:
    bodies[f"add {x}"] += 1
    return x + 1


@step
async def mail(to: str) -> str:
    bodies[f"mail {to}"] += 1
    return to


@step(queue="elsewhere")
async def remote() -> int:
    return 1


@workflow
async def raced(rival: str) -> list:
    box = hook("t", str)
    word = asyncio.ensure_future(box)
    other = asyncio.ensure_future(sleep(0.01) if rival == "timer" else add(0))
    done, pending = await asyncio.wait({word, other}, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    if done == {word}:
        return ["word", len(word.result()), await mail("a"), await mail("b"), await mail("c")]
    await sleep(0.001)
    return ["rival", len(done), await add(10)]


def settles(batch):
    return any(isinstance(body, SETTLING) for body in batch.events)


def words(race, size, delivery="d"):
    """Return an act: somebody puts a text of so many letters, kept apart when it is large."""

    async def act(_batch=None):
        opened = await race.world.hook("t")
        data = ev.as_json("x" * size)
        value = ev.Value(json=data)
        if size > INLINE_BYTES_MAX:
            value = ev.Value(ref=await race.world.put_value(opened.run_id, bytes(data)), size_bytes=size + 2)
        body = ev.HookReceived(op=opened.created.op, token="t", delivery=delivery, payload=value)
        await race.world.append(Batch(opened.run_id, (body,), UNREAD))
        race.node.tick(opened.run_id)

    return act


def right_after_the_rival(race, act, *, answer):
    """Let the rival be committed, then something else, and then the answer to the rival's batch arrive or be lost."""
    done, usual = asyncio.Event(), race.world.after

    async def after(method):
        await usual(method)
        if method == "append" and race.world.sent and settles(race.world.sent[-1]) and not done.is_set():
            done.set()
            await act()
            if answer == "lost":
                await lost(None)

    race.world.after = after


async def whole(race):
    """Wait for the end and return the log with large values in place; it must replay to the same end, twice over."""
    await race.world.until(race._has_ended)
    log = [await hydrated(race.world, race.run_id, e) if is_apart(e.body) else e for e in await race.log()]
    run = await race.world.find(race.run_id)
    flow = race._flows[run.workflow]
    assert list(replays_to_the_same_end(flow, race.run_id, log, run.decided_seq - 1)) == []
    assert replayed(flow, race.run_id, log).state == "same"
    assert isinstance(log[-1].body, ev.RunCompleted), log[-1].body
    return log


def first_of(log, *kinds):
    return next(event for event in log if isinstance(event.body, kinds)).body


def result_of(log):
    return ev.msgspec.json.decode(log[-1].body.result.json)


WAYS = [(True, SMALL), (True, LARGE), (False, SMALL), (False, LARGE)]


@pytest.mark.parametrize(("run_ahead", "size"), WAYS)
@pytest.mark.parametrize("rival", ["timer", "step"])
async def test_a_payload_one_position_before_its_rival_wins(rival, run_ahead, size):
    async with racing(raced, run_ahead=run_ahead) as race:
        race.world.meanwhile(settles, words(race, size))
        await race.start(raced, rival)

        log = await whole(race)
        assert isinstance(first_of(log, ev.HookReceived, *SETTLING), ev.HookReceived)
        assert result_of(log) == ["word", size, "a", "b", "c"]
        assert not bodies["add 10"]


@pytest.mark.parametrize(("answer", "size"), [("heard", LARGE), ("lost", SMALL)])
@pytest.mark.parametrize("run_ahead", [True, False])
@pytest.mark.parametrize("rival", ["timer", "step"])
async def test_a_payload_one_position_after_its_rival_loses(rival, run_ahead, answer, size):
    async with racing(raced, run_ahead=run_ahead) as race:
        right_after_the_rival(race, words(race, size), answer=answer)
        await race.start(raced, rival)

        log = await whole(race)
        assert not isinstance(first_of(log, ev.HookReceived, *SETTLING), ev.HookReceived)
        assert result_of(log) == ["rival", 1, 11]
        assert not any(name.startswith("mail") for name in bodies)
        assert (await race.kinds()).count("hook_received") == 1


@workflow
async def all_that_comes() -> list[int]:
    box, order = hook("t", str), list[int]()

    async def read() -> None:
        async for word in box:
            order.append(len(word))
            if len(word) == 9:
                box.dispose()

    async def work() -> None:
        order.append(await add(99))
        order.append(await add(199))

    async def away() -> None:
        order.append(await remote())

    await asyncio.gather(read(), work(), away())
    return order


def in_the_order_of(log):
    """Return what came of payloads and steps as the log has it."""
    came = [event.body for event in log if isinstance(event.body, ev.HookReceived | ev.StepCompleted)]
    values = [ev.msgspec.json.decode((b.payload if isinstance(b, ev.HookReceived) else b.result).json) for b in came]
    return [len(value) if isinstance(value, str) else value for value in values]


@pytest.mark.parametrize("run_ahead", [True, False])
async def test_what_many_others_commit_while_a_writer_takes_long_is_seen_in_the_order_it_has(run_ahead):
    async with racing(all_that_comes, run_ahead=run_ahead) as race:

        async def others(batch):
            for size in (4, 6):
                await words(race, size, f"d{size}")(batch)
            await remote_ends(race)(batch)
            for size in (5, LARGE, 9):
                await words(race, size, f"d{size}")(batch)

        race.world.meanwhile(settles, others)
        await race.start(all_that_comes)

        log = await whole(race)
        assert result_of(log) == in_the_order_of(log) == [4, 6, 7, 5, LARGE, 9, 100, 200]
        assert bodies == {"add 99": 1, "add 199": 1}


@pytest.mark.parametrize("run_ahead", [True, False])
async def test_a_writer_that_took_so_long_that_another_decided_begins_again_from_the_log(run_ahead):
    async with racing(all_that_comes, run_ahead=run_ahead) as race:

        async def another(batch):
            await remote_ends(race)(batch)
            opened = await race.world.open(race.run_id)
            await race.world.append(Batch(race.run_id, (), opened.run.seq, opened.fence, "another", due=opened.run.due))
            await words(race, 9)(batch)

        race.world.meanwhile(settles, another)
        await race.start(all_that_comes)

        log = await whole(race)
        assert result_of(log) == in_the_order_of(log)
        assert "Superseded" in {why for _, why in race.world.refused}
        assert bodies == {"add 99": 1, "add 199": 1}


def remote_ends(race):
    """Return an act: the step nobody serves here is done elsewhere."""

    async def act(_batch):
        worker = await race.world.join(Member("w", "test", "c", frozenset(), frozenset({"elsewhere"}), takes=False))
        (op,) = {e.body.op for e in await race.log() if getattr(e.body, "name", "") == "remote"}
        await race.claimed_outside(op, worker)()
        await race.completed_outside(op, 7)()

    return act
