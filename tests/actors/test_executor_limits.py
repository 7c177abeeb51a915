from __future__ import annotations

import asyncio
import contextlib
import sys
import textwrap
import threading

import pytest
from structlog.testing import capture_logs

from fencepost.actors.executor import Cancelled, Executor, Succeeded, TimedOut, step_info
from tests.actors.attempts import LONG_S, Gate, call, fine, plain, serving


@pytest.fixture
async def executor():
    async with serving() as one:
        yield one


@pytest.fixture
def gate():
    one = Gate()
    yield one
    one.open()


# ---- timeouts


async def test_an_async_step_that_takes_too_long_is_cancelled_and_may_clean_up(executor):
    cleaned = threading.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    done = await executor.execute(call(slow, timeout_s=0.02))

    assert done == TimedOut(still_running=False)
    assert cleaned.is_set()
    assert executor.busy == 0


async def test_an_async_step_that_does_not_let_itself_be_cancelled_is_given_up_and_accounted_for():
    gate = Gate()

    async def stubborn() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await gate.apass_through()
                return

    one = call(stubborn, timeout_s=0.02)
    async with serving(cleanup_s=0.05) as executor:
        assert await executor.execute(one) == TimedOut(still_running=True)
        assert executor.busy == 1

        gate.open()
        await executor.ended(one.token)

        assert executor.busy == 0


async def test_a_sync_step_that_never_returns_times_out_and_keeps_its_slot_until_it_does(executor, gate):
    def hangs() -> None:
        gate.pass_through()

    one = call(hangs, timeout_s=0.02)
    assert await executor.execute(one) == TimedOut(still_running=True)

    assert executor.busy == 1
    ended = asyncio.create_task(executor.ended(one.token))
    await asyncio.sleep(0)
    assert not ended.done()
    gate.open()
    await ended
    assert executor.busy == 0


async def test_threads_that_hang_are_replaced_so_that_others_go_on():
    gate = Gate()

    def hangs() -> None:
        gate.pass_through()

    async with serving(threads=1) as executor:
        for _ in range(3):
            assert await executor.execute(call(hangs, timeout_s=0.02)) == TimedOut(still_running=True)

        assert await executor.execute(call(plain)) == Succeeded(b"1")
        assert executor.busy == 3
        gate.open()


async def test_a_timeout_does_not_count_the_time_in_line():
    gate = Gate()
    queued = call(plain, timeout_s=0.05)
    async with serving(threads=1) as executor:
        first = asyncio.create_task(executor.execute(call(gate.pass_through)))
        await gate.reached()
        second = asyncio.create_task(executor.execute(queued))
        await asyncio.wait([second], timeout=0.1)
        assert not second.done()

        gate.open()

        assert await second == Succeeded(b"1")
        assert await first == Succeeded(b"null")


async def test_a_step_that_ends_in_time_is_not_timed_out_later(executor):
    done = await executor.execute(call(fine, timeout_s=0.05))

    assert done == Succeeded(b"null")


# ---- cancelling


async def test_a_cancelled_async_step_cleans_up_and_says_so(executor, gate):
    cleaned = threading.Event()

    async def waits() -> None:
        gate.mark()
        try:
            await asyncio.Event().wait()
        finally:
            assert step_info().cancelled
            cleaned.set()

    one = call(waits)
    running = asyncio.create_task(executor.execute(one))
    await gate.reached()

    executor.cancel(one.token)
    executor.cancel(one.token)

    assert await running == Cancelled()
    assert cleaned.is_set()


async def test_a_step_cancelled_before_its_first_step_never_begins(executor, gate):
    async def holds_the_loop() -> None:
        gate.pass_through()

    async def never() -> None:
        raise AssertionError

    one = call(never)
    first = asyncio.create_task(executor.execute(call(holds_the_loop)))
    await gate.reached()
    running = asyncio.create_task(executor.execute(one))
    await asyncio.sleep(0)
    executor.cancel(one.token)
    gate.open()

    assert await running == Cancelled()
    assert await first == Succeeded(b"null")


async def test_a_cancelled_step_that_returns_nevertheless_has_succeeded(executor, gate):
    async def waits() -> str:
        gate.mark()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "saved"

    one = call(waits)
    running = asyncio.create_task(executor.execute(one))
    await gate.reached()
    executor.cancel(one.token)

    assert await running == Succeeded(b'"saved"')


