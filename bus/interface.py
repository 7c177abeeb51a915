"""The bus: what travels. A bell, never a fact (law L1): losing every message costs time and nothing else.

One interface, two implementations (`inprocess`, `jetstream`), one contract suite (`tests/contract`). Both have the
same semantics: wakes carry no data and coalesce; what was not settled comes again; requests are answered once or
time out; the live feed may lose. The bus never looks into a body.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager


@dataclass(frozen=True, slots=True)
class Bell:
    """Look at this: `kind` (`run`; later `lock`), id, partition. `id` is a ULID or a hash, never a user's."""

    kind: str
    id: str
    partition: int
    app: str = "default"


@dataclass(frozen=True, slots=True)
class Offering:
    """A step waits for a node of its app that serves its queue: look, and claim it. The claim is the fact."""

    queue: str
    run_id: str
    op: str
    app: str = "default"


@dataclass(frozen=True, slots=True)
class StartMessage:
    """A start message from anyone, exactly as it came.

    `source` is unique per stored message, also across the loss of the store (stream birth, sequence and
    timestamp), and the same for every delivery of it. `workflow` is the rest of the subject and may hold anything
    a subject can.
    """

    workflow: str
    subject: str
    body: bytes
    headers: Mapping[str, str]
    source: str
    delivery: int = 1


@dataclass(frozen=True, slots=True)
class Request:
    """A question to a node: the endpoint (`start`, `result`, …), what followed it in the subject, and the body."""

    endpoint: str
    rest: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. `error` is empty, or the name of an error type, sent as the micro-service error header too."""

    body: bytes
    error: str = ""
    description: str = ""


class Again(Exception):
    """Raised by a handler: not now, deliver once more after a delay. Not a failure and not counted as one."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(f"again in {delay_s:g} s")
        self.delay_s = delay_s


OnBell = Callable[[Bell], Awaitable[None]]
OnOffering = Callable[[Offering], Awaitable[None]]
OnStart = Callable[[StartMessage], Awaitable[None]]
OnRequest = Callable[[Request], Awaitable[Reply]]


class Subscription(Protocol):
    """Something that was started and can be stopped."""

    async def stop(self) -> None:
        """Take nothing new, wait for handlers under way, give back what was not handled. Idempotent."""
        ...


class Steps(Subscription, Protocol):
    """Offerings of one queue, taken while there is room."""

    def room_grew(self) -> None:
        """Say that `room()` may be larger than it was."""
        ...


class Bus(Protocol):
    """The seam between the actors and what carries their messages."""

    @property
    def namespace(self) -> str:
        """The namespace; part of every subject."""
        ...

    @property
    def body_bytes_max(self) -> int:
        """The largest body a message or an answer may have."""
        ...

    @property
    def unheard_s(self) -> float:
        """Seconds since a frame of the server was last seen; 0 for a bus in this process."""
        ...

    async def open(self) -> None:
        """Connect, check version and features, make what a node needs (streams, consumers).

        Raises:
            BusUnusable: with what to do about it.
            Unreachable: no server there.
        """
        ...

    async def close(self) -> None:
        """Stop everything and disconnect. Idempotent."""
        ...

    # ---- bells

    async def ring(self, bell: Bell) -> None:
        """Ask the owner of the bell's partition to look. A thousand rings of one id may arrive as one.

        Never raises for a bus that is away: the sweeper rings again (L1).
        """
        ...

    async def take(self, app: str, partitions: Sequence[int], on_bell: OnBell) -> Subscription:
        """Deliver the bells of these partitions of an app, several at once, one per id at a time.

        A bell is settled when the handler returns; when it raises, the bell comes again after a short delay. A
        ring that comes while its id is handled is delivered after that: it is never swallowed by the one before.
        """
        ...

    # ---- offerings

    async def offer(self, offering: Offering) -> None:
        """Offer a step to whoever serves its queue. Offered again it may arrive once or twice.

        Each queue has a stream of its own: one that nobody serves fills no other. Never raises for a bus that is
        away: the run's due offers it again.
        """
        ...

    async def steps(self, app: str, queue: str, on_offering: OnOffering, room: Callable[[], int]) -> Steps:
        """Deliver an app's offerings of a queue, each to one of the takers, never more at once than there is room.

        The subject is `fp.<ns>.step.<queue>.<app>.<run>.<op>`: a stream per queue, a durable consumer per app in it,
        since nodes of another app do not have the step.

        `room()` is how many could be taken now, asked at every change and four times a second. No more is asked for
        than that less the handlers under way, so a handler may take its place at once (`room()` falls) or not. What
        comes when `room()` is 0 is given back at once. An offering is settled when the handler returns; `Again` or an
        error gives it back, to anyone.
        """
        ...

    # ---- start messages

    async def publish_start(self, workflow: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Publish a start message and return when the bus has stored it (as durable as its store, L1).

        Raises:
            PayloadTooLarge: over `body_bytes_max`.
            Unreachable: not stored, as far as we know.
        """
        ...

    async def starts(self, on_start: OnStart) -> Subscription:
        """Deliver start messages until settled: handler returned → gone; `Again` or an error → once more later."""
        ...

    async def answer(self, reply_to: str, reply: Reply) -> bool:
        """Send an answer to the address a start message named in `Fp-Reply-To`.

        Only `_INBOX.`-shaped subjects and `fp.<ns>.reply.>` without wildcards are served: anything else could make
        a node publish for an attacker. Returns False, sending nothing, for a refused address.
        """
        ...

    # ---- questions

    async def serve(self, endpoints: Mapping[str, OnRequest]) -> Subscription:
        """Answer requests to `fp.<ns>.api.<endpoint>` and `fp.<ns>.api.<endpoint>.<rest>`.

        With JetStream this is the micro service `fencepost`, so that `nats micro ls|info|stats` show it. An error
        of the handler is answered as `internal` without its text; the handler's own `Reply` is sent as it is.
        """
        ...

    async def request(self, endpoint: str, body: bytes, *, rest: str = "", timeout_s: float = 10.0) -> Reply:
        """Ask, and return the answer.

        Raises:
            NoResponder: nobody serves it.
            Unreachable: no answer in time, or no connection.
            PayloadTooLarge: the question is over `body_bytes_max`.
        """
        ...

    # ---- live feed

    async def announce(self, topic: str, body: bytes) -> None:
        """Tell who listens: `event.<run>`, `dead.<kind>`, or `reply.<id>`, which no stream keeps for later.

        May be lost; never raises for a bus that is away.
        """
        ...

    def follow(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Listen to a topic while the block runs. The subscription is in force when the block begins.

        A listener that is slow loses the oldest, never slows the bus.
        """
        ...
