"""The world outside, as steps meet it: bodies that take a while, fail, hang or do not let themselves be stopped.

It keeps a book of its own, which no node can touch: each body that began, under which claim and where; how it ended;
and which effects were made under which idempotency key.
"""

# workflow time: the clock is virtual, a sleep costs nothing (see `loop.py`)

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fencepost.actors import step_info

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from tests.simulation.loop import Proc


class Refusal(Exception):
    """What a body raises when the outside says no."""


@dataclass(slots=True, eq=False)
class Begun:
    """One body, from its beginning. `done` is the name of how it ended, empty while it runs."""

    token: str
    run_id: str
    op: str
    attempt: int
    proc: Proc
    at_s: float
    timed_out: bool = False
    done: str = ""
    result: bytes = b""

    @property
    def running(self) -> bool:
        """Whether it can still do something outside."""
        return not self.done and not self.proc.dead


@dataclass(slots=True)
class Temper:
    """How the outside behaves in one seed."""

    busy_s: float = 0.3
    """How long a body takes on average."""
    hangs: float = 0.0
    fails: float = 0.0
    stubborn: float = 0.0
    """How often a body that is told to stop goes on."""


@dataclass(slots=True)
class Ledger:
    """See the module."""

    random: Random
    temper: Temper
    begun: dict[str, Begun] = field(default_factory=dict)
    effects: dict[str, int] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    forgiven: set[str] = field(default_factory=set)

    def begin(self, body: Begun) -> None:
        """Note that a body began."""
        if body.token in self.forgiven:
            return
        if body.token in self.begun:
            self.twice.append(f"two bodies of {body.run_id} {body.op} began under one claim")
        self.begun[body.token] = body

    def forgive(self, token: str) -> None:
        """Leave a claim out of the book whose start or end the world has lost: its body may begin again."""
        self.begun.pop(token, None)
        self.forgiven.add(token)

    def forgive_all_of(self, run_id: str, op: str) -> None:
        """Forgive all claims of an operation, or of a run (no op), that the world thinks goes on, although it ended."""
        for body in list(self.begun.values()):
            if body.run_id == run_id and op in {"", body.op}:
                self.forgive(body.token)

    async def work(self, label: str) -> int:
        """Do something: it takes a while, has an effect, and may fail before it or after it."""
        key = step_info().idempotency_key
        await self._take_time()
        if self._chance(self.temper.fails):
            raise Refusal(f"{label}: not now")
        self.effects[key] = self.effects.get(key, 0) + 1
        if self._chance(self.temper.fails / 2):
            raise Refusal(f"{label}: done, but the answer was lost")
        return self.random.randrange(10)

    async def _take_time(self) -> None:
        busy_s = 30.0 if self._chance(self.temper.hangs) else self.random.expovariate(1 / self.temper.busy_s)
        try:
            await asyncio.sleep(busy_s)
        except asyncio.CancelledError:
            if not self._chance(self.temper.stubborn):
                raise
            await asyncio.sleep(self.random.expovariate(1 / self.temper.busy_s))

    def _chance(self, probability: float) -> bool:
        return self.random.random() < probability


_present: list[Ledger] = []


def outside() -> Ledger:
    """Return the outside of the seed that runs."""
    return _present[-1]


@contextmanager
def present(ledger: Ledger) -> Iterator[None]:
    """Make a ledger the outside for a block."""
    _present.append(ledger)
    try:
        yield
    finally:
        _present.pop()
