"""Whose a token is: one open hook of the namespace has it. Who loses writes nothing; disposed or ended, it is free."""

import asyncio

import pytest

from fencepost.world import ClaimLost, Fence, Read, RunEnded, StaleLog, Superseded, Taken
from tests.contract.logs import (
    BEGIN,
    Decider,
    a_member,
    cancel,
    completed,
    conflict,
    created,
    disposed,
    dues,
    hooked,
    offer,
    outcome_of,
    outside,
    received,
    run_completed,
    started,
    step_cancelled,
    terminate,
    types,
    wait,
    whole_log,
)


@pytest.fixture
async def owner(world):
    """A run whose operation 0.0 has the token `tok`."""
    owner = await Decider.of_new(world, "run_1")
    await owner.begin(hooked())
    return owner


@pytest.fixture
async def other(world):
    """A run that has begun."""
    other = await Decider.of_new(world, "run_2")
    await other.begin()
    return other


async def holder(world, token="tok"):
    """Return who has an open hook: run and operation, None when it is closed."""
    found = await world.hook(token)
    return (found.run_id, found.created.op) if found.is_open else None


# ---- taken


async def test_a_token_of_another_run_is_taken(world, owner, other):  # noqa: ARG001  (it owns the token)
    with pytest.raises(Taken) as refused:
        await other.append(hooked("0.3"))

    assert (refused.value.run_id, refused.value.op, refused.value.owner) == ("run_2", "0.3", "run_1")
    assert await holder(world) == ("run_1", "0.0")


async def test_a_token_of_another_operation_of_the_run_is_taken(world, owner):
    with pytest.raises(Taken) as refused:
        await owner.append(hooked("0.3"))

    assert (refused.value.run_id, refused.value.op, refused.value.owner) == ("run_1", "0.3", "run_1")
    assert await holder(world) == ("run_1", "0.0")


async def test_one_batch_cannot_make_two_hooks_of_one_token(world, other):
    with pytest.raises(Taken) as refused:
        await other.append(hooked("0.0", "new"), wait(), hooked("0.2", "new"))

    assert (refused.value.op, refused.value.owner) == ("0.2", "run_2")
    assert types(await whole_log(world, "run_2")) == ["run_created", "run_started"]


async def test_a_batch_whose_token_is_taken_changes_nothing_at_all(world, clock, owner, other):
    node = await world.join(a_member())
    await owner.append(due=BEGIN.replace(year=2031))
    await other.append(hooked("0.8", "mine"), created(), started(node))
    await outside(world, received("d1", "0.8", "mine"), run_id="run_2")
    clock.turn(seconds=5)

    async def everything():
        hooks = [await world.hook(token) for token in ("tok", "mine")]
        return (
            await world.open("run_1"),
            await world.open("run_2"),
            await dues(world),
            hooks,
            await world.offers("shop", "default", 9),
        )

    before = await everything()
    batch = [completed(), hooked("0.4", "free"), disposed("0.8", "mine"), step_cancelled(), hooked("0.5"), wait()]
    with pytest.raises(Taken) as refused:
        await other.append(*batch, offers=(offer("0.6"),), due=BEGIN, reads=(Read("0.8", 1),))

    assert refused.value.op == "0.5"
    assert await everything() == before
    await owner.append(hooked("0.1", "free"))


async def test_the_first_token_that_is_taken_is_told(world, owner, other):  # noqa: ARG001  (it owns the token)
    third = await Decider.of_new(world, "run_3")
    await third.begin(hooked("0.0", "tok3"))

    with pytest.raises(Taken) as refused:
        await other.append(hooked("0.0", "free"), hooked("0.1", "tok3"), hooked("0.2", "tok"))

    assert (refused.value.op, refused.value.owner) == ("0.1", "run_3")


async def test_what_else_is_wrong_is_told_before_a_token_that_is_taken(world, owner, other):  # noqa: ARG001  (it owns it)
    with pytest.raises(Superseded):
        await other.append(hooked(), fence=Fence(0, ""))
    with pytest.raises(ClaimLost):
        await other.append(hooked(), completed("0.9"))
    await outside(world, cancel(), run_id="run_2")
    with pytest.raises(StaleLog):
        await other.append(hooked())
    await outside(world, terminate(), run_id="run_2")
    with pytest.raises(RunEnded):
        await other.append(hooked(), known=4)


