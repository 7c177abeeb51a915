"""The workloads, under the names that the peers were measured with. Each returns its figures."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fencepost.world import UNREAD, Batch, RunEnded
from fencepost.world import events as ev

from . import flows
from .noise import quantile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from .stack import Stack

STEPS: Final = (1, 10, 25, 50)
WIDTHS: Final = (10, 25, 50)
SLEEP_S: Final = 2.0
ALONE_S: Final = 0.5
LONG: Final = 1000
AROUND: Final = 100
OUTSIDE_S: Final = 0.01
OUT_S_MAX: Final = 120.0
FASTEST: Final = 0.1
"""Of the neighbours of a step the fastest tenth is looked at: the others tell more of the machine than of us."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    warm_up: int = 20
    latencies: int = 200
    runs: int = 1000
    concurrency: int = 50
    repeated: int = 10
    crowd: int = 200
    timers: int = 1000
    long: int = LONG
    sleepers: int = 10_000
    counted: int = 20
    floor: int = 1000
    idle_s: float = 10.0
    calm_s: float = 4.0
    alone: int = 10
    lag_s: float = 4.0
    hit: int = 20
    lease_s: float = 10.0
    signalled: int = 100
    apart_s: float = 0.3


QUICK: Final = Size(2, 10, 40, 20, 2, 10, 40, 120, 200, 3, 100, 1.0, 0.0, 1, 0.5, 4, 2.0, 5, 0.05)


async def run(stack: Stack, workflow: Any, *args: Any) -> Any:
    """Start a run and wait for its result, as a client does."""
    return await (await stack.client.start(workflow, *args)).result()


async def bounded(works: Iterable[Callable[[], Awaitable[Any]]], limit: int) -> None:
    """Do all, at most `limit` at once."""
    gate = asyncio.Semaphore(limit)

    async def one(work: Callable[[], Awaitable[Any]]) -> None:
        async with gate:
            await work()

    await asyncio.gather(*(one(work) for work in works))


async def _samples_ms(stack: Stack, times: int, workflow: Any, *args: Any) -> list[float]:
    samples: list[float] = []
    for _ in range(times):
        began_s = time.perf_counter()
        await run(stack, workflow, *args)
        samples.append(1e3 * (time.perf_counter() - began_s))
    return samples


async def w0(stack: Stack, size: Size) -> dict[str, float]:
    """A run without steps: one after the other, then many at once."""
    await _samples_ms(stack, size.warm_up, flows.noop)
    samples = await _samples_ms(stack, size.latencies, flows.noop)
    crowd_s, cpu_s = await _spent(bounded((lambda: run(stack, flows.noop) for _ in range(size.runs)), size.concurrency))
    return {
        "p50_ms": quantile(samples, 0.5),
        "p95_ms": quantile(samples, 0.95),
        "best_ms": min(samples),
        "runs_s": size.runs / crowd_s,
        "cpu_ms": 1e3 * cpu_s / size.runs,
    }


