"""The endpoint `hook`: what is put is durable and rung for, what does not fit is told in a sentence and not written."""

import base64
import hashlib
import json
import sys
import types
import uuid

import pytest
from pydantic import BaseModel, Field

from fencepost.actors import delivering, values
from fencepost.actors.delivering import Deliverer
from fencepost.actors.errors import InvalidInput
from fencepost.actors.host import AsyncioHost
from fencepost.actors.models import named, schema_of
from fencepost.bus import InProcessBus, Request
from fencepost.world import HookFull, HookNotFound, RunNotFound, SQLiteWorld, ValueTooLarge, events, folding
from tests.contract.logs import Decider, disposed, hooked, outside, received, run_completed, terminate, whole_log

MANUAL = events.HookReply(manual=True)


class Stamped(BaseModel):
    """No two readings of it are the same."""

    a: int
    at: str = Field(default_factory=lambda: str(uuid.uuid4()))


class Approval(BaseModel):
    ok: bool
    by: str = Field(default="", alias="approvedBy")


@pytest.fixture
async def world():
    world = await SQLiteWorld.connect(":memory:")
    yield world
    await world.close()


class Desk:
    """A deliverer of app `shop`, a run with hooks, and what was rung."""

    def __init__(self, world, bus):
        self.world, self.bus, self.rung = world, bus, []
        self.deliverer = Deliverer(world, bus, AsyncioHost(), "shop", lambda *run: self.rung.append(run))

    async def open(self, *hooks, run_id="run_1", **run):
        self.run = await Decider.of_new(self.world, run_id, **run)
        await self.run.begin(*hooks)

    async def send(self, **asked):
        return await self.send_bytes(json.dumps(asked).encode())

    async def send_bytes(self, body):
        return await self.deliverer.deliver(Request("hook", "", body))

    async def received(self, run_id="run_1"):
        log = await whole_log(self.world, run_id)
        return [event.body for event in log if isinstance(event.body, events.HookReceived)]

    async def payloads(self):
        return [json.loads(bytes(body.payload.json)) for body in await self.received()]


@pytest.fixture
async def desk(world):
    bus = InProcessBus()
    yield Desk(world, bus)
    await bus.close()


# ---- what is put


async def test_a_delivery_is_in_the_log_rung_for_and_told_to_who_follows(desk):
    await desk.open(hooked(token="approve:42"))

    async with desk.bus.follow("event.run_1") as news:
        told = await desk.send(token="approve:42", payload={"ok": True}, delivery="mail-7")

        assert json.loads(await anext(news))["seq"] == 4
    assert told == {"run_id": "run_1", "id": "run_1:4", "delivery": "mail-7", "repeated": False, "reply": None}
    (body,) = await desk.received()
    assert (body.op, body.token, body.delivery, bytes(body.payload.json)) == (
        "0.0",
        "approve:42",
        "mail-7",
        b'{"ok":true}',
    )
    assert desk.rung == [("run_1", "shop")]


async def test_a_delivery_sent_again_is_recorded_once_and_rung_for_again(desk):
    await desk.open(hooked())
    await desk.send(token="tok", payload=1, delivery="d")

    again = await desk.send(token="tok", payload=1, delivery="d")

    assert (again["repeated"], again["id"]) == (True, "run_1:4")
    assert await desk.payloads() == [1]
    assert desk.rung == [("run_1", "shop")] * 2


async def test_another_payload_under_an_id_that_was_used_is_refused(desk):
    await desk.open(hooked())
    await desk.send(token="tok", payload={"n": 1, "m": 2}, delivery="d")
    await desk.send(token="tok", payload={"n": 1, "m": 2}, delivery="d")

    with pytest.raises(InvalidInput, match="delivery 'd' of hook 'tok' was another payload: use another id"):
        await desk.send(token="tok", payload={"n": 2}, delivery="d")
    assert len(await desk.payloads()) == 1


