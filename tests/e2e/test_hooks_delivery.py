"""Payloads for hooks, from the client to the code that waits: early, late, twice, and across the death of a node."""

import asyncio
from dataclasses import dataclass

import pytest
from pydantic import BaseModel, Field

from fencepost import errors
from fencepost.actors import FatalError, hook, step, webhook, workflow
from fencepost.world import UNREAD, Batch, events, folding
from tests.e2e.world_and_bus import PATIENCE_S


class Approval(BaseModel):
    ok: bool
    by: str = Field(default="", alias="approvedBy")


@dataclass
class Paid:
    amount: int


@workflow
async def approved(token: str) -> Approval:
    return await hook(token, Approval)


@workflow
async def paid(token: str) -> int:
    return (await hook(token, Paid)).amount


@workflow
async def stored(token: str) -> bytes:
    return await hook(token, bytes)


@workflow
async def first_of(token: str) -> int:
    async with hook(token, int) as box:
        return await box


def puts_a_payload(batch):
    return any(isinstance(event, events.HookReceived) for event in batch.events)


async def opened(stack, run):
    """Wait until the hook of a run is durable."""
    await stack.saw(run, "hook_created")


# ---- when it comes


async def test_payloads_that_come_before_anybody_waits_are_kept_in_order(stack, gate):
    @step
    async def busy() -> None:
        await gate.pause()

    @workflow
    async def patient(token: str) -> list[int]:
        async with hook(token, int) as box:
            await busy()
            return [await box, await box, await box]

    run = await stack.start(patient, "box-1")
    await gate.arrival()
    for number in (3, 1, 2):
        await stack.client.resume("box-1", number)
    gate.open()

    assert await run.result(PATIENCE_S) == [3, 1, 2]


async def test_a_payload_for_a_hook_that_is_not_there_yet_is_refused_or_waits_for_it(stack):
    with pytest.raises(errors.HookNotFound, match="no hook 'early' is open: it was not made yet") as refused:
        await stack.client.resume("early", 1)
    sending = asyncio.create_task(stack.client.resume("early", 7, wait=PATIENCE_S))
    run = await stack.start(first_of, "early")

    delivered = await sending

    assert refused.value.token == "early"
    assert delivered.run_id == run.run_id
    assert await run.result(PATIENCE_S) == 7
    assert [event.data["delivery"] for event in await stack.events(run, "hook_received")] == [delivered.delivery]


async def test_after_disposal_and_after_the_end_only_what_had_arrived_is_known(stack, gate):
    @step
    async def busy() -> None:
        await gate.pause()

    @workflow
    async def once(token: str) -> int:
        async with hook(token, int) as box:
            number = await box
        await busy()
        return number

    run = await stack.start(once, "once")
    first = await stack.client.resume("once", 4, delivery="mail-7", wait=PATIENCE_S)
    await gate.arrival()
    while_disposed = await stack.client.resume("once", 4, delivery="mail-7")
    with pytest.raises(errors.HookNotFound):
        await stack.client.resume("once", 5)
    gate.open()

    assert await run.result(PATIENCE_S) == 4
    assert await stack.client.resume("once", 4, delivery="mail-7") == while_disposed
    assert (first.repeated, while_disposed.repeated, while_disposed.id) == (False, True, first.id)
    with pytest.raises(errors.HookNotFound):
        await stack.client.resume("once", 5)
    assert len(await stack.events(run, "hook_received")) == 1


# ---- answers that are lost


async def test_a_delivery_whose_answer_is_lost_is_recorded_once_and_wakes_the_run(stack):
    run = await stack.start(first_of, "lost")
    await opened(stack, run)
    stack.cable.fail_once("append", puts_a_payload, after=True)

    delivered = await stack.client.resume("lost", 7)

    assert await run.result(PATIENCE_S) == 7
    assert delivered.repeated
    assert len(await stack.events(run, "hook_received")) == 1


async def test_a_delivery_committed_by_a_node_that_died_before_it_answered_is_recorded_once(stack):
    run = await stack.start(first_of, "dying")
    await opened(stack, run)
    stack.cable.fail_once("append", puts_a_payload, after=True, cut=True)
    cable = stack.cable

    sending = asyncio.create_task(stack.client.resume("dying", 7))
    await cable.failed.wait()
    await stack.restart()

    delivered = await sending
    assert delivered.repeated
    assert await run.result(PATIENCE_S) == 7
    assert len(await stack.events(run, "hook_received")) == 1


# ---- what is sent


@pytest.mark.parametrize(
    ("flow", "payload", "result"),
    [
        (approved, Approval(ok=True, approvedBy="ann"), Approval(ok=True, approvedBy="ann")),
        (approved, {"ok": True, "approvedBy": "ann"}, Approval(ok=True, approvedBy="ann")),
        (approved, {"ok": True, "by": "ann"}, Approval(ok=True, approvedBy="ann")),
        (paid, Paid(3), 3),
        (stored, b"\x00\xff", b"\x00\xff"),
        (stored, b"x" * 200_000, b"x" * 200_000),
    ],
)
async def test_a_payload_arrives_as_the_type_of_the_hook(local, flow, payload, result):
    run = await local.start(flow, "tok")

    await local.client.resume("tok", payload, wait=PATIENCE_S)

    assert await run.result(PATIENCE_S) == result


