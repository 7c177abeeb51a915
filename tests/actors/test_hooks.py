"""Hooks in workflow code, on the pure turn: payloads in the order of the log, the same live and on replay."""

# workflow time: no real time passes in this file

import asyncio
import uuid
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from fencepost.actors.author import sleep, timeout
from fencepost.actors.define import step, workflow
from fencepost.actors.errors import DefinitionError, FatalError, FencepostError, HookDisposed, InvalidInput
from fencepost.actors.hooks import hook, webhook
from fencepost.actors.inbox import Inbox
from fencepost.actors.operations import Diverged
from fencepost.actors.settling import Stuck
from fencepost.actors.shape import Shape
from fencepost.actors.webhooks import Reply
from fencepost.world import events as ev
from tests.actors.tape import Tape, value


@step
async def note(what: str) -> Any:
    return what


class Approval(BaseModel):
    ok: bool


class Stamped(BaseModel):
    a: int
    at: str = Field(default_factory=lambda: str(uuid.uuid4()))


def kinds(tape):
    return [ev.kind_of(e.body) for e in tape.log]


def test_a_hook_is_awaited_and_its_payload_has_its_type():
    @workflow
    async def approved() -> bool:
        return (await hook("approve", Approval)).ok

    tape = Tape(approved)
    tape.payload("approve", {"ok": True})

    assert tape.result is True
    assert kinds(tape) == ["run_created", "run_started", "hook_created", "hook_received", "run_completed"]
    tape.assert_replays()


def test_what_the_model_is_stands_in_the_log_for_who_delivers():
    @workflow
    async def approved() -> None:
        await hook("approve", Approval)

    created = Tape(approved).log[2].body

    assert created.model == f"{__name__}:Approval"
    assert b'"ok"' in bytes(created.schema)


def test_payloads_that_come_early_are_kept_in_order():
    @workflow
    async def collected() -> list[int]:
        inbox = hook("in", int)
        await note("first")
        return [await inbox, await inbox, await inbox]

    tape = Tape(collected)
    for n in (1, 2, 3):
        tape.payload("in", n)
    tape.step("note", "first")

    assert tape.result == [1, 2, 3]
    tape.assert_replays()


def test_iterating_ends_when_the_hook_is_disposed():
    @workflow
    async def until_stop() -> list[str]:
        seen = []
        async with hook("in", str) as inbox:
            async for word in inbox:
                seen.append(word)
                if word == "stop":
                    inbox.dispose()
        return seen

    tape = Tape(until_stop)
    for word in ("a", "b", "stop"):
        tape.payload("in", word)

    assert tape.result == ["a", "b", "stop"]
    tape.assert_replays()


def test_disposing_frees_the_token_in_the_log_and_a_new_hook_may_have_it():
    @workflow
    async def twice() -> list[int]:
        async with hook("t", int) as first:
            one = await first
        async with hook("t", int) as second:
            return [one, await second]

    tape = Tape(twice)
    tape.payload("t", 1)
    tape.payload("t", 2)

    assert tape.result == [1, 2]
    disposed = [(e.body.op, e.body.token) for e in tape.log if isinstance(e.body, ev.HookDisposed)]
    assert disposed == [("0.0", "t")]  # the second one ends with the run
    assert kinds(tape).index("hook_disposed") < len(kinds(tape)) - 1 - kinds(tape)[::-1].index("hook_created")
    tape.assert_replays()


def test_a_hook_disposed_in_the_breath_it_was_made_in_leaves_no_trace():
    @workflow
    async def nothing() -> str:
        hook("t").dispose()
        return await note("done")

    tape = Tape(nothing)
    tape.step("note", "done")

    assert "hook_created" not in kinds(tape)
    tape.assert_replays()


@pytest.mark.parametrize("first", ["hook", "timer"])
def test_a_hook_and_a_deadline_are_decided_by_position(first):
    @workflow
    async def raced() -> str:
        inbox = hook("t", int)
        try:
            async with timeout("2d"):
                await inbox
        except TimeoutError:
            await note("refund")
            return "late"
        await note("ship")
        await note("invoice")
        return "in time"

    tape = Tape(raced)
    if first == "hook":
        tape.payload("t", 1)
        steps = ["ship", "invoice"]
    else:
        tape.fire()
        tape.payload("t", 1)
        steps = ["refund"]
    for _ in steps:
        tape.step("note", "x")

    assert tape.result == ("in time" if first == "hook" else "late")
    tape.assert_replays()


