"""Partitions: every one has an owner, nobody has more than a fair share for long, and newer code goes first."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from fencepost.world import IncarnationDead
from tests.contract.logs import Decider, a_member, created, pass_time, started

ALL = frozenset(range(32))
LEASE = timedelta(seconds=10)
AS_OLD = timedelta(seconds=60)


async def nodes_of(world, count, **changes):
    return [await world.join(a_member(f"n{n}", **changes)) for n in range(count)]


async def settled(world, nodes):
    """Let nodes share in turn, each giving what it should, until nothing moves; return what each has."""
    before, owned = None, {}
    while owned != before:
        before, owned = owned, {}
        for node in nodes:
            share = await world.share(node)
            owned[node] = (await world.share(node, share.surplus)).owned if share.surplus else share.owned
    return owned


def sizes(owned):
    return sorted(map(len, owned.values()))


def is_shared_out(owned):
    """Tell whether every partition has one owner."""
    counts = Counter(partition for partitions in owned.values() for partition in partitions)
    return counts == Counter(ALL)


# ---- fair shares


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, [32]), (2, [16, 16]), (3, [10, 11, 11]), (40, [0] * 8 + [1] * 32)],
)
async def test_shares_are_fair(world, count, expected):
    owned = await settled(world, await nodes_of(world, count))

    assert sizes(owned) == expected
    assert is_shared_out(owned)


async def test_the_first_takes_all_and_gives_the_rest_to_who_joins(world):
    first = await world.join(a_member("n1"))
    alone = await world.share(first)
    second = await world.join(a_member("n2"))

    assert (alone.owned, alone.surplus) == (ALL, frozenset())
    assert (await world.share(second)).owned == frozenset()
    share = await world.share(first)
    assert (share.owned, share.surplus) == (ALL, frozenset(range(16, 32)))
    given = await world.share(first, share.surplus)
    assert (given.owned, given.surplus) == (frozenset(range(16)), frozenset())
    assert (await world.share(second)).owned == frozenset(range(16, 32))


async def test_who_joins_moves_no_more_than_a_fair_share(world):
    nodes = await nodes_of(world, 4)
    before = await settled(world, nodes)
    joined = await world.join(a_member("late"))

    surplus = [(await world.share(node)).surplus for node in nodes]

    assert [len(moved) for moved in surplus] == [1, 1, 1, 1]
    assert all(max(before[node]) in moved for node, moved in zip(nodes, surplus, strict=True))
    assert sizes(await settled(world, [*nodes, joined])) == [4, 7, 7, 7, 7]


async def test_what_a_node_has_stays_its_own_while_others_come_and_go(world):
    nodes = await nodes_of(world, 2)
    before = await settled(world, nodes)
    extra = await world.join(a_member("late"))
    await settled(world, [*nodes, extra])
    await world.leave(extra)

    after = await settled(world, nodes)

    assert is_shared_out(after)
    assert all(len(after[node] & before[node]) >= 11 for node in nodes)


async def test_a_partition_has_one_owner_when_all_ask_at_once(world):
    nodes = await nodes_of(world, 8)

    shares = await asyncio.gather(*(world.share(node) for node in nodes))

    assert is_shared_out({node: share.owned for node, share in zip(nodes, shares, strict=True)})
    assert {len(share.owned) for share in shares} == {4}


async def test_a_node_for_steps_only_takes_nothing_and_is_not_counted(world):
    takers = await nodes_of(world, 2)
    worker = await world.join(a_member("worker", takes=False))

    owned = await settled(world, [worker, *takers])

    assert owned[worker] == frozenset()
    assert sizes({node: owned[node] for node in takers}) == [16, 16]


async def test_two_apps_have_partitions_of_their_own(world):
    (shop,), (bank,) = await nodes_of(world, 1), await nodes_of(world, 1, app="bank")

    owned = await settled(world, [shop, bank])

    assert owned == {shop: ALL, bank: ALL}
    assert (await world.share(shop)).alive == {shop, bank}
    for node in (shop, bank):
        await world.share(node, ALL, take=False)
    assert await settled(world, [shop, bank]) == owned


# ---- given back, and inherited


async def test_what_is_given_back_is_free(world):
    first, second = await nodes_of(world, 2)
    await settled(world, [first, second])
    mine = (await world.share(first)).owned

    share = await world.share(first, mine, take=False)

    assert share.owned == frozenset()
    await world.leave(first)
    assert (await world.share(second)).owned == ALL


async def test_who_does_not_take_keeps_what_it_has(world):
    (node,) = await nodes_of(world, 1)
    assert (await world.share(node, take=False)).owned == frozenset()
    await world.share(node)

    share = await world.share(node, [7, 9], take=False)

    assert share.owned == ALL - {7, 9}
    assert (await world.share(node, take=False)).owned == ALL - {7, 9}
    assert (await world.share(node)).owned == ALL


async def test_nobody_gives_what_is_not_its_own(world):
    first, second = await nodes_of(world, 2)
    before = await settled(world, [first, second])

    await world.share(first, before[second], take=False)
    await world.share(first, [32, -1, 10**6], take=False)

    assert await settled(world, [first, second]) == before


async def test_partitions_of_one_that_left_are_free_at_once(world):
    first, second = await nodes_of(world, 2)
    await settled(world, [first, second])

    await world.leave(first)

    assert (await world.share(second)).owned == ALL


async def test_partitions_of_one_whose_lease_ran_out_are_taken_by_who_finds_it(world, clock):
    leased = await world.join(a_member("n1", lease=LEASE))
    (other,) = await nodes_of(world, 1)
    await settled(world, [leased, other])
    await pass_time(world, clock, other, seconds=9, microseconds=999_999)
    assert len((await world.share(other)).owned) == 16

    clock.turn(microseconds=1)

    assert (await world.share(other)).owned == ALL
    with pytest.raises(IncarnationDead):
        await world.share(leased)


async def test_who_is_late_to_know_that_it_is_dead_can_free_nothing_of_its_heir(world):
    first, second = await nodes_of(world, 2)
    await settled(world, [first, second])
    await world.leave(first)
    await world.share(second)

    with pytest.raises(IncarnationDead):
        await world.share(first, ALL)

    assert (await world.share(second)).owned == ALL


async def test_claims_stay_where_they_are_when_partitions_move(world):
    first, second = await nodes_of(world, 2)
    await settled(world, [first, second])
    decider = await Decider.of_new(world)
    await decider.begin(created(), started(first))

    await world.share(first, ALL, take=False)
    await world.share(second)

    (claim,) = (await world.open("run_1")).claims
    assert (claim.incarnation, claim.alive, claim.draining) == (first, True, False)


# ---- the order of code


@pytest.fixture
async def old(world):
    return await world.join(a_member("old", code="c1"))


@pytest.fixture
async def new(world, old):  # noqa: ARG001  (it was there first)
    return await world.join(a_member("new", code="c2"))


async def test_a_newer_node_shares_with_an_older_as_with_any(world, old, new):
    await world.share(old)

    owned = await settled(world, [old, new])

    assert sizes(owned) == [16, 16]
    assert is_shared_out(owned)


async def test_an_older_node_leaves_what_newer_code_had_to_newer_code(world, clock, old, new):
    owned = await settled(world, [old, new])
    second = await world.join(a_member("new too", code="c2"))
    await world.leave(new)
    clock.turn(hours=1)

    assert (await world.share(old)).owned == owned[old]

    after = await settled(world, [old, second])
    assert after[second] >= owned[new]
    assert is_shared_out(after)


async def test_an_older_node_takes_what_newer_code_had_a_minute_after_it_is_gone(world, clock, old, new):
    owned = await settled(world, [old, new])
    await world.leave(new)

    assert (await world.share(old)).owned == owned[old]
    clock.turn(seconds=59, microseconds=999_999)
    assert (await world.share(old)).owned == owned[old]
    clock.turn(microseconds=1)
    assert (await world.share(old)).owned == ALL


async def test_older_nodes_share_what_newer_code_had(world, clock, old, new):
    await world.share(new)
    second = await world.join(a_member("old too", code="c1"))
    await world.leave(new)
    clock.turn(seconds=60)

    owned = await settled(world, [old, second])

    assert is_shared_out(owned)
    assert max(sizes(owned)) - min(sizes(owned)) <= 1


async def test_older_nodes_give_each_other_nothing_that_would_then_wait_a_minute(world, clock, old, new):
    for _ in range(2):
        await world.share(old)
        await world.share(old, ALL, take=False, to_newer=True)
        await world.share(new)
    await world.leave(new)
    clock.turn(seconds=60)
    assert (await world.share(old)).owned == ALL

    await world.join(a_member("old too", code="c1"))

    assert (await world.share(old)).surplus == frozenset()


async def test_an_older_node_gives_what_newer_code_had_to_newer_code(world, clock, old, new):
    owned = await settled(world, [old, new])
    await world.leave(new)
    clock.turn(seconds=60)
    assert (await world.share(old)).owned == ALL

    again = await world.join(a_member("new again", code="c2"))

    assert (await world.share(old)).surplus >= owned[new]
    assert is_shared_out(await settled(world, [old, again]))


async def test_the_minute_begins_when_it_is_given_back(world, clock, old, new):
    owned = await settled(world, [old, new])
    clock.turn(hours=1)
    await world.share(new, ALL, take=False)
    clock.turn(seconds=30)
    await world.leave(new)
    clock.turn(seconds=29)

    assert (await world.share(old)).owned == owned[old]
    clock.turn(seconds=1)
    assert (await world.share(old)).owned == ALL


async def test_code_that_is_rolled_back_is_the_newest_again(world, old, new):
    await world.leave(old)
    await world.share(new)

    rolled_back = await world.join(a_member("old again", code="c1"))
    assert (await world.share(new)).newer
    await world.leave(new)

    share = await world.share(rolled_back)
    assert (share.owned, share.newer) == (ALL, False)


async def test_code_that_still_lives_is_as_old_as_it_was(world, clock, old, new):
    owned = await settled(world, [old, new])
    again = await world.join(a_member("old too", code="c1"))
    await world.leave(new)
    clock.turn(seconds=59)

    assert not (await world.share(again)).owned & owned[new]
    assert not (await world.share(old)).newer


async def test_a_node_is_told_whether_newer_code_of_its_app_lives(world, old):
    await world.join(a_member("steps", code="c3", takes=False))
    await world.join(a_member("other", code="c4", app="bank"))
    assert not (await world.share(old)).newer

    new = await world.join(a_member("new", code="c2"))

    assert (await world.share(old)).newer
    assert not (await world.share(new)).newer
    await world.leave(new)
    assert not (await world.share(old)).newer


async def test_what_is_given_to_newer_code_is_not_taken_back(world, clock, old, new):
    owned = await settled(world, [old, new])
    unknown = min(owned[old])

    share = await world.share(old, [unknown], to_newer=True)

    assert share.owned == owned[old] - {unknown}
    clock.turn(hours=1)
    assert (await world.share(old)).owned == owned[old] - {unknown}
    assert (await world.share(new)).owned == owned[new] | {unknown}


async def test_given_to_newer_code_when_none_lives_it_is_free_for_all(world, old):
    await world.share(old)

    await world.share(old, [3], take=False, to_newer=True)

    assert (await world.share(old)).owned == ALL


async def test_only_what_was_its_own_asks_for_newer_code(world, old, new):
    before = await settled(world, [old, new])
    peer = await world.join(a_member("old too", code="c1"))

    await world.share(peer, before[old], to_newer=True)
    await world.share(old, before[old], take=False)

    assert (await world.share(peer)).owned <= before[old]
    assert (await world.share(peer)).owned


@pytest.mark.parametrize("follows", [True, False])
async def test_a_node_that_is_started_anew_with_its_code_is_as_old_as_before(world, clock, old, new, follows):
    before = await settled(world, [old, new])
    await world.leave(old)
    clock.turn(hours=1)

    again = await world.join(a_member("old", code="c1", follows=old if follows else ""))

    assert (await world.share(new)).newer is not follows
    assert (await world.share(again)).newer is follows
    assert before[new] <= (await world.share(new)).owned


async def test_a_node_that_follows_with_other_code_is_newer(world, old, new):
    await world.leave(old)

    again = await world.join(a_member("old", code="c3", follows=old))

    assert (await world.share(new)).newer
    assert not (await world.share(again)).newer


# ---- who does not hear the bus


async def test_a_node_is_told_whether_another_of_its_app_hears_the_bus(world):
    first, second = await nodes_of(world, 2)
    await world.join(a_member("steps", takes=False))
    await world.join(a_member("other", app="bank"))

    assert (await world.share(first)).heard
    await world.share(second, hears=False)
    assert not (await world.share(first)).heard
    assert (await world.share(second, hears=False)).heard
    await world.share(second)
    assert (await world.share(first)).heard


async def test_who_does_not_hear_counts_in_nobodys_share_while_another_does(world):
    deaf, first, second = await nodes_of(world, 3)
    before = await settled(world, [deaf, first, second])

    share = await world.share(deaf, before[deaf], take=False, hears=False)

    assert share.owned == frozenset()
    assert sizes(await settled(world, [first, second])) == [16, 16]
    assert sizes(await settled(world, [deaf, first, second])) == [10, 11, 11]


async def test_where_nobody_hears_all_are_counted(world):
    nodes = await nodes_of(world, 2)
    for node in nodes:
        await world.share(node, take=False, hears=False)

    shares = [await world.share(node, hears=False) for node in nodes]

    assert [len(share.owned) for share in shares] == [16, 16]
    assert not any(share.surplus or share.heard for share in shares)


# ---- who leaves


async def test_who_retires_gives_all_back_and_counts_in_nobodys_share(world):
    leaving, staying = nodes = await nodes_of(world, 2)
    owned = await settled(world, nodes)

    await world.retire(leaving)
    share = await world.share(staying)

    assert len(owned[leaving]) == 16
    assert share.owned == ALL
    assert (await world.share(leaving)).owned == frozenset()  # never again
    assert (await world.share(staying)).surplus == frozenset()
