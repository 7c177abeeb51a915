from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
import threading

import pytest
from structlog.testing import capture_logs

from fencepost.actors.errors import FatalError, LifespanError, SerializationError
from fencepost.actors.executor import Executor, Failed, Succeeded, step_info
from fencepost.world import ValueTooLarge
from tests.actors.attempts import Gate, call, fine, serving


@pytest.fixture
async def executor():
    async with serving() as one:
        yield one


@pytest.fixture
def gate():
    one = Gate()
    yield one
    one.open()


# ---- how bodies end


async def test_an_async_step_returns_its_value_as_json(executor):
    async def double(n: int) -> int:
        return n * 2

    assert await executor.execute(call(double, 21)) == Succeeded(b"42")
    assert executor.busy == 0


async def test_a_sync_step_runs_in_another_thread(executor):
    def where() -> str:
        return threading.current_thread().name

    done = await executor.execute(call(where))

    assert b"fencepost-step" in done.result


async def test_async_steps_run_on_one_loop_that_is_not_the_actors(executor):
    loops = set()

    async def note() -> None:
        loops.add(asyncio.get_running_loop())

    await asyncio.gather(*(executor.execute(call(note)) for _ in range(3)))

    assert len(loops) == 1
    assert asyncio.get_running_loop() not in loops


async def test_a_hundred_async_steps_run_at_once(executor):
    arrived = 0
    together = asyncio.Event()

    async def wait_for_all(n: int) -> int:
        nonlocal arrived
        arrived += 1
        if arrived == 100:
            together.set()
        await together.wait()
        return n

    done = await asyncio.gather(*(executor.execute(call(wait_for_all, n)) for n in range(100)))

    assert done == [Succeeded(str(n).encode()) for n in range(100)]


@pytest.mark.parametrize(
    "exc", [ValueError("no"), FatalError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()]
)
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_whatever_a_step_raises_is_a_failure_and_no_more(executor, exc, kind):
    async def afail() -> None:
        raise exc

    def fail() -> None:
        raise exc

    done = await executor.execute(call(afail if kind == "async" else fail))

    assert isinstance(done, Failed)
    assert done.exception is exc
    assert done.error.type.endswith(f":{type(exc).__name__}")
    assert isinstance(await executor.execute(call(fine)), Succeeded)


async def test_a_task_of_a_step_that_exits_does_not_end_the_step_loop(executor):
    async def quits() -> None:
        sys.exit(3)

    async def outer() -> str:
        task = asyncio.create_task(quits())
        await asyncio.wait([task])
        return repr(task.exception())

    assert await executor.execute(call(outer)) == Succeeded(b'"SystemExit(3)"')
    assert isinstance(await executor.execute(call(fine)), Succeeded)


async def test_a_step_that_cancels_itself_has_failed(executor):
    async def itself() -> None:
        raise asyncio.CancelledError

    done = await executor.execute(call(itself))

    assert isinstance(done, Failed)
    assert done.error.type.endswith(":CancelledError")


async def test_the_traceback_of_a_failure_starts_in_the_step(executor):
    def fail() -> None:
        raise ValueError("here")

    done = await executor.execute(call(fail))

    assert 'raise ValueError("here")' in done.error.traceback
    assert "call.py" not in done.error.traceback


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_result_that_cannot_cross_is_a_failure_that_names_the_step(executor, kind):
    async def alock():
        return threading.Lock()

    def lock():
        return threading.Lock()

    done = await executor.execute(call(alock if kind == "async" else lock))

    assert isinstance(done.exception, SerializationError)
    assert "lock" in done.error.message


async def test_a_result_that_is_too_large_is_a_failure_that_names_the_step(executor):
    async def much() -> str:
        return "x" * 1000

    done = await executor.execute(call(much, value_bytes_max=100))

    assert isinstance(done.exception, ValueTooLarge)
    assert "step 'much'" in done.error.message


async def test_a_plain_function_that_returns_a_coroutine_is_told_so(executor):
    def forgot():
        return fine()

    done = await executor.execute(call(forgot))

    assert isinstance(done.exception, SerializationError)
    assert "coroutine" in done.error.message


