"""The gateway by itself, before a node that says what a test wants: what callers see, and what is asked of the node."""

import asyncio
import base64
import contextlib
import json
import logging

import httpx
import msgspec
import pytest

from fencepost.actors.webhooks import reply_topic
from fencepost.bus import InProcessBus, Reply
from fencepost.client import Client
from fencepost.gateway import gateway
from fencepost.rates import Rate, Rates, network_of

PATIENCE_S = 10


class Node:
    """Answers the question `hook` as it is told to, and keeps what it was asked."""

    def __init__(self, bus):
        self.bus = bus
        self.asked = []
        self.reply = None
        self.refusal = None
        self.on_asked = None
        self.came = asyncio.Event()

    async def hook(self, request):
        question = json.loads(request.body)
        self.asked.append(question)
        self.came.set()
        if self.on_asked:
            await self.on_asked(question)
        if self.refusal:
            kind, message = self.refusal
            return Reply(json.dumps({"error": kind, "message": message}).encode(), kind, message)
        return Reply(
            msgspec.json.encode(
                {"run_id": "run_1", "id": "mine", "delivery": question["delivery"], "repeated": False}
                | {"reply": self.reply}
            )
        )

    async def says(self, question, **answer):
        """Reply as a step does."""
        told = {"run_id": "run_1", "status": 200, "headers": {}, "body": None} | answer
        topic = reply_topic(question["token"], question["delivery"])
        await self.bus.announce(topic, json.dumps(told).encode())


@pytest.fixture
async def bus():
    bus = InProcessBus()
    yield bus
    await bus.close()


@pytest.fixture
async def node(bus):
    node = Node(bus)
    await bus.serve({"hook": node.hook})
    return node


@contextlib.asynccontextmanager
async def calling(app, client=("10.0.0.1", 1)):
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=client)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as caller:
        yield caller


@pytest.fixture
async def caller(bus):
    async with calling(gateway(Client(bus), reply_timeout="100ms")) as caller:
        yield caller


def refused(response, status, error):
    """Tell whether this is a refusal as all of them look."""
    said = response.json()
    assert (response.status_code, said["error"]) == (status, error)
    assert said.keys() == {"error", "message"}
    assert said["message"]
    return True


# ---- what is asked of a node


async def test_a_delivery_is_taken_as_it_came(caller, node):
    answer = await caller.post(
        "/hooks/order%2F7/caf%C3%A9%20au",
        content=b'{"paid":  true}',
        headers={"Idempotency-Key": "k1", "Content-Type": "application/json", "X-Signature": "s"},
    )

    (asked,) = node.asked
    assert answer.status_code == 202
    assert answer.json() == {"run_id": "run_1", "delivery": "k1", "repeated": False}
    assert asked["token"] == "order/7/café au"
    assert base64.b64decode(asked["raw"]) == b'{"paid":  true}'
    assert (asked["delivery"], asked["content_type"]) == ("k1", "application/json")
    assert asked["headers"]["x-signature"] == "s"


async def test_a_token_may_begin_and_end_with_a_slash(caller, node):
    await caller.post("/hooks//a/")

    assert [asked["token"] for asked in node.asked] == ["/a/"]


async def test_no_body_is_an_empty_one(caller, node):
    await caller.post("/hooks/a")

    assert (node.asked[0]["raw"], node.asked[0]["content_type"]) == ("", "")


async def test_secrets_and_what_is_for_the_transport_are_not_kept(caller, node):
    await caller.post("/hooks/a", content=b"1", headers={"Authorization": "Bearer s", "Cookie": "s", "X-Twice": "1"})

    assert node.asked[0]["headers"].keys().isdisjoint({"authorization", "cookie", "connection", "content-length"})
    assert node.asked[0]["headers"]["x-twice"] == "1"


@pytest.mark.parametrize("name", ["Idempotency-Key", "X-GitHub-Delivery", "webhook-id", "Fp-Delivery"])
async def test_the_id_of_a_delivery_is_the_senders(caller, node, name):
    answer = await caller.post("/hooks/a", headers={name: "d-1"})

    assert node.asked[0]["delivery"] == answer.headers["Fp-Delivery"] == "d-1"


async def test_without_an_id_each_delivery_is_another(caller, node):
    for _ in range(2):
        await caller.post("/hooks/a")

    first, second = (asked["delivery"] for asked in node.asked)
    assert first
    assert first != second


async def test_a_lost_answer_is_asked_for_with_the_same_id(caller, node):
    async def away_once(_):
        node.on_asked = None
        node.refusal = ("Unavailable", "the store is away")
        asyncio.get_running_loop().call_soon(setattr, node, "refusal", None)

    node.on_asked = away_once

    answer = await caller.post("/hooks/a")

    assert answer.status_code == 202
    assert len({asked["delivery"] for asked in node.asked}) == 1
    assert len(node.asked) == 2


# ---- what is refused


