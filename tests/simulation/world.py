"""The one world all simulated processes share, seen through a bad line, and the history of what it accepted.

A request that is on its way arrives also when its sender has died meanwhile, and an answer may be lost although the
commit stands: the client then hears `Unavailable`, as it does when the request itself was lost.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fencepost.world import (
    UNREAD,
    Accepted,
    Batch,
    Checks,
    ClaimLost,
    Fence,
    IncarnationDead,
    Share,
    SimulatedWorld,
    Unavailable,
)
from tests.simulation.loop import PROC

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection
    from datetime import datetime
    from random import Random

    from fencepost.world import Claimed
    from fencepost.world.simulated import SwitchedCore
    from tests.simulation.loop import SimLoop


@dataclass(slots=True)
class Line:
    """How bad the line to the world is. Delays are means of seconds."""

    delay_s: float = 0.002
    slow: float = 0.0
    """How often a way takes `slow_s` instead."""
    slow_s: float = 5.0
    loses_request: float = 0.0
    loses_answer: float = 0.0


@dataclass(frozen=True, slots=True)
class Commit:
    """One write the world accepted. `what` is the batch, or a word for other writes."""

    at_s: float
    writer: str
    method: str
    what: Any
    answer: Any
    left: frozenset[str]
    """Incarnations that had left by then."""


@dataclass(slots=True)
class History:
    """What happened, in order: commits and what the simulator did. `lines` has all of it; commits become words late."""

    commits: list[Commit] = field(default_factory=list)
    lines: list[tuple[float, str, str | Commit]] = field(default_factory=list)

    def note(self, at_s: float, who: str, what: str) -> None:
        """Write a line."""
        self.lines.append((at_s, who, what))

    def add(self, commit: Commit) -> None:
        """Write down a commit."""
        self.commits.append(commit)
        self.lines.append((commit.at_s, commit.writer, commit))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The rows of a moment, and what the simulator knew then."""

    replica: sqlite3.Connection
    commits: int
    left: set[str]
    comings: tuple[int, int, int]


