"""kill -9 in the middle of a storm: what was answered is there, and nothing is half there."""

import asyncio
import random
import shutil
import subprocess
import sys

import pytest

from fencepost.world import RunQuery, SQLiteWorld
from fencepost.world.events import StepCompleted, StepStarted
from tests.contract.logs import (
    Decider,
    a_member,
    a_run,
    completed,
    created,
    disposed,
    dues,
    hooked,
    offer,
    outside,
    received,
    run_completed,
    run_started,
    started,
    types,
    wait,
    whole_log,
)

WRITERS = 16


async def chain(world, node, run_id):
    """Run steps one after the other for ever and say each one that was answered."""
    await world.create(a_run(run_id, chain_id=f"chain of {run_id}"))
    print("created", run_id, flush=True)  # noqa: T201
    decider = await Decider.of(world, run_id)
    await decider.append(run_started(), created("0.0"), started(node, "0.0", f"{run_id} 0"), whole_log=True)
    n = 0
    while True:
        accepted = await decider.append(
            completed(f"0.{n}", f"{run_id} {n}"),
            created(f"0.{n + 1}"),
            started(node, f"0.{n + 1}", f"{run_id} {n + 1}"),
            whole_log=True,
        )
        n += 1
        print("step", run_id, accepted.first_seq, flush=True)  # noqa: T201


async def storm(path):
    world = await SQLiteWorld.connect(path)
    node = await world.join(a_member())
    await asyncio.gather(*(chain(world, node, f"run_{n}") for n in range(WRITERS)))


def killed_storm(path, answers):
    """Run the storm in a process, kill it after so many answers, and return all that it said."""
    program = f"import asyncio; from tests.contract.test_sqlite_crash import storm; asyncio.run(storm({str(path)!r}))"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
        said = [child.stdout.readline() for _ in range(answers)]
        child.kill()
        rest = child.stdout.read()
    return [line.split() for line in [*said, *rest.splitlines(keepends=True)] if line.endswith("\n")]


async def check_whole(world, run, answered):
    log = await whole_log(world, run.run_id)
    ticks = [event.tick for event in log[1:]]
    open_steps = {event.body.token for event in log if isinstance(event.body, StepStarted)}
    open_steps -= {event.body.token for event in log if isinstance(event.body, StepCompleted)}
    opened = await world.open(run.run_id)

    assert [event.seq for event in log] == list(range(1, run.seq + 1))
    assert ticks == [1 + n // 3 for n in range(len(ticks))]
    assert (run.tick, run.in_band_count) == (len(ticks) // 3, len(ticks))
    assert len(ticks) % 3 == 0
    assert {claim.token for claim in opened.claims} == open_steps
    assert not any(claim.alive for claim in opened.claims)
    assert run.seq >= answered
    assert (await world.find(f"chain of {run.run_id}")).run_id == run.run_id


@pytest.mark.parametrize("seed", range(4))
async def test_kill_9_leaves_all_of_a_batch_or_nothing_and_all_that_was_answered(tmp_path, seed):
    path = tmp_path / "world.db"
    answers = random.Random(seed).randrange(WRITERS, 600)

    said = await asyncio.to_thread(killed_storm, path, answers)

    world = await SQLiteWorld.connect(path)
    runs = {run.run_id: run for run in await world.runs(RunQuery(limit=100))}
    answered = {run_id: 1 for what, run_id, *_ in said if what == "created"}
    answered |= {run_id: int(seq[0]) + 2 for what, run_id, *seq in said if what == "step"}
    assert answered.keys() <= runs.keys()
    for run in runs.values():
        await check_whole(world, run, answered.get(run.run_id, 1))
    await world.join(a_member())
    due = await world.due(None, None, await world.now(), 100)
    assert {item.id for item in due} == set(runs)
    await world.close()


# ---- between any two statements


async def images(world, path, folder):
    """Copy the files at every statement from here on, as a kill would leave them; return where they are."""
    taken = []

    def take(_statement):
        image = folder / f"image {len(taken)}"
        image.mkdir()
        for file in (path, path.with_name(f"{path.name}-wal")):
            shutil.copy(file, image)
        taken.append(image / path.name)

    await world._writer.run(lambda core: core.connection.set_trace_callback(take))
    return taken


async def state(path):
    """Return all that a batch changes, as the file has it."""
    world = await SQLiteWorld.connect(path)
    opened = await world.open("run_1")
    found = (opened.run, opened.fence, types(opened.events), [claim.token for claim in opened.claims])
    hook = await world.hook("tok")
    due = await dues(world)
    await world.close()
    return found, hook, due


@pytest.mark.parametrize("what", ["append", "end", "put"])
async def test_a_kill_between_any_two_statements_leaves_all_or_nothing(tmp_path, what):
    path = tmp_path / "world.db"
    world = await SQLiteWorld.connect(path)
    node = await world.join(a_member())
    decider = await Decider.of_new(world)
    await decider.append(run_started(), created(), started(node), created("0.1"), hooked("0.4"), whole_log=True)
    taken = await images(world, path, tmp_path)
    if what == "append":
        more = [completed(), created("0.2"), started(node, "0.2", "t2"), wait("0.3"), disposed("0.4"), hooked("0.5")]
        await decider.append(*more, offers=(offer("0.1"),), due=await world.now())
    elif what == "end":
        await decider.append(completed(), run_completed())
    else:
        await outside(world, received(op="0.4"))
    await world._writer.run(lambda core: core.connection.set_trace_callback(None))
    await world.close()

    states = [await state(image) for image in taken]

    after = await state(path)
    assert len(states) > 8
    assert states[0] != after
    assert [found for found in states if found not in (states[0], after)] == []
