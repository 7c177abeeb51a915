"""Stacks for end-to-end tests: in one process, and over a file and a real nats-server."""

import asyncio
import logging

import pytest
import structlog

from fencepost.actors import retry
from fencepost.bus import NatsServer
from tests.e2e.orders_program import Provider
from tests.e2e.world_and_bus import Clock, Gate, Stack


@pytest.fixture(scope="session")
def nats(tmp_path_factory):
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    asyncio.run(server.start())
    yield server
    asyncio.run(server.kill())


@pytest.fixture(autouse=True)
def _nodes_here_are_quiet_and_quick(request, monkeypatch):
    """Nodes of a stack log errors only, and repeat what was lost at once."""
    if not {"stack", "local", "skipping"} & set(request.fixturenames):
        yield
        return
    monkeypatch.setattr(retry, "_LOSS_FIRST_S", 0.005)
    monkeypatch.setattr(retry, "_LOSS_MAX_S", 0.01)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.reset_defaults()


@pytest.fixture(params=["memory", "file and jetstream"])
def place(request, tmp_path):
    """Where the world is, and the server of the bus."""
    if request.param == "memory":
        return ":memory:", None
    return tmp_path / "world.db", request.getfixturevalue("nats")


@pytest.fixture
async def stack(place):
    stack = Stack(*place)
    await stack.open()
    yield stack
    await stack.close()


@pytest.fixture
async def local():
    """In one process only: what the bus makes no difference to."""
    stack = Stack(":memory:")
    await stack.open()
    yield stack
    await stack.close()


@pytest.fixture
async def skipping():
    """In one process, with a clock of the test's."""
    stack = Stack(":memory:", clock=Clock())
    await stack.open()
    yield stack
    await stack.close()


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def stopped(tmp_path):
    """The provider of the orders example, not started."""
    provider = Provider(tmp_path)
    yield provider
    provider.kill()


@pytest.fixture
def provider(stopped):
    """The provider of the orders example, up."""
    return stopped.start("--port", "0", "--slow", "0")
