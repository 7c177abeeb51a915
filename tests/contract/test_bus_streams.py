"""The streams of offerings, and what happens when somebody changes or removes a stream under a running bus."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import replace

import nats
import pytest
from nats.js import api

from fencepost.bus import BusUnusable, JetStreamBus, NatsServer
from fencepost.bus.jetstream.requests import Requests
from tests.contract.handlers import Handler, Room, bell, offering

PATIENCE_S = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture
def namespace():
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def js(server):
    client = await nats.connect(server.url)
    yield client.jetstream()
    await client.close()


@pytest.fixture
async def bus(server, namespace):
    bus = JetStreamBus(server.url, namespace)
    await bus.open()
    yield bus
    await bus.close()


async def serve(bus, handler, queue="default"):
    return await bus.steps("default", queue, handler, Room(8))


async def until(is_so):
    """Return when it is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not await is_so():  # noqa: ASYNC110 - nothing rings for what a server has
            # real time: polls what nothing rings for
            await asyncio.sleep(0.02)


# ---- a stream per queue


async def test_whoever_offers_first_makes_the_stream_of_the_queue_and_it_is_bounded(bus, namespace, js):
    await bus.offer(offering("run-1", "0.3.1", "gpu"))

    async def stored():
        try:
            return (await js.stream_info(f"FP_{namespace}_STEP_gpu")).state.messages == 1
        except nats.js.errors.NotFoundError:
            return False

    await until(stored)
    config = (await js.stream_info(f"FP_{namespace}_STEP_gpu")).config
    assert config.subjects == [f"fp.{namespace}.step.gpu.>"]
    assert (config.retention, config.discard) == (api.RetentionPolicy.WORK_QUEUE, api.DiscardPolicy.OLD)
    assert (config.max_msgs_per_subject, config.max_msgs, config.storage) == (1, 100_000, api.StorageType.FILE)
    assert config.max_bytes == 64 * 1024 * 1024
    stored_as = await js.get_last_msg(f"FP_{namespace}_STEP_gpu", f"fp.{namespace}.step.gpu.default.run-1.0.3.1")
    assert (stored_as.data or b"", stored_as.headers) == (b"", None)


async def test_whoever_serves_first_makes_it_with_a_consumer_for_each_app(bus, namespace, js):
    await serve(bus, Handler(), "gpu")
    await bus.steps("other", "gpu", Handler(), Room(1))

    filters = {info.name: info.config.filter_subject for info in await js.consumers_info(f"FP_{namespace}_STEP_gpu")}
    assert filters == {app: f"fp.{namespace}.step.gpu.{app}.>" for app in ("default", "other")}


async def test_offered_again_after_it_was_taken_it_is_delivered_again(bus):
    handler = Handler()
    await serve(bus, handler)

    for _ in range(5):
        await bus.offer(offering("a"))
        await handler.called()

    assert handler.seen == [offering("a")] * 5


async def test_what_nobody_of_ours_offered_is_taken_away(bus, namespace, js):
    handler = Handler()
    await serve(bus, handler)

    for rest in ("default.run-1", "default.rün.0"):
        await js.publish(f"fp.{namespace}.step.default.{rest}", b"")
    await handler.called()

    assert handler.seen == [offering("rün", "0")]

    async def empty():
        return (await js.stream_info(f"FP_{namespace}_STEP_default")).state.messages == 0

    await until(empty)


async def test_a_full_queue_lets_the_oldest_go(bus, namespace, js):
    await serve(bus, Handler(), "small")
    await bus.offer(offering("other", queue="small", app="nobody"))
    name = f"FP_{namespace}_STEP_small"
    small = replace((await js.stream_info(name)).config, max_msgs=3)
    bus._streams._wanted[name]["max_msgs"] = 3
    await js.update_stream(small)

    for number in range(10):
        await bus.offer(offering(f"{number}", queue="small", app="nobody"))

    async def last_is_there():
        return (await js.stream_info(name)).state.last_seq >= 11

    await until(last_is_there)
    handler = Handler()
    await bus.steps("nobody", "small", handler, Room(8))
    await handler.called(3)
    assert [got.run_id for got in handler.seen] == ["7", "8", "9"]


async def test_the_stream_of_another_namespace_is_left_alone(server, js):
    """`FP_<ns>_STEP_<queue>` can name the same stream for two namespaces."""
    long, short = f"t{uuid.uuid4().hex[:8]}_STEP_a", ""
    short = long.removesuffix("_STEP_a")
    first, second = JetStreamBus(server.url, long), JetStreamBus(server.url, short)
    await first.open()
    await second.open()
    await serve(first, Handler(), "b")

    with pytest.raises(BusUnusable, match="is another namespace's: give this namespace or the queue another name"):
        await serve(second, Handler(), "a_STEP_b")

    assert (await js.stream_info(f"FP_{long}_STEP_b")).config.subjects == [f"fp.{long}.step.b.>"]
    await first.close()
    await second.close()


# ---- removed and changed under a running bus


async def test_a_stream_or_consumer_of_a_queue_that_was_deleted_is_made_again(bus, namespace, js):
    handler = Handler()
    await serve(bus, handler)
    name = f"FP_{namespace}_STEP_default"

    await js.delete_consumer(name, "default")
    await bus.offer(offering("a"))
    await handler.called()
    await js.delete_stream(name)
    await bus.offer(offering("b"))
    await handler.called()

    assert handler.seen == [offering("a"), offering("b")]


