"""The load: orders of the example, started through the client while faults happen, and asked for until they end."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fencepost.errors import Unavailable
from tests.chaos.delays import now
from tests.e2e.orders_program import EXAMPLE, summary

if TYPE_CHECKING:
    import random

    from fencepost import Client, RunHandle

WAITED_MAX = 8
AGAIN_S = 0.2
VERDICTS = ("good", "declined", "rejected")


def drawn(rng: random.Random, count: int) -> list[Any]:
    """Draw so many lines of the example's file that become runs."""
    lines = summary.classify((EXAMPLE / "orders.jsonl").read_bytes())
    runs = [line for line in lines if line.verdict in VERDICTS]
    return sorted(rng.sample(runs, min(count, len(runs))), key=lambda line: line.number)


@dataclass
class Load:
    """See the module. Each order is started twice: the second time it has to be found."""

    lines: list[Any]
    span_s: float
    run_ids: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    slowest_start_s: float = 0.0
    slowest_start: str = ""
    tries: int = 0
    _waiters: list[asyncio.Task[None]] = field(default_factory=list)

    async def run(self, client: Client) -> None:
        """Start all orders, spread over the span; return when all are accepted."""
        pause_s = self.span_s / max(1, len(self.lines))
        async with asyncio.TaskGroup() as group:
            for line in self.lines:
                group.create_task(self._start(client, line))
                await asyncio.sleep(pause_s)  # real time: the load is spread over the round

    async def _start(self, client: Client, line: Any) -> None:
        began_s = time.monotonic()
        first = await self._accepted(client, line)
        took_s = time.monotonic() - began_s
        if took_s > self.slowest_start_s:
            self.slowest_start_s, self.slowest_start = (
                took_s,
                f"{line.id} as {first.run_id}, accepted {now():%H:%M:%S.%f}",
            )
        again = await self._accepted(client, line)
        self.run_ids[line.id] = first.run_id
        if again.run_id != first.run_id or not again.existing:
            self.broken.append(f"order {line.id} was started twice: {first.run_id} and {again.run_id}")
        if line.verdict == "good" and len(self._waiters) < WAITED_MAX:
            self._waiters.append(asyncio.create_task(self._wait(first, line.id)))

    async def _accepted(self, client: Client, line: Any) -> RunHandle[Any]:
        while True:
            self.tries += 1
            try:
                return await client.start("checkout", json.loads(line.text), id=line.id)
            except Unavailable:
                await asyncio.sleep(AGAIN_S)  # real time: nobody answers, by intent

    async def _wait(self, handle: RunHandle[Any], order: str) -> None:
        """Wait for a result through all that happens."""
        while True:
            try:
                receipt = await handle.result()
            except Unavailable:
                await asyncio.sleep(AGAIN_S)  # real time: nobody answers, by intent
                continue
            except Exception as error:  # noqa: BLE001  (whatever it is: the judges say it)
                self.broken.append(f"waiting for order {order} ended with {type(error).__name__}: {error}")
            else:
                if receipt["order"] != order:
                    self.broken.append(f"waiting for order {order} gave {receipt}")
            return

    async def finish(self, within_s: float) -> None:
        """Let those who wait for results hear them."""
        _, late = await asyncio.wait(self._waiters, timeout=within_s) if self._waiters else ((), ())
        if late:
            self.broken.append(f"{len(late)} who wait for a result have not heard it {within_s:g} s after the end")
        self.stop()

    def stop(self) -> None:
        for waiter in self._waiters:
            waiter.cancel()
