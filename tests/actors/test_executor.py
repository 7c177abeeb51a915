from __future__ import annotations

import asyncio
import contextlib
import contextvars
import importlib
import itertools
import os
import sys
import textwrap
import threading

import pytest
from structlog.testing import capture_logs

from fencepost.actors.codec import Parameters, Returns
from fencepost.actors.errors import DefinitionError, FatalError, LifespanError, RetryAfter, SerializationError
from fencepost.actors.executor import Call, Cancelled, Executor, Failed, Lost, Succeeded, TimedOut, step_info
from fencepost.world import ValueTooLarge

_tokens = itertools.count(1)
LONG_S = 30.0


def call(fn, *args, **about):
    params = Parameters.of(fn)
    fields = {
        "run_id": "run_1",
        "op": "0.1",
        "step_name": getattr(fn, "__name__", "step"),
        "fn": fn,
        "args": about["args"] if "args" in about else params.encode(args, {}),
        "params": params,
        "returns": Returns.of(fn),
        "attempt": 1,
        "token": f"token-{next(_tokens)}",
        "idempotency_key": "run_1:0.1",
    }
    return Call(**{**fields, **about})


@contextlib.asynccontextmanager
async def serving(**settings):
    executor = Executor(**{"cleanup_s": 0.2, "threads": 4, "processes": 2, **settings})
    await executor.start()
    try:
        yield executor
    finally:
        await executor.stop(0)


@pytest.fixture
async def executor():
    async with serving() as one:
        yield one


class Gate:
    """Opens once, for threads and for loops of any thread. `reached` says that a body stands before it."""

    def __init__(self):
        self._open = threading.Event()
        self._reached = threading.Event()

    def pass_through(self):
        self._reached.set()
        assert self._open.wait(LONG_S)

    async def apass_through(self):
        self._reached.set()
        assert await asyncio.to_thread(self._open.wait, LONG_S)

    async def reached(self):
        assert await asyncio.to_thread(self._reached.wait, LONG_S)

    def mark(self):
        self._reached.set()

    def open(self):
        self._open.set()


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


async def fine() -> None:
    pass


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


def plain() -> int:
    return 1


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


async def test_a_step_cancelled_before_its_first_step_never_begins(executor):
    async def never() -> None:
        raise AssertionError

    one = call(never)
    running = asyncio.create_task(executor.execute(one))
    await asyncio.sleep(0)
    executor.cancel(one.token)

    assert await running == Cancelled()


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


# ---- isolated processes

STEPS = """
    import asyncio, contextlib, ctypes, os, signal, sys, threading, time
    from fencepost.actors.errors import FatalError, RetryAfter
    from fencepost.actors.executor import step_info

    class Declined(Exception):
        def __init__(self, code):
            super().__init__(f"declined {code}")
            self.code = code

    @contextlib.asynccontextmanager
    async def lifespan():
        yield {"loop": asyncio.get_running_loop(), "pid": os.getpid(), "entered": 1}

    @contextlib.asynccontextmanager
    async def broken_lifespan():
        if "-c" in sys.argv[0]:
            raise ConnectionError("no database")
        yield

    async def pid() -> int:
        assert step_info().app["loop"] is asyncio.get_running_loop()
        return os.getpid()

    def pid_in_thread() -> int:
        return step_info().app["pid"]

    def double(n: int) -> int:
        print("noise that must not break the wire")
        os.write(1, b"more noise")
        return n * 2

    def echo(value):
        return value

    def segfault() -> None:
        ctypes.string_at(0)

    def leave() -> None:
        os._exit(7)

    def killed() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def polite_exit() -> None:
        sys.exit(3)

    def declined() -> None:
        raise Declined(51)

    def fatal() -> None:
        class Local(FatalError):
            pass
        raise Local("stop")

    def later() -> None:
        raise RetryAfter("1h")

    def hang(path: str) -> None:
        open(path, "w").close()
        while True:
            time.sleep(60)

    async def clean(pipe: str, path: str) -> None:
        open(pipe, "w").close()
        try:
            await asyncio.sleep(60)
        finally:
            open(path, "w").close()

    def huge() -> str:
        return "x" * 1000

    def no_data():
        return threading.Lock()

    class Holder:
        @staticmethod
        def inner() -> int:
            return 5

    def make():
        def local() -> None: ...
        return local
"""


@pytest.fixture
def steps(tmp_path, monkeypatch):
    name = f"isolated_steps_{next(_tokens)}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(STEPS))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module(name)
    del sys.modules[name]


@pytest.fixture
async def isolating(steps):
    async with serving(lifespan=steps.lifespan, processes=1) as one:
        yield one


def isolated(fn, *args, **about):
    return call(fn, *args, isolate=True, **about)


