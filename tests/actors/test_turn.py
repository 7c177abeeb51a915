"""The turn: workflow code as a pure function of its log."""

# workflow time: no real time passes in this file

import asyncio
import random
import time
import uuid

import pytest

from fencepost.actors.author import now, sleep, timeout, uuid4
from fencepost.actors.define import step, workflow
from fencepost.actors.errors import DefinitionError
from fencepost.actors.operations import Diverged
from fencepost.actors.settling import Stuck
from fencepost.world import events as ev
from tests.actors.tape import Tape


@step
async def a(x: int = 0) -> int:
    return x + 1


@step
async def b(x: int = 0) -> int:
    return x + 2


@step
async def c(x: int = 0) -> int:
    return x + 3


class Declined(Exception):
    pass


def test_a_run_without_steps_completes_in_one_tick():
    @workflow
    async def add(x: int, y: int) -> int:
        return x + y

    tape = Tape(add, 2, 3)

    assert tape.result == 5
    assert [ev.kind_of(e.body) for e in tape.log] == ["run_created", "run_started", "run_completed"]
    assert tape.tick == 1


def test_steps_in_sequence_are_named_by_path():
    @workflow
    async def chain() -> int:
        return await b(await a(1))

    tape = Tape(chain)
    tape.step("a", 2)
    tape.step("b", 4)

    assert tape.asked == [("0.0", "a"), ("0.1", "b")]
    assert tape.result == 4
    tape.assert_replays()


def test_a_branch_that_does_more_renames_nothing_in_another():
    @workflow
    async def short() -> list[int]:
        async def one() -> int:
            return await a(1)

        return await asyncio.gather(one(), b(2))

    @workflow(name="short")
    async def long() -> list[int]:
        async def one() -> int:
            await c(0)
            return await a(1)

        return await asyncio.gather(one(), b(2))

    first, second = Tape(short), Tape(long)

    assert ("0.1.0", "b") in first.asked
    assert ("0.1.0", "b") in second.asked


def test_a_race_is_decided_by_position():
    @workflow
    async def race() -> str:
        tasks = {asyncio.create_task(a(), name="a"), asyncio.create_task(b(), name="b")}
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first = done.pop().get_name()
        await c()
        return first

    tape = Tape(race)
    tape.together(tape.completed("b", 1), tape.completed("a", 2))
    tape.step("c")

    assert tape.result == "b"
    tape.assert_replays()


def test_timers_are_durable_and_cancelled_ones_leave_no_event():
    @workflow
    async def bounded() -> str:
        async with timeout("1h"):
            await a()
        try:
            async with asyncio.timeout(60):
                await b()
        except TimeoutError:
            return "late"
        return "never"

    tape = Tape(bounded)
    tape.step("a")
    tape.fire()

    assert tape.result == "late"
    assert [e.body.op for e in tape.log if isinstance(e.body, ev.WaitCompleted)] == ["0.2"]
    assert [e.body.op for e in tape.log if isinstance(e.body, ev.StepCancelled)] == ["0.3"]
    tape.assert_replays()


def test_sleep_until_an_instant_and_the_clock_of_the_run():
    @workflow
    async def wait() -> bool:
        before = now()
        await sleep(before.replace(year=2027))
        return now() >= before.replace(year=2027) and time.time() == now().timestamp()

    tape = Tape(wait)
    tape.fire()

    assert tape.result is True


def test_an_unawaited_sleep_holds_nothing_up():
    @workflow
    async def impatient() -> str:
        asyncio.create_task(asyncio.sleep(86_400))  # noqa: RUF006
        await a()
        await b()
        await c()
        return "done"

    tape = Tape(impatient)
    for name in "abc":
        tape.step(name)

    assert tape.result == "done"
    tape.assert_replays()


def test_randomness_is_a_function_of_path_and_repeats():
    @workflow
    async def lots() -> list[str]:
        first = [str(random.random()), str(uuid.uuid4()), str(uuid4()), str(random.sample(range(100), 3))]
        await a()
        return [*first, random.choice("abc"), __import__("secrets").token_hex(4)]

    one, two, other = Tape(lots), Tape(lots), Tape(lots, seed="other")
    for tape in (one, two, other):
        tape.step("a")
        tape.assert_replays()

    assert one.result == two.result != other.result


