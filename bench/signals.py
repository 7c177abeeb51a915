"""Payloads: how soon a waiting run goes on, and how many decisions a burst of them costs."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from fencepost.world import HookNotFound

from . import flows
from .noise import quantile

if TYPE_CHECKING:
    from fencepost import RunHandle

    from .stack import Stack
    from .workloads import Size

REST_S = 2.5
"""Longer than a node keeps an idle run in memory: who signals finds it asleep."""
WIDTH = 50
BURST = 10


async def w8(stack: Stack, size: Size) -> dict[str, float]:
    """Wait in many runs; then a payload to each, one after the other, until its run has completed."""
    samples = await _signalled(stack, size.signalled, 0.0)
    asleep = await _signalled(stack, size.signalled, REST_S)
    return {
        "p50_ms": quantile(asleep, 0.5),
        "p95_ms": quantile(asleep, 0.95),
        "awake_p50_ms": quantile(samples, 0.5),
        "best_ms": min(*asleep, *samples),
    }


async def _signalled(stack: Stack, times: int, rest_s: float) -> list[float]:
    handles = [await stack.client.start(flows.waiting) for _ in range(times)]
    for handle in handles:
        await hooked(stack, handle.run_id)
    await asyncio.sleep(rest_s)
    samples: list[float] = []
    for handle in handles:
        began_s = time.perf_counter()
        await stack.client.resume(handle.run_id, 1)
        await handle.result()
        samples.append(1e3 * (time.perf_counter() - began_s))
    return samples


async def hooked(stack: Stack, token: str) -> None:
    """Wait until a hook is there."""
    while True:
        try:
            await stack.store.hook(token)
        except HookNotFound:
            await asyncio.sleep(0.002)
        else:
            return


async def bursts(stack: Stack, size: Size) -> dict[str, float]:
    """Fifty branches, each with a hook of its own and a step after it: payloads in bursts of ten at once."""
    handle = await stack.client.start(flows.branches, WIDTH)
    for number in range(WIDTH):
        await hooked(stack, f"{handle.run_id}/{number}")
    before = await _decisions(stack, handle)
    for first in range(0, WIDTH, BURST):
        tokens = [f"{handle.run_id}/{number}" for number in range(first, first + BURST)]
        await asyncio.gather(*(stack.client.resume(token, 1) for token in tokens))
        await asyncio.sleep(size.apart_s)
    await handle.result()
    ticks = await _decisions(stack, handle) - before
    return {"ticks": float(ticks), "ticks_per_burst": ticks / (WIDTH / BURST), "ticks_per_payload": ticks / WIDTH}


async def _decisions(stack: Stack, handle: RunHandle[int]) -> int:
    """Count the in-band batches of a run that hold something."""
    after, ticks = 0, set[int]()
    while page := await stack.store.more(handle.run_id, after):
        ticks |= {event.tick for event in page if event.tick is not None}
        after = page[-1].seq
    return len(ticks)