def test_a_payload_is_not_lost_when_who_was_woken_for_it_is_cancelled_in_the_same_breath():
    @workflow
    async def shared() -> list[int | str]:
        inbox = hook("t", int)
        first, second = asyncio.ensure_future(inbox), asyncio.ensure_future(inbox)
        alarm = hook("alarm", int)

        async def watch() -> None:
            await alarm
            first.cancel()

        watching = asyncio.create_task(watch())
        got = await asyncio.wait_for(second, None)
        watching.cancel()
        return [got, "cancelled" if first.cancelled() else await first]

    tape = Tape(shared)
    tape.payload("alarm", 0)
    tape.payload("t", 7)

    assert tape.result == [7, "cancelled"]
    tape.assert_replays()


async def test_a_waiter_that_gives_up_after_it_was_woken_passes_the_wake_on():
    inbox, loop = Inbox("t", Shape(Any, "t"), web=False), asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    inbox.waiters.extend([first, second])
    inbox.put(ev.HookReceived(op="0.0", token="t", delivery="d", payload=value("payload")))
    assert (first.done(), second.done()) == (True, False)

    inbox.gave_up(first)

    assert second.done()
    assert inbox.take() == "payload"


def test_readers_are_served_first_come_first_served():
    @workflow
    async def served() -> list[str]:
        inbox, seen = hook("t", str), list[str]()

        async def reader(name: str) -> None:
            async for word in inbox:
                seen.append(f"{name}:{word}")
                if len(seen) == 4:
                    inbox.dispose()

        await asyncio.gather(reader("a"), reader("b"))
        return seen

    tape = Tape(served)
    for word in ("1", "2", "3", "4"):
        tape.payload("t", word)

    assert tape.result == ["a:1", "b:2", "a:3", "b:4"]
    tape.assert_replays()


def test_a_token_that_was_not_given_is_drawn_from_the_secret_of_the_run():
    @workflow
    async def drawn() -> list[str]:
        return [hook().token, hook().token]

    one, same, other = Tape(drawn), Tape(drawn), Tape(drawn, seed="another")

    assert one.result == same.result
    assert len({*one.result, *other.result}) == 4
    assert all(token.startswith("hook_") and len(token) == 37 for token in one.result)


def test_a_hook_nobody_waits_for_does_not_keep_a_run_alive():
    @workflow
    async def stuck() -> None:
        hook("t")
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match="waits for nothing"):
        Tape(stuck)


def test_a_run_that_waits_for_a_hook_alone_is_not_stuck():
    @workflow
    async def waiting() -> int:
        return await hook("t", int)

    tape = Tape(waiting)

    assert tape.turn.ended is None
    assert list(tape.turn.ops.open) == ["0.0"]


def test_a_payload_that_does_not_fit_is_told_to_the_code_which_may_go_on():
    @workflow
    async def typed() -> list[str | int]:
        inbox = hook("t", int)
        try:
            await inbox
        except InvalidInput as misfit:
            return [str(misfit), await inbox]
        return []

    tape = Tape(typed)
    tape.payload("t", "no number")
    tape.payload("t", 7)

    assert tape.result[0].startswith("a payload of hook 't' (delivery 'd3') does not fit its model: Input should be")
    assert tape.result[1] == 7
    tape.assert_replays()


def test_a_payload_for_a_hook_the_code_has_disposed_is_inert():
    @workflow
    async def disposing() -> str:
        inbox = hook("t", int)
        await note("x")
        inbox.dispose()
        await note("y")
        return "done"

    tape = Tape(disposing)
    tape.step("note")
    before = len(tape.log)
    late = ev.HookReceived(op="0.0", token="t", delivery="late", payload=ev.Value(ev.as_json(1)))
    tape.outside(late)
    tape.step("note")

    assert tape.result == "done"
    assert before < len(tape.log)
    tape.assert_replays()


def test_another_token_at_the_same_place_is_a_divergence():
    @workflow(name="w")
    async def old() -> None:
        await hook("a")

    @workflow(name="w")
    async def new() -> None:
        await hook("b")

    tape = Tape(old)

    with pytest.raises(Diverged, match="the log has hook 'a', the code now asks for hook 'b'"):
        tape.replay(new, upto=3)


def test_a_disposed_hook_the_code_still_has_is_a_divergence():
    @workflow(name="w")
    async def old() -> None:
        async with hook("a"):
            pass
        hook("a").dispose()
        inbox = hook("a")
        await note("x")
        inbox.dispose()
        await note("y")

    @workflow(name="w")
    async def new() -> None:
        async with hook("a"):
            pass
        hook("a").dispose()
        inbox = hook("a")
        await note("x")
        await note("y")
        await inbox

    tape = Tape(old)
    tape.step("note")

    with pytest.raises(Diverged, match=r"the code gave up 0\.2"):
        tape.replay(new, upto=len(tape.log))


