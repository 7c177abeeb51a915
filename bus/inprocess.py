"""The bus inside one process: the same semantics as JetStream, and it forgets on exit."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from .errors import NoResponder, PayloadTooLarge, Unreachable
from .feed import News
from .interface import Bell, OnBell, OnRequest, OnStart, Reply, Request, StartMessage, Subscription
from .mailbox import Mailboxes
from .serving import answered, too_large
from .subjects import Subjects, matches, may_be_answered, name_checked

__all__ = ["InProcessBus"]

BODY_BYTES_MAX: Final = 1024 * 1024 - 8192
"""What JetStream allows with its defaults, so that what works here works there."""

BELLS_MAX: Final = 100_000
STARTS_MAX: Final = 100_000

Kept = Callable[["_Letter"], None]


@dataclass(slots=True)
class _Letter:
    """A bell or a start message on its way; what is given back is kept for the next who takes."""

    what: Bell | StartMessage
    keep: Kept
    identity: int
    """A new one per ring: a ring during handling is another message, not the same one again."""

    delivery: int = 1
    expired: bool = False

    @property
    def key(self) -> Hashable:
        return self.what if isinstance(self.what, Bell) else self.identity

    async def settle(self) -> None:
        """Nothing is kept of it."""

    async def give_back(self, delay_s: float) -> None:
        again = replace(self, delivery=self.delivery + 1)
        if delay_s > 0:
            asyncio.get_running_loop().call_later(delay_s, self.keep, again)
        else:
            self.keep(again)


@dataclass(slots=True, eq=False)
class _Taker:
    """Who takes from a shelf."""

    boxes: Mailboxes[_Letter]
    forget: Callable[[_Taker], None]
    topics: frozenset[Hashable]
    stopped: bool = False

    async def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            self.forget(self)
        await self.boxes.stop()


@dataclass(slots=True)
class _Shelf:
    """What nobody takes yet, by topic, and who takes it; bounded, the oldest falls off."""

    limit: int
    kept: dict[Hashable, _Letter] = field(default_factory=dict[Hashable, _Letter])
    takers: list[_Taker] = field(default_factory=list[_Taker])
    turn: itertools.count[int] = field(default_factory=itertools.count)

    def put(self, topic: Hashable, letter: _Letter) -> None:
        takers = [taker for taker in self.takers if topic in taker.topics]
        boxes = takers[next(self.turn) % len(takers)].boxes if takers else None
        if boxes is None:
            self.kept[topic, letter.key] = letter
            if len(self.kept) > self.limit:
                del self.kept[next(iter(self.kept))]
        elif not boxes.waits(letter.key):
            boxes.put(letter.key, letter)

    def take(self, topics: frozenset[Hashable], handle: Callable[[_Letter], Awaitable[None]]) -> _Taker:
        taker = _Taker(Mailboxes(handle), self.takers.remove, topics)
        self.takers.append(taker)
        kept, self.kept = self.kept, {}
        for letter in kept.values():
            letter.keep(letter)
        return taker

    async def stop(self) -> None:
        for taker in list(self.takers):
            await taker.stop()


@dataclass(slots=True, eq=False)
class _Service:
    """One `serve`: its endpoints and the questions under way."""

    endpoints: Mapping[str, OnRequest]
    forget: Callable[[_Service], None]
    tasks: set[asyncio.Task[Reply]] = field(default_factory=set[asyncio.Task[Reply]])
    stopped: bool = False

    def ask(self, request: Request, body_bytes_max: int) -> asyncio.Task[Reply]:
        handler = self.endpoints[request.endpoint]
        task = asyncio.get_running_loop().create_task(answered(handler, request, body_bytes_max))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            self.forget(self)
        while self.tasks:
            await asyncio.wait(set(self.tasks))


class InProcessBus:
    """See `Bus`. Share one object between those who should hear each other."""

    def __init__(self, namespace: str = "default", *, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._subjects = Subjects(namespace)
        self._body_bytes_max = body_bytes_max
        self._bells = _Shelf(BELLS_MAX)
        self._starts = _Shelf(STARTS_MAX)
        self._services: list[_Service] = []
        self._followers: dict[str, list[News]] = {}
        self._wide: list[str] = []
        self._birth = uuid.uuid4().hex
        self._sequence = itertools.count(1)
        self._turn = itertools.count()

    @property
    def namespace(self) -> str:
        """See Bus."""
        return self._subjects.namespace

    @property
    def body_bytes_max(self) -> int:
        """See Bus."""
        return self._body_bytes_max

    @property
    def unheard_s(self) -> float:
        """See Bus."""
        return 0.0

    async def open(self) -> None:
        """See Bus."""

    async def close(self) -> None:
        """See Bus."""
        await self._bells.stop()
        await self._starts.stop()
        for service in list(self._services):
            await service.stop()

    # ---- bells

    async def ring(self, bell: Bell) -> None:
        """See Bus."""
        self._subjects.wake(bell)
        self._keep_bell(_Letter(bell, self._keep_bell, next(self._sequence)))

    def _keep_bell(self, letter: _Letter) -> None:
        assert isinstance(letter.what, Bell)
        self._bells.put((letter.what.app, letter.what.partition), letter)

    async def take(self, app: str, partitions: Sequence[int], on_bell: OnBell) -> Subscription:
        """See Bus."""
        name_checked("app", app)

        async def handle(letter: _Letter) -> None:
            assert isinstance(letter.what, Bell)
            await on_bell(letter.what)

        return self._bells.take(frozenset((app, partition) for partition in partitions), handle)

    # ---- start messages

    async def publish_start(self, workflow: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """See Bus."""
        subject = self._subjects.start(workflow)
        self._check_size(f"start message of {workflow}", body)
        if len(self._starts.kept) >= STARTS_MAX:
            raise Unreachable(f"{STARTS_MAX:,} start messages wait and nobody takes them in: start a node")
        number = next(self._sequence)
        start = StartMessage(workflow, subject, body, dict(headers or {}), source=f"{self._birth}-{number}")
        self._keep_start(_Letter(start, self._keep_start, number))

    def _keep_start(self, letter: _Letter) -> None:
        self._starts.put("start", letter)

    async def starts(self, on_start: OnStart) -> Subscription:
        """See Bus."""

        async def handle(letter: _Letter) -> None:
            assert isinstance(letter.what, StartMessage)
            await on_start(replace(letter.what, delivery=letter.delivery))

        return self._starts.take(frozenset({"start"}), handle)

    async def answer(self, reply_to: str, reply: Reply) -> bool:
        """See Bus."""
        if not may_be_answered(self.namespace, reply_to):
            return False
        self._tell(reply_to, too_large(reply, self._body_bytes_max).body)
        return True

    # ---- questions

    async def serve(self, endpoints: Mapping[str, OnRequest]) -> Subscription:
        """See Bus."""
        for endpoint in endpoints:
            self._subjects.api(endpoint)
        service = _Service(dict(endpoints), self._services.remove)
        self._services.append(service)
        return service

    async def request(self, endpoint: str, body: bytes, *, rest: str = "", timeout_s: float = 10.0) -> Reply:
        """See Bus."""
        self._subjects.api(endpoint, rest)
        self._check_size(f"question to {endpoint}", body)
        serving = [service for service in self._services if endpoint in service.endpoints]
        if not serving:
            raise NoResponder(endpoint)
        service = serving[next(self._turn) % len(serving)]
        task = service.ask(Request(endpoint, rest, body), self._body_bytes_max)
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
        if not done:
            raise Unreachable(f"no answer from {endpoint} within {timeout_s:g} s")
        return task.result()

    def _check_size(self, what: str, body: bytes) -> None:
        if len(body) > self._body_bytes_max:
            raise PayloadTooLarge(what, len(body), self._body_bytes_max)

    # ---- live feed

    async def announce(self, topic: str, body: bytes) -> None:
        """See Bus."""
        subject = self._subjects.news(topic)
        if len(body) <= self._body_bytes_max:
            self._tell(subject, body)

    def _tell(self, subject: str, body: bytes) -> None:
        # Nearly everybody follows one run: asking each whether it is meant would cost their number at every event.
        for pattern in (subject, *(wide for wide in self._wide if matches(wide, subject))):
            for news in self._followers.get(pattern, ()):
                news.put(body)

    @asynccontextmanager
    async def follow(self, topic: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        """See Bus."""
        pattern, news = self._subjects.followed(topic), News()
        if pattern not in self._followers:
            self._followers[pattern] = []
            self._wide += [pattern] if {"*", ">"} & set(pattern.split(".")) else []
        self._followers[pattern].append(news)
        try:
            yield news
        finally:
            self._forget_follower(pattern, news)
            news.end()

    def _forget_follower(self, pattern: str, news: News) -> None:
        self._followers[pattern].remove(news)
        if not self._followers[pattern]:
            del self._followers[pattern]
            self._wide = [wide for wide in self._wide if wide != pattern]
