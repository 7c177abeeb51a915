"""What the bus over JetStream asks of its server, says about it, and takes from strangers."""

from __future__ import annotations

import asyncio
import json
import socket
import time
import uuid
from pathlib import Path

import nats
import pytest
from nats.js import api
from nats.js.errors import NotFoundError

from fencepost.bus import Bell, BusUnusable, JetStreamBus, NatsServer, Offering, PayloadTooLarge, Reply, Unreachable
from fencepost.bus.jetstream.api import checked_server, version_of

PATIENCE_S = 10

PERMISSIONS = (
    (Path(__file__).parents[2] / "deploy/nats/permissions.conf")
    .read_text()
    .replace(
        "users: [",
        """users: [
  { user: admin, password: a }
  { user: nobody, password: n, permissions { publish: ["x"], subscribe: ["_INBOX.>"] } }""",
    )
)


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
async def plain(server):
    client = await nats.connect(server.url)
    yield client
    await client.close()


@pytest.fixture
async def bus(server, namespace):
    bus = JetStreamBus(server.url, namespace, ack_wait_s=1.0)
    await bus.open()
    yield bus
    await bus.close()


class Inbox:
    """A handler that queues what it is given."""

    def __init__(self):
        self.queue = asyncio.Queue()

    async def __call__(self, what):
        self.queue.put_nowait(what)

    async def one(self):
        return await asyncio.wait_for(self.queue.get(), PATIENCE_S)


# ---- the server


@pytest.mark.parametrize(
    ("text", "version"),
    [("2.15.1", (2, 15, 1)), ("2.14.0-RC.2", (2, 14, 0)), ("2.15.0-dev", (2, 15, 0)), ("odd", (0, 0, 0))],
)
def test_a_version_is_read(text, version):
    assert version_of(text) == version


@pytest.mark.parametrize(("version", "level"), [((2, 14, 0), 4), ((2, 15, 1), 5), ((3, 0, 0), 9)])
def test_a_server_that_is_new_enough_is_accepted(version, level):
    checked_server(version, level)


@pytest.mark.parametrize(("version", "level"), [((2, 10, 26), 0), ((2, 13, 9), 4), ((2, 14, 0), 2), ((0, 0, 0), 0)])
def test_a_server_that_is_too_old_is_refused_in_a_sentence(version, level):
    with pytest.raises(BusUnusable, match=r"too old: 2\.14|level"):
        checked_server(version, level)


async def test_a_server_without_jetstream_is_refused_in_a_sentence(tmp_path):
    async with NatsServer(tmp_path, jetstream=False) as server:
        with pytest.raises(BusUnusable, match="JetStream is off"):
            await JetStreamBus(server.url).open()


async def test_no_server_is_unreachable_soon():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        began = time.monotonic()

        with pytest.raises(Unreachable, match="no NATS server at"):
            await JetStreamBus(f"nats://secret:word@127.0.0.1:{held.getsockname()[1]}").open()

    assert time.monotonic() - began < 2


async def test_the_password_in_an_address_is_not_shown():
    with pytest.raises(Unreachable) as refused:
        await JetStreamBus("nats://me:swordfish@127.0.0.1:1").open()

    assert "swordfish" not in str(refused.value)


@pytest.mark.parametrize("url", ["http://localhost:4222", "nats://", "nats://host:none", ""])
async def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(BusUnusable, match="no NATS address"):
        await JetStreamBus(url).open()


