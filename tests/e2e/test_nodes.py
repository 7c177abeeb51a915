"""Several nodes, one truth: runs are decided by one of them, steps run on any, and whoever dies loses time only."""

import asyncio

import pytest

from fencepost.actors import App, Retry, sleep, step, step_info, workflow
from tests.e2e.world_and_bus import PATIENCE_S, eventually

DEFAULT = {"default"}


@pytest.fixture
def ran():
    """Which steps ran, in order."""
    return []


@pytest.fixture
def gated(gate, ran):
    """A workflow whose step waits at the gate, and then another one."""

    @step
    async def slow(n: int) -> int:
        ran.append(("slow", n, step_info().attempt))
        await gate.pause()
        return n

    @step
    async def quick(n: int) -> int:
        ran.append(("quick", n, step_info().attempt))
        return n

    @workflow
    async def gated(n: int) -> int:
        return await slow(n) + await quick(n)

    return gated


@pytest.fixture
def on_gpu(ran):
    """A workflow whose step needs a queue of its own."""

    @step(queue="gpu")
    async def render(n: int) -> int:
        ran.append(n)
        return n * n

    @workflow
    async def on_gpu(n: int) -> int:
        return await render(n)

    return on_gpu


async def test_runs_are_decided_by_the_owner_of_their_partition_whoever_was_asked(stack, ran):
    @step
    async def once(n: int) -> int:
        ran.append(n)
        return n

    @workflow
    async def plain(n: int) -> int:
        return await once(n)

    stack.app.add(plain)
    one, two = await stack.nodes(DEFAULT, DEFAULT)

    runs = [await stack.start(plain, n) for n in range(12)]

    assert [await run.result(PATIENCE_S) for run in runs] == list(range(12))
    assert sorted(ran) == list(range(12))
    assert one.owned | two.owned == set(range(32))
    assert not one.owned & two.owned


async def test_what_a_killed_node_was_doing_is_done_by_another(stack, gate, gated, ran):
    stack.app.add(gated)
    one, two = await stack.nodes(DEFAULT, DEFAULT)
    run = await stack.start(gated, 7)
    await gate.arrival()
    busy, other = await _who_runs(stack, run, one, two)

    await busy.kill()
    await other.look()
    await gate.arrival()
    gate.open()

    assert await run.result(PATIENCE_S) == 14
    assert ran == [("slow", 7, 1), ("slow", 7, 1), ("quick", 7, 1)]  # a loss is no failure
    assert other.owned == set(range(32))
    (lost,) = await stack.events(run, "step_retrying")
    assert lost.data["lost"] == 1


async def test_a_body_goes_on_when_its_run_moves_and_is_recorded_under_its_claim(stack, gate, gated, ran):
    stack.app.add(gated)
    (one,) = await stack.nodes(DEFAULT)
    run = await stack.start(gated, 7)
    await gate.arrival()

    two = await stack.join(queues=frozenset(DEFAULT))
    await one.node.ownership.retire()
    await two.look()
    assert two.owned == set(range(32))
    gate.open()

    assert await run.result(PATIENCE_S) == 14
    assert ran == [("slow", 7, 1), ("quick", 7, 1)]
    assert "step_retrying" not in await stack.kinds(run)


async def test_a_run_that_moves_back_and_forth_runs_its_step_once(stack, gate, gated, ran):
    stack.app.add(gated)
    (one,) = await stack.nodes(DEFAULT)
    run = await stack.start(gated, 7)
    await gate.arrival()
    two = await stack.join(queues=frozenset(DEFAULT))

    for giver, taker in [(one, two), (two, one), (one, two), (two, one)]:
        await giver.node.ownership.retire()
        await taker.look()
        taker.node.tick(run.run_id)
        await eventually(lambda node=taker.node: not node._mailboxes.busy)
    gate.open()

    assert await run.result(PATIENCE_S) == 14
    assert ran == [("slow", 7, 1), ("quick", 7, 1)]