async def test_recorded_arguments_that_do_not_fit_are_a_failure(executor):
    async def needs(n: int) -> None: ...

    done = await executor.execute(call(needs, 1, args=b'{"n":"x"}'))

    assert isinstance(done.exception, SerializationError)


async def test_one_token_makes_one_attempt_at_a_time(executor, gate):
    waiting = asyncio.create_task(executor.execute(call(gate.apass_through, token="t")))
    await gate.reached()

    with pytest.raises(ValueError, match="runs already"):
        await executor.execute(call(fine, token="t"))

    gate.open()
    await waiting


# ---- what bodies see


async def test_a_step_knows_its_attempt_and_a_key_that_is_the_same_for_all(executor):
    async def ask() -> list:
        info = step_info()
        return [info.run_id, info.op, info.step, info.attempt, info.idempotency_key, info.cancelled]

    def ask_in_thread() -> list:
        return [step_info().attempt, step_info().idempotency_key]

    first = await executor.execute(call(ask, attempt=1))
    second = await executor.execute(call(ask_in_thread, attempt=2))

    assert first.result == b'["run_1","0.1","ask",1,"run_1:0.1",false]'
    assert second.result == b'[2,"run_1:0.1"]'


def test_outside_of_a_run_there_is_a_stand_in():
    one, two = step_info(), step_info()

    assert (one.attempt, one.cancelled, one.app) == (1, False, None)
    assert one.idempotency_key != two.idempotency_key


variable = contextvars.ContextVar("variable", default="unset")


async def test_context_variables_of_one_step_are_not_seen_by_another():
    @contextlib.asynccontextmanager
    async def lifespan():
        variable.set("from the lifespan")
        yield

    async def change() -> str:
        before = variable.get()
        variable.set("changed")
        return before

    def change_in_thread() -> str:
        before = variable.get()
        variable.set("changed")
        return before

    async with serving(lifespan=lifespan) as executor:
        results = [(await executor.execute(call(fn))).result for fn in (change, change, change_in_thread) * 2]

    assert set(results) == {b'"from the lifespan"'}
    assert variable.get() == "unset"


# ---- the lifespan


async def test_the_lifespan_is_entered_before_the_first_step_and_left_after_the_last():
    order = []

    @contextlib.asynccontextmanager
    async def lifespan():
        order.append(("enter", asyncio.get_running_loop()))
        yield "client"
        order.append(("exit", asyncio.get_running_loop()))

    async def use() -> str:
        order.append(("step", asyncio.get_running_loop()))
        return step_info().app

    async with serving(lifespan=lifespan) as executor:
        assert executor.app == "client"
        assert await executor.execute(call(use)) == Succeeded(b'"client"')

    assert [what for what, _ in order] == ["enter", "step", "exit"]
    assert len({loop for _, loop in order}) == 1


@pytest.mark.parametrize("exc", [ConnectionError("no database"), SystemExit(1), KeyboardInterrupt()])
async def test_a_lifespan_that_fails_is_one_clear_error(exc):
    @contextlib.asynccontextmanager
    async def lifespan():
        raise exc
        yield

    executor = Executor(lifespan=lifespan)

    with pytest.raises(LifespanError, match=type(exc).__name__) as caught:
        await executor.start()
    await executor.stop(0)

    assert caught.value.__cause__ is exc


@pytest.mark.parametrize("lifespan", [lambda: None, lambda: (x for x in ()), lambda: 1 / 0])
async def test_a_lifespan_that_is_none_says_so(lifespan):
    executor = Executor(lifespan=lifespan)

    with pytest.raises(LifespanError, match="lifespan"):
        await executor.start()
    await executor.stop(0)


async def test_a_lifespan_that_fails_at_the_end_is_logged_and_no_more():
    @contextlib.asynccontextmanager
    async def lifespan():
        yield
        raise ConnectionError("already gone")

    with capture_logs() as logs:
        async with serving(lifespan=lifespan):
            pass

    assert [log["event"] for log in logs] == ["lifespan_exit_failed"]
