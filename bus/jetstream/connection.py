"""The connection to NATS: comes back by itself, and says soon when it is away, refused or silent.

nats-py reconnects on its own, but some errors close its client for good, and some leave it waiting for a dead
socket; then a new client takes over (`_revive`). Whoever subscribed through here need not notice: what was
subscribed is subscribed again, and `on_up` tells who has to ask the server anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nats import errors as nats_errors

from ..errors import BusUnusable, PayloadTooLarge, Unreachable
from .client import Client, ConnectOptions, Told, connected_client
from .silence import TICK_S, Silence

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription as NatsSubscription

__all__ = ["Connection", "Listening", "Nobody"]

log = logging.getLogger("fencepost.bus")

GIVE_UP_ON_CLIENT_S: Final = 6.0
CLOSE_S: Final = 2.0
SEND_S: Final = 5.0
UNSENT_BYTES_MAX: Final = 1024 * 1024
ASK_AFTER_S: Final = 0.5
QUIET_S: Final = 1.5
"""So long without the word that was asked for: nothing is on its way from there."""
STALE_S: Final = 3.0
"""A server that does not say a word for so long, asked several times, is left for another one."""

OnMessage = Callable[["Msg"], Awaitable[None]]


class Nobody(Exception):
    """Nobody listens where this was sent."""


@dataclass(slots=True, eq=False)
class Listening:
    """A subscription that outlives the client it was made on."""

    subject: str
    queue: str
    on_message: OnMessage
    current: NatsSubscription | None = None


@dataclass(slots=True, eq=False)
class _Question:
    subject: str
    answer: asyncio.Future[Msg]


class Connection:
    """One named connection."""

    def __init__(self, options: ConnectOptions) -> None:
        self._options = options
        self._client: Client | None = None
        self._listenings: set[Listening] = set()
        self._questions: dict[str, _Question] = {}
        self._tokens = itertools.count(1)
        self._answers: Listening | None = None
        self._silence = Silence()
        self._tasks: set[asyncio.Task[object]] = set()
        self._watchers: tuple[asyncio.Task[object], ...] = ()
        self._reviver: asyncio.Task[object] | None = None
        self._away_since: float | None = None
        self._closing = False
        self._said: set[str] = set()
        self.epoch = 0
        """Raised whenever the connection is lost: what was received before cannot be acknowledged after."""

        self.on_up: list[Callable[[], Awaitable[None]]] = []
        self.on_tick: list[Callable[[], Awaitable[None]]] = []

    # ---- state

    @property
    def connected(self) -> bool:
        """Whether the client believes so."""
        return self._client is not None and self._client.is_connected

    @property
    def silence_s(self) -> float:
        """Seconds since anything was received; the server is asked for a sign when it has nothing to say."""
        return self._silence.seconds()

    @property
    def is_silent(self) -> bool:
        """Whether nothing can be expected from the server now."""
        return not self.connected or self.silence_s > QUIET_S

    @property
    def server_version(self) -> str:
        """As the server said it."""
        return str(self._live().connected_server_version).removeprefix("<nats server v").removesuffix(">")

    @property
    def max_payload(self) -> int:
        """The largest message, headers included."""
        return self._client.max_payload if self._client else 1024 * 1024

    def new_inbox(self) -> str:
        """Return an address that nobody else has."""
        return str(self._live().new_inbox())

    def arrival(self) -> float:
        """Return when what is received now may have arrived (see `Silence`)."""
        return self._silence.arrival()

    # ---- life

    async def open(self) -> None:
        """Connect once, or say why not.

        Raises:
            BusUnusable: the address, the credentials or what answers there are wrong.
            Unreachable: no server there.
        """
        self._closing = False
        self._silence = Silence()
        self._client = await self._connected()
        self._away_since = None
        self._answers = await self.listen(f"{self._client.new_inbox()}.*", self._on_answer)
        self._watchers = (self._spawn(self._ticking()), self._spawn(self._watching()))

    async def close(self) -> None:
        """Disconnect. Idempotent."""
        self._closing = True
        self._fail_questions("the bus is closed")
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._shut(self._client)
        self._client = None
        for kept in (self._listenings, self.on_up, self.on_tick):
            kept.clear()
        self._answers = None

    def _spawn(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _shut(self, client: Client) -> None:
        closing = asyncio.ensure_future(client.close())
        await asyncio.wait({closing}, timeout=CLOSE_S)
        if closing.done():
            closing.exception()
        else:
            closing.cancel()
            client.abort()

    def _live(self) -> Client:
        if self._client is None or not self._client.is_connected:
            raise Unreachable(f"no connection to {self._options.shown}")
        return self._client

    # ---- sending

    def check_size(self, what: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Refuse what the server would close the connection for.

        Raises:
            PayloadTooLarge: body and headers together are over the server's limit.
        """
        extra = sum(len(name.encode()) + len(value.encode()) + 4 for name, value in (headers or {}).items())
        size = len(body) + (extra + 12 if headers else 0)
        if size > self.max_payload:
            raise PayloadTooLarge(what, size, self.max_payload)

    async def publish(
        self, subject: str, body: bytes = b"", *, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send, or raise: nothing is kept for later.

        Raises:
            Unreachable: not connected.
            PayloadTooLarge: not sent.
        """
        client = self._live()
        self.check_size(f"message to {subject}", body, headers)
        sending = client.publish(subject, body, reply, dict(headers) if headers else None)
        try:
            if client.pending_data_size + len(body) < UNSENT_BYTES_MAX:
                await sending
            else:  # it waits for the socket, for ever where the client is given up meanwhile
                await asyncio.wait_for(sending, SEND_S)
        except TimeoutError as error:
            raise Unreachable(f"{self._options.shown} takes nothing in") from error
        except nats_errors.BadHeaderError as error:
            raise ValueError(f"header {error.key!r} cannot be sent: names are plain ASCII without spaces") from error
        except (nats_errors.Error, OSError) as error:
            raise Unreachable(f"could not send to {self._options.shown}: {error}") from error

    async def ask(
        self, subject: str, body: bytes = b"", *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Msg:
        """Send and return the answer; a lost connection or a missing permission ends the waiting at once.

        Raises:
            Nobody: nobody listens there.
            Unreachable: no connection, or no answer in time.
            BusUnusable: no permission to send there.
        """
        self._live()
        inbox = self._answers.subject[:-1] if self._answers else ""
        token = str(next(self._tokens))
        question = _Question(subject, asyncio.get_running_loop().create_future())
        self._questions[token] = question
        try:
            async with asyncio.timeout(timeout_s):
                await self.publish(subject, body, reply=inbox + token, headers=headers)
                answer = await question.answer
        except TimeoutError as error:
            raise Unreachable(f"no answer from {subject} within {timeout_s:g} s") from error
        finally:
            self._questions.pop(token, None)
        if not answer.data and (answer.headers or {}).get("Status") == "503":
            raise Nobody(subject)
        return answer

    async def _on_answer(self, message: Msg) -> None:
        question = self._questions.get(message.subject.rpartition(".")[2])
        if question is not None and not question.answer.done():
            question.answer.set_result(message)

    def _fail_questions(self, why: str) -> None:
        for question in self._questions.values():
            if not question.answer.done():
                question.answer.set_exception(Unreachable(why))

    # ---- listening

    async def listen(self, subject: str, on_message: OnMessage, *, queue: str = "") -> Listening:
        """Subscribe; made again when the connection is. The handler must only enqueue: it holds up the next."""
        listening = Listening(subject, queue, on_message)
        self._listenings.add(listening)
        try:
            await self._subscribe(self._live(), listening)
        except BaseException:
            self._listenings.discard(listening)
            raise
        return listening

    async def _subscribe(self, client: Client, listening: Listening) -> None:
        listening.current = await client.subscribed(listening.subject, listening.queue, listening.on_message)

    async def in_force(self) -> None:
        """Return when the server has seen everything sent so far.

        Shielded: a cancelled flush leaves a cancelled future in the client, and its reader dies at the next pong.
        """
        try:
            await asyncio.shield(self._spawn(self._live().flush()))
        except (nats_errors.Error, OSError) as error:
            raise Unreachable(f"no sign of {self._options.shown}: {error}") from error

    async def unlisten(self, listening: Listening) -> None:
        """Take nothing new and hand over what is on its way, unless the server is silent. Idempotent."""
        self._listenings.discard(listening)
        current, listening.current = listening.current, None
        if current is None or self._client is None:
            return
        if self.is_silent:
            with contextlib.suppress(nats_errors.Error):
                await current.unsubscribe()
            return
        await asyncio.wait({self._spawn(_drained(current))}, timeout=CLOSE_S)

    # ---- what the client tells

    async def _on_error(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        if "permissions violation" in text:
            self._refuse(text)
        if text not in self._said and not self._closing:
            self._said.add(text)
            log.warning("bus %s: %s", self._options.shown, text)

    def _refuse(self, text: str) -> None:
        """End the waiting of who sent what was refused: that is reported apart from the call, in lower case."""
        for question in self._questions.values():
            if f'"{question.subject.lower()}"' in text and not question.answer.done():
                question.answer.set_exception(
                    BusUnusable(f"this NATS user may not publish to {question.subject}: give it that permission")
                )

    async def _on_lost(self, client: Client) -> None:
        client.forget_unsent()
        if client is self._client:
            self._away_since = self._away_since or time.monotonic()
            self.epoch += 1
            self._fail_questions(f"lost the connection to {self._options.shown}")

    async def _on_back(self, client: Client) -> None:
        if client is not self._client:
            return
        self._away_since = None
        self._said.clear()
        self._silence.hear()
        log.info("bus %s: connected again", self._options.shown)
        for call in list(self.on_up):
            await call()

    async def _on_end(self, client: Client) -> None:
        if client is self._client and not self._closing:
            self._reviver = self._spawn(self._revive())

    # ---- watching

    async def _ticking(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._silence.tick()

    async def _watching(self) -> None:
        """Apart from the ticking: a call here may wait for a socket, and that is no fault of this process."""
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await self._check_client()
                for call in list(self.on_tick):
                    await call()
            except Exception:  # whatever it is: nobody else watches
                log.exception("bus %s: the watch met an error", self._options.shown)

    async def _check_client(self) -> None:
        """Notice a loss before the client reports it: it does so only when its dead socket has closed."""
        client = self._client
        if client is None:
            return
        if client.is_connected:
            await self._check_silence(client)
            return
        if self._away_since is None:
            await self._on_lost(client)
        stuck_s = time.monotonic() - (self._away_since or time.monotonic())
        if client.is_closed or (client.is_stuck and stuck_s > GIVE_UP_ON_CLIENT_S):
            self._reviver = self._spawn(self._revive())

    async def _check_silence(self, client: Client) -> None:
        """Ask for a sign of life, and give up a server that gives none: a cut wire breaks no connection by itself."""
        if self.silence_s > STALE_S:
            log.warning("bus %s: not a word for %.1f s, connecting anew", self._options.shown, self.silence_s)
            client.abort()
        elif self.silence_s > ASK_AFTER_S:
            await client.ask_for_a_sign()

    async def _revive(self) -> None:
        """Replace a client that is closed for good or stuck."""
        old, self._client = self._client, None
        if old is None:
            return
        self.epoch += 1
        self._fail_questions(f"lost the connection to {self._options.shown}")
        old.abort()
        await self._shut(old)
        while self._client is None:
            try:
                client = await self._connected()
                for listening in list(self._listenings):
                    await self._subscribe(client, listening)
            except (BusUnusable, Unreachable, nats_errors.Error, OSError) as error:
                await self._on_error(error)
                await asyncio.sleep(random.uniform(0.2, 1.0))  # noqa: S311 - spreads a crowd, hides nothing
            else:
                self._client = client
                await self._on_back(client)

    async def _connected(self) -> Client:
        told = Told(self._silence.hear, self._on_error, self._on_lost, self._on_back, self._on_end)
        return await connected_client(self._options, told)


async def _drained(subscription: NatsSubscription) -> None:
    with contextlib.suppress(nats_errors.Error, OSError):
        await subscription.drain()  # type: ignore[no-untyped-call]  # nats-py leaves its result out
