from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import os
import signal
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from fencepost.actors.codec import Returns
from fencepost.actors.errors import DefinitionError, FatalError, LifespanError, RetryAfter, SerializationError
from fencepost.actors.executor import Cancelled, Failed, Lost, Succeeded, TimedOut
from fencepost.world import ValueTooLarge
from tests.actors.attempts import LONG_S, call, serving

_names = itertools.count(1)

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
        if any("actors.isolated" in word for word in sys.orig_argv):
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

    def outlive() -> None:
        print("pid", os.getpid(), flush=True)
        while True:
            time.sleep(60)

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
    name = f"isolated_steps_{next(_names)}"
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


@pytest.mark.timeout(20)
async def test_a_stopped_process_blocks_no_actor_and_is_killed_at_the_timeout(isolating, steps):
    pid = int((await isolating.execute(isolated(steps.pid))).result)
    os.kill(pid, signal.SIGSTOP)
    await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WSTOPPED)

    done = await isolating.execute(isolated(steps.echo, "more than a pipe holds" * 100_000, timeout_s=0.1))

    assert done == TimedOut(still_running=False)
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


async def test_what_is_no_text_in_the_module_path_is_passed_over_as_imports_do(isolating, steps, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/nowhere"), b"/nowhere", None])

    assert await isolating.execute(isolated(steps.double, 21)) == Succeeded(b"42")


@pytest.mark.parametrize(("executable", "outcome"), [(None, Failed), ("/nowhere/python", Lost)])
async def test_a_process_that_cannot_be_started_ends_the_attempt(isolating, steps, monkeypatch, executable, outcome):
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", executable)  # None where Python is embedded
        async with asyncio.timeout(LONG_S):
            done = await isolating.execute(isolated(steps.double, 1))

    assert isinstance(done, outcome)
    said = done.error.message if isinstance(done, Failed) else done.reason
    assert "no process could be started: " in said
    assert "\n" not in said
    assert isolating.busy == 0
    assert await isolating.execute(isolated(steps.double, 1)) == Succeeded(b"2")


async def test_a_step_that_no_other_process_can_find_is_refused(steps, monkeypatch):
    local = steps.make()
    shadowed = steps.double
    monkeypatch.setattr(steps, "double", steps.echo)
    in_script = type(shadowed)(shadowed.__code__, {}, "double")
    in_script.__module__ = "__main__"

    async with serving() as executor:
        for fn in (local, lambda: None, shadowed, in_script):
            done = await executor.execute(call(fn, isolate=True, args=b"{}"))

            assert isinstance(done, Failed)
            assert isinstance(done.exception, DefinitionError)
            assert done.error.message.startswith("isolate=True: ")


async def test_a_lifespan_that_no_other_process_can_find_is_refused(steps):
    @contextlib.asynccontextmanager
    async def lifespan():
        yield

    async with serving(lifespan=lifespan) as executor:
        done = await executor.execute(isolated(steps.double, 1))

    assert isinstance(done.exception, DefinitionError)


NODE = """
    import asyncio, sys
    sys.path.insert(0, sys.argv[1])
    import {module} as steps
    from fencepost.actors.codec import Parameters, Returns
    from fencepost.actors.executor import Call, Executor

    async def main():
        executor = Executor()
        await executor.start()
        fn = steps.outlive
        params = Parameters.of(fn)
        print(await executor.execute(Call(
            run_id="r", op="0", step_name="outlive", fn=fn, args=params.encode((), {{}}), params=params,
            returns=Returns.of(fn), attempt=1, token="t", idempotency_key="k", isolate=True,
        )), file=sys.stderr)

    asyncio.run(main())
"""


async def test_an_isolated_body_ends_when_its_node_is_killed(steps, tmp_path):
    script = textwrap.dedent(NODE).format(module=steps.__name__)
    node = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(tmp_path), stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(LONG_S):
        said = await node.stderr.readline()  # what a step prints goes to stderr
        assert said.startswith(b"pid "), said + await node.stderr.read()
    body = psutil.Process(int(said.split()[1]))

    node.kill()
    await node.wait()

    gone, _ = await asyncio.to_thread(psutil.wait_procs, [body], LONG_S)
    assert gone == [body]