class SimWorld(SimulatedWorld):
    """See the module. `looks` are called after each write, in its transaction's place: they look for broken laws."""

    def __init__(self, loop: SimLoop, clock: Callable[[], datetime], checks: Checks, random: Random) -> None:
        super().__init__(clock, checks=checks, partitions=4)
        self.line = Line()
        self.history = History()
        self.looks: list[Callable[[], None]] = []
        self.joined: dict[str, str] = {}
        self.left: set[str] = set()
        self.cut: set[str] = set()
        """Processes whose requests do not arrive."""
        self.on_way = 0
        """How many requests have not arrived yet."""
        self.lapsed = 0
        """How many were declared dead without a word of their supervisor."""
        self.away = False
        """Whether no request of anybody arrives."""
        self._loop = loop
        self._random = random
        self._what: Any = None
        self._instead: Any = None

    # ---- what is written down

    async def append(self, batch: Batch) -> Accepted:
        return await self._write("append", lambda core: self._noted(self._appended(core, batch), batch))

    def _appended(self, core: SwitchedCore, batch: Batch) -> Accepted:
        return core.append(batch)

    async def leave(self, incarnation: str) -> None:
        def body(core):
            core.leave(incarnation)
            self.left.add(incarnation)

        await self._write("leave", lambda core: self._noted(body(core), incarnation))

    async def claim(self, run_id: str, op: str, token: str, incarnation: str) -> Claimed:
        claimed = await self._write("claim", lambda core: self._start_noted(core, run_id, op, token, incarnation))
        if claimed is None:
            raise ClaimLost(run_id, (op,))
        return claimed

    def _start_noted(self, core: SwitchedCore, run_id: str, op: str, token: str, incarnation: str) -> Claimed | None:
        """Claim, and note it as the append that it is."""
        seq = core.find(run_id).seq
        claimed = core.claim(run_id, op, token, incarnation)
        if claimed is None:
            return self._noted(None, (run_id, op, token))
        start = claimed.events[-1]
        self._instead = Accepted(start.seq, start.at, Fence(0, ""), (), repeated=core.find(run_id).seq == seq)
        return self._noted(claimed, Batch(run_id, (start.body,), UNREAD))

    async def renew(self, incarnation: str) -> None:
        await self._write("renew", lambda core: self._noted(core.renew(incarnation), incarnation))

    async def share(
        self,
        incarnation: str,
        give: Collection[int] = (),
        *,
        take: bool = True,
        to_newer: bool = False,
        hears: bool = True,
    ) -> Share:
        def body(core):
            shared = core.share(incarnation, give, take=take, to_newer=to_newer, hears=hears)
            return self._noted(shared, incarnation)

        share = await self._write("share", body)
        if share is None:
            raise IncarnationDead(incarnation)
        return share

    async def stall(self, run_id: str, fence: Any, why: str) -> None:
        await self._write("stall", lambda core: self._noted(core.stall(run_id, fence, why), (run_id, why)))

    async def end_claim(self, run_id: str, token: str) -> bool:
        return await self._write("end_claim", lambda core: self._noted(core.end_claim(run_id, token), (run_id, token)))

    def _noted(self, answer: Any, what: Any) -> Any:
        self._what = what
        return answer

    # ---- a replica takes over

    def snapshot(self) -> Snapshot:
        """Return what a replica has that gets nothing from now on."""
        replica = sqlite3.connect(":memory:")
        self.core.connection.backup(replica)
        return Snapshot(replica, len(self.history.commits), set(self.left), self._comings())

    def fail_over(self, to: Snapshot, *, wanted: bool) -> list[Commit]:
        """Go on from a snapshot, and return the commits that are lost. None are if a run or node came or went since."""
        lost = self.history.commits[to.commits :]
        with closing(to.replica):
            if not wanted or not lost or to.comings != self._comings():
                return []
            to.replica.backup(self.core.connection)
        del self.history.commits[to.commits :]
        self.left.clear()
        self.left.update(to.left)
        return lost

    def _comings(self) -> tuple[int, int, int]:
        (runs,) = self.core.connection.execute("SELECT count(*) FROM runs").fetchone()
        return runs, len(self.joined), len(self.left)

    # ---- the line

    async def _faulty(self, method: str, transaction: Callable[[], Any]) -> Any:
        answer: asyncio.Future[Any] = self._loop.create_future()
        proc = PROC.get()
        writer = proc.name if proc is not None and proc is not self._loop.world else ""
        if writer and (self.away or writer in self.cut or self._chance(self.line.loses_request)):
            self._later(self._tell, answer, None, Unavailable("the request was lost"))
        elif writer:
            self.on_way += 1
            self._later(self._arrive_late, method, transaction, writer, answer)
        else:
            self._arrive(method, transaction, writer, answer)
        return await answer

    def _arrive_late(self, *request: Any) -> None:
        self.on_way -= 1
        self._arrive(*request)

    def _arrive(self, method: str, transaction: Callable[[], Any], writer: str, answer: asyncio.Future[Any]) -> None:
        result = error = None
        self._what = self._instead = None
        try:
            result = transaction()
        except Exception as refusal:  # noqa: BLE001  (it is the answer)
            error = refusal
        self._note(method, writer, result, error)
        if writer and (self.away or writer in self.cut or self._chance(self.line.loses_answer)):
            self.history.note(self._loop.now_s, writer, f"  the answer to {method} is lost")
            result, error = None, Unavailable("the answer was lost")
        if writer:
            self._later(self._tell, answer, result, error)
        else:
            self._tell(answer, result, error)

    @staticmethod
    def _tell(answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def _later(self, function: Callable[..., None], *args: Any) -> None:
        line, random = self.line, self._random
        delay_s = random.expovariate(1 / line.delay_s)
        if self._chance(line.slow):
            delay_s += random.expovariate(1 / line.slow_s)
        self._loop.call_later(delay_s, function, *args, context=self._loop.world.context)

    def _chance(self, probability: float) -> bool:
        return probability > 0 and self._random.random() < probability

    # ---- the history

    def _note(self, method: str, writer: str, result: Any, error: Exception | None) -> None:
        if method in READS:
            return
        now_s = self._loop.now_s
        if error is not None:
            self.history.note(now_s, writer, f"{method} refused: {type(error).__name__}: {error}")
            return
        if method == "join":
            self.joined[result] = writer
        before, dead = frozenset(self.left), 0
        if method == "share":
            dead = self._count_the_dead(result)
        left = before if method in {"share", "renew"} else frozenset(self.left)  # who asks may bury others, and live
        self.history.add(Commit(now_s, writer, method, self._what, self._instead or result, left))
        if dead or method not in {"share", "renew"}:
            for look in self.looks:
                look()

    def _count_the_dead(self, share: Share | None) -> int:
        """Note who was declared dead without a word of its supervisor."""
        if share is not None and self.joined.keys() - self.left <= share.alive:
            return 0
        rows = self.core.connection.execute("SELECT incarnation FROM members WHERE left_at IS NOT NULL")
        found = [row[0] for row in rows.fetchall() if row[0] not in self.left]
        for incarnation in found:
            self.left.add(incarnation)
            self.history.note(self._loop.now_s, "", f"{incarnation} is dead from here on")
        self.lapsed += len(found)
        return len(found)


READS = frozenset({"facts", "now", "open", "more", "due", "find", "hook", "get_value", "offers", "position_at"})
"""What is not written down: it changes nothing."""