async def test_a_cancelled_sync_step_sees_it(executor, gate):
    def looks() -> bool:
        gate.pass_through()
        return step_info().cancelled

    one = call(looks)
    running = asyncio.create_task(executor.execute(one))
    await gate.reached()
    executor.cancel(one.token)
    gate.open()

    assert await running == Succeeded(b"true")


async def test_a_sync_step_cancelled_in_line_never_begins():
    gate = Gate()
    began = threading.Event()
    queued = call(began.set)
    async with serving(threads=1) as executor:
        first = asyncio.create_task(executor.execute(call(gate.pass_through)))
        await gate.reached()
        second = asyncio.create_task(executor.execute(queued))
        await asyncio.sleep(0)

        executor.cancel(queued.token)

        assert await second == Cancelled()
        gate.open()
        await first
    assert not began.is_set()


async def test_a_caller_that_goes_away_changes_nothing_for_the_body(executor, gate):
    one = call(gate.pass_through)
    caller = asyncio.create_task(executor.execute(one))
    await gate.reached()

    caller.cancel()
    await asyncio.wait([caller])

    assert executor.busy == 1
    gate.open()
    await executor.ended(one.token)
    assert executor.busy == 0


async def test_cancelling_or_awaiting_an_unknown_token_is_nothing(executor):
    executor.cancel("nobody")
    await executor.ended("nobody")


# ---- the loop's health


async def test_a_step_that_blocks_its_loop_is_named_and_blocks_no_actor():
    gate = Gate()

    async def blocks() -> None:
        gate.pass_through()

    def on_log(_logger, _method, event):
        gate.open()  # nothing else lets the step go on
        return event

    with capture_logs(processors=[on_log]) as logs:
        async with serving(silence_s=0.05) as executor:
            await executor.execute(call(blocks))

    assert logs[0]["event"] == "step_blocks_its_loop"
    assert logs[0]["step"] == "blocks"
    assert logs[0]["at"]


async def test_a_blocked_step_still_times_out():
    gate = Gate()

    async def blocks() -> None:
        gate.pass_through()

    async with serving(cleanup_s=0.05) as executor:
        assert await executor.execute(call(blocks, timeout_s=0.02)) == TimedOut(still_running=True)
        gate.open()


# ---- stopping


async def test_stopping_waits_for_bodies_within_the_grace(gate):
    executor = Executor()
    await executor.start()
    running = asyncio.create_task(executor.execute(call(gate.apass_through)))
    await gate.reached()
    stopping = asyncio.create_task(executor.stop(LONG_S))
    await asyncio.sleep(0)

    assert await executor.execute(call(fine)) == Cancelled()
    gate.open()
    await stopping

    assert await running == Succeeded(b"null")


async def test_stopping_leaves_a_thread_that_never_returns_behind(gate):
    executor = Executor(cleanup_s=0.02)
    await executor.start()
    running = asyncio.create_task(executor.execute(call(gate.pass_through)))
    await gate.reached()

    await executor.stop(0)

    assert await running == Cancelled()


@pytest.mark.timeout(5)
async def test_stopping_what_was_never_started_is_over_at_once():
    executor = Executor()

    await executor.stop(0)
    await executor.stop(0)

    assert await executor.execute(call(fine)) == Cancelled()


HANGS = """
    import asyncio, threading
    from fencepost.actors.executor import Executor
    from tests.actors.attempts import Gate, call

    async def main():
        gate = Gate()
        executor = Executor(cleanup_s=0.02)
        await executor.start()
        timed_out = await executor.execute(call(threading.Event().wait, args=b"{}", timeout_s=0.02))
        running = asyncio.create_task(executor.execute(call(gate.pass_through)))
        await gate.reached()
        await executor.stop(0)
        print(timed_out, await running)

    asyncio.run(main())
"""


async def test_a_thread_that_never_returns_does_not_keep_the_interpreter():
    node = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(HANGS), stdout=asyncio.subprocess.PIPE
    )

    async with asyncio.timeout(LONG_S / 2):  # the gate would open only after all of it
        said, _ = await node.communicate()

    assert said.split() == [b"TimedOut(still_running=True)", b"Cancelled()"]
    assert node.returncode == 0
