"""The bus inside one process: the same semantics as JetStream, and it forgets on exit."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from .errors import NoResponder, PayloadTooLarge, Unreachable
from .feed import News
from .interface import (
    Bell,
    Offering,
    OnBell,
    OnOffering,
    OnRequest,
    OnStart,
    Reply,
    Request,
    StartMessage,
    Steps,
    Subscription,
)
from .serving import answered, too_large
from .shelf import Letter, Shelf, StepShelf
from .subjects import Subjects, matches, may_be_answered, name_checked

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence

__all__ = ["InProcessBus"]

BODY_BYTES_MAX: Final = 1024 * 1024 - 8192
"""What JetStream allows with its defaults, so that what works here works there."""

BELLS_MAX: Final = 100_000
STARTS_MAX: Final = 100_000
OFFERINGS_MAX: Final = 100_000
"""Of one queue. The oldest falls off, and is offered again by its run's due."""


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
        self._bells = Shelf(BELLS_MAX)
        self._starts = Shelf(STARTS_MAX)
        self._offerings: dict[tuple[str, str], StepShelf] = {}
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
        for shelf in self._offerings.values():
            await shelf.stop()
        for service in list(self._services):
            await service.stop()

    # ---- bells

    async def ring(self, bell: Bell) -> None:
        """See Bus."""
        self._subjects.wake(bell)
        self._keep_bell(Letter(bell, self._keep_bell, next(self._sequence)))

    def _keep_bell(self, letter: Letter) -> None:
        assert isinstance(letter.what, Bell)
        self._bells.put((letter.what.app, letter.what.partition), letter)

    async def take(self, app: str, partitions: Sequence[int], on_bell: OnBell) -> Subscription:
        """See Bus."""
        name_checked("app", app)

        async def handle(letter: Letter) -> None:
            assert isinstance(letter.what, Bell)
            await on_bell(letter.what)

        return self._bells.take(frozenset((app, partition) for partition in partitions), handle)

    # ---- offerings

    async def offer(self, offering: Offering) -> None:
        """See Bus."""
        self._subjects.offered(offering)
        shelf = self._offered(offering.queue, offering.app)
        shelf.put(Letter(offering, shelf.put, next(self._sequence)))

    async def steps(self, app: str, queue: str, on_offering: OnOffering, room: Callable[[], int]) -> Steps:
        """See Bus."""
        self._subjects.offerings(queue, app)

        async def handle(letter: Letter) -> None:
            assert isinstance(letter.what, Offering)
            await on_offering(letter.what)

        return self._offered(queue, app).take(handle, room)

    def _offered(self, queue: str, app: str) -> StepShelf:
        return self._offerings.setdefault((queue, app), StepShelf(OFFERINGS_MAX))

    # ---- start messages

    async def publish_start(self, workflow: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """See Bus."""
        subject = self._subjects.start(workflow)
        self._check_size(f"start message of {workflow}", body)
        if len(self._starts.kept) >= STARTS_MAX:
            raise Unreachable(f"{STARTS_MAX:,} start messages wait and nobody takes them in: start a node")
        number = next(self._sequence)
        start = StartMessage(workflow, subject, body, dict(headers or {}), source=f"{self._birth}-{number}")
        self._keep_start(Letter(start, self._keep_start, number))

    def _keep_start(self, letter: Letter) -> None:
        self._starts.put("start", letter)

    async def starts(self, on_start: OnStart) -> Subscription:
        """See Bus."""

        async def handle(letter: Letter) -> None:
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