async def test_of_two_runs_that_want_one_token_one_gets_it(world):
    runs = [f"run_{n}" for n in range(6)]
    deciders = [await Decider.of_new(world, run_id) for run_id in runs]

    answers = await asyncio.gather(
        *(
            outcome_of(decider.begin(hooked("0.0", "tok"), hooked("0.1", run_id)))
            for decider, run_id in zip(deciders, runs, strict=True)
        )
    )

    lost = [answer for answer in answers if isinstance(answer, Taken)]
    (winner,) = [run_id for run_id, answer in zip(runs, answers, strict=True) if not isinstance(answer, Exception)]
    assert {answer.owner for answer in lost} == {winner}
    assert len(lost) == 5
    assert await holder(world) == (winner, "0.0")
    logs = {run_id: len(await whole_log(world, run_id)) for run_id in runs}
    assert logs == {run_id: 4 if run_id == winner else 1 for run_id in runs}


async def test_runs_that_want_tokens_in_opposite_orders_wait_for_no_one(world):
    runs = [f"run_{n}" for n in range(8)]
    deciders = [await Decider.of_new(world, run_id) for run_id in runs]
    one_way = [hooked("0.0", "a"), hooked("0.1", "b"), hooked("0.2", "c")]

    answers = await asyncio.gather(
        *(outcome_of(decider.begin(*one_way[:: (-1) ** n])) for n, decider in enumerate(deciders))
    )

    (winner,) = [run_id for run_id, answer in zip(runs, answers, strict=True) if not isinstance(answer, Taken)]
    assert {(await world.hook(token)).run_id for token in "abc"} == {winner}


# ---- inert


async def test_a_hook_that_is_made_again_by_its_own_operation_stays_as_it_is(world, owner):
    await outside(world, received("d1"))

    await owner.append(hooked(model="another"), hooked())

    found = await world.hook("tok")
    assert (found.created, found.is_open, found.unread) == (hooked(), True, 1)
    assert types(await whole_log(world))[-2:] == ["hook_created", "hook_created"]


async def test_a_hook_that_was_disposed_is_not_opened_by_its_own_operation_again(world, owner):
    await owner.append(disposed())
    await owner.append(hooked(), disposed())
    assert await holder(world) is None

    await owner.append(hooked("0.1", "tok2"), disposed("0.1", "tok2"), hooked("0.1", "tok2"))

    assert await holder(world, "tok2") is None


async def test_who_does_not_own_a_hook_does_not_dispose_it(world, owner, other):
    """Who lost a conflict still says that it is through with the hook."""
    await other.append(conflict(), disposed())
    await owner.append(disposed("0.3"))
    await other.append(disposed("0.0", "nobody"))

    assert await holder(world) == ("run_1", "0.0")
    with pytest.raises(Taken):
        await other.append(disposed(), hooked("0.1"))
    with pytest.raises(Taken):
        await owner.append(disposed("0.3"), hooked("0.4"))


async def test_a_hook_that_is_disposed_twice_does_not_close_the_next_one(world, owner, other):
    await owner.append(disposed())
    await other.append(hooked("0.0"))

    await owner.append(disposed(), disposed())

    assert await holder(world) == ("run_2", "0.0")
    await other.append(disposed(), hooked("0.1"))
    await other.append(disposed())
    assert await holder(world) == ("run_2", "0.1")


# ---- free


async def test_a_disposed_token_is_free_for_anybody(world, owner, other):
    await owner.append(disposed())

    await other.append(hooked("0.5", model="m"))

    found = await world.hook("tok")
    assert (found.run_id, found.created, found.is_open) == ("run_2", hooked("0.5", model="m"), True)
    with pytest.raises(Taken) as refused:
        await owner.append(hooked("0.1"))
    assert refused.value.owner == "run_2"


async def test_a_token_goes_on_within_a_batch_once_it_is_disposed_there(world, owner):
    await owner.append(disposed(), hooked("0.1"), disposed("0.1"), wait("0.9"), hooked("0.2"))

    assert await holder(world) == ("run_1", "0.2")
    assert not (await outside(world, received("d1", "0.2"))).repeated


