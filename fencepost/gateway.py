"""Hooks over HTTP: an ASGI app, to run by `fencepost gateway`, to mount anywhere, or to give to an ASGI server.

    app = gateway(Client.connect("nats://nats:4222"))      # uvicorn service:app

    POST /hooks/{token}  one delivery, durable when it is answered: with the hook's reply, with what a step replies,
                         else 202. Its id is a header of the sender's: the same id is recorded once.
    GET /healthz         200 while NATS can be reached

It keeps nothing: any number of gateways may run, and any of them takes a delivery that is sent again. A token lets
whoever knows it in, so it is never logged; no refusal says more than its sender knew.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import time
import uuid
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import structlog

from fencepost.actors import durations, models, webhooks

from .asking import patiently
from .errors import FencepostError, RequestRefused

try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    from .rates import Rate, Rates, network_of
except ImportError as error:
    raise ImportError(
        f'the gateway needs more than Fencepost itself: pip install "fencepost[gateway]" ({error})'
    ) from error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator
    from datetime import timedelta

    from .asking import Asking
    from .client import Client

__all__ = ["BODY_BYTES_MAX", "RATE", "REPLY_S", "gateway"]

log = structlog.get_logger("fencepost.gateway")

BODY_BYTES_MAX: Final = 1024 * 1024
RATE: Final = "100/s"
REPLY_S: Final = 30.0
BODY_S: Final = 15.0
"""How long a sender may take for a body."""
ANSWER_S: Final = 10.0
"""How long a delivery may take. After that the sender is told to send it again, which is harmless."""
SILENT_S: Final = 10.0
"""NATS says something more often than this."""

HEADERS_BYTES_MAX: Final = 8 * 1024
QUESTION_BYTES: Final = 4 * HEADERS_BYTES_MAX
"""What a question to a node holds beside the body, at most."""

DELIVERY_IDS: Final = ("idempotency-key", "x-github-delivery", "webhook-id", "fp-delivery")
NOT_KEPT: Final = frozenset({"authorization", "cookie", "proxy-authorization"}) | frozenset(
    {"connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers that hold secrets a log should not have, and those of the transport."""

STATUS_OF: Final = {
    "InvalidInput": 400,
    "HookNotFound": 404,
    "ValueTooLarge": 413,
    "HookFull": 429,
    "Unavailable": 503,
}
SAID_OF: Final = {
    "HookNotFound": "no open hook has this token",
    "HookFull": "its run has not read what was sent before: send it again later",
    "Unavailable": "it cannot be taken now: send it again later",
}
AGAIN_S: Final = {"HookFull": 5, "Unavailable": 2}


class _Spoken(msgspec.Struct):
    """An answer as it comes from a node or a step; all of it, so that no other news is taken for one."""

    run_id: str
    status: int
    body: msgspec.Raw
    headers: dict[str, str]


class _Static(msgspec.Struct):
    status: int = 202
    body: msgspec.Raw = msgspec.Raw(b"null")
    headers: dict[str, str] = {}


_USUAL: Final = _Static(202, msgspec.Raw(b"null"))


class _Delivered(msgspec.Struct):
    """What a node says of a delivery that is durable."""

    run_id: str
    delivery: str
    repeated: bool = False
    reply: _Static | Literal["manual"] | None = None


