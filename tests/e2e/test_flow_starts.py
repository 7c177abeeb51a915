"""How runs begin: by request, by raw message, twice, for workflows nobody knows, and with input that is wrong."""

import asyncio
import json

import pytest
from pydantic import BaseModel

from fencepost.actors import step, workflow
from fencepost.errors import InvalidInput, RunExists, RunFailed, RunNotFound
from tests.e2e.world_and_bus import PATIENCE_S, eventually


class Order(BaseModel):
    id: int
    account: str = "acme"


@step
async def one() -> int:
    return 1


@pytest.fixture
def checkout(stack):
    @workflow
    async def checkout(order: Order) -> str:
        assert type(order) is Order
        return f"{order.account} {order.id} {await one()}"

    stack.app.add(checkout)
    return checkout


async def letters(stack, count=1):
    """Wait for so many dead letters and return them whole, oldest first."""
    async with asyncio.timeout(PATIENCE_S), stack.front.follow("dead.start") as news:
        while len(found := await stack.client.dead.list()) < count:
            await anext(news)
    return [await stack.client.dead.show(letter.id) for letter in reversed(found)]


async def taken_in(stack, id_):
    """Wait until a run with this id is there, and return its handle."""
    run = stack.client.run(id_)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await run.status()
            except RunNotFound:
                # real time: polls what nothing rings for
                await asyncio.sleep(0.01)
            else:
                return run


async def ended_run(stack, workflow):
    """Wait until there is one run of a workflow, and return its result."""
    await eventually(lambda: stack.client.runs.list(workflow=workflow))
    (run,) = await stack.client.runs.list(workflow=workflow)
    return await stack.client.run(run.run_id).result(PATIENCE_S)


# ---- twice


async def test_the_same_id_with_the_same_input_is_the_same_run(stack, checkout):
    first = await stack.start(checkout, Order(id=1), id="order-1")
    again = await stack.start(checkout, Order(id=1), id="order-1")

    assert first.run_id == again.run_id
    assert (first.existing, again.existing) == (False, True)
    assert await again.result(PATIENCE_S) == "acme 1 1"
    late = await stack.start(checkout, Order(id=1), id="order-1")
    assert late.run_id == first.run_id


async def test_the_same_id_with_other_input_is_refused(stack, checkout):
    await stack.start(checkout, Order(id=1), id="order-1")

    with pytest.raises(RunExists, match="order-1"):
        await stack.start(checkout, Order(id=2), id="order-1")
    with pytest.raises(RunExists):
        await stack.start(checkout, Order(id=1), id="order-1", on_duplicate="raise")


async def test_fifty_starts_of_one_id_at_once_are_one_run(stack, checkout):
    runs = await asyncio.gather(*(stack.start(checkout, Order(id=1), id="order-1") for _ in range(50)))

    assert len({run.run_id for run in runs}) == 1
    assert [run.existing for run in runs].count(False) == 1
    assert await runs[0].result(PATIENCE_S) == "acme 1 1"
    assert len(await stack.client.runs.list()) == 1


@pytest.mark.usefixtures("checkout")
async def test_a_request_without_id_is_a_new_run_each_time(stack):
    body = json.dumps({"input": {"id": 5}}).encode()

    first, second = [await stack.client.start_raw("checkout", body) for _ in range(2)]

    assert first.run_id != second.run_id
    assert await first.result(PATIENCE_S) == await second.result(PATIENCE_S) == "acme 5 1"


# ---- raw messages


@pytest.mark.usefixtures("checkout")
async def test_a_raw_start_message_with_an_id_runs_and_again_is_the_same_run(stack):
    body = json.dumps({"id": "order-43", "input": {"id": 43}}).encode()
    for _ in range(3):
        await stack.client.publish_raw("checkout", body)

    run = await taken_in(stack, "order-43")

    assert await run.result(PATIENCE_S) == "acme 43 1"
    assert len(await stack.client.runs.list()) == 1


@pytest.mark.usefixtures("checkout")
async def test_a_raw_start_message_without_id_runs_once_also_when_it_is_delivered_twice(stack):
    stack.cable.fail_once("create", after=True)  # taken in, but the answer of the world was lost: it comes again
    await stack.client.publish_raw("checkout", b'{"input": {"id": 44}}', once=True)

    assert await ended_run(stack, "checkout") == "acme 44 1"
    assert len(await stack.client.runs.list()) == 1


