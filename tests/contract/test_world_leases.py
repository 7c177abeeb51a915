"""Leases: an incarnation that is not renewed is declared dead by whoever looks next, and stays dead."""

import asyncio
from datetime import timedelta

import pytest

from fencepost.world import ClaimLost, IncarnationDead
from fencepost.world.folding import PULSE
from tests.contract.logs import (
    BEGIN,
    Decider,
    a_member,
    claims,
    completed,
    created,
    dues,
    offer,
    outcome_of,
    outside,
    pass_time,
    retrying,
    run_completed,
    started,
    step_cancelled,
)

LEASE = timedelta(seconds=10)
JUST = timedelta(microseconds=1)


@pytest.fixture
async def watcher(world):
    """A node of another app that lives until it leaves, and declares others dead when it looks."""
    node = await world.join(a_member("watcher", app="watch", workflows=frozenset()))
    await world.share(node)
    return node


@pytest.fixture
async def leased(world, watcher):  # noqa: ARG001  (it was there first)
    """A node that lives for ten seconds unless it is renewed."""
    return await world.join(a_member("leased", lease=LEASE))


@pytest.fixture
async def decider(world, leased):
    """A run whose step 0.0 runs on the leased node."""
    decider = await Decider.of_new(world)
    await decider.begin(created(), started(leased))
    return decider


@pytest.fixture
def passed(world, clock, watcher):
    """Let time pass with a node watching; then nobody has looked yet."""
    return lambda **span: pass_time(world, clock, watcher, **span)


async def test_a_lease_runs_out_by_the_clock_of_the_world_and_not_before(world, clock, leased, watcher, passed):
    await passed(seconds=9, microseconds=999_999)
    assert (await world.share(watcher)).alive == {leased, watcher}

    clock.turn(microseconds=1)
    assert (await world.share(watcher)).alive == {watcher}


async def test_who_is_renewed_lives_for_another_lease(world, leased, watcher, passed):
    for _ in range(3):
        await passed(seconds=9)
        await world.renew(leased)
        assert leased in (await world.share(watcher)).alive

    await passed(seconds=10)
    assert leased not in (await world.share(watcher)).alive


async def test_a_node_without_a_lease_lives_until_it_leaves(world, watcher, passed):
    await passed(minutes=2)
    await world.renew(watcher)

    assert (await world.share(watcher)).alive == {watcher}
    await world.leave(watcher)
    with pytest.raises(IncarnationDead):
        await world.renew(watcher)
    with pytest.raises(IncarnationDead):
        await world.share(watcher)


async def test_who_was_declared_dead_stays_dead(world, clock, leased, watcher, passed):
    await passed(seconds=10)
    await world.share(watcher)

    for call in (lambda: world.renew(leased), lambda: world.share(leased)):
        with pytest.raises(IncarnationDead) as refused:
            await call()
        assert refused.value.incarnation == leased
    clock.turn(seconds=-10)
    assert (await world.share(watcher)).alive == {watcher}
    with pytest.raises(IncarnationDead):
        await world.renew(leased)


async def test_a_lapsed_one_that_shares_is_declared_dead_by_that(world, leased, passed):
    await passed(seconds=10)

    with pytest.raises(IncarnationDead):
        await world.share(leased)

    with pytest.raises(IncarnationDead):
        await world.renew(leased)


async def test_a_lapsed_one_lives_until_somebody_says_that_it_is_dead(world, leased, watcher, decider, passed):
    """A takeover requires dead: by the clock alone two transactions could disagree about one claim."""
    await passed(seconds=10)

    assert (await claims(world))["t1"].alive
    await world.renew(leased)
    await outside(world, completed())

    assert leased in (await world.share(watcher)).alive
    assert (await world.find("run_1")).seq == decider.known + 1


async def test_an_unknown_incarnation_is_dead(world):
    for call in (world.renew("inc_99"), world.share("inc_99")):
        with pytest.raises(IncarnationDead):
            await call


async def test_the_dead_start_claim_and_record_nothing(world, leased, watcher, decider, passed):
    await decider.append(created("0.1"), created("0.2"), offers=(offer("0.1"),))
    await passed(seconds=10)
    await world.share(watcher)

    for call in (
        outside(world, completed()),
        outside(world, started(leased, "0.2", "t2")),
        decider.append(completed()),
        decider.append(started(leased, "0.2", "t2")),
        world.claim("run_1", "0.1", "t3", leased),
    ):
        with pytest.raises(ClaimLost):
            await call
    assert list(await claims(world)) == ["t1"]