@pytest.mark.parametrize("stream", ["WAKE", "START", "LIVE", "STEP_default"])
async def test_a_setting_that_was_changed_is_set_right_within_seconds(bus, namespace, js, stream, caplog):
    await serve(bus, Handler())
    before = (await js.stream_info(f"FP_{namespace}_{stream}")).config

    await js.update_stream(replace(before, max_msgs_per_subject=7, max_msgs=77))

    async def right():
        return (await js.stream_info(f"FP_{namespace}_{stream}")).config == before

    async with asyncio.timeout(5):
        await until(right)
    assert f"FP_{namespace}_{stream} was changed by something else, set right" in caplog.text
    assert "max_msgs_per_subject is 7" in caplog.text


async def test_bells_and_offerings_go_on_when_the_subjects_were_changed(bus, namespace, js):
    bells, steps = Handler(), Handler()
    await bus.take("default", [0], bells)
    await serve(bus, steps)

    for name in (f"FP_{namespace}_WAKE", f"FP_{namespace}_STEP_default"):
        config = (await js.stream_info(name)).config
        await js.update_stream(replace(config, subjects=[f"mine.{namespace}.{name}.>"]))
    await bus.ring(bell("a"))
    await bus.offer(offering("a"))
    await bells.called()
    await steps.called()

    assert (bells.seen, steps.seen) == ([bell("a")], [offering("a")])


async def test_a_bell_that_a_changed_stream_refused_is_rung_again(bus, namespace, js):
    name = f"FP_{namespace}_WAKE"
    config = (await js.stream_info(name)).config
    await bus.ring(bell("first", 1))
    await js.update_stream(replace(config, discard=api.DiscardPolicy.NEW, max_msgs=1))
    handler = Handler()
    await bus.take("default", [0], handler)

    await bus.ring(bell("a"))
    await handler.called()

    assert handler.seen == [bell("a")]


async def test_a_consumer_that_was_changed_is_set_right_within_seconds(bus, namespace, js):
    await serve(bus, Handler())
    name = f"FP_{namespace}_STEP_default"
    changed = (await js.consumer_info(name, "default")).config

    await js.add_consumer(name, replace(changed, max_ack_pending=1, ack_wait=5.0))

    async def right():
        config = (await js.consumer_info(name, "default")).config
        return (config.max_ack_pending, config.ack_wait) == (65_536, 30.0)

    async with asyncio.timeout(5):
        await until(right)


async def test_a_stream_that_became_another_kind_is_told_once_with_what_to_do(bus, namespace, js, caplog):
    name = f"FP_{namespace}_WAKE"
    caplog.set_level(logging.ERROR)

    await js.delete_stream(name)
    await js.add_stream(api.StreamConfig(name=name, subjects=[f"fp.{namespace}.wake.>"]))

    async def told():
        return "was made by something else" in caplog.text

    await until(told)
    said = [record.getMessage() for record in caplog.records if "was made by something else" in record.getMessage()]
    assert len(said) == 1
    assert "retention is 'limits', must be 'workqueue'" in said[0]
    assert f"remove it (`nats stream rm {name}`)" in said[0]
    with pytest.raises(BusUnusable, match="was made by something else"):
        await bus.take("default", [0], Handler())

    await js.delete_stream(name)
    handler = Handler()
    await bus.take("default", [0], handler)
    await bus.ring(bell("a"))
    await handler.called()


async def test_the_trouble_of_one_queue_is_no_others(bus, namespace, js):
    await js.add_stream(api.StreamConfig(name=f"FP_{namespace}_STEP_bad", subjects=["mine.>"], num_replicas=1))
    with pytest.raises(BusUnusable, match="made by something else"):
        await serve(bus, Handler(), "bad")
    good, bells = Handler(), Handler()
    await serve(bus, good, "good")
    await bus.take("default", [0], bells)

    await bus.offer(offering("a", queue="bad"))
    await js.delete_stream(f"FP_{namespace}_STEP_good")
    await js.delete_stream(f"FP_{namespace}_WAKE")
    await bus.offer(offering("a", queue="good"))
    await bus.ring(bell("a"))

    await good.called()
    await bells.called()
    await bus.publish_start("w", b"1")


# ---- what is on its way


def test_what_is_owed_is_what_was_asked_for_and_has_not_come():
    requests = Requests(30)
    first, second = requests.ask(5), requests.ask(3)
    assert requests.owed == 8

    assert [requests.came() for _ in range(6)] == [True] * 6
    assert requests.owed == 2
    assert requests.ended(first, "1")
    assert requests.owed == 1
    assert requests.ended(second, "1")
    assert requests.owed == 0
    assert not requests.came()
    assert not requests.ended(second, "1")


def test_a_message_that_was_lost_on_its_way_is_not_owed_for_ever():
    requests = Requests(-1.0)  # over at once, and a second for the word of it is over too
    requests.ask(5)

    assert requests.owed == 0
    other = Requests(30)
    number = other.ask(5)
    other.ended(number, None)
    other.ask(2)
    assert other.owed == 2
    other.forget()
    assert other.owed == 0
    assert not other.came()
