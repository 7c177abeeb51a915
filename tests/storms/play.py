"""Storms played on a pair, one after the other; when all is over every log is read and judged."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

from tests.chaos.judges import SAID
from tests.storms.judges import deliveries_are_as_answered, end_is_good, log_keeps_the_laws, log_replays
from tests.storms.outside import Outside, Told
from tests.storms.pairs import placed
from tests.storms.read import read, rows
from tests.storms.table import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from fencepost.world import World
    from tests.storms.pairs import Pair, Place
    from tests.storms.read import Reading
    from tests.storms.storms import Storm

AT_ONCE = 40
"""So many runs are under way at a time."""


async def play(
    storms: Sequence[Storm], pair: Pair, runs: int, seed: int, folder: Path, *, together: bool = False
) -> list[Row]:
    """Play each storm with so many runs, one storm after the other or `together`, and judge them all."""
    found = {storm.flow.name: Row(storm.name, pair) for storm in storms}
    told: dict[str, Told] = {}
    room = asyncio.Semaphore(len(storms) if together else 1)

    async def one(storm: Storm) -> None:
        async with room:
            told.update(await played(storm, place, runs, random.Random(f"{seed} {storm.name}"), found[storm.flow.name]))

    async with placed(pair, folder) as place:
        await asyncio.gather(*map(one, storms))
        await place.stop()
        async with place.world() as world:
            await judge_all(world, {storm.flow.name: storm for storm in storms}, found, told)
        count_refusals(place, told, found)
        said = list(odd(place))
    result = list(found.values())
    result[0].wrong += said
    return result


async def played(storm: Storm, place: Place, runs: int, rng: random.Random, row: Row) -> dict[str, Told]:
    """Play one storm to its end, with nodes killed meanwhile on the stack; return what was told of each run."""
    began_s, before = time.monotonic(), place.kills
    async with place.client() as client:
        outside = Outside(client, rng)
        killing = asyncio.create_task(place.kill_now_and_then(rng)) if place.postgres else None
        try:
            row.wrong += await crowd(storm, outside, -(-runs // storm.runs))
        finally:
            if killing is not None:
                killing.cancel()
                await asyncio.gather(killing, return_exceptions=True)
    row.took_s, row.kills = time.monotonic() - began_s, place.kills - before
    return {one.run_id: one for one in outside.told}


async def crowd(storm: Storm, outside: Outside, plays: int) -> list[str]:
    """Play so many times, with a bounded number of runs at a time. Return how plays ended that did not go through."""
    room = asyncio.Semaphore(max(1, AT_ONCE // storm.runs))

    async def one() -> None:
        async with room:
            await storm.play(outside)

    ends = await asyncio.gather(*(one() for _ in range(plays)), return_exceptions=True)
    return [f"a play ended with {type(end).__name__}: {end}" for end in ends if end is not None]


# ---- judging


async def judge_all(world: World, storms: dict[str, Storm], found: dict[str, Row], told: dict[str, Told]) -> None:
    left = set(told)
    async for one in rows(world):
        row, storm = found[one.workflow], storms[one.workflow]
        left.discard(one.run_id)
        known = told.get(one.run_id)
        if known is None:
            row.wrong.append(f"{one.run_id} was started by nobody")
            continue
        judge(await read(world, one, known), storm, row)
    if left:
        next(iter(found.values())).wrong.append(f"{len(left)} runs are gone: {sorted(left)[:3]}")


def judge(run: Reading, storm: Storm, row: Row) -> None:
    """Count a run, and note what is wrong with it."""
    row.runs += 1
    row.completed += run.row.status == "completed"
    row.stalled += bool(run.row.stalled)
    row.failed += run.row.ended_at is not None and run.row.status != "completed"
    row.unfinished += run.row.ended_at is None and not run.row.stalled
    row.ticks += run.row.tick
    row.inputs += run.inputs
    row.bursts += storm.bursts
    row.worst_s, row.worst = max([(row.worst_s, row.worst), *run.delays(answers=storm.answers)])
    differences = list(log_replays(run, storm))
    row.differ += bool(differences)
    row.wrong += [f"{run.row.run_id}: {what}" for what in [*differences, *wrong(run, storm)]]


def wrong(run: Reading, storm: Storm) -> Iterator[str]:
    yield from end_is_good(run)
    yield from log_keeps_the_laws(run)
    yield from deliveries_are_as_answered(run)
    if run.row.status == "completed" and not run.told.trouble:
        yield from storm.judge(run)


def count_refusals(place: Place, told: dict[str, Told], found: dict[str, Row]) -> None:
    for run_id, count in place.refusals().items():
        if run_id in told:
            found[told[run_id].workflow].conflicts += count


def odd(place: Place) -> Iterator[str]:
    """Yield what nodes said that they should not."""
    for node in place.lives:
        for line in node.lines():
            text = str(line)
            if line.get("level") in {"error", "critical"} or any(what in text for what in SAID):
                yield f"node {node.name} said {text[:1500]}"
