"""Clients that put payloads, as the API does it: through a node that may die, with answers that may be lost.

Each delivery has an id of its own and is sent again with it until it is answered. `book` keeps what clients were told.
"""

# workflow time: the clock is virtual, a sleep costs nothing (see `loop.py`)

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from fencepost.bus import Request
from fencepost.world import HookFull, HookNotFound, WorldError
from tests.simulation.hookflows import STOP

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.cluster import Cluster, Place

PATIENCE_S = 3.0
AGAIN_S = 0.5
TRIES = 12
STOPS_EVERY_S = 4.0
OPEN = """
SELECT h.token FROM hooks h JOIN runs r ON r.run_id = h.run_id
WHERE h.is_open = 1 AND r.ended_at IS NULL ORDER BY h.token
"""


@dataclass(frozen=True, slots=True)
class Letter:
    """Something to be put: when and where, and for how long a client waits for the hook to be made."""

    at_s: float
    token: str
    word: str
    wait_s: float = 0.0
    twice: bool = False
    """Two clients send it at once, under one id."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a client was answered: `accepted`, `repeated`, or a refusal's name."""

    at_s: float
    letter: Letter
    answer: str
    run_id: str = ""
    seq: int = 0


@dataclass(slots=True)
class Mail:
    """See the module."""

    cluster: Cluster
    random: Random
    book: list[Told] = field(default_factory=list)
    put: list[Letter] = field(default_factory=list)
    lost: set[tuple[str, str]] = field(default_factory=set)
    """Run and delivery of what a failover lost after a client was told that it is in."""
    lost_hooks: set[tuple[str, str]] = field(default_factory=set)
    """Run and token of hooks that a failover lost: somebody may have been told of them before."""

    async def post(self, letter: Letter) -> None:
        """Put a letter, with one client or two."""
        await asyncio.sleep(letter.at_s - self.cluster.loop.now_s if letter.at_s > self.cluster.loop.now_s else 0)
        self.put.append(letter)
        clients = [self._put(letter) for _ in range(2 if letter.twice else 1)]
        await asyncio.gather(*clients)

    async def _put(self, letter: Letter) -> None:
        until_s = self.cluster.loop.now_s + letter.wait_s
        for _ in range(TRIES):
            answer = await self._asked(letter)
            if answer == "HookNotFound" and self.cluster.loop.now_s < until_s:
                answer = ""  # the run may not have made it yet
            if answer:
                return
            await asyncio.sleep(self.random.expovariate(1 / AGAIN_S))

    async def _asked(self, letter: Letter) -> str:
        """Ask a node; return what it said, nothing for no answer."""
        places = self.cluster._live()
        if not places:
            return ""
        place = self.random.choice(places)
        assert place.proc is not None
        proc = place.proc
        answer = proc.run(lambda: self.cluster.loop.create_task(self._delivered(place, letter), name="delivers"))
        done, _ = await asyncio.wait([answer], timeout=PATIENCE_S)
        told = answer.result() if done and not proc.dead else Told(0.0, letter, "")
        said = f"{told.answer} {told.run_id}:{told.seq}" if told.seq else told.answer
        self.cluster.note(f"client puts {letter.word} to {letter.token}: {said or 'no answer'}")
        if told.answer:
            self.book.append(told)
        return told.answer

    async def _delivered(self, place: Place, letter: Letter) -> Told:
        node = place.node
        assert node is not None
        variant = self.cluster.variant
        deliverer = variant.deliverer(node.world, node.bus, node.host, "sim", self.cluster.ringer(place))
        deliverer.node = node  # for a variant
        asked = {"token": letter.token, "payload": letter.word, "delivery": f"id {letter.word}"}
        try:
            found: dict[str, Any] = await deliverer.deliver(Request("hook", "", msgspec.json.encode(asked)))
        except (HookNotFound, HookFull) as refusal:
            return Told(self.cluster.loop.now_s, letter, type(refusal).__name__)
        except WorldError:
            return Told(self.cluster.loop.now_s, letter, "")
        answer = "repeated" if found["repeated"] else "accepted"
        seq = int(found["id"].rpartition(":")[2])
        return Told(self.cluster.loop.now_s, letter, answer, found["run_id"], seq)

    async def stop_all(self) -> None:
        """Say to every open hook that it is time to end, again and again."""
        number = 0
        while self.cluster.unended():
            await asyncio.sleep(STOPS_EVERY_S)
            for (token,) in self.cluster.world.core.connection.execute(OPEN).fetchall():
                number += 1
                await self.post(Letter(0.0, token, f"{STOP} {number}"))