async def test_a_raw_start_for_later_is_not_begun_early(skipping):
    @workflow
    async def later() -> int:
        return await one()

    skipping.app.add(later)
    await skipping.client.publish_raw("later", b'{"id": "later", "at": "2031-01-01T00:00:00Z"}')
    run = await taken_in(skipping, "later")
    skipping.node.tick(run.run_id)
    await skipping.idle()
    early = (await run.status()).status
    await skipping.skip(days=365)

    assert await run.result(PATIENCE_S) == 1
    assert early == "pending"


@pytest.mark.usefixtures("checkout")
async def test_the_header_nats_msg_id_names_the_run(stack):
    await stack.client.publish_raw("checkout", b'{"input": {"id": 45}}', {"Nats-Msg-Id": "order-45"})

    run = await taken_in(stack, "order-45")

    assert await run.result(PATIENCE_S) == "acme 45 1"


async def test_several_parameters_are_given_as_kwargs(stack):
    @workflow
    async def several(order: Order, times: int = 2) -> list[int]:
        return [order.id] * times

    stack.app.add(several)
    run = await stack.client.start_raw("several", b'{"kwargs": {"order": {"id": 3}}}')

    assert await run.result(PATIENCE_S) == [3, 3]


@pytest.mark.usefixtures("checkout")
async def test_the_header_fp_reply_to_is_answered(stack):
    address = f"fp.{stack.front.namespace}.reply.me"
    answers = await stack.listens(address)
    await stack.client.publish_raw("checkout", b'{"id": "a", "input": {"id": 1}}', {"Fp-Reply-To": address})
    await stack.client.publish_raw("checkout", b'{"id": "b", "input": {"id": "x"}}', {"Fp-Reply-To": address})

    found = [json.loads(await answers()) for _ in range(2)]

    assert {answer.get("error", "") for answer in found} == {"", "InvalidInput"}
    assert any(answer.get("run_id", "").startswith("run_") for answer in found)


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize("address", ["$JS.API.STREAM.DELETE.FP", "fp.other.api.start", "$SYS.REQ.x", "_INBOX.>", "a b"])
async def test_a_reply_address_of_the_system_is_not_served_and_the_run_goes_on(stack, address):
    can_be_listened_to = address.startswith(("$JS", "fp."))
    answers = await stack.listens(address) if can_be_listened_to else None
    await stack.client.publish_raw("checkout", b'{"id": "a", "input": {"id": 1}}', {"Fp-Reply-To": address})

    assert await (await taken_in(stack, "a")).result(PATIENCE_S) == "acme 1 1"
    if answers is not None:
        with pytest.raises(TimeoutError):
            await answers(0.05)


# ---- wrong input

