"""`Node(app)` in a user's process on Postgres: a thread renews its lease, and once declared dead it joins again."""

import asyncio
import time
from datetime import timedelta

import pytest
import structlog

from fencepost import App, Node, Settings, step, workflow
from fencepost.world import Member, PostgresWorld, migrate


@step
async def double(n: int) -> int:
    return 2 * n


@workflow
async def twice(n: int) -> int:
    return await double(n)


@pytest.fixture(autouse=True)
def _quiet():
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


@pytest.fixture
async def settings(postgres, tmp_path):
    namespace = f"e{abs(hash(tmp_path)) % 10**9}"
    await migrate(postgres.url, namespace)
    return Settings.load(database_url=postgres.url, namespace=namespace, bus="inprocess", lease=2)


@pytest.fixture
async def world(settings):
    world = await PostgresWorld.connect(settings.postgres_url, namespace=settings.namespace)
    yield world
    await world.close()


async def test_its_lease_is_renewed_while_its_loop_is_blocked(settings, world):
    looks = await world.join(Member("looks", "looks", "", frozenset(), lease=timedelta(minutes=1), takes=False))

    async with Node(App("shop", [twice, double]), settings=settings) as node:
        incarnation = node.facts()["incarnation"]
        time.sleep(3)  # noqa: ASYNC251  # real time: longer than the lease, with a loop that does nothing
        alive = (await world.share(looks)).alive

    assert incarnation in alive
    assert incarnation not in (await world.share(looks)).alive


async def test_it_joins_again_and_goes_on_when_it_was_declared_dead(settings, world):
    async with Node(App("shop", [twice, double]), settings=settings) as node:
        dead = node.facts()["incarnation"]

        await world.leave(dead)
        while (again := node.facts().get("incarnation", "")) in {dead, ""}:  # noqa: ASYNC110  (nobody is told)
            await asyncio.sleep(0)
        run = await node.client().start(twice, 21)

        assert await run.result(timeout=20) == 42
        assert again != dead
