"""What an attack on the finished actors found: each of these lost work, doubled it, or blinded the node."""

import asyncio
import contextlib
import contextvars
import decimal
import sys
import threading
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from fencepost.actors import now, sleep, step, workflow
from fencepost.actors.codec import Returns
from fencepost.errors import InvalidInput, RunCancelled, RunTerminated
from tests.e2e.world_and_bus import PATIENCE_S

# workflow time: every sleep here is on a run's own loop, or a body that is cut short

WHO = contextvars.ContextVar("WHO", default="nobody")


@step
async def echo(text: str) -> str:
    return text


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "1969-12-31T00:00:00Z"])
async def test_an_instant_no_clock_can_hold_is_refused_and_the_timers_live(local, at):
    @workflow
    async def nap() -> str:
        await sleep(0.05)
        return "slept"

    local.app.add(nap)
    answer = await local.front.request("start", f'{{"at": "{at}"}}'.encode(), rest="nap")

    assert answer.error == "InvalidInput"
    assert "has to lie between" in answer.description
    assert await local.run(nap) == "slept"


@pytest.mark.parametrize("forever", [float("inf"), float("nan"), 1e12])
async def test_a_timer_of_no_length_is_an_error_in_the_code_that_asks_for_it(local, forever):
    @workflow
    async def odd() -> str:
        try:
            await asyncio.sleep(forever)
        except ValueError as error:
            return str(error)
        return "slept"

    assert "a timer of" in await local.run(odd)


