"""The simulated world: each check can be switched off, and then what it forbids happens. Faults are what they say."""

from dataclasses import fields, replace
from datetime import timedelta

import pytest

from fencepost.world import (
    Checks,
    ClaimLost,
    Fence,
    HookNotFound,
    IncarnationDead,
    RunEnded,
    SimulatedWorld,
    StaleLog,
    Superseded,
    Taken,
    Unavailable,
    World,
)
from tests.contract.logs import (
    BEGIN,
    Decider,
    a_member,
    a_run,
    cancel,
    claims,
    completed,
    created,
    disposed,
    dues,
    hooked,
    offer,
    outside,
    pass_time,
    received,
    run_completed,
    started,
    types,
    wait,
    whole_log,
)


@pytest.fixture
def without(clock):
    """Return a world with one check off."""

    def make(name):
        return SimulatedWorld(clock, checks=replace(Checks(), **{name: False}))

    return make


async def stale_tick(world):
    slow, fast = await Decider.of_new(world), await Decider.of(world)
    await fast.begin()
    await slow.append(wait())


async def other_history(world):
    decider = await Decider.of_new(world)
    await decider.begin()
    await decider.append(wait(), fence=Fence(decider.fence.tick, "a lost one"))


async def ran_ahead(world):
    node = await world.join(a_member())
    decider = await Decider.of_new(world)
    await decider.begin(created(), started(node))
    await outside(world, completed())
    await decider.append(wait(), whole_log=True)


async def unseen_cancel(world):
    decider = await Decider.of_new(world)
    await decider.begin()
    await outside(world, cancel())
    await decider.append(wait())


async def no_claim(world):
    decider = await Decider.of_new(world)
    await decider.begin(created())
    await outside(world, completed())


async def after_the_end(world):
    decider = await Decider.of_new(world)
    await decider.append(run_completed())
    await decider.append(wait())


async def ahead_of_the_clock(world):
    decider = await Decider.of_new(world)
    await decider.append(wait(), whole_log=True, at=BEGIN + timedelta(hours=1))


async def not_on_offer(world):
    decider = await Decider.of_new(world)
    await decider.begin(created())
    await world.claim("run_1", "0.0", "t1", await world.join(a_member()))


async def declared_dead(world):
    node = await world.join(a_member())
    await world.leave(node)
    await world.share(node)


async def one_token_twice(world):
    for run_id in ("run_1", "run_2"):
        decider = await Decider.of_new(world, run_id)
        await decider.begin(hooked())


async def no_open_hook(world):
    decider = await Decider.of_new(world)
    await decider.begin(hooked(), disposed())
    await outside(world, received())


FORBIDDEN = {
    "fence": (stale_tick, Superseded),
    "last_batch": (other_history, Superseded),
    "whole_log": (ran_ahead, StaleLog),
    "revoked": (unseen_cancel, StaleLog),
    "claim": (no_claim, ClaimLost),
    "ended": (after_the_end, RunEnded),
    "at": (ahead_of_the_clock, StaleLog),
    "offer": (not_on_offer, ClaimLost),
    "dead": (declared_dead, IncarnationDead),
    "taken": (one_token_twice, Taken),
    "hook_open": (no_open_hook, HookNotFound),
}


@pytest.mark.parametrize("name", FORBIDDEN)
async def test_what_a_check_refuses_is_accepted_without_it(clock, without, name):
    story, refusal = FORBIDDEN[name]

    with pytest.raises(refusal):
        await story(SimulatedWorld(clock))
    await story(without(name))


@pytest.mark.parametrize("name", FORBIDDEN)
async def test_a_switch_switches_nothing_else(without, name):
    others = {key: story for key, story in FORBIDDEN.items() if key != name and (name, key) != ("fence", "last_batch")}

    for story, refusal in others.values():
        with pytest.raises(refusal):
            await story(without(name))


async def test_without_idempotence_a_key_is_recorded_twice(clock, without):
    logs = []
    for world in (SimulatedWorld(clock), without("idempotence")):
        await world.create(a_run())
        await outside(world, cancel(key="k"))
        await outside(world, cancel(key="k"))
        logs.append(types(await whole_log(world)))

    assert [log.count("cancel_requested") for log in logs] == [1, 2]


async def test_without_due_kept_an_unseen_event_is_slept_over(clock, without):
    later = BEGIN + timedelta(days=3)
    found = []
    for world in (SimulatedWorld(clock), without("due_kept")):
        node = await world.join(a_member())
        decider = await Decider.of_new(world)
        await decider.begin(created(), started(node))
        await outside(world, completed())
        await decider.append(wait(), due=later)
        found.append((await dues(world))["run_1"])

    assert found == [BEGIN, later]