async def test_what_is_no_hook_or_no_post_is_refused(caller, node):
    assert refused(await caller.get("/hooks/a"), 405, "MethodNotAllowed")
    assert (await caller.head("/hooks/a")).status_code == 405
    assert (await caller.get("/hooks/a")).headers["allow"] == "POST"
    assert refused(await caller.post("/hooks"), 404, "NotFound")
    assert refused(await caller.post("/hooks/"), 404, "HookNotFound")
    assert refused(await caller.post("/hooks/" + "a" * 256), 404, "HookNotFound")
    assert refused(await caller.post("/hooks/a%00b"), 404, "HookNotFound")
    assert refused(await caller.post("/hooks/a", headers={"Idempotency-Key": " "}), 400, "InvalidInput")
    assert refused(await caller.post("/hooks/a", headers={"X-Much": "x" * 9000}), 431, "ValueTooLarge")
    assert refused(await caller.post("/hooks/a", headers={"Content-Encoding": "gzip"}), 415, "UnsupportedEncoding")
    assert not node.asked


@pytest.mark.parametrize(
    ("kind", "status", "error"),
    [
        ("InvalidInput", 400, "InvalidInput"),
        ("HookNotFound", 404, "HookNotFound"),
        ("ValueTooLarge", 413, "ValueTooLarge"),
        ("HookFull", 429, "HookFull"),
        ("internal", 502, "Failed"),
    ],
)
async def test_what_a_node_refuses_has_a_status(caller, node, kind, status, error):
    node.refusal = (kind, "field 'paid': not a bool; nats://secret")

    answer = await caller.post("/hooks/a")

    assert refused(answer, status, error)
    assert ("retry-after" in answer.headers) is (status == 429)
    assert ("paid" in answer.text) is (status in {400, 413})


