"""Append and fence: who may write, what is refused, what is inert."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from fencepost.world import (
    UNREAD,
    Batch,
    ClaimLost,
    Fence,
    RunEnded,
    RunNotFound,
    StaleLog,
    Superseded,
    UnknownEvent,
    ValueTooLarge,
    events,
)
from tests.contract.logs import (
    BEGIN,
    Decider,
    a_member,
    a_run,
    cancel,
    completed,
    created,
    failed,
    offer,
    outcome_of,
    outside,
    retrying,
    run_completed,
    run_failed,
    run_started,
    started,
    step_cancelled,
    terminate,
    types,
    value,
    wait,
    waited,
    whole_log,
)


async def test_a_new_run_holds_its_creation_and_is_at_tick_0(world):
    await world.create(a_run(chain_id="order-7", attributes={"customer": "ada"}, parent="run_0"))

    opened = await world.open("run_1")

    assert opened.fence == Fence(0, "")
    assert types(opened.events) == ["run_created"]
    assert (opened.events[0].seq, opened.events[0].tick, opened.events[0].at) == (1, None, BEGIN)
    assert opened.events[0].body.chain == "order-7"
    assert (opened.run.status, opened.run.seq, opened.run.in_band_count) == ("pending", 1, 0)
    assert opened.run.attributes == {"customer": "ada"}
    assert opened.run.parent == "run_0"
    assert opened.claims == ()


async def test_an_in_band_batch_raises_the_tick_by_one_whatever_it_holds(world):
    decider = await Decider.of_new(world)

    accepted = await decider.append(run_started(), wait("0.0"), wait("0.1"), name="b1", whole_log=True)

    assert (accepted.first_seq, accepted.fence, accepted.between) == (2, Fence(1, "b1"), ())
    run = await world.find("run_1")
    assert (run.status, run.seq, run.tick, run.in_band_count, run.decided_seq) == ("running", 4, 1, 3, 1)
    assert [event.tick for event in await whole_log(world)] == [None, 1, 1, 1]


async def test_an_empty_batch_raises_only_the_tick(world):
    decider = await Decider.of_new(world)

    accepted = await decider.append(name="b1")

    assert (accepted.first_seq, accepted.fence) == (2, Fence(1, "b1"))
    assert types(await whole_log(world)) == ["run_created"]


async def test_a_stale_batch_changes_nothing_and_the_next_one_takes_the_very_next_position(world):
    node = await world.join(a_member())
    winner, loser = await Decider.of_new(world), await Decider.of(world)
    await winner.begin()
    before = await world.open("run_1")

    with pytest.raises(Superseded):
        await loser.append(created(), started(node))

    assert await world.open("run_1") == before
    accepted = await winner.append(created(), started(node))
    assert accepted.first_seq == before.run.seq + 1
    assert [claim.token for claim in (await world.open("run_1")).claims] == ["t1"]


async def test_outside_appends_move_the_position_and_never_the_tick(world):
    decider = await Decider.of_new(world)
    await decider.begin()

    accepted = await outside(world, cancel())

    assert (accepted.first_seq, accepted.fence) == (3, decider.fence)
    decider.known = 3
    assert (await decider.append(wait())).first_seq == 4
    run = await world.find("run_1")
    assert (run.seq, run.tick, run.in_band_count) == (4, 2, 2)


async def test_of_eight_writers_with_one_tick_exactly_one_wins(world):
    deciders = [await Decider.of_new(world), *[await Decider.of(world) for _ in range(7)]]

    answers = await asyncio.gather(
        *(outcome_of(decider.append(wait(f"0.{n}"), wait(f"1.{n}"))) for n, decider in enumerate(deciders))
    )

    assert sum(isinstance(answer, Superseded) for answer in answers) == 7
    assert types(await whole_log(world)) == ["run_created", "wait_created", "wait_created"]
    assert (await world.find("run_1")).tick == 1


IN_BAND = [run_started(), created(), step_cancelled(), wait(), waited(), run_completed(), run_failed(), failed()]


@pytest.mark.parametrize("body", IN_BAND, ids=events.kind_of)
async def test_what_only_a_decider_may_say_needs_a_fence(world, body):
    await world.create(a_run())

    with pytest.raises(ValueError, match="needs a fence"):
        await outside(world, body)

    assert types(await whole_log(world)) == ["run_created"]


@pytest.mark.parametrize("body", [cancel(), terminate(), events.RunCreated(workflow="w", input=value(), seed="s")])
async def test_what_others_say_cannot_be_in_band(world, body):
    decider = await Decider.of_new(world)

    with pytest.raises(ValueError, match="in-band"):
        await decider.append(body)

    assert types(await whole_log(world)) == ["run_created"]


@pytest.mark.parametrize(
    "batch",
    [
        Batch("run_1", (wait(),), 1, Fence(0, "")),
        Batch("run_1", (wait(),), UNREAD, Fence(0, ""), "b"),
        Batch("run_1", (cancel(),), UNREAD, whole_log=True),
        Batch("run_1", (), 1),
        Batch("run_1", (cancel(),), 1, due=BEGIN),
        Batch("run_1", (run_completed(), wait()), 1, Fence(0, ""), "b"),
        Batch("run_1", (created(op=""), completed(op="")), 1, Fence(0, ""), "b"),
        Batch("run_1", (wait(),), 1, Fence(0, ""), "b", offers=(offer("9.9", queue=""),)),
        Batch("run_1", (wait(),), 1, Fence(0, ""), "b", offers=(offer("9.9", attempt=0),)),
        Batch("run_1", (wait(),), 1, Fence(0, ""), "b", offers=(offer("9.9"), offer("9.9", attempt=2))),
        Batch("run_1", (cancel(),), 1, offers=(offer("9.9"),)),
        Batch("run_1", (wait(),), 1, Fence(0, ""), "b", due=BEGIN.replace(tzinfo=None)),
    ],
    ids=[
        "no batch id",
        "unread",
        "unread fence",
        "nothing",
        "due",
        "after the end",
        "no op",
        "offer without a queue",
        "offer of no attempt",
        "two offers of an op",
        "offer from outside",
        "naive due",
    ],
)
async def test_a_batch_nobody_may_send_is_a_bug_and_changes_nothing(world, batch):
    await world.create(a_run())
    before = await world.open("run_1")

    with pytest.raises(ValueError):  # noqa: PT011  (each says something else)
        await world.append(batch)

    assert await world.open("run_1") == before


async def test_the_same_tick_of_another_batch_is_refused(world):
    """A failover lost a commit, and another decider wrote a different tick 1."""
    decider = await Decider.of_new(world)
    await decider.begin()

    with pytest.raises(Superseded):
        await decider.append(wait(), fence=replace(decider.fence, last_batch="a lost one"))

    assert (await world.find("run_1")).tick == 1


async def test_who_has_read_what_this_world_does_not_have_is_superseded(world):
    """A failover that lost an outside event leaves tick and batch as they were."""
    decider = await Decider.of_new(world)
    await decider.begin()

    with pytest.raises(Superseded):
        await decider.append(wait(), known=decider.known + 1)


async def test_what_lands_between_two_pages_of_a_load_refuses_the_decision(world):
    slow = await Decider.of_new(world)
    fast = await Decider.of(world)
    await fast.begin(wait())

    page_2 = await world.more("run_1", slow.known)

    assert types(page_2) == ["run_started", "wait_created"]
    with pytest.raises(Superseded):
        await slow.append(wait("0.7"), known=page_2[-1].seq)


async def test_the_whole_log_fence_holds_at_the_tail(world):
    decider = await Decider.of_new(world)
    await decider.begin()
    await outside(world, cancel())

    accepted = await decider.append(wait(), known=3, whole_log=True)

    assert accepted.first_seq == 4


async def test_the_whole_log_fence_tells_what_landed(world):
    decider = await Decider.of_new(world)
    await decider.begin(created())
    await outside(world, cancel(reason="why not"))

    with pytest.raises(StaleLog) as refused:
        await decider.append(wait(), whole_log=True)

    assert types(refused.value.between) == ["cancel_requested"]
    assert refused.value.between[0].seq == 4
    assert (await world.find("run_1")).seq == 4


async def test_quiet_events_do_not_refuse_the_whole_log_fence_and_are_told(world):
    node = await world.join(a_member())
    decider = await Decider.of_new(world)
    await decider.begin(created())
    await outside(world, started(node))

    accepted = await decider.append(wait(), whole_log=True)

    assert accepted.first_seq == 5
    assert types(accepted.between) == ["step_started"]


async def test_an_order_that_did_not_run_ahead_is_not_refused_for_what_landed(world):
    node = await world.join(a_member())
    decider = await Decider.of_new(world)
    await decider.begin(created(), started(node))
    await outside(world, completed())

    accepted = await decider.append(wait())

    assert types(accepted.between) == ["step_completed"]


async def test_an_unseen_cancel_refuses_every_in_band_batch(world):
    decider = await Decider.of_new(world)
    await decider.begin()
    await outside(world, cancel())

    with pytest.raises(StaleLog) as refused:
        await decider.append(wait())

    assert types(refused.value.between) == ["cancel_requested"]
    decider.known = 3
    await decider.append(wait())


async def test_a_caller_without_a_log_can_fence_by_time(world, clock):
    decider = await Decider.of_new(world)
    await decider.begin()
    asked_at = clock.turn(seconds=1)
    known = await world.position_at("run_1", asked_at)
    await outside(world, cancel(key="first"))

    with pytest.raises(StaleLog):
        await outside(world, cancel(key="second"), known=known, whole_log=True)

    clock.turn(seconds=1)
    known = await world.position_at("run_1", clock())
    assert (await outside(world, cancel(key="second"), known=known, whole_log=True)).first_seq == 4


async def test_position_at_is_the_last_one_strictly_before(world, clock):
    decider = await Decider.of_new(world)
    clock.turn(seconds=10)
    await decider.begin(wait("0.0"), wait("0.1"))
    clock.turn(seconds=10)
    await decider.append(waited("0.0"))

    seconds = [-1, 0, 0.000001, 10, 10.000001, 20, 20.000001, 1e9]
    found = [await world.position_at("run_1", BEGIN + timedelta(seconds=after)) for after in seconds]

    assert found == [0, 0, 1, 1, 4, 4, 5, 5]
    with pytest.raises(RunNotFound):
        await world.position_at("run_9", BEGIN)


async def test_a_batch_is_all_or_nothing_also_when_its_last_event_is_illegal(world):
    node = await world.join(a_member())
    decider = await Decider.of_new(world)
    await decider.begin(created("0.0"), created("0.1"), started(node, "0.1", "t2"))
    before = await world.open("run_1")

    with pytest.raises(ClaimLost) as refused:
        await decider.append(completed("0.1", "t2"), wait("0.9"), completed("0.0", "stolen"))

    assert refused.value.ops == ("0.0",)
    assert await world.open("run_1") == before


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled", "terminated"])
async def test_nothing_follows_the_end(world, clock, end):
    decider = await Decider.of_new(world)
    await decider.begin()
    clock.turn(seconds=3)
    match end:
        case "completed":
            await decider.append(run_completed("done"))
        case "failed":
            await decider.append(run_failed())
        case "cancelled":
            await decider.append(events.RunCancelled())
        case _:
            await outside(world, terminate())

    run = await world.find("run_1")
    assert (run.status, run.ended_at, run.due) == (end, clock(), None)
    for write in (
        decider.append(wait()),
        decider.append(),
        outside(world, cancel()),
        outside(world, terminate()),
        world.stall("run_1", decider.fence, "why"),
        world.unstall("run_1"),
    ):
        with pytest.raises(RunEnded) as refused:
            await write
        assert refused.value.status == end


async def test_an_unknown_run_is_not_found(world):
    await world.create(a_run(chain_id="order-7"))

    for call in (
        world.open("order-7"),
        world.more("run_9", 0),
        outside(world, cancel(), run_id="run_9"),
        world.stall("run_9", Fence(0, ""), "why"),
        world.unstall("run_9"),
        world.find("run_9"),
        world.get_value("run_1", "0" * 64),
    ):
        with pytest.raises(RunNotFound):
            await call


async def test_what_happens_twice_is_recorded_and_inert(world):
    node = await world.join(a_member())
    decider = await Decider.of_new(world)
    await decider.begin(created(), started(node), wait())
    await decider.append(completed(), waited())

    await decider.append(waited(), step_cancelled(), failed(), created(), started(node, token="t2"))

    opened = await world.open("run_1")
    assert opened.claims == ()
    assert opened.run.status == "running"
    assert opened.run.seq == 12


async def test_an_order_about_what_an_outcome_ended_commits(world):
    """Were it refused, its batch could never commit."""
    node = await world.join(a_member())
    decider = await Decider.of_new(world)
    await decider.begin(created(), started(node))
    await outside(world, completed())

    accepted = await decider.append(step_cancelled(), created("0.5"))

    assert types(accepted.between) == ["step_completed"]
    assert types(await whole_log(world))[-2:] == ["step_cancelled", "step_created"]


async def test_a_key_makes_a_request_idempotent(world):
    await world.create(a_run())
    first = await outside(world, cancel(key="k1"))

    again = await outside(world, cancel(key="k1"), known=1)
    other = await outside(world, cancel(key="k2"))
    keyless = [await outside(world, cancel()) for _ in range(2)]

    assert (first.repeated, again.repeated) == (False, True)
    assert (again.first_seq, again.at) == (first.first_seq, first.at)
    assert types(again.between) == ["cancel_requested"]
    assert [other.first_seq, *(answer.first_seq for answer in keyless)] == [3, 4, 5]


async def test_a_repeated_request_is_answered_also_when_it_ended_the_run(world):
    await world.create(a_run())
    await outside(world, terminate(key="k1"))

    again = await outside(world, terminate(key="k1"))

    assert (again.repeated, again.first_seq) == (True, 2)


async def test_a_key_belongs_to_its_type_and_run(world):
    await world.create(a_run("run_1"))
    await world.create(a_run("run_2"))
    await outside(world, cancel(key="k"), run_id="run_1")

    assert not (await outside(world, cancel(key="k"), run_id="run_2")).repeated
    assert not (await outside(world, terminate(key="k"), run_id="run_1")).repeated


async def test_between_is_complete_and_in_order(world):
    decider = await Decider.of_new(world)
    await decider.begin(*(wait(f"0.{n}") for n in range(600)))

    accepted = await outside(world, cancel(), known=0)

    assert [event.seq for event in accepted.between] == list(range(1, 603))
    assert (await outside(world, cancel(), known=UNREAD)).between == ()


async def test_an_event_of_a_newer_version_is_not_guessed_at(world, write_newer_event):
    await world.create(a_run())
    await write_newer_event("run_1", 2)

    for call in (world.open("run_1"), world.more("run_1", 1)):
        with pytest.raises(UnknownEvent) as refused:
            await call
        assert (refused.value.seq, refused.value.kind) == (2, "moon_rose")


async def test_a_value_that_is_too_large_is_refused_before_the_write(world):
    decider = await Decider.of_new(world)
    await decider.begin()
    huge = "x" * (13 * 2**20)

    with pytest.raises(ValueTooLarge, match="run_completed has 13,"):
        await decider.append(run_completed(huge))
    with pytest.raises(ValueTooLarge):
        await world.put_value("run_1", huge.encode())
    with pytest.raises(ValueTooLarge):
        await world.create(a_run("run_2", input=value(huge)))

    assert (await world.find("run_1")).seq == 2
    with pytest.raises(RunNotFound):
        await world.find("run_2")


async def test_an_attempt_that_is_retried_leaves_the_next_one_free(world):
    node = await world.join(a_member())
    decider = await Decider.of_new(world)
    await decider.begin(created(), started(node))
    await decider.append(retrying())

    await decider.append(started(node, token="t2", attempt=2))

    (claim,) = (await world.open("run_1")).claims
    assert (claim.attempt, claim.token, claim.draining, claim.alive) == (2, "t2", False, True)