async def test_without_lapse_nobody_is_declared_dead(clock, without):
    found = []
    for world in (SimulatedWorld(clock), without("lapse")):
        leased = await world.join(a_member(lease=timedelta(seconds=10)))
        other = await world.join(a_member("n2"))
        await pass_time(world, clock, other, seconds=10)
        found.append(leased in (await world.share(other)).alive)

    assert found == [False, True]


async def test_without_offer_one_step_is_claimed_twice(without):
    world = without("offer")
    node = await world.join(a_member())
    decider = await Decider.of_new(world)
    await decider.begin(created())
    await decider.append(offers=(offer(),))

    claimed = [await world.claim("run_1", "0.0", token, node) for token in ("t1", "t2")]

    assert [(answer.attempt, answer.dispatch) for answer in claimed] == [(1, 1), (1, 2)]
    assert set(await claims(world)) == {"t1", "t2"}


async def test_without_dead_it_renews_and_owns_on(without):
    world = without("dead")
    node = await world.join(a_member(lease=timedelta(seconds=10)))
    await world.leave(node)

    await world.renew(node)

    assert len((await world.share(node)).owned) == 32


async def test_without_taken_the_last_one_has_the_token(without):
    world = without("taken")
    await one_token_twice(world)

    assert (await world.hook("tok")).run_id == "run_2"
    with pytest.raises(HookNotFound):
        await outside(world, received())


async def test_without_hook_open_what_is_put_to_nobody_is_recorded(without):
    world = without("hook_open")
    await no_open_hook(world)
    await outside(world, received(token="nobody"))

    assert types(await whole_log(world))[-2:] == ["hook_received", "hook_received"]
    with pytest.raises(HookNotFound):
        await world.hook("nobody")


async def test_without_hook_end_a_run_keeps_its_token_for_ever(clock, without):
    found = []
    for world in (SimulatedWorld(clock), without("hook_end")):
        decider = await Decider.of_new(world)
        await decider.begin(hooked())
        await decider.append(run_completed())
        found.append((await world.hook("tok")).is_open)

    assert found == [False, True]


def test_every_switch_has_a_test():
    apart = {"idempotence", "due_kept", "lapse", "hook_end"}
    assert {field.name for field in fields(Checks)} == {*FORBIDDEN, *apart}


# ---- faults


async def test_a_request_that_is_lost_changes_nothing(clock):
    async def lose(method):
        if method == "append":
            raise Unavailable("lost")

    world = SimulatedWorld(clock)
    decider = await Decider.of_new(world)
    world.before = lose

    with pytest.raises(Unavailable):
        await decider.begin()

    assert types(await whole_log(world)) == ["run_created"]


async def test_an_answer_that_is_lost_leaves_the_commit(clock):
    async def lose(method):
        if method == "append":
            raise Unavailable("lost")

    world = SimulatedWorld(clock)
    decider = await Decider.of_new(world)
    world.after = lose

    with pytest.raises(Unavailable):
        await decider.begin()

    world.after = world.before
    assert types(await whole_log(world)) == ["run_created", "run_started"]
    with pytest.raises(Superseded):
        await decider.append(wait())


async def test_a_commit_that_is_delayed_lets_others_in_between(clock):
    world = SimulatedWorld(clock)
    slow, fast = await Decider.of_new(world), await Decider.of(world)

    async def overtake(_method):
        world.before = world.after
        await fast.begin()

    world.before = overtake
    with pytest.raises(Superseded):
        await slow.append(wait())


async def test_hooks_are_told_every_method(clock):
    told = []

    async def tell(method):
        told.append(method)

    world = SimulatedWorld(clock, before=tell, after=tell)
    await world.create(a_run())
    await world.open("run_1")
    await world.now()

    assert told == ["create", "create", "open", "open", "now", "now"]


async def test_the_same_calls_give_the_same_answers(clock):
    async def story(world):
        node = await world.join(a_member())
        decider = await Decider.of_new(world)
        await decider.begin(created(), started(node))
        return node, await whole_log(world), await world.facts()

    assert await story(SimulatedWorld(clock)) == await story(SimulatedWorld(clock))


def test_it_is_a_world(clock):
    world: World = SimulatedWorld(clock)

    missing = [name for name in vars(World) if not name.startswith("_") and not hasattr(world, name)]
    assert missing == []
