"""Connections that break and servers that are killed: what was answered is there, and nothing is half there."""

import asyncio
import random

import asyncpg
import pytest

from fencepost.world import RunQuery, Unavailable, WorldError
from fencepost.world.postgres import PostgresWorld
from fencepost.world.postgres.migrating import migrate
from fencepost.world.postgres_server import PostgresServer
from tests import made_postgres
from tests.contract.logs import (
    Decider,
    a_member,
    a_run,
    cancel,
    completed,
    created,
    outcome_of,
    outside,
    started,
    types,
    wait,
    whole_log,
)
from tests.contract.postgres_stores import database
from tests.contract.sessions import end_others, end_waiting, holding, waiting


@pytest.fixture
async def url(postgres_server):
    async with database(postgres_server) as name:
        yield postgres_server.socket_url_of(name)


@pytest.fixture
async def world(url):
    opened = await PostgresWorld.connect(url)
    yield opened
    await opened.close()


@pytest.fixture
async def session(url):
    opened = await asyncpg.connect(url)
    yield opened
    opened.terminate()


@pytest.fixture
async def watch(url):
    opened = await asyncpg.connect(url)
    yield opened
    opened.terminate()


# ---- lost connections


class Wire:
    """A way to the server that can be cut: with what was asked on its way there, or with the answer on its way back."""

    def __init__(self, socket):
        self._socket = socket
        self._writers = []
        self.is_deaf = asyncio.Event()
        """Set: what the server says is kept from the client."""
        self.answered = asyncio.Event()
        """Set: the server has said something since then."""

    async def serve(self, reader, writer):
        away, home = await asyncio.open_unix_connection(self._socket)
        self._writers += [writer, home]
        await asyncio.gather(self._carry(reader, home, is_answer=False), self._carry(away, writer, is_answer=True))

    async def _carry(self, reader, writer, *, is_answer):
        try:
            while data := await reader.read(65536):
                if is_answer and self.is_deaf.is_set():
                    self.answered.set()
                    continue
                writer.write(data)
        except OSError:
            pass
        writer.close()

    def cut(self):
        self.is_deaf.clear()
        for writer in self._writers:
            writer.transport.abort()


@pytest.fixture
async def wire(postgres_server):
    return Wire(f"{postgres_server._sockets}/.s.PGSQL.{postgres_server.port}")


@pytest.fixture
async def far(url, wire):
    """The world at the other end of the wire."""
    listening = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    name = url.split("?", maxsplit=1)[0].rpartition("/")[2]
    opened = await PostgresWorld.connect(f"postgresql://postgres@127.0.0.1:{port}/{name}")
    yield opened
    await opened.close()
    wire.cut()
    listening.close()


async def test_an_answer_that_was_lost_on_its_way_back_is_found(world, far, wire):
    """In-band it is answered as if nothing had been; of what came from outside nobody knows."""
    deciders = [await Decider.of_new(world, f"run_{n}") for n in range(3)]
    for decider in deciders:
        decider.world = far
    await asyncio.gather(*(decider.append(wait("0.0")) for decider in deciders))
    wire.is_deaf.set()
    calls = [decider.append(wait("0.1"), due=await world.now()) for decider in deciders]
    flush = asyncio.gather(*calls, outside(far, cancel(), run_id="run_0"), return_exceptions=True)
    await wire.answered.wait()
    wire.cut()

    *accepted, unknown = await flush

    assert [(answer.first_seq, answer.fence.tick) for answer in accepted] == [(3, 2), (3, 2), (3, 2)]
    assert isinstance(unknown, Unavailable)
    assert types(await whole_log(world, "run_0"))[-2:] == ["wait_created", "cancel_requested"]
    assert (await deciders[1].append(wait("0.2"))).first_seq == 4


async def test_what_never_reached_the_log_is_unknown_and_not_there(world, session, watch):
    decider = await Decider.of_new(world)
    async with holding(session, "run_1"):
        call = asyncio.create_task(outcome_of(decider.append(wait("0.0"))))
        await waiting(watch)
        await end_waiting(watch)
        await waiting(watch)  # the question what is in: it waits for the run as well

    assert isinstance(await call, Unavailable)
    assert types(await whole_log(world)) == ["run_created"]


