"""Servers that stop, freeze, restart and lose their store under a running bus (L1: it costs time, nothing else)."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time

import pytest

from fencepost.bus import Bell, BusError, JetStreamBus, NatsServer, NoResponder, Reply, Unreachable

PATIENCE_S = 20


@pytest.fixture
async def server(tmp_path):
    async with NatsServer(tmp_path) as server:
        yield server


class Node:
    """A bus that takes, starts and serves, and what it was given."""

    def __init__(self, url):
        self.bus = JetStreamBus(url)
        self.bells = asyncio.Queue()
        self.starts = asyncio.Queue()

    async def open(self):
        await self.bus.open()
        await self.bus.take("default", range(8), self._on_bell)
        await self.bus.starts(self._on_start)
        await self.bus.serve({"result": self._on_request})

    async def _on_bell(self, bell):
        self.bells.put_nowait(bell.id)

    async def _on_start(self, start):
        self.starts.put_nowait(start)

    async def _on_request(self, request):
        return Reply(request.body)

    async def works(self):
        """Return when bells, start messages and questions go through, asking again as clients and sweeper do."""
        async with asyncio.timeout(PATIENCE_S):
            await _until(lambda: self.bus.publish_start("w", b"again"))
            while (await self.starts.get()).body != b"again":
                pass
            for partition in range(8):
                key = f"p{partition}-{time.monotonic_ns()}"
                await self._hears(key, partition)
            assert await _until(lambda: self.bus.request("result", b"?", timeout_s=1)) == Reply(b"?")

    async def _hears(self, key, partition):
        while True:
            await self.bus.ring(Bell("run", key, partition))
            try:
                async with asyncio.timeout(0.2):
                    while await self.bells.get() != key:
                        pass
            except TimeoutError:
                continue
            return


async def _until(ask):
    while True:
        try:
            return await ask()
        except (Unreachable, NoResponder):
            # real time: polls what nothing rings for
            await asyncio.sleep(0.02)


@pytest.fixture
async def node(server):
    node = Node(server.url)
    await node.open()
    yield node
    await node.bus.close()


async def test_a_server_that_crashed_and_lost_its_store_costs_time_only(node, server):
    await node.works()
    async with node.bus.follow("event.*") as news:
        await server.kill()
        shutil.rmtree(server.store)
        await server.start()

        began = time.monotonic()
        await node.works()

        assert time.monotonic() - began < 5
        await node.bus.announce("event.a", b"heard")
        assert await asyncio.wait_for(anext(news), PATIENCE_S) == b"heard"
    assert node.bus.unheard_s < 2


async def test_sources_stay_apart_when_the_store_begins_anew(node, server):
    await node.bus.publish_start("w", b"first")
    first = await asyncio.wait_for(node.starts.get(), PATIENCE_S)

    await server.kill()
    shutil.rmtree(server.store)
    await server.start()
    async with asyncio.timeout(PATIENCE_S):
        await _until(lambda: node.bus.publish_start("w", b"second"))
        second = await node.starts.get()

    assert second.body == b"second"
    assert first.source != second.source


async def test_what_was_stored_survives_a_crash_with_its_source(server):
    given = asyncio.Queue()

    async def fail(start):
        given.put_nowait(start)
        raise RuntimeError("not now")

    bus = JetStreamBus(server.url, ack_wait_s=1.0)
    await bus.open()
    await bus.starts(fail)
    await bus.publish_start("w", b"1")
    async with asyncio.timeout(PATIENCE_S):
        first = await given.get()
        await server.kill()
        await server.start()
        while not given.empty():
            given.get_nowait()
        later = await given.get()
    await bus.close()

    assert (later.body, later.source) == (b"1", first.source)


async def test_what_was_handled_while_the_connection_was_lost_is_not_handled_twice(server):
    given, gate = [], asyncio.Event()
    begun, marked = asyncio.Event(), asyncio.Event()

    async def on_start(start):
        given.append(start.body)
        begun.set()
        await gate.wait()
        if start.body == b"mark":
            marked.set()

    bus = JetStreamBus(server.url, ack_wait_s=1.0)
    await bus.open()
    await bus.starts(on_start)
    await bus.publish_start("w", b"1")
    async with asyncio.timeout(PATIENCE_S):
        await begun.wait()
        await server.stop()
        gate.set()
        await server.start()
        await _until(lambda: bus.publish_start("w", b"mark"))
        await marked.wait()
        await _drained(bus)
    await bus.close()

    assert given == [b"1", b"mark"]


async def _drained(bus):
    while (await bus._api.call("STREAM.INFO.FP_default_START"))["state"]["messages"]:  # noqa: ASYNC110 - a count
        # real time: polls what nothing rings for
        await asyncio.sleep(0.02)


async def test_a_server_that_restarts_is_found_again(node, server):
    for _ in range(2):
        await server.stop()
        await server.start()
        await node.works()


async def test_while_the_server_is_away_nothing_hangs_and_nothing_raises_that_may_not(node, server):
    waiting = asyncio.create_task(node.bus.request("result", b"?", timeout_s=PATIENCE_S))
    await server.kill()
    began = time.monotonic()

    with pytest.raises(BusError):
        await node.bus.publish_start("w", b"1")
    with pytest.raises(BusError):
        await node.bus.request("result", b"?", timeout_s=PATIENCE_S)
    await node.bus.ring(Bell("run", "a", 0))
    await node.bus.announce("event.a", b"1")
    assert await node.bus.answer("_INBOX.a", Reply(b"1"))
    await asyncio.wait({waiting}, timeout=PATIENCE_S)
    if waiting.exception():
        assert isinstance(waiting.exception(), BusError)

    assert time.monotonic() - began < 2


async def test_a_bus_closes_while_the_server_is_away(node, server):
    await server.kill()
    began = time.monotonic()

    await node.bus.close()

    assert time.monotonic() - began < 5


async def test_a_frozen_server_is_noticed_as_silent_and_goes_on(node, server):
    os.kill(server.pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await _silent(node.bus)
            with pytest.raises(Unreachable):
                await node.bus.request("result", b"?", timeout_s=0.1)
            await node.bus.ring(Bell("run", "while-frozen", 0))
    finally:
        os.kill(server.pid, signal.SIGCONT)

    await node.works()
    assert node.bus.unheard_s < 1


async def _silent(bus):
    while bus.unheard_s < 2:  # noqa: ASYNC110 - silence has no event
        # real time: polls what nothing rings for
        await asyncio.sleep(0.02)


async def test_a_client_that_was_closed_for_good_is_replaced(node):
    """As the server does with a client that broke a rule: nats-py does not come back from that."""
    await node.bus._connection._client._process_err("'some violation'")

    await node.works()


async def test_a_held_up_loop_is_not_taken_for_a_silent_server(node):
    await node.works()

    # real time: the loop is held up
    time.sleep(2.5)  # noqa: ASYNC251 - holding up the loop is what is tested

    assert node.bus.unheard_s < 2
    await asyncio.sleep(0)
    assert node.bus.unheard_s < 2
