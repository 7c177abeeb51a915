"""Hooks over HTTP, with real nodes behind the gateway; and the command that serves it."""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys

import httpx
import pytest
from pydantic import BaseModel

from fencepost import Reply, Webhook, reply, sleep, step, webhook, workflow
from fencepost.actors.errors import FencepostError
from fencepost.bus import InProcessBus
from fencepost.cli import httpserver
from fencepost.cli.entry import run
from fencepost.cli.exits import CommandError, Exit
from fencepost.cli.gateway import Asked, app_for, size_of, trusted_of
from fencepost.client import Client
from fencepost.gateway import gateway
from tests.e2e.command import FENCEPOST, environment
from tests.e2e.world_and_bus import PATIENCE_S


class Paid(BaseModel):
    amount: int


@step
async def receipt(came: Webhook[Paid]) -> None:
    await reply(came, {"amount": came.payload.amount, "delivery": came.delivery}, status=201, headers={"X-A": "1"})


@step
def receipt_in_a_thread(came: Webhook[Paid]) -> None:
    reply(came, came.payload.amount)


@workflow
async def asks(token: str) -> list[int]:
    got = []
    async with webhook(token, Paid, reply="manual") as hook:
        while len(got) < 2:
            came = await hook
            got.append(came.payload.amount)
            await (receipt if came.headers.get("x-how") != "thread" else receipt_in_a_thread)(came)
    return got


@workflow
async def thanks(token: str) -> list[int]:
    hook = webhook(token, Paid, reply=Reply(200, "thanks", {"X-A": "1"}))
    return [(await hook).payload.amount, (await hook).payload.amount]


@workflow
async def raw(token: str) -> str:
    came = await webhook(token, bytes)
    return came.payload.hex() + came.headers["x-signature"]


@workflow
async def never_reads(token: str) -> None:
    webhook(token)
    await sleep("1d")


@workflow
async def replies_itself(token: str) -> str:
    try:
        await reply(Webhook(1, token, "d"))
    except FencepostError as error:
        return str(error)
    return ""


@contextlib.asynccontextmanager
async def calling(client, **more):
    transport = httpx.ASGITransport(gateway(client, **more))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as caller:
        yield caller


@pytest.fixture
async def caller(stack):
    async with calling(stack.client) as caller:
        yield caller


async def opened(stack, workflow, token="t/1"):
    """Start a run whose hook is there when this returns."""
    run = await stack.start(workflow, token)
    await stack.saw(run, "hook_created")
    return run


# ---- with a node


async def test_a_step_answers_the_caller(stack, caller):
    run = await opened(stack, asks)

    first = await caller.post("/hooks/t/1", json={"amount": 3}, headers={"Idempotency-Key": "k1"})
    second = await caller.post("/hooks/t/1", json={"amount": 4}, headers={"X-How": "thread"})

    assert (first.status_code, first.json()) == (201, {"amount": 3, "delivery": "k1"})
    assert first.headers["x-a"] == "1"
    assert (second.status_code, second.json()) == (200, 4)
    assert await run.result(PATIENCE_S) == [3, 4]


async def test_a_delivery_that_is_sent_again_to_another_gateway_is_recorded_once(stack, caller):
    run = await opened(stack, thanks)
    bus = await stack._connected("client") if stack._server else stack.front
    async with calling(Client(bus)) as other:
        for each in (caller, other, caller):
            answer = await each.post("/hooks/t/1", json={"amount": 3}, headers={"Fp-Delivery": "k1"})
            assert (answer.status_code, answer.text, answer.headers["x-a"]) == (200, "thanks", "1")
        await other.post("/hooks/t/1", json={"amount": 4})

        assert await run.result(PATIENCE_S) == [3, 4]
        again = await caller.post("/hooks/t/1", json={"amount": 3}, headers={"Fp-Delivery": "k1"})
        late = await caller.post("/hooks/t/1", json={"amount": 5})

    assert (again.status_code, late.status_code) == (200, 404)
    assert len(await stack.events(run, "hook_received")) == 2
    if bus is not stack.front:
        await bus.close()


async def test_what_does_not_fit_is_said_and_not_recorded(local):
    run = await opened(local, thanks)
    async with calling(local.client) as caller:
        misfit = await caller.post("/hooks/t/1", json={"amount": "much"})
        no_json = await caller.post("/hooks/t/1", content=b"{", headers={"Content-Type": "application/json"})
        unknown = await caller.post("/hooks/t/2", json={})

    assert (misfit.status_code, no_json.status_code, unknown.status_code) == (400, 400, 404)
    assert "amount" in misfit.json()["message"]
    assert not await local.events(run, "hook_received")


async def test_a_body_can_be_had_as_it_came(local):
    run = await opened(local, raw)
    async with calling(local.client) as caller:
        answer = await caller.post("/hooks/t/1", content=b"\x00\xff", headers={"X-Signature": "s"})

    assert answer.status_code == 202
    assert answer.json()["run_id"] == run.run_id
    assert await run.result(PATIENCE_S) == "00ffs"


async def test_a_form_is_an_object_of_texts(local):
    run = await opened(local, thanks)
    async with calling(local.client) as caller:
        for amount in (1, 2):
            answer = await caller.post("/hooks/t/1", data={"amount": amount})
            assert answer.status_code == 200

    assert await run.result(PATIENCE_S) == [1, 2]


