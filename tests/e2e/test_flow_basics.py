"""The shapes of ordinary workflows: sequence, gather, race, loops, and asyncio as it is."""

import asyncio
import logging

from fencepost.actors import App, sleep, step, step_info, timeout, workflow
from tests.e2e.elsewhere import shout
from tests.e2e.world_and_bus import PATIENCE_S


@step
async def add(a: int, b: int) -> int:
    return a + b


@step
def double(n: int) -> int:
    return 2 * n


async def test_an_addition_runs_to_its_sum(stack):
    @workflow
    async def addition(a: int, b: int) -> int:
        return await add(a, b)

    assert await stack.run(addition, 1, 2) == 3


async def test_a_run_without_steps_is_one_append_after_its_creation(stack):
    @workflow
    async def nothing() -> str:
        return "done"

    run = await stack.start(nothing)

    assert await run.result(PATIENCE_S) == "done"
    assert await stack.kinds(run) == ["run_created", "run_started", "run_completed"]


async def test_steps_in_sequence_hand_on_their_results_async_and_sync_alike(stack):
    @workflow
    async def sequence(n: int) -> int:
        for _ in range(3):
            n = await add(n, 1)
            n = await double(n)
        return n

    assert await stack.run(sequence, 1) == 22


async def test_a_step_in_another_module_is_found(stack):
    @workflow
    async def other_module(text: str) -> str:
        return await shout(text)

    assert await stack.run(other_module, "hé") == "HÉ"


async def test_gather_keeps_the_order_of_its_arguments_and_never_swaps_two_lists(stack):
    @workflow
    async def two_lists() -> list[list[int]]:
        up, down = asyncio.gather(*(add(n, 0) for n in range(5))), asyncio.gather(*(add(n, 10) for n in range(5)))
        return [await up, await down]

    assert await stack.run(two_lists) == [[0, 1, 2, 3, 4], [10, 11, 12, 13, 14]]


async def test_in_a_race_the_first_wins_and_the_other_is_cancelled(stack, gate):
    @step
    async def slow() -> str:
        await gate.pause()
        return "slow"

    @workflow
    async def race() -> str:
        tasks = [asyncio.create_task(slow()), asyncio.create_task(shout("fast"))]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return f"{done.pop().result()} {len(pending)}"

    run = await stack.start(race)

    assert await run.result(PATIENCE_S) == "FAST 1"
    assert len(await stack.events(run, "step_cancelled")) == 1


async def test_any_takes_the_first_success_and_passes_over_failures(stack):
    @step(retry=0)
    async def fails() -> str:
        raise ValueError("no")

    @workflow
    async def any_of() -> str:
        for first in asyncio.as_completed([fails(), fails(), shout("yes")]):
            try:
                return await first
            except ValueError:
                continue
        return "none"

    assert await stack.run(any_of) == "YES"


async def test_a_loop_of_a_thousand_steps_ends_with_a_log_of_three_events_a_step(local):
    @workflow
    async def loop(times: int) -> int:
        total = 0
        for _ in range(times):
            total = await add(total, 1)
        return total

    run = await local.start(loop, 1000)

    assert await run.result(30) == 1000
    assert (await run.status()).events == 3 * 1000 + 3


async def test_a_sleep_nobody_awaits_holds_nothing_up(stack):
    @workflow
    async def not_awaited() -> int:
        asyncio.create_task(sleep("1d"))  # noqa: RUF006  (that nobody holds it is the point)
        total = 0
        for _ in range(3):
            total = await add(total, 1)
        return total

    assert await stack.run(not_awaited) == 3


async def test_a_task_group_runs_its_tasks_and_cancels_the_rest_when_one_fails(stack, gate):
    @step
    async def held() -> None:
        await gate.pause()

    @step(retry=0)
    async def fails() -> None:
        raise LookupError("missing")

    @workflow
    async def grouped() -> list[str]:
        try:
            async with asyncio.TaskGroup() as group:
                first, _ = group.create_task(held()), group.create_task(fails())
        except* LookupError as errors:
            found = [str(error) for error in errors.exceptions]
        async with asyncio.TaskGroup() as group:
            one, two = group.create_task(shout("a")), group.create_task(shout("b"))
        return [*found, str(first.cancelled()), one.result(), two.result()]

    assert await stack.run(grouped) == ["missing", "True", "A", "B"]