async def test_what_nobody_foresaw_stalls_the_run_instead_of_failing_for_ever(local, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("never thought of")

    @workflow
    async def plain() -> str:
        return await echo("x")

    with monkeypatch.context() as patch:
        patch.setattr(Returns, "decode", broken)
        run = await local.start(plain)
        why = await local.stalled(run)
    await run.resume()

    assert "never thought of" in why
    assert await local.client.run(run.run_id).result(PATIENCE_S) == "x"


async def test_workflow_code_does_not_run_in_the_context_of_who_rang(local):
    @workflow
    async def mine() -> list[str]:
        return [WHO.get(), str(decimal.getcontext().prec), await echo("x"), WHO.get()]

    WHO.set("admin")
    with decimal.localcontext() as context:
        context.prec = 4
        result = await local.run(mine)

    assert result == ["nobody", str(decimal.DefaultContext.prec), "x", "nobody"]


async def test_a_generator_that_a_task_left_over_is_in_the_middle_of_spoils_no_result(local):
    async def ticks():
        while True:
            await sleep(3600)
            yield 1

    @workflow
    async def body() -> str:
        async def listen() -> None:
            async for _ in ticks():
                pass

        asyncio.create_task(listen())  # noqa: RUF006  (left over on purpose)
        return await echo("ok")

    assert await local.run(body) == "ok"


async def test_a_cancel_during_an_outage_longer_than_the_grace_still_runs_the_cleanup(skipping):
    undone = []

    @step
    async def undo() -> None:
        undone.append(1)

    @workflow(cancel_grace="2s")
    async def careful() -> None:
        try:
            await sleep("1d")
        finally:
            await undo()

    run = await skipping.start(careful)
    await skipping.saw(run, "wait_created")
    await run.cancel()
    await skipping.kill()
    skipping.turn(hours=5)
    await skipping.begin()
    skipping.node.tick(run.run_id)

    assert isinstance(await skipping.ended(run), RunCancelled)
    assert undone == [1]


async def test_code_that_swallows_a_cancel_is_terminated_in_the_end_also_when_it_slept(skipping):
    @workflow(cancel_grace="2s")
    async def stubborn() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await sleep("30d")

    run = await skipping.start(stubborn)
    await skipping.saw(run, "wait_created")
    await run.cancel()
    await skipping.saw(run, "wait_created", times=2)
    await skipping.skip(seconds=3)

    assert isinstance(await skipping.ended(run), RunTerminated)


async def test_a_gentle_stop_gives_an_attempt_back_and_calls_it_no_loss(local):
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    again = []

    @step(retry=0)
    async def long() -> str:
        loop.call_soon_threadsafe(begun.set)
        if again:
            return "done"
        await asyncio.sleep(60)
        return "never"

    @workflow
    async def wait() -> str:
        return await long()

    run = await local.start(wait)
    await asyncio.wait_for(begun.wait(), PATIENCE_S)
    again.append(1)
    await local.deploy(wait)

    assert await run.result(PATIENCE_S) == "done"
    (retrying,) = await local.events(run, "step_retrying")
    assert retrying.data.get("deferred") is True
    assert "lost" not in retrying.data
    assert [event.data["attempt"] for event in await local.events(run, "step_started")] == [1, 1]


async def test_a_body_that_ends_while_the_node_stops_is_recorded(local, gate):
    @step(retry=0)
    def charge() -> str:
        gate.block()
        return "charged"

    @workflow
    async def pay() -> str:
        return await charge()

    run = await local.start(pay)
    await gate.arrival()
    threading.Timer(0.2, gate.open).start()
    await local.deploy(pay)

    assert await run.result(PATIENCE_S) == "charged"
    assert len(await local.events(run, "step_started")) == 1


async def test_a_stalled_run_does_not_stay_due(local):
    @workflow
    async def dead() -> None:
        await echo("x")
        await asyncio.Event().wait()

    run = await local.start(dead)
    await local.stalled(run)
    await local.restart()
    await local.idle()
    await local.node.sweeper.sweep()
    await local.idle()

    assert [due.id for due in await local.world.due(None, None, await local.world.now() + timedelta(days=1), 10)] == []


async def test_time_zones_may_be_read_in_workflow_code(local):
    @workflow
    async def clock() -> str:
        ZoneInfo.clear_cache()
        return str(now().astimezone(ZoneInfo("Europe/Paris")).utcoffset())

    assert await local.run(clock) in {"1:00:00", "2:00:00"}


async def test_a_set_of_gathered_futures_has_one_order(local):
    @workflow
    async def sets() -> list[int]:
        fans = [asyncio.gather(echo(str(n)), echo("x")) for n in range(6)]
        done, _ = await asyncio.wait(set(fans))
        return [fans.index(fan) for fan in done]

    orders = {tuple(await local.run(sets)) for _ in range(4)}

    assert len(orders) == 1


async def test_the_same_start_again_for_later_leaves_a_live_runs_timer_alone(local):
    @workflow
    async def nap() -> str:
        await sleep(0.3)
        return "slept"

    local.app.add(nap)
    run = await local.start(nap, id="one")
    await local.saw(run, "wait_created")
    at = await local.world.now() + timedelta(seconds=40)
    await local.client.start(nap, id="one", at=at)

    assert await run.result(5) == "slept"


async def test_a_fix_in_a_helper_lets_stalled_runs_go_on(local, tmp_path, monkeypatch):
    (tmp_path / "fp_helper_mod.py").write_text("RIGHT = False\n")
    (tmp_path / "fp_flow_mod.py").write_text(
        "import asyncio\nfrom fencepost.actors import workflow\nimport fp_helper_mod\n\n"
        "@workflow\nasync def fixed_later() -> str:\n"
        "    if not fp_helper_mod.RIGHT:\n        await asyncio.Event().wait()\n    return 'right'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import fp_flow_mod  # noqa: PLC0415

    await local.deploy(fp_flow_mod.fixed_later)
    run = await local.start(fp_flow_mod.fixed_later)
    await local.stalled(run)
    (tmp_path / "fp_helper_mod.py").write_text("RIGHT = True  # fixed\n")
    sys.modules["fp_helper_mod"].RIGHT = True
    await local.deploy(fp_flow_mod.fixed_later)

    assert await run.result(PATIENCE_S) == "right"


async def test_a_thousand_cancels_are_one_event(local):
    @workflow
    async def careful() -> None:
        await sleep("1d")

    run = await local.start(careful)
    await local.saw(run, "wait_created")
    await asyncio.gather(*(run.cancel() for _ in range(50)))
    await local.ended(run)

    assert (await local.kinds(run)).count("cancel_requested") == 1


async def test_a_service_of_the_node_that_fails_begins_again(local, monkeypatch):
    failed, looked_again = asyncio.Event(), asyncio.Event()
    due = local.world.due

    async def broken(*args):
        if not failed.is_set():
            failed.set()
            raise OverflowError("a row nobody can read")
        looked_again.set()
        return await due(*args)

    monkeypatch.setattr(local.world, "due", broken)

    await asyncio.wait_for(failed.wait(), PATIENCE_S)
    await asyncio.wait_for(looked_again.wait(), PATIENCE_S)


async def test_an_id_that_no_list_could_show_is_refused(local):
    @workflow
    async def plain() -> None: ...

    with pytest.raises(InvalidInput, match="control character"):
        await local.start(plain, id="a\nb")


async def test_an_attribute_no_store_could_search_for_is_refused(local):
    with pytest.raises(InvalidInput, match="NUL"):
        await local.start("anything", attributes={"tenant": "a\0b"})


class Bomb(Exception):
    def __getattribute__(self, name):
        raise RuntimeError("do not look at me")


@pytest.mark.parametrize("where", ["async step", "sync step", "workflow"])
async def test_an_exception_that_does_not_let_itself_be_looked_at_is_a_failure_like_any_other(local, where):
    @step(retry=0)
    async def async_bomb() -> None:
        raise Bomb

    @step(retry=0)
    def sync_bomb() -> None:
        raise Bomb

    @workflow
    async def careless() -> None:
        if where == "workflow":
            raise Bomb
        await (async_bomb() if where == "async step" else sync_bomb())

    run = await local.start(careless)

    assert "cannot be looked at" in str(await local.ended(run))


async def test_an_input_that_no_longer_fits_after_a_deploy_stalls_the_run_and_may_fit_again(local):
    def flow(kind):
        @workflow(name="flow")
        async def taken(value: kind) -> str:
            await sleep(0.01)
            return str(value)

        return taken

    old, new = flow(str), flow(int)
    local.app.add(old)
    run = await local.start(old, "abc", at=await local.world.now() + timedelta(seconds=0.2))
    await local.deploy(new)
    why = await local.stalled(run)
    await local.deploy(old)
    await run.resume()

    assert "no longer fits" in why
    assert await run.result(PATIENCE_S) == "abc"
