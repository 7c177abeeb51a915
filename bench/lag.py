"""How late the actors' loop is: alone, and beside a step that computes in a thread of the same process."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from . import flows
from .noise import quantile
from .workloads import run

if TYPE_CHECKING:
    from .stack import Stack
    from .workloads import Size

PAUSE_S: Final = 0.005


async def lag(stack: Stack, size: Size) -> dict[str, float]:
    """Ask the loop to call again and again, and see how late it does."""
    await run(stack, flows.sequence, 1)
    idle_ms = await _late_ms(size.lag_s)
    spinning = asyncio.create_task(run(stack, flows.spinner, 2 * size.lag_s))
    await asyncio.sleep(size.lag_s / 10)
    beside_ms = await _late_ms(size.lag_s)
    with contextlib.suppress(Exception):
        await spinning
    return {
        "idle_p50_ms": quantile(idle_ms, 0.5),
        "idle_p99_ms": quantile(idle_ms, 0.99),
        "beside_p50_ms": quantile(beside_ms, 0.5),
        "beside_p99_ms": quantile(beside_ms, 0.99),
    }


async def _late_ms(over_s: float) -> list[float]:
    loop, late_ms = asyncio.get_running_loop(), list[float]()
    until_s = loop.time() + over_s
    while (at_s := loop.time() + PAUSE_S) < until_s:
        await asyncio.sleep(PAUSE_S)
        late_ms.append(1e3 * (loop.time() - at_s))
    return late_ms