def test_gather_taskgroup_shield_and_as_completed_replay():
    @workflow
    async def mixed() -> list[int]:
        found = await asyncio.gather(*(a(i) for i in range(3)))
        async with asyncio.TaskGroup() as tg:
            x, y = tg.create_task(b(1)), tg.create_task(b(2))
        found += [x.result(), y.result()]
        for next_one in asyncio.as_completed([c(i) for i in range(3)]):
            found.append(await next_one)
        found.append(await asyncio.shield(a(9)))
        found.append(await asyncio.wait_for(b(9), 5))
        return found

    tape = Tape(mixed)
    for path in ("0.2.0", "0.0.0", "0.1.0"):
        tape.step(path, 1)
    for path in ("0.4.0", "0.3.0"):
        tape.step(path, 2)
    for number, path in enumerate(("0.7.0", "0.5.0", "0.6.0")):
        tape.step(path, number)
    tape.step("0.8.0", 7)
    tape.step("b", 8)

    assert tape.result == [1, 1, 1, 2, 2, 0, 1, 2, 7, 8]
    assert dict(tape.asked)["0.10"] == "b"
    tape.assert_replays()


def test_errors_come_back_as_their_own_type():
    @workflow
    async def careful() -> str:
        try:
            await a()
        except Declined as error:
            return f"declined {error}, {type(error.__cause__).__name__}"
        return "?"

    tape = Tape(careful)
    tape.fail("a", Declined("card 4"))

    assert tape.result == "declined card 4, StepFailed"
    tape.assert_replays()


def test_cancel_runs_the_cleanup_and_a_second_one_is_inert():
    @workflow
    async def careful() -> None:
        try:
            await a()
        finally:
            await b()

    tape = Tape(careful)
    tape.cancel("enough")
    tape.cancel("really")
    tape.step("b")

    assert tape.turn.ended == ev.RunCancelled(reason="enough")
    tape.assert_replays()


def test_a_body_that_catches_the_cancel_may_return():
    @workflow
    async def stubborn() -> str:
        try:
            await a()
        except asyncio.CancelledError:
            return "stopped nicely"
        return "?"

    tape = Tape(stubborn)
    tape.cancel()

    assert tape.result == "stopped nicely"


def test_the_wrong_step_in_the_log_shows_both_sides_and_the_line():
    @workflow(name="w")
    async def old() -> None:
        await a()
        await b()

    @workflow(name="w")
    async def new() -> None:
        await a()
        await c()

    tape = Tape(old)
    tape.step("a")

    with pytest.raises(Diverged, match=r"log has step 'b'.*now asks for step 'c'.*test_turn.py:\d+"):
        tape.replay(new)


def test_an_operation_the_former_code_did_not_ask_for_is_divergence():
    @workflow(name="w")
    async def old() -> None:
        await asyncio.gather(a(), b())

    @workflow(name="w")
    async def new() -> None:
        await asyncio.gather(a(), b(), c())

    tape = Tape(old)
    tape.step("a")
    again = tape.replay(new)
    again.ops.log  # noqa: B018

    with pytest.raises(Diverged, match="where the log has nothing"):
        again.orders()


def test_an_operation_the_code_no_longer_asks_for_is_divergence():
    @workflow(name="w")
    async def old() -> None:
        await asyncio.gather(a(), b())

    @workflow(name="w")
    async def new() -> None:
        await asyncio.gather(a())

    tape = Tape(old)

    with pytest.raises(Diverged, match=r"the log has step 'b' at 0\.1\.0"):
        tape.replay(new)


def test_waiting_for_nothing_is_found_with_its_line():
    @workflow
    async def dead() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match=r"waits for nothing.*test_turn.py:\d+"):
        Tape(dead)


def test_code_that_never_gets_quiet_is_found():
    @workflow
    async def spin() -> None:
        while True:  # noqa: ASYNC110  (what is found)
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="never gets quiet"):
        Tape(spin)