async def test_who_is_declared_dead_rings_the_runs_it_held(world, clock, leased, watcher, passed):
    for run_id, node in (("run_1", leased), ("run_2", watcher), ("run_3", leased)):
        decider = await Decider.of_new(world, run_id)
        await decider.begin(created(), started(node))
    await decider.append(run_completed())
    assert await dues(world) == {}
    await passed(seconds=10)

    await world.share(watcher)

    assert await dues(world) == {"run_1": clock()}
    assert not (await claims(world))["t1"].alive
    await passed(seconds=10)
    await world.share(watcher)
    assert await dues(world) == {"run_1": BEGIN + LEASE}


async def test_what_drains_on_one_that_is_declared_dead_is_gone(world, watcher, decider, passed):
    await decider.append(step_cancelled())
    await passed(seconds=10)

    await world.share(watcher)

    assert await claims(world) == {}


async def test_an_attempt_of_the_dead_is_taken_over_and_its_late_outcome_refused(world, watcher, decider, passed):
    await passed(seconds=10)
    await world.share(watcher)

    await decider.append(retrying(token="", lost=1), started(watcher, token="t2", dispatch=2))

    with pytest.raises(ClaimLost):
        await outside(world, completed())
    await outside(world, completed(token="t2"))


async def test_of_a_renewal_and_a_declaration_one_comes_first(world, watcher, passed):
    for n in range(10):
        node = await world.join(a_member(f"n{n}", lease=LEASE))
        await passed(seconds=10)

        renewed, share = await asyncio.gather(outcome_of(world.renew(node)), world.share(watcher))

        assert isinstance(renewed, IncarnationDead) == (node not in share.alive)


async def test_a_lease_is_its_own_nodes_only(world, watcher, passed):
    await world.join(a_member("n1", lease=LEASE))
    long = await world.join(a_member("n2", lease=3 * LEASE))
    await passed(seconds=10)

    assert (await world.share(watcher)).alive == {long, watcher}
    await passed(seconds=20)
    assert (await world.share(watcher)).alive == {watcher}


@pytest.mark.parametrize("lease", [timedelta(0), -JUST])
async def test_a_lease_of_nothing_is_a_bug(world, lease):
    with pytest.raises(ValueError, match="has run out before it begins"):
        await world.join(a_member(lease=lease))


# ---- when the world itself was away


async def test_nobody_is_declared_dead_for_a_time_in_which_nobody_could_renew(world, clock, leased, watcher, passed):
    clock.turn(hours=1)

    assert (await world.share(watcher)).alive == {leased, watcher}
    await passed(seconds=9, microseconds=999_999)
    assert (await world.share(watcher)).alive == {leased, watcher}
    clock.turn(microseconds=1)
    assert (await world.share(watcher)).alive == {watcher}


async def test_who_asks_first_after_an_outage_lives_whoever_it_is(world, clock, leased):
    clock.turn(hours=1)

    assert leased in (await world.share(leased)).alive
    await world.renew(leased)


@pytest.mark.parametrize(("beyond", "is_dead"), [(timedelta(0), True), (JUST, False)])
async def test_a_pulse_without_a_share_is_no_outage(world, clock, watcher, beyond, is_dead):
    brief = await world.join(a_member("brief", lease=PULSE))
    await world.share(watcher)
    clock.at += PULSE + beyond

    assert (brief not in (await world.share(watcher)).alive) is is_dead


async def test_who_was_dead_before_an_outage_is_dead_after_it(world, clock, leased, watcher, passed):
    await passed(seconds=10)
    await world.share(watcher)
    clock.turn(hours=1)

    assert (await world.share(watcher)).alive == {watcher}
    with pytest.raises(IncarnationDead):
        await world.renew(leased)


async def test_an_outage_ends_when_somebody_asks(world, clock, leased, watcher):
    for _ in range(2):
        clock.turn(hours=1)
        await world.share(watcher)

    await pass_time(world, clock, watcher, seconds=5)
    assert leased in (await world.share(watcher)).alive
    await pass_time(world, clock, watcher, seconds=5)
    assert leased not in (await world.share(watcher)).alive


async def test_a_share_tells_the_clock_of_the_world(world, clock, watcher):
    clock.turn(minutes=7)

    assert (await world.share(watcher)).now == BEGIN + timedelta(minutes=7)
