"""Partitions that come and go between nodes: taking and stopping costs little and loses no bell, on each bus."""

from __future__ import annotations

import asyncio
import time
import uuid

import pytest

from fencepost.bus import NatsServer
from tests.contract.handlers import PATIENCE_S, Buses, Handler, bell


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture(params=["inprocess", "jetstream"])
async def buses(request, server):
    buses = Buses(request.param, server.url, f"t{uuid.uuid4().hex[:12]}")
    yield buses
    await buses.close()


@pytest.fixture
async def bus(buses):
    return await buses()


async def test_partitions_come_and_go_one_by_one_at_no_cost(bus):
    handler = Handler()
    began = time.monotonic()

    for _ in range(3):
        taken = [await bus.take("default", [partition], handler) for partition in range(32)]
        await bus.ring(bell("a", 31))
        await handler.called()
        for subscription in taken:
            await subscription.stop()
    together = await bus.take("default", range(32), handler)
    await together.stop()

    assert time.monotonic() - began < 2


async def test_a_bell_of_a_taker_that_stops_goes_to_the_next_owner_at_once(bus, buses):
    gone, next_owner = Handler(), Handler()
    other = await buses()
    began = time.monotonic()

    for number in range(20):
        first = await bus.take("default", [0], gone)
        await asyncio.gather(first.stop(), *(bus.ring(bell(f"{number}-{key}")) for key in range(5)))
        second = await other.take("default", [0], next_owner)
        async with asyncio.timeout(PATIENCE_S):
            while len({got.id for got in gone.seen + next_owner.seen}) < 5 * (number + 1):
                await next_owner.begun.acquire()
        await second.stop()

    assert time.monotonic() - began < PATIENCE_S


async def test_two_takers_of_a_partition_get_each_bell_once(bus, buses):
    one, two = Handler(), Handler()
    await bus.take("default", [0], one)
    await (await buses()).take("default", [0], two)

    for number in range(100):
        await bus.ring(bell(f"{number}"))
    async with asyncio.timeout(PATIENCE_S):
        while len(one.seen) + len(two.seen) < 100:  # noqa: ASYNC110 - two handlers, and either may be the one
            # real time: polls what nothing rings for
            await asyncio.sleep(0.01)

    assert {got.id for got in one.seen + two.seen} == {f"{number}" for number in range(100)}
    assert len(one.seen) + len(two.seen) == 100


async def test_taking_that_is_cancelled_leaves_nobody_who_takes(bus):
    left, next_owner = Handler(), Handler()
    for number in range(20):
        taking = asyncio.create_task(bus.take("default", range(32), left))
        # real time: to be cancelled at any stage
        await asyncio.sleep(number / 250)
        if taking.cancel():
            await asyncio.wait({taking})
        else:
            await taking.result().stop()
    await bus.take("default", range(8), next_owner)

    for number in range(40):
        await bus.ring(bell(f"{number}", number % 8))
    await next_owner.called(40)

    assert not left.seen