async def test_what_is_sent_again_is_the_same_whatever_its_model_makes_of_it(desk):
    """The id decides, and what was sent: not what a default, or newer code, adds to it."""
    await desk.open(hooked(model=f"{__name__}:Stamped"))
    first = await desk.send(token="tok", payload={"a": 1}, delivery="d")

    again = await desk.send(token="tok", payload={"a": 1}, delivery="d")

    assert (again["repeated"], again["id"]) == (True, first["id"])
    with pytest.raises(InvalidInput, match="was another payload"):
        await desk.send(token="tok", payload={"a": 2}, delivery="d")
    with pytest.raises(InvalidInput, match="was another payload"):
        await desk.send(token="tok", payload={"b": 2}, delivery="d")


async def test_another_large_payload_under_an_id_that_was_used_is_kept_nowhere(desk):
    await desk.open(hooked())
    await desk.send(token="tok", payload="x" * 200_000, delivery="d")

    with pytest.raises(InvalidInput, match="was another payload"):
        await desk.send(token="tok", payload="y" * 200_000, delivery="d")

    first, other = (hashlib.sha256(f'"{letter * 200_000}"'.encode()).hexdigest() for letter in "xy")
    assert await desk.world.get_value("run_1", first, 0, 2) == b'"x'
    with pytest.raises(RunNotFound):
        await desk.world.get_value("run_1", other)


async def test_deliveries_without_an_id_are_all_put(desk):
    await desk.open(hooked())

    first, second = await desk.send(token="tok", payload=1), await desk.send(token="tok", payload=1)

    assert first["delivery"] != second["delivery"]
    assert await desk.payloads() == [1, 1]


async def test_no_payload_is_null(desk):
    await desk.open(hooked())

    await desk.send(token="tok")

    assert await desk.payloads() == [None]


@pytest.mark.parametrize("how", ["disposed", "ended", "terminated"])
async def test_what_had_arrived_is_still_known_after_the_end_and_nothing_else_gets_in(desk, how):
    await desk.open(hooked(model=named(Approval)))
    await desk.send(token="tok", payload={"ok": True}, delivery="d")
    if how == "terminated":
        await outside(desk.world, terminate("k"))
    else:
        desk.run.known = 4
        await desk.run.append(disposed() if how == "disposed" else run_completed())

    again = await desk.send(token="tok", payload={"ok": True}, delivery="d")

    assert again["repeated"]
    with pytest.raises(HookNotFound, match="no hook 'tok' is open"):
        await desk.send(token="tok", payload={"no": "approval"}, delivery="e")
    assert len(await desk.received()) == 1


async def test_a_token_that_goes_to_another_run_in_between_is_looked_up_again(desk):
    await desk.open(hooked())
    looked = await desk.world.hook("tok")
    await desk.run.append(disposed())
    await desk.open(hooked("0.5"), run_id="run_2")
    before = [looked]

    class Late:
        def __getattr__(self, name):
            return getattr(desk.world, name)

        async def hook(self, token):
            return before.pop() if before else await desk.world.hook(token)

    desk.deliverer._world = Late()

    told = await desk.send(token="tok", payload=1)

    assert told["run_id"] == "run_2"
    assert not before


async def test_a_large_payload_is_kept_apart(desk):
    await desk.open(hooked())
    text = "x" * values.INLINE_BYTES_MAX

    await desk.send(token="tok", payload=text)

    (body,) = await desk.received()
    assert not bytes(body.payload.json)
    assert json.loads(await desk.world.get_value("run_1", body.payload.ref)) == text
    assert body.payload.size_bytes == len(text) + 2


# ---- what is answered to who asks over HTTP


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (None, None),
        (MANUAL, "manual"),
        (events.HookReply(), {"status": 202, "body": None, "headers": {}}),
        (
            events.HookReply(status=201, body=events.as_json({"a": 1}), headers={"x": "y"}),
            {"status": 201, "body": {"a": 1}, "headers": {"x": "y"}},
        ),
    ],
)
async def test_the_reply_of_a_webhook_comes_with_the_answer(desk, reply, told):
    await desk.open(hooked(reply=reply))

    answer = await desk.send(token="tok", payload=1)

    assert json.loads(delivering.msgspec.json.encode(answer))["reply"] == told