def test_awaiting_something_foreign_is_found_even_if_swallowed():
    async def foreign() -> None:
        loop = asyncio.new_event_loop()
        future = loop.create_future()
        loop.close()
        await future

    @workflow
    async def mixed() -> None:
        try:
            await foreign()
        except Exception:  # noqa: BLE001  (what users write)
            await a()

    with pytest.raises(Stuck, match="belongs to another event loop"):
        Tape(mixed)


@pytest.mark.parametrize(
    ("touch", "says"),
    [
        (lambda: open(__file__), "opened a file"),  # noqa: SIM115, PTH123
        (lambda: time.sleep(0.001), "use `await sleep"),
        (lambda: __import__("subprocess").run(["true"]), "started a program"),
        (lambda: __import__("socket").create_connection(("127.0.0.1", 9)), "@step"),
        (lambda: __import__("threading").Thread(target=print).start(), "started a thread"),
        (lambda: asyncio.get_running_loop().run_in_executor(None, print), "loop.run_in_executor"),
    ],
)
def test_touching_the_outside_is_found(touch, says):
    @workflow
    async def bad() -> None:
        touch()
        await a()

    with pytest.raises(Stuck, match=says):
        Tape(bad)


def test_an_abandoned_async_generator_is_closed_in_order_at_the_end():
    order = []

    async def numbers():
        try:
            for number in range(3):
                yield number
        finally:
            await b()
            order.append("closed")

    @workflow
    async def partly() -> str:
        async for _ in numbers():
            break
        await a()
        return "done"

    tape = Tape(partly)
    tape.step("a")
    tape.step("b")

    assert tape.result == "done"
    assert tape.asked == [("0.0", "a"), ("0.1", "b")]
    assert order == ["closed"]
    tape.assert_replays()


def test_print_and_logging_do_not_repeat_on_replay(capsys):
    @workflow
    async def chatty() -> None:
        print("one")  # noqa: T201  (what is silenced)
        await a()
        print("two")  # noqa: T201  (what is silenced)

    tape = Tape(chatty)
    tape.step("a")
    capsys.readouterr()

    tape.replay()

    assert capsys.readouterr().out == ""


def test_going_to_sleep_runs_no_code_of_the_user_that_could_act():
    seen = []

    @workflow
    async def deep() -> None:
        try:
            await a()
        finally:
            seen.append("finally")
            await b()
            seen.append("not reached")

    tape = Tape(deep)
    tape.turn.evict()

    assert seen == ["finally"]
    assert [name for _, name in tape.asked] == ["a"]


def test_a_workflow_called_in_a_workflow_says_what_to_do():
    @workflow
    async def inner() -> None:
        await a()

    @workflow
    async def outer() -> None:
        await inner()

    tape = Tape(outer)

    assert "inner.fn(" in tape.turn.ended.error.message


async def test_outside_a_workflow_steps_and_workflows_simply_run():
    @workflow
    async def chain() -> int:
        return await b(await a(1))

    assert await chain() == 4
    assert a.fn.__name__ == "a"


def test_a_workflow_must_be_async():
    with pytest.raises(DefinitionError, match="must be an `async def`"):

        @workflow
        def plain() -> None: ...


def test_a_result_that_is_no_data_fails_the_run_with_a_sentence():
    @workflow
    async def odd():
        return open

    tape = Tape(odd)

    assert isinstance(tape.turn.ended, ev.RunFailed)
    assert "SerializationError" in tape.turn.ended.error.type


def test_a_timer_from_call_later_names_its_callback_by_the_registering_task():
    @workflow
    async def callbacks() -> str:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        loop.call_later(5, lambda: asyncio.ensure_future(chain(done)))
        return await done

    async def chain(done):
        await a()
        done.set_result("called back")

    tape = Tape(callbacks)
    tape.fire()
    tape.step("a")

    assert tape.result == "called back"
    assert tape.asked == [("0.0", "wait"), ("0.1.0", "a")]
    tape.assert_replays()