async def test_what_does_not_fit_is_told_to_who_sends_and_the_run_waits_on(local):
    run = await local.start(approved, "tok")
    await opened(local, run)

    with pytest.raises(errors.InvalidInput, match="the payload does not fit: field 'ok': Field required"):
        await local.client.resume("tok", {"by": "ann"})
    with pytest.raises(errors.SerializationError, match="the payload cannot be written as JSON"):
        await local.client.resume("tok", object())
    with pytest.raises(errors.InvalidInput, match="the token of a hook is empty"):
        await local.client.resume("", 1)
    with pytest.raises(errors.InvalidInput, match="the id of a delivery 'a\\\\n' holds a character"):
        await local.client.resume("tok", 1, delivery="a\n")
    with pytest.raises(errors.ValueTooLarge):
        await local.client.resume("tok", "x" * 2_000_000)

    await local.client.resume("tok", {"ok": False})
    assert await run.result(PATIENCE_S) == Approval(ok=False)
    assert len(await local.events(run, "hook_received")) == 1


async def test_a_model_that_is_no_class_is_checked_by_its_schema(local):
    @workflow
    async def several(token: str) -> list[Paid]:
        return await hook(token, list[Paid])

    run = await local.start(several, "tok")
    await opened(local, run)

    with pytest.raises(errors.InvalidInput, match=r"field '1\.amount': it should be of type integer, got 'three'"):
        await local.client.resume("tok", [{"amount": 1}, {"amount": "three"}])
    await local.client.resume("tok", [Paid(1), Paid(2)])

    assert await run.result(PATIENCE_S) == [Paid(1), Paid(2)]


async def test_a_hook_whose_run_reads_nothing_is_full_and_takes_again_when_it_has_read(local, gate):
    @step
    async def busy() -> None:
        await gate.pause()

    @workflow
    async def reads_late(token: str) -> int:
        async with hook(token, int) as box:
            await busy()
            total = sum([await box for _ in range(folding.HOOK_UNREAD_MAX)])
            return total + await box

    run = await local.start(reads_late, "tok")
    await gate.arrival()
    value = events.Value(events.as_json(1))
    (made,) = await local.events(run, "hook_created")
    many = [
        events.HookReceived(op=made.op, token="tok", delivery=f"d{n}", payload=value)
        for n in range(folding.HOOK_UNREAD_MAX)
    ]
    await local.world.append(Batch(run.run_id, tuple(many), UNREAD))

    with pytest.raises(errors.HookFull, match="holds 1,000 payloads its run has not read: try again later") as full:
        await local.client.resume("tok", 1)
    gate.open()

    assert full.value.token == "tok"
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await local.client.resume("tok", 1)
                break
            except errors.HookFull:
                await asyncio.sleep(0.01)  # real time: nothing tells a sender that there is room again
    assert await run.result(PATIENCE_S) == folding.HOOK_UNREAD_MAX + 1


async def test_any_program_on_the_bus_can_put_a_payload(stack):
    run = await stack.start(first_of, "other")
    await opened(stack, run)

    reply = await stack.front.request("hook", b'{"token": "other", "payload": 5, "delivery": "mail-7"}')
    refused = await stack.front.request("hook", b'{"token": "other", "payloda": 5}')

    assert b'"delivery":"mail-7","repeated":false,"reply":null' in reply.body
    assert refused.error == "InvalidInput"
    assert b"unknown field `payloda`" in refused.body
    assert await run.result(PATIENCE_S) == 5


async def test_a_webhook_gets_headers_and_the_sender_its_answer(local):
    @workflow
    async def pushed(token: str) -> dict[str, str]:
        event = await webhook(token, dict[str, int], "manual")
        if event.payload != {"n": 1}:
            raise FatalError
        return {**event.headers, "delivery": event.delivery}

    run = await local.start(pushed, "tok")
    await opened(local, run)

    body = b'{"token": "tok", "raw": "eyJuIjogMX0=", "content_type": "application/json", "delivery": "d", %s}'
    reply = await local.front.request("hook", body % b'"headers": {"X-Event": "push", "Cookie": "c"}')

    assert reply.body.endswith(b'"reply":"manual"}')
    assert await run.result(PATIENCE_S) == {"x-event": "push", "delivery": "d"}


# ---- what is there


async def test_a_run_tells_its_open_hooks_and_what_they_hold(local, gate):
    @step
    async def busy() -> None:
        await gate.pause()

    @workflow
    async def two(a: str, b: str) -> None:
        first, second = hook(a, int), hook(b)
        await first
        second.dispose()
        await busy()

    run = await local.start(two, "a", "b")
    await local.client.resume("a", 1, wait=PATIENCE_S)
    await gate.arrival()
    await local.client.resume("a", 2)

    reply = await local.front.request("show", b'{"id": "%s"}' % run.id.encode())

    (shown,) = events.msgspec.json.decode(reply.body)["hooks"]
    (made, _) = await local.events(run, "hook_created")
    assert shown == {"op": made.op, "token": "a", "since": shown["since"], "received": 2, "unread": 1}