async def _spent(work: Awaitable[Any]) -> tuple[float, float]:
    """Return the seconds it took, and the CPU seconds of this process: those do not grow with what others do."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    await work
    return time.perf_counter() - began_s, time.process_time() - cpu_s


async def _by_number(stack: Stack, size: Size, workflow: Any, name: str, numbers: tuple[int, ...]) -> dict[str, float]:
    """Take the median total for each number of steps, and the slope between the first and the last."""
    await run(stack, workflow, numbers[0])
    found = {n: await _samples_ms(stack, size.repeated, workflow, n) for n in numbers}
    first, last = numbers[0], numbers[-1]
    slope, best = ((q(found[last]) - q(found[first])) / (last - first) for q in (statistics.median, min))
    totals = {f"{name}{n}_ms": statistics.median(samples) for n, samples in found.items()}
    return {**totals, f"{name}_slope_ms": slope, f"{name}_slope_best_ms": best}


async def w1(stack: Stack, size: Size) -> dict[str, float]:
    """Steps one after the other."""
    return await _by_number(stack, size, flows.sequence, "seq", STEPS)


async def w1_long(stack: Stack, size: Size) -> dict[str, float]:
    """One run of a thousand steps: what a step takes near the beginning and near the end."""
    return _growth(await run(stack, flows.clocked, size.long))


def _growth(at_s: list[float]) -> dict[str, float]:
    steps_ms = [1e3 * (after - before) for before, after in itertools.pairwise(at_s)]
    around = min(AROUND, len(at_s) // 3)
    first, last = steps_ms[5 : 5 + around], steps_ms[-around:]
    at_10_ms, at_end_ms = quantile(first, FASTEST), quantile(last, FASTEST)
    return {
        "at_10_ms": at_10_ms,
        "at_end_ms": at_end_ms,
        "growth": at_end_ms / at_10_ms,
        "median_10_ms": statistics.median(first),
        "median_end_ms": statistics.median(last),
        "steps": float(len(at_s)),
    }


async def w1_out(stack: Stack, size: Size) -> dict[str, float]:
    """As `w1_long` while something from outside lands in the same log a hundred times a second."""
    handle = await stack.client.start(flows.clocked_cleanup, size.long)
    while (await stack.store.find(handle.run_id)).status == "pending":  # noqa: ASYNC110  (a cancel now would end it)
        await asyncio.sleep(0.01)
    await handle.cancel("begin")
    landed = list[int]()
    outside = asyncio.create_task(_outsiders(stack, handle.run_id, landed))
    try:
        at_s = await handle.result(timeout=OUT_S_MAX)
    finally:
        outside.cancel()
        with contextlib.suppress(asyncio.CancelledError, RunEnded):
            await outside
    return _growth(at_s) | {"landed_s": len(landed) / (at_s[-1] - at_s[0])}


async def _outsiders(stack: Stack, run_id: str, landed: list[int]) -> None:
    """Append news that changes nothing, each with a key of its own, and ring, as a node does that is asked to."""
    loop = asyncio.get_running_loop()
    at_s = loop.time()
    for number in itertools.count():
        news = ev.CancelRequested(reason="again", key=f"outside {number}")
        await stack.store.append(Batch(run_id, (news,), UNREAD))
        landed.append(number)
        stack.node.tick(run_id)
        at_s += OUTSIDE_S
        await asyncio.sleep(at_s - loop.time())


async def w2(stack: Stack, size: Size) -> dict[str, float]:
    """Steps all at once."""
    return await _by_number(stack, size, flows.fan, "fan", WIDTHS)


async def w3(stack: Stack, size: Size) -> dict[str, float]:
    """Steps all at once, taken one by one as they end."""
    return await _by_number(stack, size, flows.race, "race", WIDTHS)


async def w4(stack: Stack, size: Size) -> dict[str, float]:
    """As W1 and W2 with 10 KB in and out of each step."""
    sequence = await _by_number(stack, size, flows.payload_sequence, "pseq", WIDTHS)
    return sequence | await _by_number(stack, size, flows.payload_fan, "pfan", WIDTHS)


async def w5(stack: Stack, size: Size) -> dict[str, float]:
    """Many runs of ten steps at once."""
    took_s, cpu_s = await _spent(asyncio.gather(*(run(stack, flows.sequence, 10) for _ in range(size.crowd))))
    return {"steps_s": 10 * size.crowd / took_s, "cpu_ms": 1e2 * cpu_s / size.crowd}


async def w7(stack: Stack, size: Size) -> dict[str, float]:
    """A sleep alone, then many that are due together: how late their code goes on."""
    flows.woke_late_ms.clear()
    for _ in range(size.alone):
        await run(stack, flows.sleeper, ALONE_S)
    alone_ms = list(flows.woke_late_ms.values())
    flows.woke_late_ms.clear()
    began_s = time.perf_counter()
    await asyncio.gather(*(run(stack, flows.sleeper, SLEEP_S) for _ in range(size.timers)))
    late_ms = list(flows.woke_late_ms.values())
    return {
        "alone_late_ms": quantile(alone_ms, 0.5),
        "alone_late_p99_ms": quantile(alone_ms, 0.99),
        "late_p50_ms": quantile(late_ms, 0.5),
        "late_p99_ms": quantile(late_ms, 0.99),
        "late_last_ms": max(late_ms),
        "total_s": time.perf_counter() - began_s,
        "woke": float(len(late_ms)),
    }


WORKLOADS: Final[dict[str, Callable[[Stack, Size], Awaitable[dict[str, float]]]]] = {
    "W0": w0,
    "W1": w1,
    "W1LONG": w1_long,
    "W1OUT": w1_out,
    "W2": w2,
    "W3": w3,
    "W4": w4,
    "W5": w5,
    "W7": w7,
}
