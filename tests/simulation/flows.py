"""Programs to simulate: each kind of waiting there is, with branches that differ after a race."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fencepost.actors import Retry, now, random, sleep, step, timeout, uuid4, workflow
from tests.simulation.ledger import outside
from tests.simulation.loop import SimLoop

QUICK = Retry(times=3, first=0.3, max=2.0)


@step(retry=QUICK)
async def work(label: str) -> int:
    """Work that is tried again."""
    return await outside().work(label)


@step(retry=0)
async def once(label: str) -> int:
    """Work that is not."""
    return await outside().work(label)


@step(retry=QUICK, timeout=1.5)
async def hurried(label: str) -> int:
    """Work with a limit for each attempt."""
    return await outside().work(label)


@step(retry=QUICK, total_timeout=3.0)
async def bounded(label: str) -> int:
    """Work with a limit for all attempts together."""
    return await outside().work(label)


@step(retry=QUICK, on_cancel="wait")
async def awaited(label: str) -> int:
    """Work whose end is waited for when nobody wants it."""
    return await outside().work(label)


@step(retry=QUICK, on_cancel="abandon")
async def careless(label: str) -> int:
    """Work that is not told that nobody wants it."""
    return await outside().work(label)


@step(retry=QUICK, queue="elsewhere")
async def remote(label: str) -> int:
    """Work of a queue that not every node serves."""
    return await outside().work(label)


STEPS = {declared.name: declared for declared in (work, once, hurried, bounded, awaited, careless, remote)}


async def kept(part: Any) -> Any:
    """Return what came of something, its error as text."""
    try:
        return await part
    except Exception as error:  # noqa: BLE001  (whatever it was is the result)
        return type(error).__name__


@workflow
async def sequence(n: int) -> list[Any]:
    return [await kept(work(f"s{i}")) for i in range(n)]


@workflow
async def spread(n: int) -> list[Any]:
    found = await asyncio.gather(*(work(f"g{i}") for i in range(n)), return_exceptions=True)
    return [one if isinstance(one, int) else type(one).__name__ for one in found]


@workflow
async def grouped(n: int) -> list[Any]:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(once(f"t{i}")) for i in range(n)]
    except ExceptionGroup as errors:
        return ["failed", len(errors.exceptions), await kept(work("after"))]
    return [task.result() for task in tasks]


@workflow
async def race(n: int) -> list[Any]:
    tasks = [asyncio.create_task(work(f"r{i}")) for i in range(n + 1)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    won = [i for i, task in enumerate(tasks) if task in done]
    for task in pending:
        task.cancel()
    follow = [await kept(STEPS["work" if won[0] % 2 else "once"](f"after{i}")) for i in range(won[0] + 1)]
    return [won, *follow]


@workflow
async def race_with_timer(n: int) -> list[Any]:
    history: list[Any] = []
    for i in range(n):
        task = asyncio.create_task(kept(work(f"d{i}")))
        timer = asyncio.create_task(sleep(0.3))
        done, _ = await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        if timer in done and task not in done:
            history.append(await kept(once(f"late{i}")))
            task.cancel()
        else:
            timer.cancel()
            await sleep(0.1)
        history.append(len(done))
    return history


@workflow
async def nested_timeouts(n: int) -> list[Any]:
    history: list[Any] = []
    try:
        async with timeout(2.0):
            for i in range(n + 1):
                try:
                    async with timeout(0.3):
                        history.append(await work(f"n{i}"))
                except TimeoutError:
                    history.append(await kept(hurried(f"late{i}")))
    except TimeoutError:
        history.append("outer")
        history.append(await kept(bounded("outer")))
    except Exception as error:  # noqa: BLE001  (whatever it was is the result)
        history.append(type(error).__name__)
    return history


@workflow(cancel_grace=90)
async def cleaned_up(n: int) -> list[Any]:
    history: list[Any] = []
    try:
        for i in range(n + 2):
            history.append(await kept(work(f"c{i}")))
            await sleep(1.0)
    except asyncio.CancelledError:
        await kept(work("cleanup 1"))
        await kept(awaited("cleanup 2"))
        raise
    return history


@workflow
async def shielded(n: int) -> list[Any]:
    history: list[Any] = []
    for i in range(n):
        inner = asyncio.ensure_future(kept(work(f"h{i}")))
        try:
            async with timeout(0.2):
                history.append(await asyncio.shield(inner))
        except TimeoutError:
            history += ["late", await inner]
    return history


@workflow
async def as_they_come(n: int) -> list[Any]:
    history: list[Any] = []
    for i, one in enumerate(asyncio.as_completed([kept(work(f"a{i}")) for i in range(n + 1)])):
        history.append(await one)
        if isinstance(history[-1], int) and history[-1] > 5:
            history.append(await kept(work(f"big{i}")))
    return history


@workflow
async def generated(n: int) -> list[Any]:
    async def numbers() -> Any:
        try:
            for i in range(n + 3):
                yield await kept(work(f"y{i}"))
        finally:
            await kept(once("generator closes"))

    history: list[Any] = []
    async for number in numbers():
        history.append(number)
        if len(history) >= n:
            break
    await sleep(0.1)
    return history


@workflow
async def chancy(n: int) -> list[Any]:
    history: list[Any] = []
    for i in range(n):
        if random() < 0.5:
            history.append(await kept(work(f"{uuid4()}")))
        else:
            await sleep(0.05 + random())
        history.append(now().isoformat())
        if {uuid4().int % 3, i} == {0}:
            history.append("rare")
    return history


@workflow
async def sleepy(n: int) -> list[Any]:
    forgotten = asyncio.create_task(sleep(3600))
    asyncio.create_task(kept(work("forgotten")))  # noqa: RUF006  (un-awaited on purpose)
    for _ in range(n):
        await sleep(1.0 + random() * 20)
    return [forgotten.done(), await kept(work("end"))]


@workflow(timeout=20.0)
async def limited(n: int) -> list[Any]:
    return [await kept(remote(f"l{i}")) for i in range(n + 1)]


@workflow
async def deployed(n: int) -> list[Any]:
    """A later version has one branch do one thing more, which leaves no trace: that renames nothing in the other."""

    async def one() -> Any:
        found = await kept(work("a"))
        if is_newer():
            async with timeout(5.0):
                await asyncio.sleep(0)
        return found

    async def other() -> list[Any]:
        found: list[Any] = []
        for i in range(n + 2):
            found.append(await kept(work(f"b{i}")))
            await sleep(0.2)
        return found

    return list(await asyncio.gather(one(), other()))


def is_newer() -> bool:
    """Tell whether a process runs the later version."""
    return SimLoop.running is not None and SimLoop.running.is_newer


# ---- programs from the seed


@workflow
async def tree(spec: str) -> Any:
    """Run a program that is its own input: see `trees`."""
    return await grow(json.loads(spec))


async def grow(spec: list[Any]) -> Any:
    """Run one node of a tree."""
    kind, *parts = spec
    return await KINDS[kind](*parts)


async def _call(name: str, label: str) -> Any:
    return await STEPS[name](label)


async def _sleep(duration_s: float) -> Any:
    await sleep(duration_s)
    return "slept"


async def _sequence(*parts: Any) -> Any:
    return [await grow(part) for part in parts]


async def _gather(*parts: Any) -> Any:
    return list(await asyncio.gather(*(grow(part) for part in parts)))


async def _group(*parts: Any) -> Any:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(grow(part)) for part in parts]
    return [task.result() for task in tasks]


async def _race(parts: list[Any], after: list[Any], keep: Any) -> Any:
    tasks = [asyncio.create_task(kept(grow(part))) for part in parts]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    won = min(i for i, task in enumerate(tasks) if task in done)
    if not keep:
        for task in pending:
            task.cancel()
    return [won, tasks[won].result(), await grow(after[won])]


async def _timeout(limit_s: float, part: Any, otherwise: Any) -> Any:
    try:
        async with timeout(limit_s):
            return await grow(part)
    except TimeoutError:
        return ["late", await grow(otherwise)]


async def _try(part: Any, otherwise: Any, last: Any) -> Any:
    try:
        return await grow(part)
    except Exception as error:  # noqa: BLE001  (whatever it was is the result)
        return [type(error).__name__, await grow(otherwise)]
    finally:
        await grow(last)


async def _choose(name: str, label: str, even: Any, odd: Any) -> Any:
    number = await kept(STEPS[name](label))
    return [number, await grow(odd if number in (1, 3, 5, 7, 9) else even)]


async def _spawn(part: Any) -> Any:
    asyncio.create_task(kept(grow(part)))  # noqa: RUF006  (un-awaited on purpose)
    return "spawned"


KINDS = {
    "call": _call,
    "sleep": _sleep,
    "sequence": _sequence,
    "gather": _gather,
    "group": _group,
    "race": _race,
    "timeout": _timeout,
    "try": _try,
    "choose": _choose,
    "spawn": _spawn,
}

FLOWS = (
    sequence,
    spread,
    grouped,
    race,
    race_with_timer,
    nested_timeouts,
    cleaned_up,
    shielded,
    as_they_come,
    generated,
    chancy,
    sleepy,
    limited,
    deployed,
)