async def test_a_hook_that_nobody_reads_is_full_at_last(local, monkeypatch):
    monkeypatch.setattr("fencepost.world.sqlite.hooks.HOOK_UNREAD_MAX", 2)
    await opened(local, never_reads)
    async with calling(local.client) as caller:
        answers = [await caller.post("/hooks/t/1", json=number) for number in range(3)]

    assert [answer.status_code for answer in answers] == [202, 202, 429]
    assert answers[-1].headers["retry-after"]


async def test_a_workflow_does_not_reply_itself(local):
    assert "give the webhook to a step" in await local.run(replies_itself, "t")


# ---- the server


@contextlib.asynccontextmanager
async def served(app, trusted=""):
    """Serve as the command does, and give the address."""
    with httpserver.listening("127.0.0.1", 0) as listener:
        server = httpserver.Server(httpserver.configured(app, trusted), app.state.stopping)
        serving = asyncio.create_task(server.serve([listener]))
        yield listener.getsockname()
        server.should_exit = True
        await serving


async def test_who_says_nothing_or_not_all_is_closed_out(monkeypatch):
    monkeypatch.setattr(httpserver, "PATIENCE_S", 0.05)
    async with asyncio.timeout(PATIENCE_S), served(gateway(Client(InProcessBus()))) as address:
        for begin in (b"", b"POST /hooks/a HTTP/1.1\r\nHost: "):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(begin)

            assert await reader.read() == b""

            writer.close()


async def test_who_sends_too_much_hears_it_and_is_closed_out(monkeypatch):
    monkeypatch.setattr(httpserver, "PATIENCE_S", 0.05)
    chunk = b"64\r\n" + b"x" * 100 + b"\r\n"
    async with asyncio.timeout(PATIENCE_S), served(gateway(Client(InProcessBus()), max_body=10)) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"POST /hooks/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk)

        answer = await reader.readuntil(b"}")
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(chunk)
                await asyncio.sleep(0.01)  # real time: one who goes on as if nothing had been said

        assert b" 413 " in answer
        assert b"ValueTooLarge" in answer
        writer.close()


@pytest.mark.parametrize(("trusted", "statuses"), [("", [404, 429]), ("127.0.0.1", [404, 404])])
async def test_only_a_named_proxy_says_who_calls(local, trusted, statuses):
    app = gateway(local.client, rate="1/h")
    async with served(app, trusted) as (host, port), httpx.AsyncClient(trust_env=False) as caller:
        answers = [
            await caller.post(f"http://{host}:{port}/hooks/{number}", headers={"X-Forwarded-For": f"10.0.0.{number}"})
            for number in range(2)
        ]

    assert [answer.status_code for answer in answers] == statuses


# ---- the command


@pytest.fixture
def command(nats, tmp_path):
    """Starts `fencepost gateway` on a free port, and gives the process and what it said."""
    with contextlib.ExitStack() as stack:

        def started(*words):
            process = subprocess.Popen(
                [FENCEPOST, "gateway", "--port", "0", "--json", "--url", nats.url, "--namespace", "nobody", *words],
                cwd=tmp_path,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=stack.enter_context((tmp_path / "stderr").open("wb")),
            )
            stack.callback(process.stdout.close)
            stack.callback(process.kill)
            return process, json.loads(process.stdout.readline())

        yield started


def test_the_command_serves_and_ends_well(command, tmp_path):
    process, ready = command()

    health = httpx.get(f"{ready['url']}/healthz", trust_env=False)
    taken = httpx.post(f"{ready['url']}/hooks/s3cret", content=b"s3cret", trust_env=False)
    process.send_signal(signal.SIGTERM)

    assert process.wait(PATIENCE_S) == 0
    assert (health.status_code, taken.status_code, taken.json()["error"]) == (200, 503, "Unavailable")
    said = (tmp_path / "stderr").read_text()
    assert '"status": 503' in said
    assert "s3cret" not in said


def test_what_the_command_cannot_do_is_said():
    asked = Asked("127.0.0.1", 0, "fast", "1MiB", "30s", "", json=False, verbose=False)

    with pytest.raises(CommandError, match="50/s") as said:
        app_for(asked, Client(InProcessBus()))
    assert said.value.code == Exit.USAGE
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(CommandError, match="--port"):
        httpserver.listening("127.0.0.1", taken.getsockname()[1])


@pytest.mark.parametrize(
    ("text", "size"), [("65536", 65536), ("512KiB", 512 * 1024), ("1 m", 1024**2), ("2MB", 2 * 1024**2)]
)
def test_a_size_is_read(text, size):
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1", "1.5m", "1g"])
def test_a_size_that_is_none_is_said(text):
    with pytest.raises(ValueError, match="512KiB"):
        size_of(text)


def test_without_its_extra_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    for ours in ("fencepost.gateway", "fencepost.cli.gateway"):
        monkeypatch.delitem(sys.modules, ours)

    assert run(["gateway"]) == Exit.USAGE

    said = capsys.readouterr().err
    assert 'pip install "fencepost[gateway]"' in said
    assert len(said.splitlines()) == 1


def test_a_proxy_that_is_no_address_is_refused():
    assert [trusted_of(text) for text in ("", "*", "10.0.0.7,10.1.0.0/16,::1")] == [
        "",
        "*",
        "10.0.0.7,10.1.0.0/16,::1",
    ]
    with pytest.raises(CommandError, match="--trust-forwarded 'proxy' is no address and no network"):
        trusted_of("10.0.0.7,proxy")
