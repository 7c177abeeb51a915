"""The client against a node, over the bus in the process and over a real nats-server."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from fencepost import Client, Node, Settings, errors
from fencepost.bus import InProcessBus, JetStreamBus, NatsServer
from fencepost.bus import errors as errors_of_bus
from tests.contract.handlers import cluster_of_two
from tests.e2e.declined import Declined
from tests.e2e.shop import Order, add, charge, checkout, echo, fail, shop, wait_long

MEMORY = "sqlite:///:memory:"


def settings(**given):
    return Settings.load(world=MEMORY, node_name="tested", grace=1, **given)


@pytest.fixture
async def inprocess():
    bus = InProcessBus()
    async with Node(shop(), bus=bus, settings=settings()):
        yield Client(bus)
    await bus.close()


@pytest.fixture
async def nats(tmp_path):
    async with (
        NatsServer(tmp_path / "nats") as server,
        Node(shop(), settings=settings(bus="nats", nats_url=server.url)),
        Client.connect(server.url) as client,
    ):
        yield client


@pytest.fixture(params=["inprocess", "nats"])
def client(request):
    return request.getfixturevalue(request.param)


async def taken_in(handle):
    """Return the status of a published start as soon as it is a run."""
    while True:
        try:
            return await handle.status()
        except errors.RunNotFound:
            await asyncio.sleep(0.01)  # real time: nothing tells a client that a message was taken in


async def buried(client):
    """Return the first dead letter as soon as there is one."""
    while True:
        if dead := await client.dead.list():
            return dead[-1]
        await asyncio.sleep(0.01)  # real time: nothing tells a client that a message was buried


# ---- starting


async def test_a_result_comes_back_as_the_type_the_workflow_declares(client):
    run = await client.start(checkout, Order(id=4), id="order-4")

    assert await run.result(timeout=10) == Order(id=4, note="receipt-4")
    assert run.id == "order-4"
    assert run.run_id.startswith("run_")


async def test_a_workflow_given_by_name_takes_and_returns_plain_json(client):
    run = await client.start("checkout", {"id": 5})

    assert await run.result(timeout=10) == {"id": 5, "note": "receipt-5"}


async def test_arguments_go_by_position_and_name_with_their_defaults(client):
    by_call = await client.start(add, 1, third=3)
    by_name = await client.start("add", first=1, second=2)

    assert await by_call.result(timeout=10) == 14
    assert await by_name.result(timeout=10) == 103


async def test_one_id_is_one_run_by_type_and_by_name(client):
    first = await client.start(checkout, Order(id=4, note="a"), id="order-4")

    second = await client.start("checkout", {"note": "a", "id": 4}, id="order-4")

    assert second.run_id == first.run_id
    assert (first.existing, second.existing) == (False, True)


async def test_an_id_used_again_with_other_input_or_against_the_callers_will_is_refused(client):
    await client.start(checkout, Order(id=4), id="order-4")

    with pytest.raises(errors.RunExists) as other:
        await client.start(checkout, Order(id=5), id="order-4")
    with pytest.raises(errors.RunExists):
        await client.start(checkout, Order(id=4), id="order-4", on_duplicate="raise")

    assert other.value.id == "order-4"


async def test_what_does_not_fit_never_leaves_the_caller(client):
    with pytest.raises(errors.SerializationError, match="argument 'order'"):
        await client.start(checkout, "three")
    with pytest.raises(TypeError, match="missing a required argument: 'first'"):
        await client.start(add)
    with pytest.raises(errors.ValueTooLarge) as large:
        await client.start("checkout", "x" * 2_000_000)

    assert large.value.size_bytes > large.value.limit_bytes > 1_000_000
    assert await client.runs.list() == []


async def test_what_is_no_workflow_or_no_instant_is_refused_before_anything_is_sent(client):
    async def plain(): ...

    with pytest.raises(TypeError, match="'charge' is a step: start a workflow that calls it"):
        await client.start(charge, Order(id=1))
    with pytest.raises(TypeError, match="'plain' is no workflow: give an `async def` with @workflow"):
        await client.publish(plain)
    with pytest.raises(TypeError, match="an object of type int is no workflow"):
        await client.start(3)
    with pytest.raises(TypeError, match="at is a datetime, not 'tomorrow'"):
        await client.start(checkout, Order(id=1), at="tomorrow")
    with pytest.raises(errors.InvalidInput, match="holds a control character"):
        await client.start(checkout, Order(id=1), id="a\x1b[2J")

    assert await client.runs.list() == []


async def test_a_single_value_for_several_parameters_by_name_is_told_to_be_keywords(client):
    with pytest.raises(errors.InvalidInput, match=r"add takes no single value: give keyword arguments .*first, second"):
        await client.start("add", 1)


async def test_input_sent_by_name_that_does_not_fit_is_refused_by_the_node(client):
    with pytest.raises(errors.InvalidInput, match="field 'id' of parameter 'order'"):
        await client.start("checkout", {"id": "four"})
    with pytest.raises(errors.InvalidInput, match="can be no workflow's name"):
        await client.start("check out", {"id": 4})


async def test_a_run_that_begins_later_waits_until_then(client):
    at = datetime.now(UTC) + timedelta(hours=1)

    run = await client.start(checkout, Order(id=4), at=at, attributes={"tenant": "acme"})

    status = await run.status()
    assert (status.status, status.due, status.attributes) == ("pending", at, {"tenant": "acme"})


async def test_a_workflow_nobody_knows_is_a_pending_run(client):
    run = await client.start("unheard_of", {"any": "thing"})

    assert (await run.status()).status == "pending"
    with pytest.raises(TimeoutError, match="pending, has a node with workflow 'unheard_of' joined"):
        await run.result(timeout=0)


async def test_a_published_start_becomes_a_run_and_a_bad_one_a_dead_letter(client):
    run = await client.publish(checkout, Order(id=7), id="order-7")
    await client.publish_raw("checkout", b"{no json")
    last = await client.publish(checkout, Order(id=8))

    await taken_in(run)
    await taken_in(last)
    assert (await run.result(timeout=10)).note == "receipt-7"
    assert (await last.result(timeout=10)).note == "receipt-8"
    letter = await buried(client)
    assert (await client.dead.show(letter.id)).body == b"{no json"
    with pytest.raises(errors.InvalidInput, match="not JSON"):
        await client.dead.replay(letter.id)


# ---- ends


async def test_a_failed_run_raises_with_its_code_and_the_original_exception(client):
    run = await client.start(fail, "declined")

    with pytest.raises(errors.RunFailed, match="Declined: card declined") as failed:
        await run.result(timeout=10)

    assert failed.value.code == "user_error"
    assert failed.value.run_id == run.run_id
    assert isinstance(failed.value.cause, Declined)
    assert failed.value.cause.code == 7
    assert failed.value.cause.__cause__ is None


async def test_an_exception_nobody_can_rebuild_is_told_in_the_message(client):
    run = await client.start(fail, "other")

    with pytest.raises(errors.RunFailed, match="Local: nobody can rebuild this") as failed:
        await run.result(timeout=10)

    assert failed.value.cause is None
    assert failed.value.kind.endswith("Local")


async def test_a_large_result_comes_whole(client):
    run = await client.start(echo, 700_000)

    assert await run.result(timeout=20) == "é" * 700_000


async def test_a_timeout_leaves_the_run_alone(client):
    run = await client.start(wait_long)

    with pytest.raises(TimeoutError, match=r"had not ended after 0.1 s; it goes on"):
        await run.result(timeout=0.1)

    assert (await run.status()).status == "running"


async def test_a_cancelled_run_says_so_with_the_reason(client):
    run = await client.start(wait_long, id="long")
    waiting = asyncio.create_task(run.result(timeout=10))

    assert await client.run("long").cancel("not wanted")

    with pytest.raises(errors.RunCancelled) as cancelled:
        await waiting
    assert cancelled.value.reason == "not wanted"
    assert not await run.cancel("again")


async def test_a_terminated_run_says_so(client):
    run = await client.start(wait_long)

    assert await run.terminate("enough")

    with pytest.raises(errors.RunTerminated, match="enough"):
        await run.result(timeout=10)


# ---- looking


async def test_events_are_followed_to_the_end_or_read_as_far_as_they_are(client):
    run = await client.start(wait_long)
    seen = asyncio.Queue()

    async def follow():
        async for event in run.events(follow=True):
            seen.put_nowait(event.type)

    following = asyncio.create_task(follow())
    while await seen.get() != "wait_created":
        pass
    so_far = [event.type async for event in run.events(after=1)]
    await run.cancel()
    await asyncio.wait_for(following, 10)

    assert so_far == ["run_started", "wait_created"]
    assert [seen.get_nowait() for _ in range(seen.qsize())] == ["cancel_requested", "run_cancelled"]


async def test_runs_are_listed_newest_first_over_any_number_of_pages(client):
    for number in range(5):
        await client.start(add, number, id=f"n{number}", attributes={"even": str(number % 2 == 0)})

    newest = await client.runs.list(limit=2)
    rest = await client.runs.list(before=newest[-1].run_id)
    even = [run.id async for run in client.runs.all(attribute={"even": "True"}, page=1)]

    assert [run.id for run in newest + rest] == ["n4", "n3", "n2", "n1", "n0"]
    assert even == ["n4", "n2", "n0"]
    with pytest.raises(errors.InvalidInput, match="there is no status 'done'"):
        await client.runs.list(status="done")
    with pytest.raises(ValueError, match="one attribute"):
        await client.runs.list(attribute={"a": "1", "b": "2"})


async def test_what_does_not_exist_is_not_found(client):
    with pytest.raises(errors.RunNotFound) as missing:
        await client.run("order-0").result(timeout=1)
    with pytest.raises(errors.InvalidInput, match="no dead letter"):
        await client.dead.show("dead_0")

    assert missing.value.run_id == "order-0"


async def test_a_node_tells_what_it_is(client):
    info = await client.info()

    assert (info["node"], info["app"]) == ("tested", "shop")
    assert info["runs"]["running"] == 0


# ---- absences


async def test_nobody_there_is_one_sentence_with_what_to_do(tmp_path):
    bus = InProcessBus()
    with pytest.raises(errors.Unavailable, match="start a node of this namespace"):
        await Client(bus).start(checkout, Order(id=1))
    with pytest.raises(errors.Unavailable, match="no node answers"):
        await Client(bus).run("order-1").result()

    async with NatsServer(tmp_path / "nats") as server:
        url = server.url
    with pytest.raises(errors.Unavailable, match="no NATS server at"):
        async with Client.connect(url):
            pass


async def test_a_client_outside_its_block_says_how_to_enter_it(tmp_path):
    async with NatsServer(tmp_path / "nats") as server, Client.connect(server.url) as left:
        pass
    for client in (Client.connect(), left):
        for call in (
            client.start("w"),
            client.publish("w"),
            client.run("r").result(),
            client.info(),
            client.runs.list(),
        ):
            with pytest.raises(RuntimeError, match=r"not connected: use `async with Client.connect\(…\)"):
                await call
        with pytest.raises(RuntimeError, match="async with"):  # and not that it may have happened all the same
            await client.start("w", id="one", on_duplicate="raise")


async def test_who_waits_for_a_result_waits_through_the_absence_of_node_and_server(tmp_path):
    world = f"sqlite:///{tmp_path / 'world.db'}"
    server = NatsServer(tmp_path / "nats")
    await server.start()
    kept = Settings.load(world=world, bus="nats", nats_url=server.url, grace=0)
    async with Client.connect(server.url) as client:
        async with Node(shop(), settings=kept):
            run = await client.start(checkout, Order(id=1), at=datetime.now(UTC) + timedelta(seconds=1.5))
        waiting = asyncio.create_task(run.result(timeout=40))
        await server.kill()
        await server.start()

        async with Node(shop(), settings=kept):
            receipt = await waiting
    await server.stop()

    assert receipt == Order(id=1, note="receipt-1")


async def test_nothing_is_doubled_or_lost_while_the_servers_of_a_cluster_are_killed_in_turn(tmp_path):
    world = f"sqlite:///{tmp_path / 'world.db'}"
    async with cluster_of_two(tmp_path) as servers:
        urls = [server.url for server in servers]
        kept = Settings.load(world=world, bus="nats", nats_url=",".join(urls), grace=0)
        async with Node(shop(), settings=kept), Client.connect(urls) as client:
            started = [await client.start(checkout, Order(id=number), id=f"order-{number}") for number in range(5)]
            for server in servers:
                numbers = range(len(started), len(started) + 5)
                starting = asyncio.gather(
                    *(client.start(checkout, Order(id=number), id=f"order-{number}") for number in numbers)
                )
                await server.kill()
                async with asyncio.timeout(20):
                    started += await starting
                await server.start()
            results = await asyncio.gather(*(run.result(timeout=40) for run in started))

            assert results == [Order(id=number, note=f"receipt-{number}") for number in range(15)]
            assert len({run.run_id for run in started}) == len(await client.runs.list()) == 15


async def test_a_lost_answer_of_a_start_is_asked_for_again_and_makes_no_second_run():
    class Forgetful(InProcessBus):
        lost = 0

        async def request(self, endpoint, body, *, rest="", timeout_s=10.0):
            reply = await super().request(endpoint, body, rest=rest, timeout_s=timeout_s)
            if endpoint == "start" and not self.lost:
                self.lost += 1
                raise errors_of_bus.Unreachable("lost the connection")
            return reply

    bus = Forgetful()
    async with Node(shop(), bus=bus, settings=settings()) as node:
        run = await node.client().start(checkout, Order(id=1))
        again = await node.client().start(checkout, Order(id=1), id="order-1", on_duplicate="raise")

        assert (bus.lost, run.existing) == (1, True)
        assert len(await node.client().runs.list()) == 2
        assert again.run_id != run.run_id


async def test_a_node_that_answered_before_is_waited_for_longer_than_one_that_never_did():
    class Leaving(InProcessBus):
        away = 0

        async def request(self, endpoint, body, *, rest="", timeout_s=10.0):
            if self.away:
                self.away -= 1
                raise errors_of_bus.NoResponder(endpoint)
            return await super().request(endpoint, body, rest=rest, timeout_s=timeout_s)

    bus = Leaving()
    async with Node(shop(), bus=bus, settings=settings()):
        client = Client(bus)
        bus.away = 6
        with pytest.raises(errors.Unavailable, match="no node answers"):
            await client.info()
        bus.away = 0
        await client.info()
        bus.away = 6

        await client.info()
        assert bus.away == 0


async def test_a_start_that_must_not_attach_is_not_repeated_when_its_answer_is_lost():
    class Deaf(InProcessBus):
        async def request(self, *_, **__):
            raise errors_of_bus.Unreachable("lost the connection")

    with pytest.raises(errors.Unavailable, match="may have happened all the same"):
        await Client(Deaf()).start(checkout, Order(id=1), id="order-1", on_duplicate="raise")


async def test_a_client_without_a_nodes_permissions_starts_and_asks(tmp_path):
    users = """
authorization { users = [
  { user: node, password: n }
  { user: app, password: a, permissions: {
      publish: ["fp.default.api.>", "fp.default.start.>"], subscribe: ["_INBOX.>", "fp.default.event.>"] } }
] }
"""
    async with NatsServer(tmp_path / "nats", config=users) as server:
        host = server.url.removeprefix("nats://")
        bus = JetStreamBus(server.url, user="node", password="n")
        await bus.open()
        async with Node(shop(), bus=bus, settings=settings()), Client.connect(f"nats://app:a@{host}") as client:
            asked = await client.start(checkout, Order(id=1))
            left = await client.publish(checkout, Order(id=2))

            assert (await asked.result(timeout=10)).note == "receipt-1"
            await taken_in(left)
        await bus.close()
