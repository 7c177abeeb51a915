"""Answers to webhooks: which can be given, and how they get from a step to who waits."""

from __future__ import annotations

import importlib
import json
import threading
from datetime import UTC, datetime

import pytest
from pydantic import BaseModel

from fencepost.actors.errors import FencepostError, SerializationError
from fencepost.actors.executor import Failed, Succeeded
from fencepost.actors.shape import Shape
from fencepost.actors.webhooks import Reply, Webhook, recorded, reply, reply_topic
from fencepost.world import ValueTooLarge
from fencepost.world.events import HookReply
from tests.actors.attempts import call, serving


class Paid(BaseModel):
    amount: int
    at: datetime


CAME = Webhook(Paid(amount=3, at=datetime(2030, 1, 1, tzinfo=UTC)), "token", "delivery", {"x-signature": "s"})


async def on_the_loop(came: Webhook[Paid]) -> None:
    await reply(came, {"got": came.payload}, status=201, headers={"X-A": "1"})


def in_a_thread(came: Webhook[Paid]) -> None:
    reply(came, {"got": came.payload}, status=201, headers={"X-A": "1"})


async def twice(came: Webhook[Paid]) -> None:
    await reply(came, 1)
    await reply(came, 2)


async def without_a_hint(came) -> None:
    await reply(came)


@pytest.fixture
def told():
    return []


@pytest.fixture
async def executor(told):
    loop = threading.get_ident()

    async def tell(topic, body):
        assert threading.get_ident() == loop
        told.append((topic, json.loads(body)))

    async with serving(tell=tell) as executor:
        yield executor


# ---- from a step


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A step that another process can import."""
    (tmp_path / "answering_elsewhere.py").write_text(
        "from fencepost.actors.webhooks import Webhook, reply\n"
        "async def answers(came: Webhook[dict]) -> None:\n"
        "    await reply(came, {'got': came.payload}, status=201, headers={'X-A': '1'})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("answering_elsewhere").answers


def the_answer(told):
    """Return the one answer, which was told to who waits for this delivery."""
    ((topic, answer),) = told
    assert topic == reply_topic("token", "delivery")
    assert answer.pop("run_id") == "run_1"
    return answer


@pytest.mark.parametrize("step", [on_the_loop, in_a_thread])
async def test_a_step_answers_who_waits(executor, told, step):
    done = await executor.execute(call(step, CAME))

    assert done == Succeeded(b"null")
    body = {"got": {"amount": 3, "at": "2030-01-01T00:00:00Z"}}
    assert the_answer(told) == {"status": 201, "headers": {"X-A": "1"}, "body": body}


async def test_a_step_in_a_process_of_its_own_answers_too(executor, told, elsewhere):
    done = await executor.execute(call(elsewhere, Webhook({"n": 1}, "token", "delivery"), isolate=True))

    assert done == Succeeded(b"null")
    assert the_answer(told) == {"status": 201, "headers": {"X-A": "1"}, "body": {"got": {"n": 1}}}


@pytest.mark.parametrize("status", [204, 205, 304])
def test_a_status_without_a_body_takes_none(status):
    assert Reply(status).status == status
    with pytest.raises(ValueError, match=f"a reply with status {status} has no body: leave it out"):
        Reply(status, {"x": 1})


@pytest.mark.parametrize("value", [" lead", "trail ", "\ttab"])
def test_a_header_with_spaces_around_it_is_refused(value):
    with pytest.raises(ValueError, match="without spaces around it"):
        Reply(200, headers={"A": value})


async def test_answers_come_in_order(executor, told):
    await executor.execute(call(twice, CAME))

    assert [answer["body"] for _, answer in told] == [1, 2]


async def test_nobody_who_hears_is_no_error():
    async with serving() as executor:
        assert await executor.execute(call(on_the_loop, CAME)) == Succeeded(b"null")


async def test_a_parameter_without_its_type_is_said(executor, told):
    done = await executor.execute(call(without_a_hint, CAME))

    assert isinstance(done, Failed)
    assert "give the step's parameter the type Webhook[…]" in done.error.message
    assert not told


def test_outside_of_a_step_is_said():
    with pytest.raises(FencepostError, match="outside of a step"):
        reply(CAME)


def test_a_topic_says_neither_token_nor_delivery():
    topic = reply_topic("token", "delivery")

    assert len(topic) == len("reply.") + 32
    assert len({topic, reply_topic("token\0", "delivery"), reply_topic("tokendelivery", "")}) == 3


# ---- what can be an answer


def test_an_answer_is_recorded():
    assert recorded(None) == HookReply()
    assert recorded("manual") == HookReply(manual=True)
    assert recorded(Reply(204)) == HookReply(status=204)
    full = recorded(Reply(200, {"at": CAME.payload.at, "x": float("nan")}, {"A": "b"}))
    assert (bytes(full.body), full.headers) == (b'{"at":"2030-01-01T00:00:00Z","x":null}', {"A": "b"})


@pytest.mark.parametrize(
    ("status", "headers", "says"),
    [
        (99, {}, "from 200 to 599"),
        (600, {}, "from 200 to 599"),
        (True, {}, "from 200 to 599"),
        (200, {"A b": ""}, "no name of a header"),
        (200, {"A": "b\r\nC: d"}, "one line of text"),
        (200, {"A": 1}, "one line of text"),
        (200, {"Content-Length": "3"}, "set by the server"),
    ],
)
def test_what_cannot_be_sent_is_said(status, headers, says):
    with pytest.raises(ValueError, match=says):
        Reply(status, None, headers)


def test_a_body_that_is_no_data_or_too_large_is_said():
    with pytest.raises(SerializationError, match="cannot be written as JSON"):
        recorded(Reply(200, object()))
    with pytest.raises(ValueTooLarge):
        recorded(Reply(200, "x" * 600_000))
    with pytest.raises(ValueError, match='"manual"'):
        recorded("Manual")


@pytest.mark.parametrize("payload", [Paid, int, bytes])
def test_a_webhook_crosses_with_the_type_of_its_payload(payload):
    came = Webhook({Paid: CAME.payload, int: 3, bytes: b"\xff"}[payload], "t", "d", {"a": "b"})
    shape = Shape(Webhook[payload], "came")

    assert shape.decode(shape.encode(came)) == came