async def test_a_step_runs_on_a_node_that_serves_its_queue(stack, on_gpu):
    stack.app.add(on_gpu)
    _, gpu = await stack.nodes(DEFAULT, {"gpu"})

    runs = [await stack.start(on_gpu, n) for n in range(4)]

    assert [await run.result(PATIENCE_S) for run in runs] == [0, 1, 4, 9]
    for run in runs:
        (started,) = await stack.events(run, "step_started")
        assert started.data["incarnation"] == gpu.node.incarnation


async def test_a_node_for_steps_only_decides_nothing(stack, on_gpu):
    stack.app.add(on_gpu)
    await stack.nodes(DEFAULT)

    worker = await stack.join(queues=frozenset({"gpu"}), steps_only=True)

    assert await stack.run(on_gpu, 3) == 9
    assert worker.owned == set()


async def test_a_step_nobody_serves_waits_until_a_node_with_it_joins(stack, on_gpu):
    stack.app.add(on_gpu)
    await stack.nodes(DEFAULT)
    run = await stack.start(on_gpu, 3)
    await stack.saw(run, "step_created")
    assert (await run.status()).status == "running"

    await stack.join(queues=frozenset({"gpu"}), steps_only=True)

    assert await run.result(PATIENCE_S) == 9


async def test_steps_wait_for_no_slot_here_when_another_node_has_one(stack, gate, ran):
    @step
    async def held(n: int) -> str:
        ran.append(n)
        await gate.pause()
        return step_info().run_id

    @workflow
    async def wide() -> int:
        return len(await asyncio.gather(*(held(n) for n in range(4))))

    stack.app.add(wide)
    await stack.nodes(DEFAULT, DEFAULT, step_slots=2)

    run = await stack.start(wide)
    await gate.arrival(4)  # two here, two there
    gate.open()

    assert await run.result(PATIENCE_S) == 4
    started = await stack.events(run, "step_started")
    assert len({event.data["incarnation"] for event in started}) == 2
    assert len(ran) == 4


async def test_a_cancelled_step_is_told_on_whatever_node_it_runs(stack, gate):
    told = asyncio.Event()

    @step(queue="gpu")
    async def endless() -> None:
        try:
            await gate.pause()
        except asyncio.CancelledError:
            told.set()
            raise

    @workflow
    async def asks() -> None:
        await endless()

    stack.app.add(asks)
    _, gpu = await stack.nodes(DEFAULT, {"gpu"})
    run = await stack.start(asks)
    await gate.arrival()

    await run.cancel()
    async with asyncio.timeout(PATIENCE_S):
        while not told.is_set():
            await gpu.look()

    await stack.ended(run)
    assert (await run.status()).status == "cancelled"


async def test_a_dispatched_step_that_fails_is_tried_again_and_counted(stack):
    @step(queue="gpu", retry=Retry(times=2, first=0.01))
    async def flaky() -> int:
        if step_info().attempt < 3:
            raise ValueError(f"attempt {step_info().attempt}")
        return step_info().attempt

    @workflow
    async def tries() -> int:
        return await flaky()

    stack.app.add(tries)
    await stack.nodes(DEFAULT, {"gpu"})

    assert await stack.run(tries) == 3


async def test_the_death_of_a_worker_is_a_loss_that_the_owner_hears_of(stack, gate, ran):
    @step(queue="gpu")
    async def slow() -> int:
        ran.append(step_info().attempt)
        await gate.pause()
        return 1

    @workflow
    async def asks() -> int:
        return await slow()

    stack.app.add(asks)
    owner, gpu, other = await stack.nodes(DEFAULT, {"gpu"}, {"gpu"})
    run = await stack.start(asks)
    await gate.arrival()
    busy, spare = await _who_runs(stack, run, gpu, other)

    await busy.kill()
    for peer in (owner, spare):
        await peer.look()
    await gate.arrival()
    gate.open()

    assert await run.result(PATIENCE_S) == 1
    assert ran == [1, 1]


