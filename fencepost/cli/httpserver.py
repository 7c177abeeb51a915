"""The server of `fencepost gateway`: uvicorn, with bounds on slow clients, and an end that is no failure."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from typing import TYPE_CHECKING, Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .exits import CommandError, Exit

if TYPE_CHECKING:
    from collections.abc import Generator

    from starlette.applications import Starlette

__all__ = ["Server", "configured", "listening"]

CONNECTIONS_MAX: Final = 2000
PATIENCE_S: Final = 10.0
"""How long a connection may take to say what it wants, or to hear that it was refused."""
GRACE_S: Final = 5.0
"""How long callers may still wait for a step's reply when the gateway stops."""
END_S: Final = 20
"""After this what is under way is cut off: more than a body or an answer takes."""


class _Impatient(H11Protocol):
    """Closes a connection whose headers do not come, or whose body goes on after it was answered.

    uvicorn would keep it for ever. One that was answered is read on for a while: closed at once, it may never see the
    answer, since what it had sent is thrown away unread.
    """

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_watch()

    @property
    def _dawdles(self) -> bool:
        theirs, ours = self.conn.their_state, self.conn.our_state
        return theirs is h11.IDLE or (theirs is h11.SEND_BODY and ours is h11.DONE)

    def _watch(self) -> None:
        """Give it some time from the first byte on; each byte more does not begin it anew."""
        if not self._dawdles:
            self._stop_watch()
        elif self._late is None:
            self._late = self.loop.call_later(PATIENCE_S, self._close)

    def _stop_watch(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close(self) -> None:
        self._late = None
        if self._dawdles and not self.transport.is_closing():
            self.transport.close()


class Server(uvicorn.Server):
    """Serves until it is told to stop: then those who wait are answered, and nothing was wrong."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Stop on SIGTERM and SIGINT. uvicorn would raise them again afterwards, and the process die of them."""
        before: dict[int, Any] = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take nothing new, and let who waits for a step's reply go after a grace."""
        asyncio.get_running_loop().call_later(GRACE_S, self._stopping.set)
        await super().shutdown(sockets)


def configured(app: Starlette, trusted: str) -> uvicorn.Config:
    """Return how uvicorn is to serve. `trusted`: the proxies whose X-Forwarded-For is believed, empty for none."""
    return uvicorn.Config(
        app,
        http=_Impatient,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,  # it would show tokens
        server_header=False,
        proxy_headers=bool(trusted),
        forwarded_allow_ips=trusted,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=END_S,
    )


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        CommandError: it cannot.
    """
    try:
        (family, *_, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        why = error.strerror or str(error)
        raise CommandError(
            f"cannot listen at {host} port {port}: {why}; give others by --host and --port", Exit.USAGE
        ) from error
