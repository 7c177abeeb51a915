"""What every bus promises: one suite, each bus."""

from __future__ import annotations

import asyncio
import time
import uuid

import pytest

from fencepost.bus import (
    Again,
    NatsServer,
    NoResponder,
    PayloadTooLarge,
    Reply,
    Unreachable,
)
from tests.contract.handlers import PATIENCE_S, Buses, Handler, bell


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture(params=["inprocess", "jetstream"])
async def buses(request, server):
    """Return a function that opens one more bus of the same namespace; in one process they are one."""
    buses = Buses(request.param, server.url, f"t{uuid.uuid4().hex[:12]}")
    yield buses
    await buses.close()


@pytest.fixture
async def bus(buses):
    return await buses()


# ---- bells


async def test_a_bell_reaches_who_takes_its_partition(bus):
    handler = Handler()
    await bus.take("default", [0, 7], handler)

    await bus.ring(bell("a", 7))
    await handler.called()

    assert handler.seen == [bell("a", 7)]


async def test_a_bell_waits_for_who_takes_its_partition(bus, buses):
    await bus.ring(bell("a"))
    handler = Handler()

    await (await buses()).take("default", [0], handler)

    await handler.called()
    assert handler.seen == [bell("a")]


async def test_partitions_and_apps_are_apart(bus):
    mine, others = Handler(), Handler()
    await bus.take("default", [0], mine)
    await bus.take("other", [0], others)
    await bus.take("default", [1], others)

    await bus.ring(bell("x", 0, "other"))
    await bus.ring(bell("y", 1))
    await bus.ring(bell("z", 0))
    await mine.called()
    await others.called(2)

    assert mine.seen == [bell("z")]
    assert len(others.seen) == 2


async def test_a_thousand_rings_of_one_id_are_few_calls(bus):
    handler = Handler(closed=True)
    await bus.take("default", [0], handler)
    await bus.ring(bell("a"))
    await handler.called()

    for _ in range(1000):
        await bus.ring(bell("a"))
    await bus.ring(bell("after"))
    await handler.called()
    handler.gate.set()
    await handler.called()

    assert handler.seen.count(bell("a")) == 2


async def test_a_ring_during_handling_is_delivered_after_it(bus):
    handler = Handler(closed=True)
    await bus.take("default", [0], handler)
    await bus.ring(bell("a"))
    await handler.called()

    await bus.ring(bell("a"))
    handler.gate.set()
    await handler.called()

    assert handler.seen == [bell("a")] * 2
    assert handler.most == 1


async def test_a_ring_at_the_moment_of_settling_is_never_lost(bus):
    heard = 0
    rung = asyncio.Event()

    async def on_bell(_):
        nonlocal heard
        heard += 1
        rung.set()

    await bus.take("default", [0], on_bell)
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(200):
            rung.clear()
            await bus.ring(bell("a"))
            await rung.wait()

    assert heard >= 200


async def test_one_id_is_handled_once_at_a_time_and_several_ids_at_once(bus):
    both, under_way, rounds = asyncio.Barrier(2), set(), asyncio.Semaphore(0)

    async def on_bell(got):
        assert got.id not in under_way
        under_way.add(got.id)
        await both.wait()
        under_way.remove(got.id)
        rounds.release()

    await bus.take("default", [0], on_bell)

    async with asyncio.timeout(PATIENCE_S):
        for _ in range(5):
            await bus.ring(bell("a"))
            await bus.ring(bell("b"))
            await rounds.acquire()
            await rounds.acquire()


async def test_a_bell_whose_handler_raises_comes_again(bus):
    handler = Handler(failures=[RuntimeError("once"), Again(0.01)])
    await bus.take("default", [0], handler)

    await bus.ring(bell("a"))
    await handler.called(3)

    assert handler.seen == [bell("a")] * 3


