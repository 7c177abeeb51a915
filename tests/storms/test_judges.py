"""A judge that never finds anything proves nothing: each is shown a run that went wrong."""

import asyncio
import random
from dataclasses import replace

import msgspec
import pytest

from fencepost.actors import App
from fencepost.world import events as ev
from tests.e2e.world_and_bus import Stack
from tests.storms import judges, play
from tests.storms.outside import Delivery, Outside
from tests.storms.read import read, rows
from tests.storms.storms import STORMS
from tests.storms.table import Row, table

KINDS = ("step", "hook", "branches")


async def _played():
    """Play one of each in this process, and read them."""
    stack = Stack(":memory:")
    stack.app = App(workflows=[STORMS[name].flow for name in KINDS])
    await stack.open()
    outside = Outside(stack.client, random.Random(7))
    await asyncio.gather(*(STORMS[name].play(outside) for name in KINDS))
    told = {one.run_id: one for one in outside.told}
    found = {row.workflow: await read(stack.world, row, told[row.run_id]) async for row in rows(stack.world)}
    await stack.close()
    return {name: found[STORMS[name].flow.name] for name in KINDS}


@pytest.fixture(scope="module")
def well():
    """Runs that went well, by their storm."""
    return asyncio.run(_played())


def found(run, name):
    row = Row(name, "memory")
    play.judge(run, STORMS[name], row)
    return row


def returning(run, value):
    return replace(run, told=replace(run.told, returned=value))


def with_end(run, **changed):
    """Return a run whose last event is another."""
    end = run.log[-1]
    body = msgspec.structs.replace(end.body, **changed)
    return replace(run, log=[*run.log[:-1], msgspec.structs.replace(end, body=body)])


@pytest.mark.parametrize("name", KINDS)
def test_a_run_that_went_well_is_called_so(well, name):
    row = found(well[name], name)

    assert (row.wrong, row.completed, row.differ) == ([], 1, 0)
    assert row.ticks > 0
    assert 0 < row.inputs < len(well[name].log)


def test_a_run_that_is_stalled_failed_unfinished_or_unheard_is_told(well):
    run = well["step"]
    live = {"status": "running", "ended_at": None}
    stalled = found(replace(run, row=replace(run.row, stalled="its code was changed", **live)), "step")
    failed = found(replace(run, row=replace(run.row, status="failed")), "step")
    unfinished = found(replace(run, row=replace(run.row, **live)), "step")
    unheard = found(replace(run, told=replace(run.told, trouble="not finished after 120 s")), "step")

    assert (stalled.stalled, failed.failed, unfinished.unfinished) == (1, 1, 1)
    assert [len(row.wrong) for row in (stalled, failed, unfinished, unheard)] == [1, 1, 1, 1]


def test_a_log_that_replays_to_another_end_is_told(well):
    row = found(with_end(well["step"], result=ev.Value(json=ev.as_json(["late"]))), "step")

    assert row.differ == 1
    assert "replay" in row.wrong[0]


def test_a_log_that_breaks_a_law_is_told(well):
    run = well["step"]
    first, second, *rest = run.log
    swapped = replace(run, log=[first, msgspec.structs.replace(second, seq=3), *rest])

    assert "positions_are_dense" in next(judges.log_keeps_the_laws(swapped))


def test_a_payload_that_is_not_as_its_sender_was_answered_is_told(well):
    run = well["hook"]
    accepted = next(one for one in run.told.deliveries if one.run_id)
    lost = Delivery("token", 1, answered=True, run_id=run.row.run_id)
    sent = {
        "refused, and there": [replace(accepted, run_id="")],
        "accepted, and not there": [lost],
        "accepted by another": [replace(accepted, run_id="run_other")],
    }

    for what, deliveries in sent.items():
        told = replace(run.told, deliveries=deliveries)
        assert len(list(judges.deliveries_are_as_answered(replace(run, told=told)))) == 1, what


def test_a_race_that_was_decided_against_the_log_is_told(well):
    run = well["step"]
    other = {"late": "settled", "settled": "late"}
    flipped = [other[run.returned[0]], *run.returned[1:]]

    assert "by its log" in next(STORMS["step"].judge(returning(run, flipped)))


def test_a_hook_that_was_read_in_another_order_or_not_to_the_end_is_told(well):
    run = well["hook"]
    first, second, *rest = run.returned["read"]
    wrong = {
        "swapped": run.returned | {"read": [second, first, *rest]},
        "not all": run.returned | {"read": [first, second, *rest][:-1]},
        "after the deadline": run.returned | {"closing": [*run.returned["closing"], 200]},
        "of the hook before": run.returned | {"again": [100]},
    }

    for what, value in wrong.items():
        assert list(STORMS["hook"].judge(returning(run, value))), what


def test_a_branch_that_got_what_was_not_its_own_is_told(well):
    run = well["branches"]
    (launched, answer, finished), *others = run.returned
    wrong = [[launched, None if answer else 1000, finished], [launched + 1, answer, finished]]

    for value in wrong:
        assert "by the log" in next(STORMS["branches"].judge(returning(run, [value, *others])))


def test_rows_of_two_rounds_are_one_line():
    one, other = Row("step", "stack", runs=2, ticks=100, conflicts=1), Row("step", "stack", runs=3, ticks=100)
    other.worst_s = 1.5
    one.add(other)

    assert " ".join(table([one]).splitlines()[1].split()) == "step stack 5 0 0 0 0 0 0 200.00 5.0 1.50 s"