async def test_what_does_not_speak_nats_is_refused():
    async def hello(_, writer):
        writer.write(b"SSH-2.0-hello\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(hello, "127.0.0.1", 0) as other:
        with pytest.raises(BusUnusable, match="does not speak NATS"):
            await JetStreamBus(f"nats://127.0.0.1:{other.sockets[0].getsockname()[1]}").open()


async def test_missing_permission_and_wrong_password_are_said_soon(tmp_path):
    async with NatsServer(tmp_path, config=PERMISSIONS) as server:
        began = time.monotonic()
        with pytest.raises(BusUnusable, match=r"may not publish to \$JS\.API"):
            await JetStreamBus(server.url, user="nobody", password="n").open()
        with pytest.raises(BusUnusable, match="refused these credentials"):
            await JetStreamBus(server.url, user="admin", password="wrong").open()

        assert time.monotonic() - began < 3


async def test_least_rights_of_a_node_and_a_client_are_enough(tmp_path):
    async with NatsServer(tmp_path, config=PERMISSIONS) as server:
        node = JetStreamBus(server.url, user="node", password="n", inbox_prefix="_INBOX_node")
        client = JetStreamBus(server.url, user="client", password="c", role="client", inbox_prefix="_INBOX_client")
        await node.open()
        await client.open()
        inbox = Inbox()
        await node.starts(inbox)
        await node.take("default", [0], inbox)
        await node.serve({"result": _echo})

        await node.steps("default", "default", inbox, lambda: 1)

        await node.ring(Bell("run", "a", 0))
        assert (await inbox.one()).id == "a"
        await node.offer(Offering("default", "b", "0.1"))
        assert (await inbox.one()).run_id == "b"
        await client.publish_start("w", b"1")

        assert (await inbox.one()).body == b"1"
        assert await client.request("result", b"2") == Reply(b"2")
        async with asyncio.timeout(PATIENCE_S), client.follow("event.a") as news:
            await node.announce("event.a", b"3")
            assert await anext(news) == b"3"
        await client.close()
        await node.close()


async def test_least_rights_of_a_gateway_are_enough_and_are_few(tmp_path):
    async with NatsServer(tmp_path, config=PERMISSIONS) as server:
        node = JetStreamBus(server.url, user="node", password="n", inbox_prefix="_INBOX_node")
        gateway = JetStreamBus(server.url, user="gateway", password="g", role="client", inbox_prefix="_INBOX_gateway")
        await node.open()
        await gateway.open()
        await node.serve({"hook": _echo, "runs": _echo})

        async with asyncio.timeout(PATIENCE_S), gateway.follow("reply.0a1b") as news:
            assert await gateway.request("hook", b"1") == Reply(b"1")
            await node.announce("reply.0a1b", b"2")
            assert await anext(news) == b"2"
        with pytest.raises(BusUnusable, match="may not publish"):
            await gateway.request("runs", b"3")
        await gateway.close()
        await node.close()


async def _echo(request):
    return Reply(request.body)


async def test_the_limit_of_the_server_is_the_limit_of_the_bus(tmp_path):
    async with NatsServer(tmp_path, max_payload=65536) as server:
        bus = JetStreamBus(server.url)
        await bus.open()
        assert bus.body_bytes_max == 65536 - 8192

        for body, headers in ((b"x" * bus.body_bytes_max, {"X": "y" * 9000}), (b"x" * 65536, {})):
            with pytest.raises(PayloadTooLarge):
                await bus.publish_start("w", body, headers)
        await bus.publish_start("w", b"x" * bus.body_bytes_max, {"X": "y" * 8000})
        await bus.close()


async def test_a_port_that_is_taken_is_said_or_avoided(server, tmp_path):
    with pytest.raises(BusUnusable, match="taken"):
        await NatsServer(tmp_path, port=server.port).start()

    async with NatsServer(tmp_path, port=server.port, or_free_port=True) as other:
        assert other.port not in {0, server.port}


async def test_a_server_that_cannot_start_says_why(tmp_path):
    with pytest.raises(BusUnusable, match=r"ended at once.*Parse error"):
        await NatsServer(tmp_path, config="nonsense {").start()


# ---- streams


@pytest.mark.usefixtures("bus")
async def test_streams_are_made_as_asked_and_found_again(server, namespace, plain):
    js = plain.jetstream()
    wake = await js.stream_info(f"FP_{namespace}_WAKE")
    start = await js.stream_info(f"FP_{namespace}_START")
    live = await js.stream_info(f"FP_{namespace}_LIVE")

    again = JetStreamBus(server.url, namespace)
    await again.open()
    await again.close()

    assert (wake.config.max_msgs_per_subject, wake.config.retention) == (1, api.RetentionPolicy.WORK_QUEUE)
    assert start.config.discard == api.DiscardPolicy.NEW
    assert (live.config.storage, live.config.max_bytes) == (api.StorageType.MEMORY, 32 * 1024 * 1024)
    assert (await js.stream_info(f"FP_{namespace}_WAKE")).created == wake.created


@pytest.mark.usefixtures("bus")
async def test_a_stream_that_was_changed_is_set_right(server, namespace, plain):
    js = plain.jetstream()
    found = (await js.stream_info(f"FP_{namespace}_WAKE")).config
    found.max_msgs_per_subject = 5
    found.description = "mine"
    await js.update_stream(found)

    again = JetStreamBus(server.url, namespace)
    await again.open()
    await again.close()

    now = (await js.stream_info(f"FP_{namespace}_WAKE")).config
    assert (now.max_msgs_per_subject, now.description) == (1, "mine")


async def test_a_stream_of_somebody_else_is_refused_in_a_sentence(server, namespace, plain):
    await plain.jetstream().add_stream(
        api.StreamConfig(name=f"FP_{namespace}_WAKE", subjects=["mine.>"], retention=api.RetentionPolicy.LIMITS)
    )

    with pytest.raises(BusUnusable, match=r"made by something else \(.*retention.*another namespace"):
        await JetStreamBus(server.url, namespace).open()


async def test_subjects_of_somebody_else_are_refused_in_a_sentence(server, namespace, plain):
    await plain.jetstream().add_stream(name=f"mine_{namespace}", subjects=[f"fp.{namespace}.start.>"])

    with pytest.raises(BusUnusable, match="another stream has these subjects"):
        await JetStreamBus(server.url, namespace).open()


async def test_a_consumer_that_was_deleted_is_made_again(bus, namespace, plain):
    inbox = Inbox()
    await bus.take("default", [3], inbox)

    await plain.jetstream().delete_consumer(f"FP_{namespace}_WAKE", "default-03")
    await bus.ring(Bell("run", "a", 3))

    assert (await inbox.one()).id == "a"


async def test_streams_that_were_deleted_are_made_again_and_sources_stay_apart(bus, namespace, plain):
    js, inbox, bells = plain.jetstream(), Inbox(), Inbox()
    await bus.starts(inbox)
    await bus.take("default", [0], bells)
    await bus.publish_start("w", b"1")
    first = await inbox.one()

    await js.delete_stream(f"FP_{namespace}_START")
    await js.delete_stream(f"FP_{namespace}_WAKE")
    await bus.publish_start("w", b"2")
    await bus.ring(Bell("run", "a", 0))
    second = await inbox.one()

    assert (await bells.one()).id == "a"
    assert (first.body, second.body) == (b"1", b"2")
    assert first.source.split("-1-")[0] != second.source.split("-1-")[0]


async def test_the_live_feed_is_kept_for_a_while(bus, namespace, plain):
    await bus.announce("event.run-1", b"1")

    kept = await _eventually(
        lambda: plain.jetstream().get_last_msg(f"FP_{namespace}_LIVE", f"fp.{namespace}.event.run-1")
    )
    assert kept.data == b"1"


async def test_an_answer_to_a_webhook_is_kept_by_no_stream(bus, namespace, plain):
    await bus.announce("reply.0a1b", b"a secret")
    await bus.announce("event.run-1", b"after it")

    await _eventually(lambda: plain.jetstream().get_last_msg(f"FP_{namespace}_LIVE", f"fp.{namespace}.event.run-1"))
    with pytest.raises(NotFoundError):
        await plain.jetstream().find_stream_name_by_subject(f"fp.{namespace}.reply.0a1b")


async def _eventually(ask):
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await ask()
            except NotFoundError:
                # real time: polls what nothing rings for
                await asyncio.sleep(0.01)


# ---- strangers


async def test_a_start_message_of_any_client_is_delivered(bus, namespace, plain):
    inbox = Inbox()
    await bus.starts(inbox)

    await plain.publish(f"fp.{namespace}.start.checkout", b"core")
    core = await inbox.one()
    await plain.jetstream().publish(
        f"fp.{namespace}.start.a.b", b"js", headers={"Nats-Msg-Id": "m", "Fp-Reply-To": "x"}
    )
    js = await inbox.one()

    assert (core.workflow, core.body, dict(core.headers)) == ("checkout", b"core", {})
    assert (js.workflow, js.body, js.headers["Nats-Msg-Id"]) == ("a.b", b"js", "m")


async def test_what_looks_like_a_status_or_is_no_text_harms_nobody(bus, server, namespace):
    inbox = Inbox()
    await bus.starts(inbox)
    root = f"fp.{namespace}.start".encode()
    fake = b"NATS/1.0 503 No Responders\r\nNats-Pending-Messages: 9\r\n\r\n"

    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b'CONNECT {"verbose":false,"headers":true}\r\n')
    writer.write(b"PUB %s.\xff\xfe 1\r\n1\r\n" % root)
    writer.write(b"HPUB %s.status %d %d\r\n%s\r\n" % (root, len(fake), len(fake), fake))
    writer.write(b"PUB %s.last 1\r\n3\r\nPING\r\n" % root)
    while b"PONG" not in await reader.readline():
        pass
    writer.close()

    seen = [await inbox.one() for _ in range(3)]
    assert {"status", "last"} < {start.workflow for start in seen}
    await bus.publish_start("w", b"4")
    assert (await inbox.one()).body == b"4"


