"""The bus over NATS JetStream. See `Bus` for what is promised."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import random
import uuid
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from ..errors import BusError, BusUnusable, NoResponder, PayloadTooLarge, Unreachable
from ..feed import News
from ..serving import too_large
from ..subjects import Subjects, may_be_answered, name_checked
from .api import ApiError, JetStreamApi, parsed
from .client import ConnectOptions
from .connection import Connection, Nobody
from .ringing import Ringing
from .service import Service, reply_headers, reply_of
from .streams import ACK_WAIT_S, Streams
from .taking import Intake, Taking

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    from nats.aio.msg import Msg

    from ..interface import Bell, Offering, OnBell, OnOffering, OnRequest, OnStart, Reply, Steps, Subscription

__all__ = ["JetStreamBus"]

log = logging.getLogger("fencepost.bus")

HEADERS_BYTES_MAX: Final = 8192
"""Kept free of every message for headers."""

STORED_S: Final = 5.0

LOOK_S: Final = 2.0
LOOK_S_MAX: Final = 60.0
"""Two programs that do not agree what a stream should be would undo each other's change for ever."""


class JetStreamBus:
    """See `Bus`.

    A `node` makes and repairs streams and consumers; a `client` needs no permission for that: it publishes start
    messages, asks questions and follows.
    """

    def __init__(
        self,
        url: str | Sequence[str] = "nats://localhost:4222",
        namespace: str = "default",
        *,
        role: Literal["node", "client"] = "node",
        name: str = "fencepost",
        replicas: int = 1,
        credentials: Path | None = None,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        inbox_prefix: str = "_INBOX",
        ack_wait_s: float = ACK_WAIT_S,
    ) -> None:
        """Say where and as whom.

        `replicas` is what a new stream gets, more are left alone. What is not settled within `ack_wait_s` is
        delivered again, to anyone.
        """
        servers = [part.strip() for part in (url.split(",") if isinstance(url, str) else url)]
        servers = [server for server in servers if server] or servers[:1]
        self._subjects = Subjects(namespace)
        self._connection = Connection(
            ConnectOptions(servers, name, credentials, user, password, token, tls, inbox_prefix)
        )
        self._api = JetStreamApi(self._connection)
        self._streams = Streams(self._api, self._subjects, replicas=replicas, ack_wait_s=ack_wait_s)
        self._ringings: dict[str, Ringing] = {}
        self._intake = Intake(self._connection, self._streams, self._subjects, self._forget_taking)
        self._role = role
        self._takings: list[Taking] = []
        self._services: list[Service] = []
        self._looking: asyncio.Task[None] | None = None

    @property
    def namespace(self) -> str:
        """See Bus."""
        return self._subjects.namespace

    @property
    def body_bytes_max(self) -> int:
        """See Bus."""
        return max(0, self._connection.max_payload - HEADERS_BYTES_MAX)

    @property
    def unheard_s(self) -> float:
        """See Bus. A server that has nothing to say is asked whether it is there."""
        return self._connection.silence_s

    async def open(self) -> None:
        """See Bus."""
        await self._connection.open()
        try:
            if self._role == "node":
                await self._api.check()
                await self._streams.ensure()
                self._looking = asyncio.ensure_future(self._look_after())
            await self._ringing(self._subjects.wake_stream)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """See Bus."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
        running: list[Subscription] = [*self._takings, *self._services]
        for subscription in running:
            await subscription.stop()
        self._ringings.clear()
        await self._connection.close()

    async def _repair(self, stream: str) -> bool:
        """Make what is missing, if that is ours to do."""
        if self._role != "node":
            return False
        await self._streams.ensure(stream)
        return True

    async def _look_after(self) -> None:
        """Set right what somebody changed under a running node, or say what it is."""
        pause_s, said = LOOK_S, ""
        while True:
            await asyncio.sleep(pause_s * random.uniform(0.7, 1.0))  # noqa: S311 - spreads a crowd, hides nothing
            try:
                changed = await self._streams.look()
            except BusUnusable as error:
                if str(error) != said:
                    said = str(error)
                    log.error("%s", said)  # noqa: TRY400 - it is a sentence for people; where it was noticed is nothing to them
            except BusError:  # away: not looked at, not changed
                pass
            except Exception:  # whatever it is: nobody else looks
                log.exception("looking after the streams of %s met an error", self.namespace)
            else:
                said, pause_s = "", min(2 * pause_s, LOOK_S_MAX) if changed else LOOK_S

    async def _ringing(self, stream: str) -> Ringing:
        ringing = self._ringings.get(stream)
        if ringing is None:
            ringing = self._ringings[stream] = Ringing(self._connection, partial(self._repair, stream))
            try:
                await ringing.start()
            except BaseException:
                del self._ringings[stream]
                raise
        return ringing

    # ---- bells

    async def ring(self, bell: Bell) -> None:
        """See Bus."""
        subject = self._subjects.wake(bell)
        with contextlib.suppress(Unreachable):  # not opened yet
            await (await self._ringing(self._subjects.wake_stream)).ring(subject)

    async def take(self, app: str, partitions: Sequence[int], on_bell: OnBell) -> Subscription:
        """See Bus."""
        name_checked("app", app)
        taking = await self._intake.bells(app, partitions, on_bell)
        self._takings.append(taking)
        return taking

    def _forget_taking(self, taking: Taking) -> None:
        with contextlib.suppress(ValueError):
            self._takings.remove(taking)

    # ---- offerings

    async def offer(self, offering: Offering) -> None:
        """See Bus."""
        subject = self._subjects.offered(offering)
        stream = self._streams.want_queue(offering.queue)
        with contextlib.suppress(Unreachable):  # the run's due offers it again
            await (await self._ringing(stream)).ring(subject)

    async def steps(self, app: str, queue: str, on_offering: OnOffering, room: Callable[[], int]) -> Steps:
        """See Bus."""
        taking = await self._intake.offerings(app, queue, on_offering, room)
        self._takings.append(taking)
        return taking

    # ---- start messages

    async def publish_start(self, workflow: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """See Bus."""
        subject = self._subjects.start(workflow)
        self._check_size(f"start message of {workflow}", body, headers)
        try:
            stored = await self._stored(subject, body, headers)
        except Nobody:
            if not await self._repair(self._subjects.start_stream):
                raise Unreachable(f"nothing stores start messages of {self.namespace}: start a node") from None
            stored = await self._stored(subject, body, headers)
        try:
            parsed(stored.data)
        except ApiError as error:
            raise Unreachable(f"the start message was not stored: {error}") from error

    async def _stored(self, subject: str, body: bytes, headers: Mapping[str, str] | None) -> Msg:
        return await self._connection.ask(subject, body, headers=headers, timeout_s=STORED_S)

    async def starts(self, on_start: OnStart) -> Subscription:
        """See Bus."""
        taking = await self._intake.starts(on_start)
        self._takings.append(taking)
        return taking

    async def answer(self, reply_to: str, reply: Reply) -> bool:
        """See Bus."""
        if not may_be_answered(self.namespace, reply_to):
            return False
        sent = too_large(reply, self.body_bytes_max)
        with contextlib.suppress(Unreachable):  # the promise is in the world; who waits asks again
            await self._connection.publish(reply_to, sent.body, headers=reply_headers(sent))
        return True

    # ---- questions

    async def serve(self, endpoints: Mapping[str, OnRequest]) -> Subscription:
        """See Bus."""
        service = Service(
            connection=self._connection,
            subjects=self._subjects,
            body_bytes_max=lambda: self.body_bytes_max,
            version=_version(),
            forget=self._services.remove,
            id=uuid.uuid4().hex[:22].upper(),
        )
        self._services.append(service)
        await service.start(endpoints)
        return service

    async def request(self, endpoint: str, body: bytes, *, rest: str = "", timeout_s: float = 10.0) -> Reply:
        """See Bus."""
        subject = self._subjects.api(endpoint, rest)
        self._check_size(f"question to {endpoint}", body)
        try:
            return reply_of(await self._connection.ask(subject, body, timeout_s=timeout_s))
        except Nobody as error:
            raise NoResponder(endpoint) from error

    def _check_size(self, what: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        if len(body) > self.body_bytes_max:
            raise PayloadTooLarge(what, len(body), self.body_bytes_max)
        self._connection.check_size(what, body, headers)

    # ---- live feed

    async def announce(self, topic: str, body: bytes) -> None:
        """See Bus."""
        subject = self._subjects.news(topic)
        with contextlib.suppress(Unreachable, PayloadTooLarge):
            await self._connection.publish(subject, body)

    @asynccontextmanager
    async def follow(self, topic: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        """See Bus."""
        news = News()

        async def on_message(message: Msg) -> None:
            news.put(message.data)

        listening = await self._connection.listen(self._subjects.followed(topic), on_message)
        try:
            await self._connection.in_force()
            yield news
        finally:
            news.end()
            await self._connection.unlisten(listening)


def _version() -> str:
    try:
        return importlib.metadata.version("fencepost")
    except importlib.metadata.PackageNotFoundError:
        return "0.0.0"