async def test_nodes_go_on_while_their_connections_are_ended_again_and_again(url, watch):
    """Every refusal is one of ours, and the log holds each answered batch once."""
    world = await PostgresWorld.connect(url)
    await world.create(a_run())
    answered = []

    async def write(n):
        for k in range(10):
            answer = await outcome_of(outside(world, cancel(f"{n}.{k}")))
            assert isinstance(answer, Unavailable) or answer.first_seq > 1
            if not isinstance(answer, WorldError):
                answered.append(f"{n}.{k}")

    writers = asyncio.gather(*(write(n) for n in range(20)))
    while not writers.done():
        await end_others(watch)
        await asyncio.sleep(0.02)  # real time: so that something gets through
    await writers

    keys = [event.body.key for event in (await whole_log(world))[1:]]
    assert len(keys) == len(set(keys))
    assert set(answered) <= set(keys)
    await world.close()


# ---- kill -9 of the server


class Answered:
    """How far each run was said to be, and when that was said often enough."""

    def __init__(self, enough):
        self.tails = {}
        self.enough = asyncio.Event()
        self._missing = enough

    def note(self, run_id, tail):
        self.tails[run_id] = tail
        self._missing -= 1
        if not self._missing:
            self.enough.set()


async def chain(world, node, run_id, answered):
    """Run steps one after the other until the server is gone; note each one that was answered."""
    await world.create(a_run(run_id, chain_id=f"chain of {run_id}"))
    decider = await Decider.of(world, run_id)
    await decider.begin(created("0.0"), started(node, "0.0", f"{run_id} 0"))
    n = 0
    while True:
        accepted = await decider.append(
            completed(f"0.{n}", f"{run_id} {n}"),
            created(f"0.{n + 1}"),
            started(node, f"0.{n + 1}", f"{run_id} {n + 1}"),
            whole_log=True,
        )
        n += 1
        answered.note(run_id, accepted.first_seq + 2)


async def check_whole(world, run):
    log = await whole_log(world, run.run_id)
    ticks = [event.tick for event in log[1:]]
    opened = await world.open(run.run_id)

    assert [event.seq for event in log] == list(range(1, run.seq + 1))
    assert ticks == [1 + n // 3 for n in range(len(ticks))]
    assert (run.tick, run.in_band_count) == (len(ticks) // 3, len(ticks))
    assert [claim.op for claim in opened.claims] == [f"0.{run.tick - 1}"] * bool(run.tick)
    assert (await world.find(f"chain of {run.run_id}")).run_id == run.run_id


@pytest.mark.parametrize("seed", range(2))
async def test_kill_9_of_the_server_leaves_whole_batches_and_all_that_was_answered(tmp_path, postgres_made, seed):
    server = PostgresServer(made_postgres.copied(postgres_made, tmp_path))
    await server.start()
    await migrate(server.url)
    world = await PostgresWorld.connect(server.url)
    node = await world.join(a_member())
    answered = Answered(random.Random(seed).randrange(50, 400))

    chains = [asyncio.create_task(chain(world, node, f"run_{n}", answered)) for n in range(16)]
    await answered.enough.wait()
    await server.kill()
    refused = await asyncio.gather(*chains, return_exceptions=True)
    await server.start()

    assert {type(error) for error in refused} <= {Unavailable}
    runs = {run.run_id: run for run in await until_it_answers(lambda: world.runs(RunQuery(limit=100)))}
    for run in runs.values():
        await check_whole(world, run)
        assert run.seq >= answered.tails.get(run.run_id, 1)
    assert answered.tails.keys() <= runs.keys()
    await world.close()
    await server.stop()


async def until_it_answers(call):
    """Ask until the server is up again and the connections that are gone are made anew."""
    while isinstance(answer := await outcome_of(call()), Unavailable):  # noqa: ASYNC110  (another process)
        await asyncio.sleep(0.05)  # real time: the server starts
    return answer