async def test_wait_for_as_completed_shield_and_nested_timeouts_mean_what_asyncio_means(stack, gate):
    @step
    async def held() -> str:
        await gate.pause()
        return "late"

    @workflow
    async def all_of_it() -> list[str]:
        said = [await asyncio.wait_for(shout("wait_for"), 30)]
        try:
            await asyncio.wait_for(held(), 0.02)
        except TimeoutError:
            said.append("wait_for timed out")
        inner = asyncio.create_task(shout("shielded"))
        said.append(await asyncio.shield(inner))
        try:
            async with timeout("1h"):
                try:
                    async with asyncio.timeout(0.02):
                        await held()
                except TimeoutError:
                    said.append("inner timed out")
                said.append(await shout("outer goes on"))
        except TimeoutError:
            said.append("outer timed out")
        said += sorted([await one for one in asyncio.as_completed([shout("x"), shout("y")])])
        return said

    assert await stack.run(all_of_it) == [
        *("WAIT_FOR", "wait_for timed out", "SHIELDED", "inner timed out", "OUTER GOES ON", "X", "Y")
    ]


async def test_an_outer_timeout_goes_through_inner_cleanup(stack, gate):
    @step
    async def held() -> None:
        await gate.pause()

    @workflow
    async def cleans_up() -> list[str]:
        said = []
        try:
            async with asyncio.timeout(0.03):
                try:
                    await held()
                finally:
                    said.append(await asyncio.shield(asyncio.create_task(shout("cleaned"))))
        except TimeoutError:
            said.append("timed out")
        return said

    assert await stack.run(cleans_up) == ["CLEANED", "timed out"]


async def test_events_queues_and_locks_of_asyncio_work_between_tasks(stack):
    @workflow
    async def plumbing() -> list[int]:
        queue, done, seen = asyncio.Queue(), asyncio.Event(), []

        async def produce():
            for n in range(3):
                await queue.put(await add(n, 1))
            done.set()

        async def consume():
            while not (done.is_set() and queue.empty()):
                seen.append(await queue.get())

        await asyncio.gather(produce(), consume())
        return seen

    assert await stack.run(plumbing) == [1, 2, 3]


async def test_an_async_generator_that_is_left_early_is_closed_at_the_end_of_the_run_and_may_use_steps(stack):
    @workflow
    async def left_early() -> list[str]:
        said = []

        async def numbers():
            try:
                for n in range(10):
                    yield await add(n, 1)
            finally:
                said.append(await shout("closed"))

        left = numbers()
        async for n in left:
            if n == 2:
                break
        await left.aclose()
        async for n in numbers():
            said.append(str(n))
            if n == 2:
                break
        return said

    assert await stack.run(left_early) == ["CLOSED", "1", "2", "CLOSED"]


async def test_what_a_workflow_prints_and_logs_is_said_once_also_after_a_restart(stack, gate, capsys, caplog):
    log = logging.getLogger("shop")

    @step
    async def held() -> None:
        await gate.pause()

    @workflow
    async def talks() -> None:
        print("before the step")  # noqa: T201
        log.warning("logged before")
        await held()
        print("after the step")  # noqa: T201
        log.warning("logged after")

    run = await stack.start(talks)
    await gate.arrival()
    await stack.restart()
    gate.open()
    await run.result(PATIENCE_S)

    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if "step" in line] == ["before the step", "after the step"]
    assert [r.message for r in caplog.records if r.name == "shop"] == ["logged before", "logged after"]


async def test_what_the_lifespan_yields_reaches_the_steps_of_the_app(stack):
    entered = []

    class Lifespan:
        async def __aenter__(self):
            entered.append(asyncio.get_running_loop())
            return {"pool": "of clients"}

        async def __aexit__(self, *_):
            pass

    @step
    async def uses_pool() -> str:
        assert asyncio.get_running_loop() is entered[-1]
        return step_info().app["pool"]

    @workflow
    async def with_pool() -> str:
        return await uses_pool()

    stack.app = App(workflows=[with_pool], lifespan=Lifespan)
    await stack.restart()

    assert await stack.run(with_pool) == "of clients"