async def test_an_isolated_step_runs_in_a_process_that_is_used_again(isolating, steps):
    first = await isolating.execute(isolated(steps.pid))
    second = await isolating.execute(isolated(steps.pid_in_thread))
    third = await isolating.execute(isolated(steps.double, 21))

    assert first == second
    assert first.result != str(steps.os.getpid()).encode()
    assert third == Succeeded(b"42")
    assert await isolating.execute(isolated(steps.Holder.inner)) == Succeeded(b"5")


async def test_values_cross_into_an_isolated_process_and_back(isolating, steps):
    value = {"set": {1, 2}, "bytes": b"\xff", "text": "\x00\U0001f600", 1: (2, 10**30)}

    done = await isolating.execute(isolated(steps.echo, value))

    assert Returns.of(steps.echo).decode(done.result) == value


@pytest.mark.parametrize(("step", "says"), [("segfault", "SIGSEGV"), ("leave", "exit code 7"), ("killed", "SIGKILL")])
async def test_a_step_that_takes_its_process_with_it_is_lost_not_failed(isolating, steps, step, says):
    done = await isolating.execute(isolated(getattr(steps, step)))

    assert isinstance(done, Lost)
    assert says in done.reason
    assert await isolating.execute(isolated(steps.double, 1)) == Succeeded(b"2")


async def test_errors_cross_out_of_an_isolated_process(isolating, steps):
    declined = await isolating.execute(isolated(steps.declined))
    later = await isolating.execute(isolated(steps.later))
    fatal = await isolating.execute(isolated(steps.fatal))
    left = await isolating.execute(isolated(steps.polite_exit))
    huge = await isolating.execute(isolated(steps.huge, value_bytes_max=100))
    no_data = await isolating.execute(isolated(steps.no_data))

    assert (type(declined.exception), declined.exception.code) == (steps.Declined, 51)
    assert (type(later.exception), later.exception.delay) == (RetryAfter, "1h")
    assert isinstance(fatal.exception, FatalError)
    assert left.error.type == "builtins:SystemExit"
    assert isinstance(huge.exception, ValueTooLarge)
    assert isinstance(no_data.exception, SerializationError)


async def test_an_isolated_step_that_hangs_is_killed_at_its_timeout(isolating, steps, tmp_path):
    done = await isolating.execute(isolated(steps.hang, str(tmp_path / "began"), timeout_s=0.1))

    assert done == TimedOut(still_running=False)
    assert isolating.busy == 0
    assert await isolating.execute(isolated(steps.double, 1)) == Succeeded(b"2")


async def began(path):
    """Wait until the step has opened its pipe for writing."""
    async with asyncio.timeout(LONG_S):
        await asyncio.to_thread(path.read_text)


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


async def test_a_cancelled_isolated_step_may_clean_up(isolating, steps, tmp_path, pipe):
    one = isolated(steps.clean, str(pipe), str(tmp_path / "cleaned"))
    running = asyncio.create_task(isolating.execute(one))
    await began(pipe)

    isolating.cancel(one.token)

    assert await running == Cancelled()
    assert (tmp_path / "cleaned").exists()


async def test_a_cancelled_isolated_step_that_does_not_listen_is_killed(isolating, steps, pipe):
    one = isolated(steps.hang, str(pipe))
    running = asyncio.create_task(isolating.execute(one))
    await began(pipe)

    isolating.cancel(one.token)

    assert await running == Cancelled()


async def test_stopping_kills_isolated_steps(steps, pipe):
    async with serving() as executor:
        running = asyncio.create_task(executor.execute(isolated(steps.hang, str(pipe))))
        await began(pipe)

    assert await running == Cancelled()


async def test_a_lifespan_that_fails_in_the_isolated_process_is_a_failure(steps):
    async with serving(lifespan=steps.broken_lifespan) as executor:
        done = await executor.execute(isolated(steps.double, 1))

    assert isinstance(done.exception, LifespanError)
    assert "no database" in done.error.message


async def test_a_step_that_no_other_process_can_find_is_refused(executor, steps, monkeypatch):
    local = steps.make()
    shadowed = steps.double
    monkeypatch.setattr(steps, "double", steps.echo)
    in_script = type(shadowed)(shadowed.__code__, {}, "double")
    in_script.__module__ = "__main__"

    for fn in (local, lambda: None, shadowed, in_script):
        done = await executor.execute(call(fn, isolate=True, args=b"{}"))

        assert isinstance(done.exception, DefinitionError)
        assert done.error.message.startswith("isolate=True: ")


async def test_a_lifespan_that_no_other_process_can_find_is_refused(steps):
    @contextlib.asynccontextmanager
    async def lifespan():
        yield

    async with serving(lifespan=lifespan) as executor:
        done = await executor.execute(isolated(steps.double, 1))

    assert isinstance(done.exception, DefinitionError)
