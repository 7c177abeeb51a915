"""nats-py's client, and the few places where we must know its inside."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit

from nats import errors as nats_errors
from nats.aio.client import Client as NatsClient
from nats.aio.client import Server, Srv
from nats.aio.msg import Msg
from nats.protocol.parser import Parser

from ..errors import BusUnusable, Unreachable

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.subscription import Subscription

__all__ = ["Client", "ConnectOptions", "Told", "connected_client"]

CONNECT_S: Final = 2
CONNECT_TOTAL_S: Final = 5.0
PING_S: Final = 2
PINGS_MAX: Final = 2
RETRY_S: Final = 0.25
AGAIN_S_FIRST: Final = 0.1
AGAIN_S_MAX: Final = 1.0
CROWD_S: Final = 0.05
"""A server that ends leaves a crowd; so long it spreads over before it is at the next one."""


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """Where and as whom."""

    servers: Sequence[str]
    name: str = "fencepost"
    credentials: Path | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    inbox_prefix: str = "_INBOX"

    @property
    def shown(self) -> str:
        """The servers without passwords, for people."""
        return ", ".join(_shown(server) for server in self.servers)


def _shown(server: str) -> str:
    head, at, tail = server.rpartition("@")
    scheme = head.partition("://")[0] + "://" if "://" in head else ""
    return scheme + tail if at else server


OnMessage = Callable[[Msg], Awaitable[None]]
OnChange = Callable[["Client"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Told:
    """Who hears of what happens to a client once it was connected; `heard` is called at any byte of the server."""

    heard: Callable[[], None]
    error: Callable[[Exception], Awaitable[None]]
    lost: OnChange
    back: OnChange
    end: OnChange


class _Ears(Parser):
    """The original, and who it tells that something came: a large message counts before its end is there."""

    def __init__(self, client: Client, heard: Callable[[], None]) -> None:
        super().__init__(client)  # pyright: ignore[reportUnknownMemberType]  # as nats-py has it: no types
        self._heard = heard

    async def parse(self, data: bytes = b"") -> None:
        if data:
            self._heard()
        await super().parse(data)


class Turns:
    """Which server is tried next and after what pause: round after round, the one that was lost last in each.

    The original waits the same time before every server, and may begin with the one that froze.
    """

    def __init__(self, given: Sequence[str]) -> None:
        self._given = {_parts(server).netloc for server in given}
        self._tried: dict[str, int] = {}
        self._round = 0

    def begin(self) -> None:
        """Start again: there was a connection."""
        self._tried.clear()
        self._round = 0

    def next(self, servers: Sequence[Server], lost: str) -> tuple[Server, float]:
        """Return the next server and the pause before it."""

        def order(server: Server) -> tuple[int, bool, bool, float]:
            where = server.uri.netloc
            told_of = where not in self._given  # by another server: it may not be reachable from here
            return self._tried.get(where, 0), where == lost, told_of, random.random()  # noqa: S311 - spreads a crowd

        server = min(servers, key=order)
        times = self._tried.get(server.uri.netloc, 0)
        self._tried[server.uri.netloc] = times + 1
        pause_s = CROWD_S
        if times > self._round:
            self._round, pause_s = times, min(AGAIN_S_FIRST * 2.0 ** min(times - 1, 10), AGAIN_S_MAX)
        return server, pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - spreads a crowd, hides nothing


class Client(NatsClient):
    """A client that survives what strangers may send."""

    def __init__(self, told: Told, servers: Sequence[str]) -> None:
        super().__init__()
        self._ps = _Ears(self, told.heard)
        self._told = told
        self._turns = Turns(servers)
        self._lost = ""
        self.settled = False
        self.seen: list[Exception] = []

    def callbacks(self) -> dict[str, Any]:
        """Return the parameters of `connect` that let this tell."""

        async def error_cb(error: Exception) -> None:
            self.seen = [*self.seen[-8:], error]
            if self.settled:
                await self._told.error(error)

        async def disconnected_cb() -> None:
            self._turns.begin()
            self._lost = self._current_server.uri.netloc if self._current_server else ""
            await self._told.lost(self)

        async def reconnected_cb() -> None:
            await self._told.back(self)

        def next_server(servers: list[Server], _info: object) -> tuple[Server, float]:
            return self._turns.next(servers, self._lost)

        async def closed_cb() -> None:
            if self.settled:
                await self._told.end(self)

        return {
            "error_cb": error_cb,
            "disconnected_cb": disconnected_cb,
            "reconnected_cb": reconnected_cb,
            "closed_cb": closed_cb,
            "reconnect_to_server_handler": next_server,
        }

    def add_servers(self, servers: Sequence[str]) -> None:
        """Let these be reconnected to as well."""
        known = {server.uri.netloc for server in self._server_pool}
        parsed = [self._parse_server_uri(server) for server in servers]
        self._server_pool += [Srv(uri) for uri in parsed if uri.netloc not in known]

    async def ask_for_a_sign(self) -> None:
        """Send a ping; whatever comes back counts."""
        await self._send_ping()  # pyright: ignore[reportUnknownMemberType]  # a bare Future among parameters

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        # The original decodes strictly: one subject that is not UTF-8 would end its reader, and come again.
        return Msg(
            subject=subject.decode(errors="backslashreplace"),
            reply=reply.decode(errors="backslashreplace"),
            data=data,
            headers=headers,
            _client=self,
            _sid=sid,
        )

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        # The original raises on headers that are none, in its reader: the connection is lost, the message comes
        # again, and nobody else's is taken in any more. Without headers it is a message like any other.
        try:
            found: dict[str, str] | None = await super()._process_headers(headers)  # pyright: ignore[reportUnknownMemberType]
        except Exception as error:  # noqa: BLE001  (whatever a stranger's bytes lead to)
            await self._told.error(error)
            return {}
        return found

    async def _connect_to_server(self, s: Srv) -> None:
        self.abort()  # the original leaves the socket of an attempt that got no greeting to the garbage collector
        await super()._connect_to_server(s)

    def forget_unsent(self) -> None:
        """Drop what was not written when the connection was lost.

        The original sends it after the reconnect. An acknowledgement from before could then hit another message
        that got the same number in a store made anew, and that message would be lost.
        """
        self._pending.clear()
        self._pending_data_size = 0

    async def subscribed(self, subject: str, queue: str, on_message: OnMessage) -> Subscription:
        """Subscribe; typed, which the original is only in part."""
        return await self.subscribe(  # pyright: ignore[reportUnknownMemberType]  # a bare Future among parameters
            subject, queue=queue, cb=on_message
        )

    @property
    def is_stuck(self) -> bool:
        """Whether it reconnects but has not begun to: it waits for the old socket to close."""
        return self.is_reconnecting and getattr(self, "_reconnection_task_future", None) is None

    def abort(self) -> None:
        """Cut the socket without waiting for what is in it."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()