async def test_a_bell_nobody_of_ours_rang_is_taken_away(bus, namespace, plain):
    inbox = Inbox()
    await bus.take("default", [0], inbox)

    await plain.publish(f"fp.{namespace}.wake.default.00.odd", b"")
    await plain.publish(f"fp.{namespace}.wake.default.00.run.a", b"a body")

    assert await inbox.one() == Bell("run", "a", 0)
    info = await _drained(plain, f"FP_{namespace}_WAKE")
    assert info.state.messages == 0


async def _drained(plain, stream):
    async with asyncio.timeout(PATIENCE_S):
        while True:
            info = await plain.jetstream().stream_info(stream)
            if not info.state.messages:
                return info
            # real time: polls what nothing rings for
            await asyncio.sleep(0.01)


async def test_an_answer_reaches_the_inbox_a_start_message_named(bus, plain):
    address = plain.new_inbox()
    answers = await plain.subscribe(address)
    await plain.flush()

    assert await bus.answer(address, Reply(b"{}", "RunExists", "taken"))

    answer = await answers.next_msg(timeout=PATIENCE_S)
    assert answer.data == b"{}"
    assert (answer.headers["Nats-Service-Error-Code"], answer.headers["Nats-Service-Error"]) == ("RunExists", "taken")


async def test_a_question_cannot_make_a_node_publish_elsewhere(bus, namespace, plain):
    asked = Inbox()

    async def api_start(request):
        await asked(request)
        return Reply(b"answer")

    await bus.serve({"start": api_start})
    overheard = await plain.subscribe(f"fp.{namespace}.wake.>")

    await plain.publish(f"fp.{namespace}.api.start.w", b"", reply=f"fp.{namespace}.wake.default.00.run.x")
    await asked.one()
    await bus.request("start", b"")
    await plain.flush()

    assert overheard.pending_msgs == 0


