"""How calm the machine is, and what others use of it while something is measured: said beside each figure."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Final

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

CALM_PCT: Final = 25.0
LOOK_S: Final = 0.4


def quantile(values: Sequence[float], q: float) -> float:
    """Return a quantile (0..1) by nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(q * (len(ordered) - 1))))]


async def calm(at_most_s: float) -> None:
    """Wait until the machine is nearly idle, within bounds: who measures beside others says so."""
    until_s = time.monotonic() + at_most_s
    psutil.cpu_percent()
    while time.monotonic() < until_s:
        await asyncio.sleep(LOOK_S)
        if psutil.cpu_percent() < CALM_PCT:
            return


def own(roots: Sequence[int]) -> float:
    """Return the CPU seconds that processes and all they started have used."""
    used_s = 0.0
    for process in _family(roots):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        used_s += times.user + times.system
    return used_s


def _family(roots: Sequence[int]) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for pid in roots:
        try:
            process = psutil.Process(pid)
            found += [process, *process.children(recursive=True)]
        except psutil.Error:
            continue
    return found


def _busy() -> float:
    times = psutil.cpu_times()
    return float(sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal")))


class Watch:
    """Measures from its making: CPU of ours and of everybody else, in per cent of one core."""

    def __init__(self) -> None:
        self._roots = [os.getpid()]
        self._at_s, self._busy, self._own = time.monotonic(), _busy(), own(self._roots)

    def stop(self) -> dict[str, float]:
        """Return what was used since."""
        span_s = max(time.monotonic() - self._at_s, 1e-6)
        own_s = own(self._roots) - self._own
        foreign_s = max(0.0, _busy() - self._busy - own_s)
        return {
            "span_s": round(span_s, 3),
            "own_pct": round(100 * own_s / span_s, 1),
            "foreign_pct": round(100 * foreign_s / span_s, 1),
            "load1": round(os.getloadavg()[0], 2),
        }