class _Refusal(Exception):
    """The sender is told why."""

    def __init__(self, status: int, error: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.response = JSONResponse({"error": error, "message": message}, status, headers)


def gateway(
    client: Client,
    *,
    max_body: int = BODY_BYTES_MAX,
    rate: str = RATE,
    reply_timeout: float | str | timedelta = REPLY_S,
) -> Starlette:
    """Return an ASGI app that puts what is posted to `/hooks/{token}` into the hook of that token.

    A client that is not connected yet is connected while the app runs, if its server runs the app's lifespan; of an
    app that is mounted into another it does not.

    Args:
        client: asks the nodes.
        max_body: the largest body in bytes; less if the server of NATS takes less.
        rate: how often one address may post, and how often a token may be posted to: `100/s`, `50/minute`, `none`.
        reply_timeout: how long a caller waits for a step's reply before it is told 202; a number is in seconds.

    Raises:
        ValueError: a bound is none.
    """
    door = _Door(client._asking, max_body, Rate.of(rate), durations.seconds(reply_timeout))  # noqa: SLF001  (one package)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with client if door.asking.closed else contextlib.nullcontext():
            yield

    app = Starlette(
        routes=[
            Route("/hooks/{token:path}", door.hook, methods=["POST"]),
            Route("/healthz", door.health, methods=["GET"]),
        ],
        exception_handlers={HTTPException: _http_error, Exception: _bug},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # a token may end with one, and a POST is not to be sent elsewhere
    app.state.stopping = door.stopping
    return app


class _Door:
    """Takes deliveries in. `stopping` lets go who still waits for a step's reply."""

    def __init__(self, asking: Asking, body_bytes_max: int, rate: Rate | None, reply_s: float) -> None:
        if body_bytes_max < 1:
            raise ValueError(f"max_body {body_bytes_max} must be at least one byte")
        self.asking = asking
        self.stopping = asyncio.Event()
        self._given_bytes_max, self._reply_s = body_bytes_max, reply_s
        self._addresses, self._tokens = Rates(rate), Rates(rate)

    async def health(self, _: Request) -> Response:
        """Say whether NATS can be reached."""
        reached = not self.asking.closed and self.asking.bus.unheard_s < SILENT_S
        return JSONResponse({"status": "ok" if reached else "NATS cannot be reached"}, 200 if reached else 503)

    async def hook(self, request: Request) -> Response:
        """Take one delivery."""
        began, token = time.monotonic(), request.path_params["token"]
        try:
            response = await self._taken(request, token)
        except _Refusal as refusal:
            response = refusal.response
        except ClientDisconnect:  # nobody hears this
            response = Response(status_code=400)
        log.info(
            "hook",
            token=_mark(token),
            status=response.status_code,
            client=_address(request),
            took_ms=round(1000 * (time.monotonic() - began)),
        )
        return response

    async def _taken(self, request: Request, token: str) -> Response:
        await self._check_rate(self._addresses, network_of(_address(request)))
        _check_token(token)
        await self._check_rate(self._tokens, token)
        question: dict[str, Any] = {
            "token": token,
            "delivery": _delivery_of(request),
            "headers": _kept_headers(request),
            "raw": await self._body(request),
            "content_type": request.headers.get("content-type", ""),
        }
        return await self._delivered(request, question)

    async def _delivered(self, request: Request, question: dict[str, Any]) -> Response:
        topic, bus = webhooks.reply_topic(question["token"], question["delivery"]), self.asking.opened()
        async with contextlib.AsyncExitStack() as stack:
            with _translated():
                # Before it is delivered: a step may reply before the node has answered.
                async with asyncio.timeout(ANSWER_S):
                    news = await patiently(lambda: stack.enter_async_context(bus.follow(topic)))
                    told = await self.asking.ask("hook", _Delivered, **question)
            answer: _Spoken | _Static | None
            answer = await self._replied(request, news, told.run_id) if told.reply == "manual" else told.reply
        return _usual(told) if answer is None or answer == _USUAL else _said(answer, told)

    async def _replied(self, request: Request, news: AsyncIterator[bytes], run_id: str) -> _Spoken | None:
        """Return what a step replied; None when the time is over, the caller went away, or this gateway stops."""
        heard = asyncio.ensure_future(_first(news, run_id))
        others = [asyncio.ensure_future(_gone(request)), asyncio.ensure_future(self.stopping.wait())]
        waiting = {heard, *others}
        try:
            await asyncio.wait(waiting, timeout=self._reply_s, return_when=asyncio.FIRST_COMPLETED)
            return heard.result() if heard.done() else None
        finally:
            for each in waiting:
                each.cancel()
            await asyncio.wait(waiting)

    # ---- what is refused

    @staticmethod
    async def _check_rate(rates: Rates, key: str) -> None:
        wait_s = await rates.wait_s(key)
        if wait_s:
            again = {"Retry-After": str(math.ceil(wait_s))}
            raise _Refusal(429, "RateLimited", "more than this gateway takes: send it again later", again)

    async def _body(self, request: Request) -> bytes:
        """Return the whole body, and read no more of it than may be."""
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise _Refusal(415, "UnsupportedEncoding", "the body is compressed: send it as it is")
        most, body = self._body_bytes_max(), bytearray()
        if (length := request.headers.get("content-length", "")).isdecimal():
            _check_size(int(length[:20]), most)
        try:
            async with asyncio.timeout(BODY_S):
                async for chunk in request.stream():
                    body += chunk
                    _check_size(len(body), most)
        except TimeoutError:
            close = {"Connection": "close"}
            raise _Refusal(408, "Timeout", f"the body took longer than {BODY_S:g} s: send it again", close) from None
        return bytes(body)

    def _body_bytes_max(self) -> int:
        """Return what is allowed here and fits into a message, where it is a third longer."""
        room = max(0, self.asking.opened().body_bytes_max - QUESTION_BYTES) * 3 // 4
        return min(self._given_bytes_max, room)


def _check_size(size_bytes: int, most_bytes: int) -> None:
    if size_bytes > most_bytes:
        raise _Refusal(413, "ValueTooLarge", f"the body is larger than {most_bytes:,} bytes")


def _check_token(token: str) -> None:
    try:
        models.checked_token(token)
    except ValueError:
        raise _Refusal(404, "HookNotFound", SAID_OF["HookNotFound"]) from None


def _delivery_of(request: Request) -> str:
    """Return the sender's id of this delivery, or a new one: then a delivery that is sent again is another."""
    for name in DELIVERY_IDS:
        if name in request.headers:
            try:
                return models.checked_delivery(request.headers[name])
            except ValueError as wrong:
                raise _Refusal(400, "InvalidInput", f"header {name}: {wrong}") from None
    return uuid.uuid4().hex


def _kept_headers(request: Request) -> dict[str, str]:
    kept: dict[str, str] = {}
    for name, value in request.headers.items():
        if name not in NOT_KEPT:
            kept[name] = f"{kept[name]}, {value}" if name in kept else value
    if sum(len(name) + len(value) for name, value in kept.items()) > HEADERS_BYTES_MAX:
        raise _Refusal(431, "ValueTooLarge", f"the headers are larger than {HEADERS_BYTES_MAX:,} bytes")
    return kept


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turn what nodes and the bus refuse into what the sender is told."""
    try:
        yield
    except TimeoutError as error:
        raise _refused("Unavailable", error) from error
    except RequestRefused as error:
        raise _refused(error.code, error) from error
    except FencepostError as error:
        raise _refused(type(error).__name__, error) from error


def _refused(kind: str, error: Exception) -> _Refusal:
    status = STATUS_OF.get(kind, 502)
    if status >= 500:  # noqa: PLR2004  (ours to look at; its text may name what is behind this gateway)
        log.warning("a delivery was not taken", kind=kind, why=str(error) or "no answer in time")
        message = SAID_OF["Unavailable"]
    else:
        message = SAID_OF.get(kind) or str(error)
    again = {"Retry-After": str(AGAIN_S[kind])} if kind in AGAIN_S else None
    return _Refusal(status, kind if status != 502 else "Failed", message, again)  # noqa: PLR2004  (as above)


# ---- what is answered


def _usual(told: _Delivered) -> Response:
    taken = {"run_id": told.run_id, "delivery": told.delivery, "repeated": told.repeated}
    return JSONResponse(taken, 202, {"Fp-Delivery": told.delivery})


def _said(answer: _Spoken | _Static, told: _Delivered) -> Response:
    """Return an answer as HTTP: a text as it is, anything else as JSON."""
    text = bytes(answer.body)
    kind, content = "application/json", text
    if text in {b"", b"null"}:
        kind, content = "", b""
    elif text.startswith(b'"'):
        kind, content = "text/plain", msgspec.json.decode(text, type=str).encode()
    headers = {"Fp-Delivery": told.delivery} | answer.headers
    return Response(content, answer.status, headers, kind or None)


async def _first(news: AsyncIterator[bytes], run_id: str) -> _Spoken | None:
    """Return the first news that is an answer of the run, and can be sent: one before may have had the token."""
    async for body in news:
        with contextlib.suppress(msgspec.MsgspecError, ValueError):
            spoken = msgspec.json.decode(body, type=_Spoken)
            webhooks.Reply(spoken.status, None, spoken.headers)
            if spoken.run_id == run_id:
                return spoken
    return None


async def _gone(request: Request) -> None:
    """Return when the caller went away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _http_error(_: Request, error: Exception) -> Response:
    """Answer what no route takes."""
    assert isinstance(error, HTTPException)
    said = {404: "there is POST /hooks/{token} and GET /healthz", 405: "a hook takes POST"}
    body = {"error": "".join(error.detail.split()), "message": said.get(error.status_code, error.detail)}
    return JSONResponse(body, error.status_code, error.headers)


async def _bug(_: Request, __: Exception) -> Response:
    """Answer what nobody foresaw; the server logs it."""
    return JSONResponse({"error": "Failed", "message": "this gateway failed: send it again later"}, 500)


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _mark(token: str) -> str:
    """Return what a log may have of a token: enough to tell two apart."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()[:8]