async def test_headers_are_kept_for_a_webhook_only_and_no_credentials(desk):
    await desk.open(hooked("0.0", "web", reply=MANUAL), hooked("0.1", "plain"))
    headers = {"X-Event": "push", "Authorization": "secret"}

    for token in ("web", "plain"):
        await desk.send(token=token, raw="", headers=headers)

    assert [body.headers for body in await desk.received()] == [{"x-event": "push"}, {}]


async def test_a_raw_body_is_read_by_its_type_and_goes_as_it_is_to_a_model_of_bytes(desk):
    await desk.open(hooked("0.0", "any"), hooked("0.1", "bytes", model="builtins:bytes"))
    raw = base64.b64encode(b"a=1").decode()

    await desk.send(token="any", raw=raw, content_type="application/x-www-form-urlencoded")
    await desk.send(token="bytes", raw=raw, content_type="application/x-www-form-urlencoded")

    assert await desk.payloads() == [{"a": "1"}, raw]


# ---- models


async def test_a_model_that_is_loaded_checks_and_writes_the_payload_as_the_codec_does(desk):
    await desk.open(hooked(model=named(Approval)))

    await desk.send(token="tok", payload={"approvedBy": "ann", "ok": "yes"})

    assert await desk.payloads() == [{"ok": True, "by": "ann"}]
    with pytest.raises(InvalidInput, match="the payload does not fit: field 'ok': Field required"):
        await desk.send(token="tok", payload={"by": "ann"})


async def test_a_model_of_another_app_or_that_is_not_loaded_goes_by_its_schema(desk):
    """The class of that name here is none of theirs: the schema takes what the class would refuse."""
    schema = events.msgspec.Raw(b'{"required": ["n"]}')
    await desk.open(hooked(model=named(Approval), schema=schema), app="other")
    await desk.run.append(hooked("0.1", "away", model="not_loaded_anywhere:Model", schema=schema))

    for token in ("tok", "away"):
        await desk.send(token=token, payload={"n": 1})
        with pytest.raises(InvalidInput, match="the payload does not fit: field 'n': it is missing"):
            await desk.send(token=token, payload={"ok": True})

    assert await desk.payloads() == [{"n": 1}] * 2
    assert "not_loaded_anywhere" not in sys.modules


async def test_what_is_no_class_goes_by_its_schema(desk):
    await desk.open(hooked(schema=schema_of(list[Approval])))

    await desk.send(token="tok", payload=[{"ok": True}])

    with pytest.raises(InvalidInput, match=r"field '0\.ok': it should be of type boolean, got 'maybe'"):
        await desk.send(token="tok", payload=[{"ok": "maybe"}])


async def test_a_refusal_names_the_field_and_never_holds_the_payload(desk):
    await desk.open(hooked(model=named(Approval)), hooked("0.1", "schema", schema=schema_of(Approval)))

    for token in ("tok", "schema"):
        with pytest.raises(InvalidInput) as refused:
            await desk.send(token=token, payload={"ok": {"key": "secret" * 1000}})

        assert "'ok'" in str(refused.value)
        assert len(str(refused.value)) <= 200
        assert "secret" not in str(refused.value)


async def test_a_refusal_has_an_end_though_the_names_of_its_fields_are_the_senders(desk):
    await desk.open(hooked(schema=schema_of(dict[str, dict[str, dict[str, dict[str, int]]]])))
    payload = "no number"
    for _ in range(4):
        payload = {"k" * 100: payload}

    with pytest.raises(InvalidInput) as refused:
        await desk.send(token="tok", payload=payload)

    assert len(str(refused.value)) == 200
    assert str(refused.value).endswith("…")


