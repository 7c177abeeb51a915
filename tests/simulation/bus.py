"""The one bus all simulated nodes share, as bad as a seed wants it: messages are lost, doubled, late, astray.

The laws must hold, and every run must end, whatever is lost. Each node sees the bus through a line of its own, which
can be cut.
"""

# workflow time: the clock is virtual, a sleep costs nothing (see `loop.py`)

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fencepost.bus import Again, Bell, Offering, Reply, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.simulation.loop import Proc, SimLoop

ACK_WAIT_S = 5.0
RAISED_S = 0.3
ROOM_S = 0.25


@dataclass(slots=True)
class Weather:
    """How bad the bus is. Delays are means of seconds."""

    late_s: float = 0.002
    lost: float = 0.0
    twice: float = 0.0
    astray: float = 0.0
    """How often a bell goes to whoever takes any, as one that was on its way when its partition moved."""


@dataclass(slots=True, eq=False)
class Taking:
    """A subscription: what a line takes, and who handles it. `topics` are (app, partition) or (app, queue)."""

    line: Line
    topics: frozenset[tuple[str, Any]]
    handle: Callable[[Any], Any]
    room: Callable[[], int] | None = None
    under_way: int = 0

    async def stop(self) -> None:
        """Take nothing new."""
        if self in self.line.post.takings:
            self.line.post.takings.remove(self)

    def room_grew(self) -> None:
        """Ask for more."""
        self.line.post.hand_over()

    def can(self, message: Bell | Offering, *, astray: bool) -> bool:
        """Tell whether it may be handed a message."""
        if self.line.deaf or self.line.proc.dead:
            return False
        if isinstance(message, Offering):
            wants = (message.app, message.queue) in self.topics
            return wants and self.room is not None and self.room() > self.under_way
        return self.room is None and (astray or (message.app, message.partition) in self.topics)


@dataclass(slots=True)
class Post:
    """See the module. `kept` are messages nobody could be handed, each once."""

    loop: SimLoop
    random: Random
    weather: Weather
    takings: list[Taking] = field(default_factory=list)
    kept: dict[Bell | Offering, None] = field(default_factory=dict)
    delivered: int = 0
    looks: bool = False

    def send(self, message: Bell | Offering) -> None:
        """Take a message, and bring it, or not."""
        weather = self.weather
        if self._chance(weather.lost):
            return
        for _ in range(2 if self._chance(weather.twice) else 1):
            self.bring(message, self.random.expovariate(1 / weather.late_s))

    def bring(self, message: Bell | Offering, delay_s: float) -> None:
        """Hand a message over after a while."""
        self.loop.call_later(delay_s, self._arrive, message, context=self.loop.world.context)

    def _arrive(self, message: Bell | Offering) -> None:
        self.kept[message] = None
        self.hand_over()

    def hand_over(self) -> None:
        """Hand over what can be; for what waits for room look again soon."""
        for message in list(self.kept):
            able = [taking for taking in self.takings if taking.can(message, astray=self._chance(self.weather.astray))]
            if able:
                del self.kept[message]
                self._give(self.random.choice(able), message)
        if self.kept and self.takings and not self.looks:
            self.looks = True
            self.loop.call_later(ROOM_S, self._look, context=self.loop.world.context)

    def _look(self) -> None:
        self.looks = False
        self.hand_over()

    def _give(self, taking: Taking, message: Bell | Offering) -> None:
        self.delivered += 1
        taking.under_way += 1
        hung = self.loop.world.context  # or dead
        again = self.loop.call_later(ACK_WAIT_S, self._arrive, message, context=hung)
        proc = taking.line.proc
        proc.run(lambda: self.loop.create_task(self._handled(taking, message, again), name="handles"))

    async def _handled(self, taking: Taking, message: Bell | Offering, again: Any) -> None:
        delay_s = None
        try:
            await taking.handle(message)
        except Again as wish:
            delay_s = wish.delay_s
        except Exception:  # noqa: BLE001  (the bus gives it back)
            delay_s = RAISED_S
        finally:
            taking.under_way -= 1
        if taking.line.deaf:
            return  # nobody hears that it was settled
        again.cancel()
        if delay_s is not None:
            self.bring(message, delay_s)
        if taking.room is not None:
            self.hand_over()

    def _chance(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability


class Line:
    """A node's way to the bus: what `fencepost.bus.Bus` asks for, of which starts and questions never come."""

    namespace = "default"
    body_bytes_max = 1024 * 1024

    def __init__(self, post: Post, proc: Proc) -> None:
        self.post, self.proc = post, proc
        self.reasons: set[str] = set()
        self._since_s = 0.0

    # ---- faults

    @property
    def deaf(self) -> bool:
        """Whether nothing goes through."""
        return bool(self.reasons)

    def cut(self, why: str) -> None:
        """Let nothing through until `mend`."""
        if not self.reasons:
            self._since_s = self.post.loop.now_s
        self.reasons.add(why)

    def mend(self, why: str) -> None:
        """Take a reason away; without any, what waits comes through."""
        self.reasons.discard(why)
        if not self.reasons:
            self.post.hand_over()

    # ---- Bus

    @property
    def unheard_s(self) -> float:
        return self.post.loop.now_s - self._since_s if self.reasons else 0.0

    async def open(self) -> None:
        """Have nothing to do."""

    async def close(self) -> None:
        """Have nothing to do."""

    async def ring(self, bell: Bell) -> None:
        if not self.deaf:
            self.post.send(bell)

    async def take(self, app: str, partitions: Any, on_bell: Any) -> Taking:
        return self._taken(Taking(self, frozenset((app, partition) for partition in partitions), on_bell))

    async def offer(self, offering: Offering) -> None:
        if not self.deaf:
            self.post.send(offering)

    async def steps(self, app: str, queue: str, on_offering: Any, room: Callable[[], int]) -> Taking:
        return self._taken(Taking(self, frozenset({(app, queue)}), on_offering, room))

    def _taken(self, taking: Taking) -> Taking:
        if self.deaf:
            raise Unreachable("the line to the bus is cut")
        self.post.takings.append(taking)
        self.post.hand_over()
        return taking

    async def starts(self, _on_start: Any) -> Taking:
        return Taking(self, frozenset(), _on_start)

    async def serve(self, _endpoints: Any) -> Taking:
        return Taking(self, frozenset(), _endpoints)

    async def answer(self, _reply_to: str, _reply: Reply) -> bool:
        return False

    async def announce(self, topic: str, body: bytes) -> None:
        """Tell nobody."""