async def test_a_token_is_free_only_after_it_is_disposed(world, owner):
    with pytest.raises(Taken) as refused:
        await owner.append(hooked("0.1"), disposed())

    assert (refused.value.op, refused.value.owner) == ("0.1", "run_1")
    assert await holder(world) == ("run_1", "0.0")


async def test_a_hook_that_is_made_and_disposed_in_one_batch_is_closed(world, other):
    await other.append(hooked("0.0", "brief"), disposed("0.0", "brief"))

    assert await holder(world, "brief") is None
    assert (await world.hook("brief")).run_id == "run_2"


async def test_a_token_goes_on_from_batch_to_batch_also_when_they_are_sent_at_once(world, owner):
    first = owner.batch(disposed(), name="a")
    second = owner.batch(hooked("0.1"), known=4, fence=Fence(2, "a"), name="b")
    third = owner.batch(disposed("0.1"), hooked("0.2"), known=5, fence=Fence(3, "b"), name="c")

    await asyncio.gather(*(world.append(batch) for batch in (first, second, third)))

    assert await holder(world) == ("run_1", "0.2")


async def test_a_token_is_handed_over_or_taken_when_both_come_at_once(world, owner, other):
    _, answer = await asyncio.gather(owner.append(disposed()), outcome_of(other.append(hooked())))

    assert await holder(world) == (None if isinstance(answer, Taken) else ("run_2", "0.0"))


@pytest.mark.parametrize("end", ["completed", "terminated"])
async def test_the_end_of_a_run_frees_its_tokens_at_once(world, owner, other, end):
    await owner.append(hooked("0.1", "tok2"))

    await (owner.append(run_completed()) if end == "completed" else outside(world, terminate()))
    await other.append(hooked("0.0", "tok2"), hooked("0.1", "tok"))

    assert [await holder(world, token) for token in ("tok", "tok2")] == [("run_2", "0.1"), ("run_2", "0.0")]


async def test_the_end_of_a_run_leaves_alone_what_was_its_token_once(world, owner, other):
    await owner.append(disposed())
    await other.append(hooked())

    await owner.append(run_completed())

    assert await holder(world) == ("run_2", "0.0")


# ---- the conflict as it is written down


async def test_a_conflict_makes_no_hook_and_counts_as_nothing_decided(world, owner, other):  # noqa: ARG001  (it owns it)
    before = await world.find("run_2")

    await other.append(wait("0.0"), conflict("0.1"))

    run = await world.find("run_2")
    assert (run.seq, run.in_band_count, run.decided_seq) == (4, 3, before.decided_seq)
    assert await holder(world) == ("run_1", "0.0")
    await other.append(wait("0.2"))
    assert (await world.find("run_2")).decided_seq == 4


async def test_a_conflict_of_a_batch_that_ran_ahead_counts_as_nothing_decided(world, clock, owner, other):  # noqa: ARG001
    before = await world.find("run_2")

    await other.append(conflict("0.1"), whole_log=True, at=clock())

    assert (await world.find("run_2")).decided_seq == before.decided_seq


async def test_a_conflict_is_of_a_decider_and_stands_for_its_hook(world, owner, other):  # noqa: ARG001  (it owns it)
    with pytest.raises(ValueError, match="needs a fence"):
        await outside(world, conflict(), run_id="run_2")

    await other.append(conflict("0.1"))

    assert (await whole_log(world, "run_2"))[-1].body == conflict("0.1", owner="run_1")


async def test_a_run_may_begin_with_a_conflict_and_has_decided_nothing_then(world, owner):  # noqa: ARG001  (it owns it)
    """Also where a node that did not know its workflow has written before."""
    late = await Decider.of_new(world, "run_3")
    await late.append()
    with pytest.raises(Taken):
        await late.begin(hooked())
    before = await world.find("run_3")

    await late.begin(conflict())

    after = await world.find("run_3")
    assert [(run.status, run.decided_seq) for run in (before, after)] == [("pending", 1), ("running", 0)]