async def test_stopping_waits_for_the_handler_and_gives_back_what_waited(bus, buses):
    handler = Handler(closed=True)
    subscription = await bus.take("default", [0], handler)
    await bus.ring(bell("a"))
    await handler.called()
    await bus.ring(bell("a"))
    await bus.ring(bell("b"))
    await handler.called()

    stopping = asyncio.create_task(subscription.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    handler.gate.set()
    await stopping
    await subscription.stop()

    assert len(handler.seen) == 2
    second = Handler()
    await (await buses()).take("default", [0], second)
    await second.called()
    assert second.seen == [bell("a")]


@pytest.mark.parametrize("key", ["", "a.b", "a b", "*", ">", "a\n"])
async def test_a_bell_with_an_id_that_is_no_token_is_refused(bus, key):
    with pytest.raises(ValueError, match="cannot be sent"):
        await bus.ring(bell(key))


async def test_a_handler_that_is_cancelled_from_inside_does_not_close_its_key(bus):
    handler = Handler(failures=[asyncio.CancelledError()])
    await bus.take("default", [0], handler)

    await bus.ring(bell("a"))
    await handler.called(2)

    assert handler.seen == [bell("a")] * 2


# ---- start messages


@pytest.mark.parametrize("body", [b"", b"\x00\xff\r\n\r\nMSG x 1 0\r\n", b'{"id": "order-1"}', bytes(range(256)) * 500])
async def test_a_start_message_arrives_as_it_was_sent(bus, body):
    handler = Handler()
    await bus.starts(handler)

    await bus.publish_start("orders.checkout", body, {"Nats-Msg-Id": "m1", "Fp-Reply-To": "_INBOX.x", "X-Odd": "ü: y"})
    await handler.called()

    (start,) = handler.seen
    assert (start.workflow, start.body, start.delivery) == ("orders.checkout", body, 1)
    assert start.subject == f"fp.{bus.namespace}.start.orders.checkout"
    assert start.headers["Fp-Reply-To"] == "_INBOX.x"
    assert start.headers["X-Odd"] == "ü: y"


async def test_a_start_message_waits_for_who_takes_it(bus, buses):
    await bus.publish_start("w", b"1")
    handler = Handler()

    await (await buses()).starts(handler)

    await handler.called()
    assert handler.seen[0].body == b"1"


async def test_a_start_message_comes_again_until_it_is_settled_with_the_same_source(bus):
    handler = Handler(failures=[RuntimeError("no"), Again(0.01), ValueError("no")])
    await bus.starts(handler)

    await bus.publish_start("w", b"1")
    await handler.called(4)

    assert len({start.source for start in handler.seen}) == 1
    assert [start.delivery for start in handler.seen] == [1, 2, 3, 4]


async def test_again_waits_for_its_delay(bus):
    handler = Handler(failures=[Again(0.3)])
    await bus.starts(handler)

    began = time.monotonic()
    await bus.publish_start("w", b"1")
    await handler.called(2)

    assert time.monotonic() - began >= 0.29


async def test_every_start_message_has_a_source_of_its_own(bus):
    handler = Handler()
    await bus.starts(handler)

    for _ in range(50):
        await bus.publish_start("w", b"same")
    await handler.called(50)

    assert len({start.source for start in handler.seen}) == 50


async def test_several_start_messages_are_handled_at_once(bus):
    handler = Handler(closed=True)
    await bus.starts(handler)

    for number in range(10):
        await bus.publish_start("w", b"%d" % number)
    await handler.called(10)

    assert handler.most == 10
    handler.gate.set()


async def test_a_start_message_over_the_limit_is_refused_and_the_bus_lives(bus):
    handler = Handler()
    await bus.starts(handler)

    with pytest.raises(PayloadTooLarge) as refused:
        await bus.publish_start("w", b"x" * (bus.body_bytes_max + 1))
    await bus.publish_start("w", b"x" * bus.body_bytes_max)

    assert refused.value.limit_bytes == bus.body_bytes_max
    await handler.called()


@pytest.mark.parametrize("address", ["$JS.API.STREAM.DELETE.X", "_INBOX.>", "_INBOX.*", "fp.x.start.w", "", "a b"])
async def test_an_address_that_could_do_harm_is_not_answered(bus, address):
    assert await bus.answer(address, Reply(b"no")) is False


async def test_an_inbox_is_answered(bus):
    assert await bus.answer("_INBOX.some.one", Reply(b"yes")) is True
    assert await bus.answer(f"fp.{bus.namespace}.reply.some.one", Reply(b"", "RunExists", "taken")) is True


# ---- questions


async def test_a_question_is_answered(bus, buses):
    async def echo(request):
        return Reply(request.endpoint.encode() + b"/" + request.rest.encode() + b"/" + request.body)

    await bus.serve({"result": echo, "start": echo})
    asking = await buses()

    assert await asking.request("result", b"1", rest="run.7") == Reply(b"result/run.7/1")
    assert await asking.request("start", b"") == Reply(b"start//")


async def test_an_error_is_an_answer_with_its_name(bus):
    async def refuse(_):
        return Reply(b"{}", "RunExists", "id 'ü' is taken\nby another")

    await bus.serve({"start": refuse})

    reply = await bus.request("start", b"")

    assert (reply.body, reply.error) == (b"{}", "RunExists")
    assert "is taken" in reply.description


async def test_a_failing_handler_is_answered_as_internal_without_its_text(bus):
    async def fail(_):
        raise RuntimeError("the password is swordfish")

    await bus.serve({"start": fail})

    reply = await bus.request("start", b"")

    assert reply.error == "internal"
    assert "swordfish" not in repr(reply)


async def test_nobody_who_serves_is_said_at_once(bus):
    with pytest.raises(NoResponder, match="start a node"):
        await bus.request("start", b"", timeout_s=PATIENCE_S)


async def test_an_answer_that_does_not_come_in_time_is_unreachable(bus):
    handler = Handler(closed=True)
    await bus.serve({"result": handler})

    with pytest.raises(Unreachable, match="no answer"):
        await bus.request("result", b"", timeout_s=0.05)
    handler.gate.set()


async def test_a_question_that_waits_does_not_hold_up_the_next(bus):
    asked = asyncio.Event()

    async def result(request):
        if request.body == b"slow":
            await asked.wait()
        return Reply(request.body)

    await bus.serve({"result": result})
    slow = asyncio.create_task(bus.request("result", b"slow"))

    assert await bus.request("result", b"fast") == Reply(b"fast")
    asked.set()
    assert await slow == Reply(b"slow")


async def test_questions_and_answers_over_the_limit_are_said_to_be(bus):
    async def much(_):
        return Reply(b"x" * (bus.body_bytes_max + 1))

    await bus.serve({"result": much})

    assert (await bus.request("result", b"")).error == "too_large"
    with pytest.raises(PayloadTooLarge):
        await bus.request("result", b"x" * (bus.body_bytes_max + 1))


async def test_a_service_that_stops_answers_what_it_has_begun(bus):
    begun, gate = asyncio.Event(), asyncio.Event()

    async def result(_):
        begun.set()
        await gate.wait()
        return Reply(b"done")

    service = await bus.serve({"result": result})
    asking = asyncio.create_task(bus.request("result", b""))
    await begun.wait()

    stopping = asyncio.create_task(service.stop())
    await asyncio.sleep(0)
    gate.set()
    await stopping
    await service.stop()

    assert await asking == Reply(b"done")
    with pytest.raises(NoResponder):
        await bus.request("result", b"")


# ---- live feed


async def test_who_follows_hears_from_the_begin_of_the_block(bus, buses):
    telling = await buses()
    async with asyncio.timeout(PATIENCE_S):
        for number in range(20):
            async with bus.follow("event.run-1") as news:
                await telling.announce("event.run-1", b"%d" % number)
                assert await anext(news) == b"%d" % number


async def test_who_follows_hears_its_topic_only(bus):
    async with asyncio.timeout(PATIENCE_S), bus.follow("event.*") as every, bus.follow("event.b") as one:
        await bus.announce("event.a", b"a")
        await bus.announce("dead.start", b"dead")
        await bus.announce("event.b", b"b")

        assert [await anext(every), await anext(every)] == [b"a", b"b"]
        assert await anext(one) == b"b"


async def test_an_answer_to_a_webhook_is_heard_by_who_waits_for_it(bus, buses):
    telling = await buses()
    async with asyncio.timeout(PATIENCE_S), bus.follow("reply.0a1b") as news:
        await telling.announce("reply.ffff", b"another's")
        await telling.announce("reply.0a1b", b"200")

        assert await anext(news) == b"200"


async def test_a_slow_listener_loses_the_oldest(bus):
    async with asyncio.timeout(PATIENCE_S), bus.follow("event.a") as slow, bus.follow("event.a") as fast:
        for number in range(1200):
            await bus.announce("event.a", b"%d" % number)
        async for body in fast:
            if body == b"1199":
                break

        first = int(await anext(slow))
        assert first > 0
        rest = [int(await anext(slow)) for _ in range(1199 - first)]
        assert rest == list(range(first + 1, 1200))


async def test_news_that_is_too_large_is_dropped_quietly(bus):
    async with asyncio.timeout(PATIENCE_S), bus.follow("event.a") as news:
        await bus.announce("event.a", b"x" * (2 * 1024 * 1024))
        await bus.announce("event.a", b"next")

        assert await anext(news) == b"next"


# ---- life


async def test_a_bus_that_is_open_is_heard_and_closes_twice(bus):
    assert bus.unheard_s < 1
    assert bus.body_bytes_max > 1_000_000
    await bus.close()
    await bus.close()


async def test_a_bus_that_was_closed_opens_again(bus):
    await bus.close()
    await bus.open()
    handler = Handler()

    await bus.take("default", [0], handler)
    await bus.ring(bell("a"))

    await handler.called()