async def test_without_a_node_the_sender_is_told_to_come_again(caller):
    answer = await caller.post("/hooks/a")

    assert refused(answer, 503, "Unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert "node" not in answer.json()["message"]


async def test_a_body_over_the_bound_is_read_no_further(bus, node):
    read = []

    async def chunks():
        for number in range(100):
            read.append(number)
            yield b"x" * 100

    async with calling(gateway(Client(bus), max_body=1000)) as caller:
        at_once = await caller.post("/hooks/a", content=b"x" * 1001)
        by_and_by = await caller.post("/hooks/a", content=chunks())
        just = await caller.post("/hooks/a", content=b"x" * 1000)

    for answer in (at_once, by_and_by):
        assert refused(answer, 413, "ValueTooLarge")
    assert len(read) == 11
    assert just.status_code == 202
    assert len(node.asked) == 1


@pytest.mark.usefixtures("node")
async def test_a_body_that_no_message_can_hold_is_over_the_bound(bus):
    most = (bus.body_bytes_max - 4 * 8192) * 3 // 4
    async with calling(gateway(Client(bus))) as caller:
        assert (await caller.post("/hooks/a", content=b"x" * most)).status_code == 202
        assert refused(await caller.post("/hooks/a", content=b"x" * (most + 1)), 413, "ValueTooLarge")


@pytest.mark.usefixtures("node")
async def test_who_posts_too_often_waits_and_others_do_not(bus):
    app = gateway(Client(bus), rate="2/minute")
    async with calling(app) as caller, calling(app, ("10.0.0.2", 1)) as other:
        taken = [(await caller.post(f"/hooks/{token}")).status_code for token in "ab"]
        over = await caller.post("/hooks/c")
        others = (await other.post("/hooks/a")).status_code
        of_token = await other.post("/hooks/a")

    assert taken == [202, 202]
    assert refused(over, 429, "RateLimited")
    assert over.headers["retry-after"] == "30"
    assert others == 202
    assert refused(of_token, 429, "RateLimited")


# ---- what is answered


@pytest.mark.parametrize(
    ("body", "content", "kind"),
    [
        ({"ok": [1]}, b'{"ok":[1]}', "application/json"),
        ("challenge", b"challenge", "text/plain; charset=utf-8"),
        (None, b"", None),
    ],
)
async def test_the_reply_of_a_hook_is_sent_as_it_is(caller, node, body, content, kind):
    node.reply = {"status": 201, "body": body, "headers": {"X-A": "1"}}

    answer = await caller.post("/hooks/a")

    assert (answer.status_code, answer.content, answer.headers.get("content-type")) == (201, content, kind)
    assert answer.headers["x-a"] == "1"


async def test_a_hook_without_a_reply_of_its_own_says_that_it_was_taken(caller, node):
    node.reply = {"status": 202, "body": None, "headers": {}}

    answer = await caller.post("/hooks/a")

    assert (answer.status_code, answer.json()["run_id"]) == (202, "run_1")


async def test_a_text_is_of_the_type_its_author_says(caller, node):
    node.reply = {"status": 200, "body": "<Say>ä</Say>", "headers": {"Content-Type": "text/xml"}}

    answer = await caller.post("/hooks/a")

    assert (answer.text, answer.headers["content-type"]) == ("<Say>ä</Say>", "text/xml")


async def test_what_a_step_replies_is_sent_to_who_waits(caller, node):
    node.reply, node.on_asked = "manual", lambda question: node.says(question, status=402, body={"due": 3})

    answer = await caller.post("/hooks/a")

    assert (answer.status_code, answer.json()) == (402, {"due": 3})


async def test_the_first_reply_counts_and_what_is_none_is_passed_over(caller, node):
    async def replies(question):
        topic = reply_topic(question["token"], question["delivery"])
        for odd in (b"", b"{}", b'{"run_id": "run_1"}', b'{"status": 99, "headers": {}, "body": 1}'):
            await node.bus.announce(topic, odd)
        await node.says(question, status=200, body=1)
        await node.says(question, status=201, body=2)

    node.reply, node.on_asked = "manual", replies

    answer = await caller.post("/hooks/a")

    assert (answer.status_code, answer.json()) == (200, 1)


async def test_the_reply_of_a_run_that_had_the_token_before_is_passed_over(caller, node):
    async def replies(question):
        await node.says(question, run_id="run_0", body="of another")
        await node.says(question, body="mine")

    node.reply, node.on_asked = "manual", replies

    answer = await caller.post("/hooks/a")

    assert answer.text == "mine"


async def test_without_a_reply_in_time_the_caller_is_told_that_it_was_taken(caller, node):
    node.reply = "manual"

    answer = await caller.post("/hooks/a")

    assert (answer.status_code, answer.json()["run_id"]) == (202, "run_1")


async def test_a_gateway_that_stops_lets_go_who_waits(bus, node):
    node.reply = "manual"
    app = gateway(Client(bus), reply_timeout=PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S / 2), calling(app) as caller:
        waiting = asyncio.create_task(caller.post("/hooks/a"))
        await node.came.wait()

        app.state.stopping.set()

        assert (await waiting).status_code == 202


async def test_a_caller_who_goes_away_is_not_waited_for(bus, node):
    node.reply = "manual"
    app = gateway(Client(bus), reply_timeout=PATIENCE_S)
    sent, parts = [], asyncio.Queue()
    parts.put_nowait({"type": "http.request", "body": b""})
    scope = {"type": "http", "method": "POST", "path": "/hooks/a", "headers": [], "query_string": b"", "client": None}

    async def send(part):
        sent.append(part)

    async with asyncio.timeout(PATIENCE_S / 2):
        serving = asyncio.create_task(app(scope, parts.get, send))
        await node.came.wait()
        parts.put_nowait({"type": "http.disconnect"})
        await serving


class Deaf(InProcessBus):
    """A bus whose server says nothing any more."""

    unheard_s = 11.0


async def test_health_says_whether_nats_can_be_reached(caller):
    assert (await caller.get("/healthz")).json() == {"status": "ok"}

    async with calling(gateway(Client(Deaf()))) as deaf:
        assert (await deaf.get("/healthz")).status_code == 503
    async with calling(gateway(Client.connect("nats://127.0.0.1:1"))) as cut_off:
        assert (await cut_off.get("/healthz")).status_code == 503
        assert refused(await cut_off.post("/hooks/a"), 500, "Failed")


async def test_tokens_and_payloads_are_not_logged(caller, node, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    for refusal in (None, ("HookFull", "full"), ("internal", "failed")):
        node.refusal = refusal
        await caller.post("/hooks/s3cret-token", content=b"s3cret payload", headers={"X-Key": "s3cret"})

    logged = caplog.text + "".join(capsys.readouterr())
    assert "status" in logged
    assert "s3cret" not in logged.replace("http://gateway/hooks/s3cret-token", "")  # what the caller's library logs


# ---- rates


@pytest.mark.parametrize(
    ("text", "rate"), [("50/s", Rate(50, 1)), ("100/minute", Rate(100, 60)), (" 5 / 10s ", Rate(5, 10)), ("none", None)]
)
def test_a_rate_is_read(text, rate):
    assert Rate.of(text) == rate


@pytest.mark.parametrize("text", ["", "5", "0/s", "5/0s", "-5/s", "5/fortnight", "/s"])
def test_a_rate_that_is_none_is_said(text):
    with pytest.raises(ValueError, match="50/s"):
        Rate.of(text)


async def test_keys_of_strangers_fill_no_memory(monkeypatch):
    monkeypatch.setattr("fencepost.rates.KEYS_MAX", 2)
    rates = Rates(Rate(1, 60))

    assert [await rates.wait_s(key) for key in "aba"] == [0, 0, 60]
    assert [await rates.wait_s(key) for key in "cab"] == [0, 60, 0]


@pytest.mark.parametrize(
    ("address", "network"),
    [("10.0.0.1", "10.0.0.1"), ("2001:db8::1", "2001:db8::/64"), ("::ffff:10.0.0.1", "10.0.0.1"), ("", "")],
)
def test_addresses_of_one_client_are_one(address, network):
    assert network_of(address) == network
