"""Several servers, cut wires and silent ones: what a bus notices, and how soon it works again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from nats.aio.client import Server

from fencepost.bus import BusError, BusUnusable, JetStreamBus, NatsServer, NoResponder, Reply, Unreachable
from fencepost.bus.jetstream.client import AGAIN_S_MAX, ConnectOptions, Turns, _settings
from tests.contract.handlers import Handler, Room, Wire, bell, cluster_of_two, offering

PATIENCE_S = 30


@pytest.fixture
async def server(tmp_path):
    async with NatsServer(tmp_path / "one") as server:
        yield server


class Node:
    """A bus that takes, serves and answers."""

    def __init__(self, *urls):
        self.bus = JetStreamBus(urls)
        self.bells, self.steps, self.starts = Handler(), Handler(), Handler()

    async def __aenter__(self):
        await self.bus.open()
        await self.bus.take("default", range(4), self.bells)
        await self.bus.steps("default", "default", self.steps, Room(8))
        await self.bus.starts(self.starts)
        await self.bus.serve({"result": self._on_request})
        return self

    async def __aexit__(self, *_):
        await self.bus.close()

    async def _on_request(self, request):
        return Reply(request.body)

    async def works(self):
        """Return when bells, offerings, start messages and questions go through, asking again as their askers do."""
        mark = f"{time.monotonic_ns()}"
        async with asyncio.timeout(PATIENCE_S):
            await again_until(lambda: self.bus.publish_start("w", mark.encode()))
            await self._hears(self.starts, lambda: None, lambda start: start.body == mark.encode())
            await self._hears(self.bells, lambda: self.bus.ring(bell(mark)), lambda got: got.id == mark)
            await self._hears(self.steps, lambda: self.bus.offer(offering(mark)), lambda got: got.run_id == mark)
            assert await again_until(lambda: self.bus.request("result", b"?", timeout_s=1)) == Reply(b"?")

    async def _hears(self, handler, tell, is_it):
        while not any(map(is_it, handler.seen)):
            if (telling := tell()) is not None:
                await telling
            # real time: polls what nothing rings for
            await asyncio.sleep(0.05)


async def again_until(ask):
    while True:
        try:
            return await ask()
        except (Unreachable, NoResponder):
            # real time: polls what nothing rings for
            await asyncio.sleep(0.02)


@asynccontextmanager
async def frozen(server):
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


async def unheard(bus, seconds):
    async with asyncio.timeout(PATIENCE_S):
        while bus.unheard_s < seconds:  # noqa: ASYNC110 - silence has no event
            # real time: polls what nothing rings for
            await asyncio.sleep(0.02)


def in_use(bus, servers):
    port = urlsplit(bus._connection._client.connected_url.geturl()).port
    return next(server for server in servers if server.port == port)


# ---- at the start


@pytest.mark.parametrize("joined", [True, False])
async def test_a_server_of_several_that_is_down_at_the_start_is_passed_over(server, joined):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        down = f"nats://127.0.0.1:{held.getsockname()[1]}"
        for urls in ([down, server.url], [server.url, down]):
            bus = JetStreamBus(", ".join(urls) if joined else urls)
            await bus.open()
            await bus.publish_start("w", b"1")
            await bus.close()


async def test_a_server_of_several_that_says_nothing_at_the_start_is_passed_over(server):
    async with Wire(server.port) as wire:
        wire.silent.set()
        for _ in range(4):
            bus = JetStreamBus([wire.url, server.url])
            await bus.open()
            await bus.close()


async def test_when_none_of_several_is_there_all_are_named():
    with pytest.raises(Unreachable, match=r"127.0.0.1:1, nats://127.0.0.1:2"):
        await JetStreamBus("nats://127.0.0.1:1,nats://me:secret@127.0.0.1:2,").open()


@pytest.mark.parametrize("urls", [[], ["nats://a:1", "ws://b:2"], ["nats://a:1", "http://b"]])
async def test_addresses_that_cannot_be_used_are_refused_in_a_sentence(urls):
    with pytest.raises(BusUnusable, match=r"no NATS address|cannot be mixed"):
        await JetStreamBus(urls).open()


def test_a_server_we_are_only_told_of_gets_the_credentials_of_the_addresses():
    assert _settings(ConnectOptions(["nats://me:pw@a", "nats://b"]))["user"] == "me"
    assert _settings(ConnectOptions(["nats://me:pw@a", "nats://you:pw@b"]))["user"] is None
    assert _settings(ConnectOptions(["nats://me:pw@a"], user="she", password="x"))["user"] == "she"


# ---- order and pauses


def test_the_server_that_was_lost_is_tried_last_and_who_was_only_told_of_after_who_was_given():
    turns = Turns(["nats://a:1", "b:2"])
    servers = [Server(urlsplit(f"nats://{where}")) for where in ("told:3", "a:1", "b:2")]

    turns.begin()
    order = [turns.next(servers, "a:1")[0].uri.netloc for _ in range(6)]

    assert order == ["b:2", "told:3", "a:1"] * 2


def test_pauses_grow_from_round_to_round_up_to_a_second_and_begin_anew_with_a_connection():
    turns, servers = Turns(["a:1", "b:2"]), [Server(urlsplit(f"nats://{where}")) for where in ("a:1", "b:2")]
    pauses = [turns.next(servers, "a:1")[1] for _ in range(40)]

    assert max(pauses[:2]) <= 0.05
    assert 0.05 <= pauses[2] <= 0.1
    assert AGAIN_S_MAX / 2 <= pauses[38] <= AGAIN_S_MAX
    assert len(set(pauses)) > 30
    turns.begin()
    assert turns.next(servers, "a:1")[1] <= 0.05


# ---- silence


async def test_a_bus_that_has_nothing_to_hear_hears_its_server(server):
    client = JetStreamBus(server.url, role="client")
    await client.open()
    heard = []
    for _ in range(30):
        heard.append(client.unheard_s)
        # real time: silence is what is measured
        await asyncio.sleep(0.05)

    assert max(heard) < 1.2
    async with frozen(server):
        began = time.monotonic()
        await unheard(client, 2.0)
        assert 0.8 < time.monotonic() - began < 2.6
    await client.close()


async def test_a_wire_that_swallows_every_byte_is_noticed_within_two_seconds_and_left(server):
    async with Wire(server.port) as wire, Node(wire.url) as node:
        await node.works()
        wire.silent.set()
        began = time.monotonic()

        await unheard(node.bus, 2.0)

        assert 0.9 < time.monotonic() - began < 2.6
        with pytest.raises(BusError):
            await node.bus.request("result", b"?", timeout_s=0.2)
        await unheard(node.bus, 4.0)
        wire.silent.clear()
        began = time.monotonic()
        await node.works()
        assert time.monotonic() - began < 5
        assert node.bus.unheard_s < 1.2


async def test_a_server_that_froze_is_left_for_another_one(tmp_path):
    async with NatsServer(tmp_path / "a") as one, NatsServer(tmp_path / "b") as two, Node(one.url, two.url) as node:
        await node.works()
        used = in_use(node.bus, [one, two])
        async with frozen(used):
            began = time.monotonic()
            await node.works()

            assert time.monotonic() - began < 5.5
            assert in_use(node.bus, [one, two]) is not used


async def test_a_node_that_does_not_hear_its_server_stops_taking_at_once(server):
    bus = JetStreamBus(server.url)
    await bus.open()
    taken = await asyncio.gather(*(bus.take("default", [partition], Handler()) for partition in range(8)))
    async with frozen(server):
        await unheard(bus, 2.0)
        began = time.monotonic()

        await asyncio.gather(*(subscription.stop() for subscription in taken))

        assert time.monotonic() - began < 0.5
    await bus.close()


async def test_a_cut_connection_costs_no_second(server):
    async with Wire(server.port) as wire, Node(wire.url) as node:
        for number in range(3):
            wire.cut()
            began = time.monotonic()
            await node.bus.ring(bell(f"{number}"))
            await node.works()
            assert time.monotonic() - began < 2
        assert {got.id for got in node.bells.seen} >= {"0", "1", "2"}


# ---- another server


async def test_one_port_that_leads_to_another_server_costs_time_only(tmp_path):
    async with (
        NatsServer(tmp_path / "a") as one,
        NatsServer(tmp_path / "b") as two,
        Wire(one.port) as wire,
        Node(wire.url) as node,
    ):
        await node.works()
        for here, there in ((one, two), (two, one), (one, two)):
            wire.to = there.port
            await here.kill()
            began = time.monotonic()
            await node.works()
            assert time.monotonic() - began < 5
            await here.start()


async def test_a_cluster_answers_after_the_server_in_use_was_killed_and_after_both_were(tmp_path):
    async with cluster_of_two(tmp_path) as servers:
        urls = [server.url for server in servers]
        client = JetStreamBus(",".join(urls), role="client")
        await client.open()
        async with Node(*urls) as node:
            await node.works()
            used = in_use(client, servers)

            await used.kill()
            began = time.monotonic()
            async with asyncio.timeout(PATIENCE_S):
                await again_until(lambda: client.request("result", b"1", timeout_s=1))
            assert time.monotonic() - began < 4
            await used.start()
            await node.works()

            await asyncio.gather(*(server.kill() for server in servers))
            await asyncio.gather(*(server.start() for server in servers))
            began = time.monotonic()
            await node.works()
            assert await again_until(lambda: client.request("result", b"2", timeout_s=1)) == Reply(b"2")
            assert time.monotonic() - began < 20
        await client.close()
