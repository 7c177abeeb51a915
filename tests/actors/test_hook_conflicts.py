"""A hook whose token is taken: who awaits it is told, and nothing is begun that assumed it was there."""

# workflow time: no real time passes in this file

import asyncio
from typing import Any

import pytest

from fencepost.actors.author import sleep
from fencepost.actors.define import step, workflow
from fencepost.actors.errors import HookConflict
from fencepost.actors.hooks import hook
from fencepost.actors.paths import comes_after
from fencepost.world import events as ev
from tests.actors.tape import Tape


@step
async def note(what: str) -> Any:
    return what


def conflicting(tape, *, after=1):
    """Replay the beginning of a tape, with a conflict in place of its first hook."""
    cut = tape.replay(upto=after)
    first = next(e.body for e in tape.log if isinstance(e.body, ev.HookCreated))
    cut.feed(ev.Event(after + 1, 1, tape.at, ev.RunStarted()))
    conflict = ev.HookConflict(op=first.op, token=first.token, owner="run_other")
    cut.feed(ev.Event(after + 2, 1, tape.at, conflict))
    return cut


def test_a_conflict_reaches_who_awaits_and_nothing_of_the_hook_is_made():
    @workflow
    async def conflicting() -> str:
        inbox = hook("t", int)
        try:
            await inbox
        except HookConflict as conflict:
            return f"{conflict.token} belongs to {conflict.owner}"
        return "no"

    tape = Tape(conflicting)
    cut = tape.replay(upto=1)
    cut.feed(ev.Event(2, 1, tape.at, ev.RunStarted()))
    cut.feed(ev.Event(3, 1, tape.at, ev.HookConflict(op="0.0", token="t", owner="run_other")))

    assert cut.terminal is not None
    assert b"t belongs to run_other" in bytes(cut.terminal.result.json)


def test_a_conflict_is_kept_for_who_awaits_later_and_for_iteration():
    @workflow
    async def later() -> list[str]:
        inbox, said = hook("t", int), list[str]()
        await sleep("1h")
        for _ in range(2):
            try:
                await inbox
            except HookConflict:
                said.append("await")
        try:
            async for _ in inbox:
                said.append("payload")
        except HookConflict:
            said.append("iterate")
        inbox.dispose()  # nothing to dispose: it must not free the owner's token
        return said

    tape = Tape(later)
    turn = conflicting(tape)
    orders = turn.orders()
    assert [ev.kind_of(o) for o in orders] == ["wait_created"]
    turn.feed(ev.Event(4, 2, tape.at, orders[0]))
    turn.feed(ev.Event(5, 3, tape.at, ev.WaitCompleted(op="0.1")))

    assert bytes(turn.terminal.result.json) == b'["await","await","iterate"]'
    assert [ev.kind_of(o) for o in turn.orders()] == ["run_completed"]


def test_a_step_that_may_have_assumed_the_hook_is_not_begun():
    @workflow
    async def mailing() -> str:
        async def elsewhere() -> str:
            return await note("unrelated")

        other = asyncio.create_task(elsewhere())
        await asyncio.sleep(0)
        inbox = hook("approve:42")
        try:
            await note(f"mail with {inbox.token}")
        except HookConflict as conflict:
            return f"{conflict.owner} has it, {await other}"
        return "sent"

    turn = conflicting(Tape(mailing))

    assert [(o.op, bytes(o.args.json)) for o in turn.orders()] == [("0.0.0", b'{"what":"unrelated"}')]


def test_what_was_asked_for_before_the_hook_is_not_taken_back():
    @workflow
    async def before() -> str:
        early = asyncio.create_task(note("early"))
        await asyncio.sleep(0)
        try:
            await hook("t")
        except HookConflict:
            return await early
        return ""

    turn = conflicting(Tape(before))

    assert [o.op for o in turn.orders()] == ["0.0.0"]


@pytest.mark.parametrize(
    ("path", "earlier", "after"),
    [
        ("0.5", "0.3", True),
        ("0.3", "0.5", False),
        ("0.3", "0.3", False),
        ("0.10", "0.9", True),
        ("0.5.0", "0.3", True),
        ("0.3.1.2", "0.3.0", True),
        ("0.4", "0.3.0", False),
        ("0.2.7", "0.3", False),
    ],
)
def test_what_comes_after_an_operation_is_told_by_its_path(path, earlier, after):
    assert comes_after(path, earlier) is after