async def connected_client(options: ConnectOptions, told: Told) -> Client:
    """Return a client that is connected to one of the servers and will reconnect, to any of them, for ever.

    One after the other: the original gives up at the first that accepts and says nothing.

    Raises:
        BusUnusable: address or credentials are wrong, or what answers is no NATS server.
        Unreachable: no server there.
    """
    _check(options)
    seen: list[Exception] = []
    for server in random.sample(options.servers, len(options.servers)):
        client = Client(told, options.servers)
        try:
            async with asyncio.timeout(CONNECT_TOTAL_S):
                await client.connect(servers=[server], **_settings(options), **client.callbacks())
        except (nats_errors.Error, OSError, ImportError, ValueError) as error:
            client.abort()
            seen += [*client.seen, error]
        except BaseException:
            client.abort()
            raise
        else:
            client.add_servers(options.servers)
            client.options.update(allow_reconnect=True, max_reconnect_attempts=-1)
            client.settled = True
            return client
    raise _translated(options, seen) from seen[-1]


def _settings(options: ConnectOptions) -> dict[str, Any]:
    user, password = _who(options)
    return {
        "name": options.name,
        "allow_reconnect": False,  # the first attempt is to fail soon
        "max_reconnect_attempts": 1,
        "connect_timeout": CONNECT_S,
        "reconnect_time_wait": RETRY_S,
        "ping_interval": PING_S,
        "max_outstanding_pings": PINGS_MAX,
        "inbox_prefix": options.inbox_prefix,
        "user": user,
        "password": password,
        "token": options.token,
        "tls": options.tls,
        "user_credentials": str(options.credentials) if options.credentials else None,
    }


def _who(options: ConnectOptions) -> tuple[str | None, str | None]:
    """Return user and password; those of the addresses too, which servers that are only told of do not have."""
    if options.user is not None:
        return options.user, options.password
    given = {(parts.username, parts.password) for parts in map(_parts, options.servers) if parts.password}
    return given.pop() if len(given) == 1 else (None, None)


def _parts(server: str) -> SplitResult:
    return urlsplit(server if "://" in server else f"nats://{server}")


def _check(options: ConnectOptions) -> None:
    if not options.servers:
        raise BusUnusable("no NATS address is given: write one as nats://host:4222, or several with commas between")
    for server in options.servers:
        try:
            parts = _parts(server)
            fine = parts.scheme in {"nats", "tls", "ws", "wss"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            fine = False
        if not fine:
            raise BusUnusable(f"{_shown(server)!r} is no NATS address: write it as nats://host:4222")
    if len({_parts(server).scheme.startswith("ws") for server in options.servers}) > 1:
        raise BusUnusable(f"{options.shown}: addresses with ws:// and without cannot be mixed")
    if options.credentials and not options.credentials.is_file():
        raise BusUnusable(f"there is no credentials file {options.credentials}")


def _translated(options: ConnectOptions, seen: Sequence[Exception]) -> BusUnusable | Unreachable:
    texts = " | ".join(str(error) or type(error).__name__ for error in seen).lower()
    where = options.shown
    if "authorization" in texts or "authentication" in texts or "auth" in texts:
        return BusUnusable(f"{where} refused these credentials: check user, password or credentials file")
    if any(isinstance(error, ImportError) for error in seen):
        return BusUnusable("this kind of credentials needs one more package: `pip install nats-py[nkeys]`")
    if any(isinstance(error, ssl.SSLError) for error in seen) or "tls" in texts or "ssl" in texts:
        return BusUnusable(f"{where}: the secure connection failed: {seen[-1]}")
    if any(isinstance(error, ConnectionRefusedError) for error in seen) or "gaierror" in texts:
        return Unreachable(f"no NATS server at {where}: start one there, or set FENCEPOST_NATS_URL")
    if "info" in texts or any(isinstance(error, TimeoutError) for error in seen):
        return BusUnusable(f"what answers at {where} does not speak NATS, or is stuck: check host and port")
    return Unreachable(f"no NATS server at {where}: {seen[0]}")