async def test_a_model_whose_validator_exits_is_a_refusal_and_no_end_of_the_node(desk, monkeypatch):
    module = types.ModuleType("exiting")

    def ends(_):
        sys.exit("no")

    module.Exiting = type("Exiting", (), {"__module__": "exiting", "__get_pydantic_core_schema__": classmethod(ends)})
    monkeypatch.setitem(sys.modules, "exiting", module)
    module.Bad = type(
        "Bad",
        (BaseModel,),
        {"__module__": "exiting", "__annotations__": {"x": int}, "model_post_init": lambda *_: sys.exit("no")},
    )
    await desk.open(hooked(model="exiting:Bad"))

    with pytest.raises(InvalidInput, match="raised SystemExit: no"):
        await desk.send(token="tok", payload={"x": 1})


# ---- what is refused


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the delivery is not JSON"),
        (b"[]", "the delivery does not fit: Expected `object`, got `array`"),
        (b"{}", "Object missing required field `token`"),
        (b"\xff", "the delivery is not JSON"),
        (b'{"token": "tok", "payload": {no}}', "the delivery is not JSON"),
        (b'{"token": "tok", "payload": NaN}', "the delivery is not JSON"),
        (b'{"token": "tok", "payload": "\xff"}', "the payload does not fit: it is not JSON: not UTF-8"),
        (b'{"token": "tok", "payload": {"$fp": "nothing"}}', "the payload does not fit: "),
        (b'{"token": "tok", "payload": "\\ud800"}', "is not JSON"),
        (
            b'{"token": "tok", "payload": %s}' % (b"[" * 500 + b"]" * 500),
            "the payload does not fit: it is nested too deep",
        ),
        (b'{"token": "tok", "payload": %s}' % (b"9" * 5000), "the payload does not fit: it is not JSON"),
        (b'{"token": "tok", "payloda": 1}', "Object contains unknown field `payloda`"),
        (b'{"token": "tok", "raw": "e30=", "payload": 1}', "both payload and raw: give one of them"),
        (b'{"token": "tok", "raw": "no base64!"}', "Invalid base64"),
        (b'{"token": "tok", "raw": "e30", "content_type": 3}', "`$.raw`"),
        (b'{"token": "tok", "payload": 1, "content_type": "text/plain"}', "leave it out beside payload"),
        (
            b'{"token": "tok", "raw": "ew==", "content_type": "application/json"}',
            "the payload does not fit: it is not JSON",
        ),
        (b'{"token": "", "payload": 1}', "the token of a hook is empty: give 1 to 255 characters"),
        (b'{"token": 3}', "Expected `str`, got `int` - at `$.token`"),
        (b'{"token": "%s"}' % (b"x" * 256), "the token of a hook has 256 characters, more than 255"),
        (b'{"token": "a\\n"}', "holds a character that cannot be shown"),
        (b'{"token": "tok", "delivery": " d"}', "the id of a delivery ' d' begins or ends with a space"),
        (b'{"token": "tok", "delivery": "%s"}' % (b"x" * 256), "the id of a delivery has 256 characters"),
    ],
)
async def test_bad_input_is_refused_in_a_sentence_and_nothing_is_written(desk, body, said):
    await desk.open(hooked())

    with pytest.raises(InvalidInput) as refused:
        await desk.send_bytes(body)

    assert said in str(refused.value)
    assert len(str(refused.value)) < 300
    assert await desk.received() == []
    assert desk.rung == []


async def test_a_token_nobody_has_and_a_full_hook_and_a_payload_over_the_limit_are_their_own_types(desk, monkeypatch):
    await desk.open(hooked())
    with pytest.raises(HookNotFound, match="no hook 'none' is open: it was not made yet"):
        await desk.send(token="none", payload=1)
    monkeypatch.setattr(values, "VALUE_BYTES_MAX", 100)
    with pytest.raises(ValueTooLarge, match="the payload has 102 bytes, over the limit of 100"):
        await desk.send(token="tok", payload="x" * 100)
    many = [received(f"d{n}") for n in range(folding.HOOK_UNREAD_MAX)]
    await outside(desk.world, *many)

    with pytest.raises(HookFull, match="holds 1,000 payloads its run has not read: try again later"):
        await desk.send(token="tok", payload=1)