WRONG = {
    "no json": (b"{not json", "not JSON"),
    "empty": (b"", "empty"),
    "blank": (b"  \n", "empty"),
    "no utf-8": (b'{"input": "\xff"}', "JSON"),
    "unknown field": (b'{"imput": {"id": 1}}', "imput"),
    "no object": (b"[1, 2]", "object"),
    "misfit": (b'{"input": {"id": "not a number"}}', "id"),
    "missing": (b"{}", "order"),
    "too deep": (b'{"input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", ""),
    "own id": (b'{"id": "run_1", "input": {"id": 1}}', "run_"),
    "bad time": (b'{"at": "yesterday", "input": {"id": 1}}', "at"),
}


@pytest.mark.usefixtures("checkout")
async def test_a_message_that_cannot_be_taken_in_is_a_dead_letter_with_reason_and_bytes(stack):
    for body, _ in WRONG.values():
        await stack.client.publish_raw("checkout", body, {"X-From": "partner"})

    by_body = {letter.body: letter for letter in await letters(stack, len(WRONG))}

    for body, named in WRONG.values():
        letter = by_body[body]
        assert letter.headers["X-From"] == "partner"
        assert letter.subject.endswith(".start.checkout")
        assert letter.code == "InvalidInput"
        assert named in letter.reason
        assert len(letter.reason) < 1000
    assert await stack.client.runs.list() == []


@pytest.mark.usefixtures("checkout")
async def test_a_request_that_cannot_be_taken_in_is_refused_with_the_reason_and_leaves_nothing(stack):
    for body, named in WRONG.values():
        with pytest.raises(InvalidInput) as refused:
            await stack.client.start_raw("checkout", body)
        assert named in str(refused.value)

    assert await stack.client.runs.list() == []
    assert await stack.client.dead.list() == []


async def test_an_id_used_again_with_other_input_by_message_is_a_dead_letter(stack, checkout):
    await stack.start(checkout, Order(id=1), id="order-1")
    await stack.client.publish_raw("checkout", b'{"id": "order-1", "input": {"id": 2}}')

    (letter,) = await letters(stack)

    assert letter.code == "RunExists"
    assert "order-1" in letter.reason


async def test_a_dead_letter_is_replayed_after_a_fix_and_only_once(stack):
    @workflow(name="checkout")
    async def strict(order: Order) -> int:
        return order.id

    @workflow(name="checkout")
    async def lenient(order: dict[str, str]) -> str:
        return order["id"]

    stack.app.add(strict)
    await stack.client.publish_raw("checkout", b'{"input": {"id": "x7"}}')
    (letter,) = await letters(stack)
    with pytest.raises(InvalidInput):
        await stack.client.dead.replay(letter.id)
    await stack.deploy(lenient)

    first, again = [await stack.client.dead.replay(letter.id) for _ in range(2)]

    assert await first.result(PATIENCE_S) == "x7"
    assert first.run_id == again.run_id
    assert (await stack.client.dead.show(letter.id)).replayed_as == first.run_id


# ---- workflows nobody knows


async def test_a_run_of_an_unknown_workflow_is_pending_and_runs_when_a_node_with_it_joins(stack):
    @workflow
    async def unknown_yet(order: Order) -> int:
        return order.id + await one()

    run = await stack.client.start("unknown_yet", {"id": 6})
    (listed,) = await stack.client.runs.list(status="pending")
    await stack.deploy(unknown_yet)

    assert listed.run_id == run.run_id
    assert await run.result(PATIENCE_S) == 7


async def test_a_pending_run_with_bad_input_fails_with_the_reason_when_its_workflow_joins(stack):
    @workflow
    async def unknown_yet(order: Order) -> int:
        return order.id

    run = await stack.client.start("unknown_yet", {"id": "six"})
    await stack.deploy(unknown_yet)

    with pytest.raises(RunFailed, match="id") as failed:
        await run.result(PATIENCE_S)
    assert failed.value.kind.endswith("InvalidInput")


async def test_a_pending_run_can_be_cancelled(stack):
    from fencepost.errors import RunCancelled  # noqa: PLC0415

    run = await stack.client.start("nobody_knows", 1)
    await run.cancel("a typo")

    with pytest.raises(RunCancelled, match="a typo"):
        await run.result(PATIENCE_S)


# ---- finding runs


async def test_runs_are_listed_by_workflow_status_and_attribute_newest_first(stack, checkout):
    tenants = ["acme", "acme", "other"]
    runs = [await stack.start(checkout, Order(id=n), attributes={"tenant": tenant}) for n, tenant in enumerate(tenants)]
    for run in runs:
        await run.result(PATIENCE_S)
    await stack.client.start("nobody_knows", 1)

    async def ids(**query):
        return [run.run_id for run in await stack.client.runs.list(**query)]

    expected = [run.run_id for run in reversed(runs)]
    assert await ids(workflow="checkout") == expected
    assert await ids(status="completed") == expected
    assert await ids(attribute={"tenant": "acme"}) == expected[1:]
    assert await ids(workflow="checkout", limit=1) == expected[:1]
    assert await ids(workflow="checkout", before=expected[0]) == expected[1:]
    assert len(await ids()) == 4


async def test_a_caller_that_goes_away_never_affects_the_run(stack, gate):
    @step
    async def held() -> int:
        await gate.pause()
        return 1

    @workflow
    async def waits() -> int:
        return await held()

    run = await stack.start(waits)
    await gate.arrival()
    with pytest.raises(TimeoutError):
        await run.result(0.01)
    gate.open()

    assert await run.result(PATIENCE_S) == 1


async def test_events_can_be_followed_until_the_end(stack, gate):
    @step
    async def held() -> int:
        await gate.pause()
        return 1

    @workflow
    async def waits() -> int:
        return await held()

    run = await stack.start(waits)
    seen = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in run.events(follow=True):
            seen.append(event.seq)
            if event.type == "step_started":
                gate.open()

    assert seen == list(range(1, 7))


async def test_a_run_nobody_started_is_not_found(stack):
    with pytest.raises(RunNotFound, match="nothing-here"):
        await stack.client.run("nothing-here").status()


async def test_a_stopping_node_does_not_wait_for_callers_who_wait(local, gate):
    await local.restart()

    @step
    async def held() -> None:
        await gate.pause()

    @workflow
    async def waits() -> None:
        await held()

    run = await local.start(waits)
    await gate.arrival()
    waiting = asyncio.create_task(run.result(PATIENCE_S))
    await asyncio.sleep(0)
    async with asyncio.timeout(4):
        await local.node.stop()
    local.node = None
    waiting.cancel()
