"""Which partitions a node decides for: taken, given back, passed on to newer code."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from fencepost.actors.host import AsyncioHost
from fencepost.actors.ownership import Changes, Ownership
from fencepost.bus import Bell, InProcessBus, Unreachable
from fencepost.world import IncarnationDead, Member, SimulatedWorld
from tests.contract.logs import Clock

LEASE = timedelta(seconds=10)


class MoodyBus(InProcessBus):
    """A bus that can go deaf, and refuse to deliver bells."""

    def __init__(self):
        super().__init__()
        self.unheard = 0.0
        self.refuses = self.hangs = False
        self.taken = []
        self.refused = []
        self.asked = asyncio.Event()
        """Set once it was asked for each of the eight."""

    @property
    def unheard_s(self):
        return self.unheard

    async def take(self, app, partitions, on_bell):
        answers = self.refused if self.refuses else self.taken
        answers += partitions
        if len(answers) == 8:
            self.asked.set()
        if self.hangs:
            await asyncio.Event().wait()
        if self.refuses:
            raise Unreachable("no server there")
        return await super().take(app, partitions, on_bell)


@dataclass
class Seen:
    """What a node was told."""

    bells: list = field(default_factory=list)
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    gained: int = 0
    lost: list = field(default_factory=list)
    died: list = field(default_factory=list)
    stopped: list = field(default_factory=list)
    over: str = ""

    def changes(self):
        async def on_bell(bell):
            self.bells.append(bell.id)
            self.heard.set()

        def lost(partitions):
            self.lost.append(set(partitions))

        def gained():
            self.gained += 1

        def over(why):
            self.over = why

        return Changes(on_bell, gained, lost, self.died.append, self.stopped.extend, over, lambda: None)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def world(clock):
    made = SimulatedWorld(clock, partitions=8)
    yield made
    await made.close()


async def node(world, *, bus=None, app="default", code="c1", lease=LEASE):
    """Return the ownership of a node that has joined, and what it is told."""
    seen = Seen()
    owner = Ownership(world, bus or MoodyBus(), AsyncioHost(), app, seen.changes())
    owner.incarnation = await world.join(Member("n", app, code, frozenset({"w"}), lease=lease))
    return owner, seen


async def test_a_node_alone_decides_for_everything_and_looks_at_what_is_due(world):
    owner, seen = await node(world)

    await owner.look()

    assert set(owner.owned) == set(range(8))
    assert owner.alone
    assert seen.gained == 1
    assert seen.lost == []


async def test_bells_of_what_is_owned_are_heard(world):
    bus = MoodyBus()
    owner, seen = await node(world, bus=bus)
    await owner.look()

    await bus.ring(Bell("run", "a", 3))
    await asyncio.wait_for(seen.heard.wait(), 5)

    assert seen.bells == ["a"]


async def test_a_second_node_gets_half_and_the_first_stops_before_it_gives(world):
    first, seen = await node(world)
    await first.look()
    second, _ = await node(world)
    await second.look()
    assert set(second.owned) == set()

    await first.look()
    await second.look()

    assert seen.lost == [{4, 5, 6, 7}]
    assert set(first.owned) == {0, 1, 2, 3}
    assert set(second.owned) == {4, 5, 6, 7}
    assert not first.alone


async def test_what_a_dead_node_had_is_taken_once_its_lease_has_run_out(world, clock):
    first, _ = await node(world)
    await first.look()
    second, seen = await node(world, lease=timedelta(seconds=100))
    await second.look()

    for _ in range(11):
        clock.turn(seconds=1)
        await second.look()

    assert set(second.owned) == set(range(8))
    assert seen.died == [first.incarnation]
    with pytest.raises(IncarnationDead):
        await first.look()


async def test_a_node_that_is_dead_says_so_and_asks_no_more(world):
    owner, seen = await node(world)
    await owner.look()
    await world.leave(owner.incarnation)

    await owner.run()  # returns

    assert "declared dead" in seen.over


async def test_a_node_that_does_not_hear_the_bus_gives_back_when_another_lives(world):
    bus = MoodyBus()
    first, seen = await node(world, bus=bus)
    await first.look()
    second, _ = await node(world)
    await first.look()

    bus.unheard = 3.0
    await first.look()
    await second.look()

    assert seen.lost[-1] == {0, 1, 2, 3}
    assert set(first.owned) == set()
    assert set(second.owned) == set(range(8))


async def test_a_node_alone_keeps_deciding_when_the_bus_is_away(world):
    bus = MoodyBus()
    owner, seen = await node(world, bus=bus)
    await owner.look()

    bus.unheard = 60.0
    await owner.look()

    assert set(owner.owned) == set(range(8))
    assert seen.lost == []


async def test_a_bus_that_refuses_at_first_is_asked_again(world):
    bus = MoodyBus()
    bus.refuses = True
    owner, _ = await node(world, bus=bus)
    await owner.look()
    await asyncio.wait_for(bus.asked.wait(), 5)
    assert set(owner.owned) == set(range(8))  # the timers do meanwhile

    bus.refuses = False
    bus.asked.clear()
    await owner.look()
    await asyncio.wait_for(bus.asked.wait(), 5)

    assert sorted(bus.taken) == list(range(8))


async def test_a_workflow_only_newer_code_knows_is_passed_on_to_it(world):
    older, seen = await node(world, code="old")
    await older.look()
    newer, _ = await node(world, code="new")
    await older.look()
    await newer.look()
    assert set(older.owned) == {0, 1, 2, 3}

    assert older.lacks_workflow(2)
    await older.look()
    await newer.look()
    await older.look()

    assert seen.lost[-1] == {2}
    assert set(newer.owned) == {2, 4, 5, 6, 7}
    assert set(older.owned) == {0, 1, 3}


async def test_a_workflow_nobody_newer_could_know_is_left_where_it_is(world):
    owner, _ = await node(world)
    await owner.look()

    assert not owner.lacks_workflow(2)
    await owner.look()

    assert set(owner.owned) == set(range(8))


async def test_nothing_is_taken_back_between_giving_and_leaving(world):
    owner, _ = await node(world)
    await owner.look()

    await owner.retire()

    assert set(owner.owned) == set()


async def test_a_bus_that_does_not_answer_keeps_no_share_waiting(world):
    bus = MoodyBus()
    bus.hangs = True
    owner, _ = await node(world, bus=bus)

    async with asyncio.timeout(5):
        await owner.look()
        await bus.asked.wait()
        await owner.look()

    assert set(owner.owned) == set(range(8))
