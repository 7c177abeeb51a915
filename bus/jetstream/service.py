"""The micro service `fencepost`: `nats micro ls|info|stats` show it, any NATS client can ask it.

Written here and not taken from nats-py: there the questions to one endpoint are handled one after the other, and a
`result` that waits a minute would hold up all the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ..errors import BusError
from ..interface import OnRequest, Reply, Request
from ..serving import answered
from ..subjects import may_be_answered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nats.aio.msg import Msg

    from ..subjects import Subjects
    from .connection import Connection, Listening

__all__ = ["ERROR_HEADER", "ERROR_NAME_HEADER", "Service", "reply_headers", "reply_of"]

ERROR_HEADER: Final = "Nats-Service-Error"
ERROR_NAME_HEADER: Final = "Nats-Service-Error-Code"
DESCRIPTION_CHARS_MAX: Final = 1000
UNDER_WAY_MAX: Final = 4096
NAME: Final = "fencepost"
QUEUE: Final = "q"

_FROM_ANOTHER_ACCOUNT = re.compile(r"_R_(\.[A-Za-z0-9_-]+)+")


def reply_headers(reply: Reply) -> dict[str, str]:
    """Return the headers of an answer."""
    if not reply.error:
        return {}
    text = (reply.description or reply.error).encode(errors="replace").decode()[:DESCRIPTION_CHARS_MAX]
    return {ERROR_HEADER: text, ERROR_NAME_HEADER: reply.error}


def reply_of(message: Msg) -> Reply:
    """Return the answer a message is."""
    headers = message.headers or {}
    if ERROR_HEADER not in headers and ERROR_NAME_HEADER not in headers:
        return Reply(message.data)
    text = headers.get(ERROR_HEADER, "")
    return Reply(message.data, headers.get(ERROR_NAME_HEADER) or text or "error", text)


@dataclass(slots=True)
class _Endpoint:
    name: str
    subject: str
    handler: OnRequest
    num_requests: int = 0
    num_errors: int = 0
    processing_time: int = 0
    last_error: str = ""

    def stats(self) -> dict[str, Any]:
        return {
            **self.info(),
            "num_requests": self.num_requests,
            "num_errors": self.num_errors,
            "last_error": self.last_error,
            "processing_time": self.processing_time,
            "average_processing_time": self.processing_time // max(1, self.num_requests),
        }

    def info(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "queue_group": QUEUE}


@dataclass(slots=True, eq=False)
class Service:
    """See `Subscription`: answers questions, several at once, until stopped."""

    connection: Connection
    subjects: Subjects
    body_bytes_max: Callable[[], int]
    version: str
    forget: Callable[[Service], None]
    id: str
    _endpoints: list[_Endpoint] = field(default_factory=list[_Endpoint])
    _listenings: list[Listening] = field(default_factory=list["Listening"])
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _started: str = ""
    _stopped: bool = False

    async def start(self, endpoints: Mapping[str, OnRequest]) -> None:
        """Listen; in force when this returns."""
        self._started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        for name, handler in endpoints.items():
            await self._listen(_Endpoint(name, self.subjects.api(name), handler))
        for about in ("", f".{NAME}", f".{NAME}.{self.id}"):
            self._listenings.append(await self.connection.listen(f"$SRV.*{about}", self._on_about))
        await self.connection.in_force()

    async def stop(self) -> None:
        """See Subscription."""
        if not self._stopped:
            self._stopped = True
            self.forget(self)
            await asyncio.gather(*(self.connection.unlisten(listening) for listening in self._listenings))
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _listen(self, endpoint: _Endpoint) -> None:
        async def on_message(message: Msg) -> None:
            self._begin(endpoint, message)

        for subject in (endpoint.subject, f"{endpoint.subject}.>"):
            self._listenings.append(await self.connection.listen(subject, on_message, queue=QUEUE))
        self._endpoints.append(endpoint)

    def _begin(self, endpoint: _Endpoint, message: Msg) -> None:
        busy = len(self._tasks) >= UNDER_WAY_MAX
        task = asyncio.get_running_loop().create_task(self._answer(endpoint, message, busy=busy))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, endpoint: _Endpoint, message: Msg, *, busy: bool) -> None:
        began = time.perf_counter_ns()
        rest = self.subjects.rest_of(endpoint.name, message.subject)
        request = Request(endpoint.name, rest, message.data, dict(message.headers or {}))
        if busy:
            reply = Reply(b"", "busy", f"{UNDER_WAY_MAX} questions are under way; ask again later")
        else:
            reply = await answered(endpoint.handler, request, self.body_bytes_max())
        endpoint.num_requests += 1
        endpoint.processing_time += time.perf_counter_ns() - began
        if reply.error:
            endpoint.num_errors += 1
            endpoint.last_error = f"{reply.error}: {reply.description}"
        await self._reply(message.reply, reply)

    async def _reply(self, address: str, reply: Reply) -> None:
        """Answer only where answers go: the address was chosen by who asked, and we may publish more than they."""
        if may_be_answered(self.subjects.namespace, address) or _FROM_ANOTHER_ACCOUNT.fullmatch(address):
            with contextlib.suppress(BusError):  # who asked hears nothing and asks again
                await self.connection.publish(address, reply.body, headers=reply_headers(reply))

    async def _on_about(self, message: Msg) -> None:
        verb = message.subject.split(".")[1]
        about = {"PING": {}, "INFO": self._info(), "STATS": self._stats()}.get(verb)
        if about is None or not may_be_answered(self.subjects.namespace, message.reply):
            return
        kind = f"io.nats.micro.v1.{verb.lower()}_response"
        who = {
            "name": NAME,
            "id": self.id,
            "version": self.version,
            "metadata": {"namespace": self.subjects.namespace},
        }
        with contextlib.suppress(BusError):
            await self.connection.publish(message.reply, json.dumps({"type": kind, **who, **about}).encode())

    def _info(self) -> dict[str, Any]:
        none: dict[str, str] = {}
        endpoints = [{**endpoint.info(), "metadata": none} for endpoint in self._endpoints]
        return {"description": "Durable workflows: start, ask, signal", "endpoints": endpoints}

    def _stats(self) -> dict[str, Any]:
        return {"started": self._started, "endpoints": [endpoint.stats() for endpoint in self._endpoints]}
