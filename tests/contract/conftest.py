"""One fixture per seam, so that a test cannot forget a store."""

import pytest

from fencepost.world import SimulatedWorld, SQLiteWorld
from tests.contract.logs import Clock

MAX_VALUE_BYTES = 12 * 2**20


@pytest.fixture
def clock():
    return Clock()


async def sqlite(tmp_path, clock):
    return await SQLiteWorld.connect(tmp_path / "world.db", clock=clock, max_value_bytes=MAX_VALUE_BYTES)


async def sqlite_memory(_tmp_path, clock):
    return await SQLiteWorld.connect(":memory:", clock=clock, max_value_bytes=MAX_VALUE_BYTES)


async def simulated(_tmp_path, clock):
    return SimulatedWorld(clock, max_value_bytes=MAX_VALUE_BYTES)


WORLDS = {"sqlite": sqlite, "sqlite-memory": sqlite_memory, "simulated": simulated}


@pytest.fixture(params=WORLDS)
async def world(request, tmp_path, clock):
    opened = await WORLDS[request.param](tmp_path, clock)
    yield opened
    await opened.close()


@pytest.fixture
def write_newer_event(world):
    """Write an event of a type this version does not know, behind the world's back."""

    async def write(run_id, seq):
        def body(core):
            core.do("insert_event", run_id=run_id, seq=seq, tick=None, at=0, type="moon_rose", op="", key="", data="{}")

        await world._write("write_newer_event", body)

    return write
