"""Workflows that break the rules: found, told in one sentence with the line, and able to go on after a fix."""

import asyncio
import contextlib
import itertools
import pathlib
import random as stdlib_random
import socket
import subprocess
import time
import warnings

import pytest

from fencepost.actors import sleep, step, watch, workflow
from fencepost.errors import RunCancelled, RunFailed, RunTerminated
from fencepost.world import UNREAD, Batch, events
from tests.e2e.world_and_bus import PATIENCE_S


@step
async def one() -> int:
    return 1


@step
async def two() -> int:
    return 2


@contextlib.contextmanager
def lint_is_silent():
    """Declare a workflow that is wrong on purpose; what decoration says about it is tested elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def file_and_line(said):
    return "test_flow_faults.py:" in said


async def test_a_workflow_that_never_awaits_completes(stack):
    @workflow
    async def plain() -> int:
        return sum(range(1000))

    assert await stack.run(plain) == 499_500


async def test_a_workflow_that_awaits_something_foreign_is_stalled_with_the_line(stack):
    foreign = asyncio.get_running_loop().create_future()

    @workflow
    async def awaits_foreign() -> None:
        await foreign

    run = await stack.start(awaits_foreign)
    said = await stack.stalled(run)

    assert "another event loop" in said
    assert file_and_line(said)
    foreign.cancel()


async def test_a_workflow_that_waits_for_nothing_is_stalled_with_the_line(stack):
    @workflow
    async def forever() -> None:
        await asyncio.Event().wait()

    said = await stack.stalled(await stack.start(forever))

    assert "waits for nothing" in said
    assert file_and_line(said)


async def test_a_workflow_that_loops_without_waiting_is_stalled_with_the_line(stack):
    @workflow
    async def spins() -> None:
        while True:
            await sleep(0)

    said = await stack.stalled(await stack.start(spins))

    assert "never gets quiet" in said
    assert file_and_line(said)


async def test_a_workflow_that_blocks_its_node_is_stopped_and_stalled_and_others_go_on(local, monkeypatch):
    monkeypatch.setattr(watch, "TURN_REPORT_S", 0.05)
    monkeypatch.setattr(watch, "TURN_MAX_S", 0.1)

    @workflow
    async def blocks() -> None:
        while True:
            pass

    @workflow
    async def behaves() -> int:
        return await one()

    blocking = await local.start(blocks)
    said = await local.stalled(blocking)

    assert "blocked its node" in said
    assert file_and_line(said)
    assert await local.run(behaves) == 1


def opens_a_file():
    pathlib.Path("/etc/hostname").read_text()


def connects():
    socket.create_connection(("127.0.0.1", 9))


def looks_up():
    socket.getaddrinfo("localhost", 80)


def runs_a_program():
    subprocess.run(["true"], check=False)


def swallows_it():
    with contextlib.suppress(Exception):
        pathlib.Path("/etc/hostname").read_text()


@pytest.mark.parametrize("does", [opens_a_file, connects, looks_up, runs_a_program, swallows_it])
async def test_a_workflow_that_touches_the_outside_is_stalled_and_told_to_use_a_step(stack, does):
    @workflow
    async def touches() -> int:
        does()
        return await one()

    said = await stack.stalled(await stack.start(touches))

    assert "@step" in said
    assert file_and_line(said)


async def test_a_workflow_that_depends_on_something_outside_is_found_by_the_shadow(local):
    coin = iter([True, False] * 100)

    @workflow
    async def flips() -> int:
        return await (one() if next(coin) else two())

    said = await local.stalled(await local.start(flips))

    assert "'one'" in said
    assert "'two'" in said


async def test_seeded_randomness_and_sets_of_strings_are_no_divergence(stack):
    with lint_is_silent():

        @workflow
        async def chance() -> int:
            total = 0
            for name in {"a", "b", "c"}:  # noqa: PLC0208  (a set is the point)
                total += await (one() if stdlib_random.random() < 0.5 else two())
                total += await (one() if time.time() % 2 < 1 else two()) + len(name)
            return total

    assert 9 <= await stack.run(chance) <= 15


async def test_a_result_that_is_no_data_fails_the_run_with_one_sentence(stack):
    @workflow
    async def returns_an_object():
        await one()
        return object()

    with pytest.raises(RunFailed, match="returns_an_object") as failed:
        await stack.run(returns_an_object)

    assert "object" in str(failed.value)
    assert len(str(failed.value).splitlines()) == 1


async def test_a_workflow_called_inside_a_workflow_is_refused_and_names_the_remedy(stack):
    @workflow
    async def inner() -> int:
        return 1

    @workflow
    async def outer() -> int:
        return await inner()

    @workflow
    async def outer_fn() -> int:
        return await inner.fn()

    with pytest.raises(RunFailed, match=r"\.fn"):
        await stack.run(outer)
    assert await stack.run(outer_fn) == 1


# ---- going on after a fix


async def test_a_stalled_run_finishes_after_the_code_was_put_right(stack):
    effects = []

    @step
    async def effect() -> int:
        effects.append(1)
        return len(effects)

    @workflow(name="order")
    async def wrong() -> int:
        n = await effect()
        await asyncio.Event().wait()
        return n

    @workflow(name="order")
    async def right() -> int:
        return 10 * await effect()

    run = await stack.start(wrong)
    await stack.stalled(run)
    await stack.deploy(right)

    assert await run.result(PATIENCE_S) == 10
    assert effects == [1]


async def test_a_stalled_run_can_be_resumed_by_hand(local):
    fixed = []

    @workflow
    async def depends_on_a_flag() -> int:
        if not fixed:
            await asyncio.Event().wait()
        return await one()

    run = await local.start(depends_on_a_flag)
    await local.stalled(run)
    fixed.append(1)

    assert await run.resume()
    assert await run.result(PATIENCE_S) == 1
    assert not (await run.status()).stalled


async def test_a_stalled_run_that_is_resumed_without_a_fix_is_stalled_again(stack):
    @workflow
    async def forever() -> None:
        await asyncio.Event().wait()

    run = await stack.start(forever)
    first = await stack.stalled(run)
    await run.resume()

    assert await stack.stalled(run) == first


@pytest.mark.parametrize(("steps", "end"), [(0, RunCancelled), (1, RunTerminated)], ids=["unbegun", "begun"])
async def test_a_stalled_run_can_be_cancelled_although_its_code_cannot_run(stack, steps, end):
    @workflow
    async def forever(steps: int) -> None:
        for _ in range(steps):
            await one()
        await asyncio.Event().wait()

    run = await stack.start(forever, steps)
    await stack.stalled(run)
    await run.cancel("give up")

    error = await stack.ended(run)
    assert type(error) is end
    assert "give up" in error.reason


async def test_a_stalled_run_is_listed_as_such(stack):
    @workflow
    async def forever() -> None:
        await asyncio.Event().wait()

    run = await stack.start(forever)
    await stack.stalled(run)

    (found,) = await stack.client.runs.list(status="stalled")
    assert found.run_id == run.run_id
    assert "waits for nothing" in found.stalled
    assert (await stack.client.info())["runs"]["stalled"] == 1


async def test_a_deploy_that_diverges_stalls_the_run_with_both_sides_and_the_old_code_finishes_it(stack):
    @workflow(name="order")
    async def old() -> int:
        n = await one()
        await sleep(0.3)
        return n

    @workflow(name="order")
    async def new() -> int:
        n = await two()
        await sleep(0.3)
        return n

    run = await stack.start(old)
    await stack.saw(run, "wait_created")
    await stack.deploy(new)
    said = await stack.stalled(run)
    await stack.deploy(old)

    assert "step 'one'" in said
    assert "step 'two'" in said
    assert file_and_line(said)
    assert await run.result(PATIENCE_S) == 1


async def test_a_deploy_that_inserts_a_step_before_what_is_decided_is_found(stack, gate):
    @step
    async def held() -> int:
        await gate.pause()
        return 3

    @workflow(name="order")
    async def old() -> int:
        return await held()

    @workflow(name="order")
    async def new() -> int:
        await two()
        return await held()

    run = await stack.start(old)
    await gate.arrival()
    await stack.restart(new)

    said = await stack.stalled(run)
    assert "step 'held'" in said
    assert "step 'two'" in said


async def test_a_deploy_without_the_workflow_stalls_a_run_that_has_begun_until_it_is_back(stack):
    @workflow
    async def sleeps() -> int:
        await sleep(0.1)
        return await one()

    run = await stack.start(sleeps)
    await stack.saw(run, "wait_created")
    await stack.deploy()
    said = await stack.stalled(run)
    await stack.deploy(sleeps)

    assert "'sleeps'" in said
    assert await run.result(PATIENCE_S) == 1


async def test_a_run_with_too_many_events_fails_with_that_code(local):
    @workflow(max_events=30)
    async def endless() -> None:
        while True:
            await one()

    with pytest.raises(RunFailed, match="30 events") as failed:
        await local.run(endless)

    assert failed.value.code == "max_events"


async def test_events_from_outside_without_end_keep_no_step_waiting(local, monkeypatch):
    """Each batch finds news; the outcome that waits in the mailbox must be taken all the same."""

    @step
    async def quick(n: int) -> int:
        return n

    @workflow
    async def goes_on() -> int:
        with contextlib.suppress(asyncio.CancelledError):
            await sleep("1h")
        return sum([await quick(n) for n in range(5)])

    append, numbers = local.world.append, itertools.count()

    async def noisy(batch):
        if batch.fence is not None:
            news = events.CancelRequested(key=f"again {next(numbers)}")
            await append(Batch(batch.run_id, (news,), UNREAD))
        return await append(batch)

    run = await local.start(goes_on)
    await local.saw(run, "wait_created")
    monkeypatch.setattr(local.world, "append", noisy)
    local.node.tick(run.run_id)
    await run.cancel()

    assert await run.result(PATIENCE_S) == 10