async def test_what_a_node_that_was_declared_dead_still_returns_is_refused(stack, gate, ran):
    @step
    async def slow() -> str:
        ran.append(len(ran))
        mine = len(ran)
        await gate.pause()
        return f"body {mine}"

    @workflow
    async def asks() -> str:
        return await slow()

    stack.app.add(asks)
    one, two = await stack.nodes(DEFAULT, DEFAULT)
    run = await stack.start(asks)
    await gate.arrival()
    busy, other = await _who_runs(stack, run, one, two)

    await stack.world.leave(busy.node.incarnation)  # it lives on and does not know
    await other.look()
    await gate.arrival()
    gate.open()

    assert await run.result(PATIENCE_S) == "body 2"
    await asyncio.wait_for(busy.node.died.wait(), PATIENCE_S)
    assert len(await stack.events(run, "step_completed")) == 1


async def test_code_that_only_the_newer_node_has_runs_there(stack):
    @workflow
    async def older() -> str:
        return "older"

    @workflow
    async def newer() -> str:
        return "newer"

    stack.app.add(older)
    (one,) = await stack.nodes(DEFAULT)
    two = await stack.join(App(workflows=[older, newer]), queues=frozenset(DEFAULT))
    await stack.balance(one, two)

    runs = [await stack.start("newer") for _ in range(6)]

    async with asyncio.timeout(PATIENCE_S):
        for run in runs:
            while not (await run.status()).ended_at:
                await stack.balance(one, two)
    assert [await run.result(PATIENCE_S) for run in runs] == ["newer"] * 6
    assert await stack.run(older) == "older"


async def test_two_apps_share_a_namespace_and_nothing_else(stack):
    @workflow
    async def shop() -> str:
        return "shop"

    @step
    async def ship(what: str) -> str:
        return f"shipped {what}"

    @workflow
    async def delivery(what: str) -> str:
        await sleep(0.01)
        return await ship(what)

    stack.app.add(shop)
    await stack.nodes(DEFAULT, dispatch="bus")
    other = await stack.join(App("delivery", [delivery]), dispatch="bus")
    await other.look()

    assert await stack.run("delivery", "a book") == "shipped a book"
    assert await stack.run(shop) == "shop"
    assert other.owned == set(range(32))


async def test_a_worker_without_the_step_gives_it_back(stack, on_gpu, monkeypatch):
    monkeypatch.setattr("fencepost.actors.dispatch.UNKNOWN_FIRST_S", 0.01)
    monkeypatch.setattr("fencepost.actors.define._steps", {})
    stack.app.add(on_gpu)
    await stack.nodes(DEFAULT)
    without = await stack.join(App(), queues=frozenset({"gpu"}), steps_only=True)

    run = await stack.start(on_gpu, 3)
    given_back = await stack.saw(run, "step_retrying")
    assert given_back.data["deferred"]
    await without.stop()
    await stack.join(_with_steps(on_gpu), queues=frozenset({"gpu"}), steps_only=True)

    assert await run.result(PATIENCE_S) == 9
    (done,) = await stack.events(run, "step_completed")
    assert done.data["attempt"] == 1


async def _who_runs(stack, run, *peers):
    """Return the node that runs the step of a run, and the others."""
    (started,) = await stack.events(run, "step_started")
    (busy,) = [peer for peer in peers if peer.node.incarnation == started.data["incarnation"]]
    return busy, *(peer for peer in peers if peer is not busy)


def _with_steps(workflow_):
    """Return an app that knows the workflow's steps, as the loader makes one of a module."""
    cells = workflow_.fn.__closure__ or ()
    return App(workflows=[workflow_, *(cell.cell_contents for cell in cells)])


async def test_what_waited_in_line_at_a_dead_node_waits_in_line_at_another_that_is_full(stack, gate, gated):
    stack.app.add(gated)
    one, two = await stack.nodes(DEFAULT, DEFAULT, step_slots=1, dispatch="auto")
    runs = [await stack.start(gated, n) for n in range(8)]
    await gate.arrival(2)
    lines = {peer: [run for run in runs if stack.owner(run, one, two)[0] is peer] for peer in (one, two)}
    dead, other = sorted(lines, key=lambda peer: -len(lines[peer]))
    await eventually(lambda: dead.node.bodies.slots.waiting == len(lines[dead]) - 1)

    await dead.kill()
    await other.look()

    await eventually(lambda: other.node.bodies.slots.waiting == len(runs) - 1)
    gate.open()
    assert [await run.result(PATIENCE_S) for run in runs] == [2 * n for n in range(8)]