@pytest.mark.parametrize("token", ["", " x", "x ", "a\nb", "x" * 256, "\ud800", 7])
def test_a_token_that_cannot_be_one_is_an_error_of_the_code(token):
    @workflow
    async def odd() -> str:
        try:
            hook(token)
        except (ValueError, TypeError) as error:
            return str(error)
        return "taken"

    assert "token" in Tape(odd).result


def test_a_model_that_cannot_be_hashed_is_one_all_the_same():
    @workflow
    async def odd() -> int:
        return await hook("t", Annotated[int, []])

    tape = Tape(odd)
    tape.payload("t", 7)

    assert tape.result == 7


@pytest.mark.parametrize("model", [5, object()])
def test_a_model_that_is_no_type_is_an_error_of_the_code(model):
    @workflow
    async def odd() -> str:
        try:
            hook("t", model)
        except DefinitionError as error:
            return str(error)
        return "taken"

    assert "give it a type that pydantic knows" in Tape(odd).result


@pytest.mark.parametrize("make", [hook, webhook])
def test_a_hook_outside_a_workflow_is_an_error_that_no_retry_heals(make):
    with pytest.raises(FatalError, match="outside a workflow"):
        make("t")


async def test_a_hook_used_outside_its_workflow_is_an_error():
    kept = []

    @workflow
    async def leaking() -> int:
        kept.append(hook("t", int))
        return await kept[0]

    Tape(leaking)

    with pytest.raises(FencepostError, match="outside the workflow that made it"):
        await kept[0]


def test_a_disposed_hook_says_so_to_who_awaits_it():
    @workflow
    async def gone() -> str:
        inbox = hook("t")
        inbox.dispose()
        try:
            await inbox
        except HookDisposed as error:
            return str(error)
        return ""

    assert "was disposed" in Tape(gone).result


def test_a_webhook_gives_the_payload_with_its_headers():
    @workflow
    async def called() -> list[object]:
        got = await webhook("t", Approval, reply=Reply(201, {"thanks": True}))
        return [got.payload.ok, got.token, got.delivery, dict(got.headers)]

    tape = Tape(called)
    created = tape.log[2].body
    received = ev.HookReceived(
        op=created.op, token="t", delivery="d1", payload=ev.Value(ev.as_json({"ok": True})), headers={"x-a": "b"}
    )
    tape.outside(received)

    assert tape.result == [True, "t", "d1", {"x-a": "b"}]
    assert (created.reply.status, bytes(created.reply.body)) == (201, b'{"thanks":true}')
    tape.assert_replays()


def test_cancelling_a_run_reaches_who_awaits_a_hook_and_cleanup_may_dispose_it():
    @workflow
    async def cancelled() -> None:
        async with hook("t") as inbox:
            try:
                await inbox
            finally:
                await note("cleanup")

    tape = Tape(cancelled)
    tape.cancel("enough")
    tape.step("note")

    assert isinstance(tape.turn.ended, ev.RunCancelled)
    tape.assert_replays()


def test_a_sleeping_run_that_is_put_to_sleep_disposes_nothing():
    @workflow
    async def dozing() -> int:
        async with hook("t", int) as inbox:
            await sleep("1h")
            return await inbox

    tape = Tape(dozing)
    tape.turn.evict()

    assert tape.turn.ops.to_end == {}
    again = tape.replay(upto=len(tape.log))
    assert list(again.ops.hooks) == ["0.0"]


def test_what_the_code_has_taken_is_counted_for_the_world():
    @workflow
    async def reading() -> None:
        inbox = hook("t", int)
        await inbox
        await inbox
        await sleep("1h")

    tape = Tape(reading)
    for n in (1, 2, 3):
        tape.payload("t", n)

    inbox = tape.turn.ops.hooks["0.0"].inbox
    assert (inbox.taken, [bytes(b.payload.json) for b in inbox.arrived]) == (2, [b"3"])


def test_a_model_that_draws_is_read_the_same_in_every_replay():
    @workflow
    async def stamped() -> str:
        got = await hook("t", Stamped)
        return got.at

    tape = Tape(stamped)
    tape.payload("t", {"a": 1})

    assert tape.result.count("-") == 4
    tape.assert_replays()