async def test_the_micro_service_is_shown(bus, namespace, plain):
    await bus.serve({"start": _echo, "result": _echo})
    assert (await plain.request(f"fp.{namespace}.api.start.checkout", b"1", timeout=PATIENCE_S)).data == b"1"

    ping = await _about(plain, "PING", namespace)
    info = await _about(plain, f"INFO.fencepost.{ping['id']}", namespace)
    stats = await _about(plain, f"STATS.fencepost.{ping['id']}", namespace)

    assert (ping["type"], ping["name"]) == ("io.nats.micro.v1.ping_response", "fencepost")
    assert {endpoint["subject"] for endpoint in info["endpoints"]} == {
        f"fp.{namespace}.api.start",
        f"fp.{namespace}.api.result",
    }
    by_name = {endpoint["name"]: endpoint for endpoint in stats["endpoints"]}
    assert (by_name["start"]["num_requests"], by_name["result"]["num_requests"]) == (1, 0)


async def _about(plain, what, namespace):
    about = json.loads((await plain.request(f"$SRV.{what}", b"", timeout=PATIENCE_S)).data)
    assert about["metadata"] == {"namespace": namespace}
    return about


# ---- time


async def test_copies_that_came_while_this_process_was_held_up_are_handled_once(bus, plain, namespace):
    handled = []
    inbox = Inbox()

    async def on_start(start):
        handled.append(start.source)
        await inbox(start)

    await bus.starts(on_start)
    await plain.publish(f"fp.{namespace}.start.w", b"1")
    await plain.flush()

    # real time: the loop is held up
    time.sleep(2.6)  # noqa: ASYNC251 - holding up the loop is what is tested
    await inbox.one()
    await _drained(plain, f"FP_{namespace}_START")

    assert len(handled) == 1


async def test_a_message_whose_headers_are_none_is_taken_in_and_stops_no_other(bus, plain, namespace):
    inbox = Inbox()
    await bus.starts(inbox)

    for header, body in ((b"XXXX\r\n\r\n", b"odd"), (b"NATS/1.0\r\n\r\n", b"good")):
        sizes = f"{len(header)} {len(header) + len(body)}"
        await plain._send_command(f"HPUB fp.{namespace}.start.w {sizes}\r\n".encode() + header + body + b"\r\n")
        await plain._flush_pending()

    assert {(await inbox.one()).body, (await inbox.one()).body} == {b"odd", b"good"}
