"""The endpoint `hook`: puts a payload where a run waits for it, or will.

    {"token": "approve:42", "payload": {"ok": true}, "delivery": "mail-7"}

A body as it came over HTTP travels as `raw`, in base64, with its `content_type` and `headers`. `delivery` makes it
idempotent under the token. Unknown fields are refused: a misspelt `payloda` must not arrive as null.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fencepost.world import HOOK_UNREAD_MAX, UNREAD, Batch, HookFull, HookNotFound, RunEnded
from fencepost.world import events as ev

from . import codec, models, payloads, untyped, values, views
from .errors import InvalidInput, SerializationError
from .shape import Shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from fencepost.bus import Bus, Request
    from fencepost.world import Hook, World

    from .host import Host

TRIES: Final = 3
"""How often a token is looked up when it changes hands in between."""
SAID: Final = 200
BUILTIN: Final = "builtins:"
BYTES: Final = "builtins:bytes"
_anything: Final = Shape(Any, "payload")


class Delivery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A payload as it travels."""

    token: str
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    delivery: str = ""
    raw: bytes | msgspec.UnsetType = msgspec.UNSET
    content_type: str = ""
    headers: dict[str, str] = {}


_decoder: Final = msgspec.json.Decoder(Delivery)


def read_delivery(body: bytes) -> Delivery:
    """Return a delivery.

    Raises:
        InvalidInput: it is no such JSON object, has a field nobody knows, or both payload and raw.
    """
    try:
        asked = _decoder.decode(body)
        models.checked_token(asked.token)
        if asked.delivery:
            models.checked_delivery(asked.delivery)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the delivery does not fit: {str(error)[:SAID]}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(
            f'the delivery is not JSON ({error}): send an object such as {{"token": "…", "payload": …}}'
        ) from None
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    if asked.raw is msgspec.UNSET and asked.content_type:
        raise InvalidInput("content_type says how to read raw: leave it out beside payload")
    if asked.raw is not msgspec.UNSET and asked.payload is not msgspec.UNSET:
        raise InvalidInput("the delivery has both payload and raw: give one of them")
    return asked


class Deliverer:
    """Takes deliveries for any run of the namespace. `ring` wakes a run of an app."""

    def __init__(self, world: World, bus: Bus, host: Host, app: str, ring: Callable[[str, str], None]) -> None:
        self._world, self._bus, self._host, self._app, self._ring = world, bus, host, app, ring
        self._checking = asyncio.Semaphore(1)  # each may take a second of the one interpreter: strangers get one thread

    async def deliver(self, request: Request) -> dict[str, Any]:
        """Put a payload; the answer is the durable promise.

        Raises:
            InvalidInput: the question or the payload does not fit.
            HookNotFound, HookFull, ValueTooLarge: nothing was written.
        """
        asked = read_delivery(request.body)
        asked = msgspec.structs.replace(asked, delivery=asked.delivery or self._host.token())
        hook, seq, repeated = await self._put(asked)
        self._ring(hook.run_id, hook.app)  # one sent again too: the first may never have rung
        await self._bus.announce(f"event.{hook.run_id}", views.news(seq, over=False))
        return {
            "run_id": hook.run_id,
            "id": f"{hook.run_id}:{seq}",
            "delivery": asked.delivery,
            "repeated": repeated,
            "reply": _reply(hook.created.reply),
        }

    async def _put(self, asked: Delivery) -> tuple[Hook, int, bool]:
        """Return the hook, the position of the payload, and whether it had arrived before."""
        hook = await self._world.hook(asked.token)
        for _ in range(TRIES):
            try:
                return hook, *await self._append(hook, asked)
            except (HookNotFound, RunEnded):
                before, hook = hook, await self._world.hook(asked.token)
                if _who(before) == _who(hook):
                    break
        raise HookNotFound(asked.token)

    async def _append(self, hook: Hook, asked: Delivery) -> tuple[int, bool]:
        try:
            # A closed hook takes nothing, but knows what it has: who sends it again learns that it had arrived.
            data = await self._data(hook, asked) if hook.is_open else b"null"
        except InvalidInput:
            # Other code may have taken it when it was sent before: what is recorded stays so.
            if (seq := await self._before(hook, asked)) is None:
                raise
            return seq, True
        if len(data) <= values.INLINE_BYTES_MAX:
            payload = values.inline(data)
        elif (seq := await self._before(hook, asked)) is None:
            payload = await self._apart(hook, data)
        else:
            return seq, True
        headers = {} if hook.created.reply is None else payloads.kept(asked.headers)
        body = ev.HookReceived(
            op=hook.created.op,
            token=asked.token,
            delivery=asked.delivery,
            payload=payload,
            digest=_digest(asked),
            headers=headers,
        )
        accepted = await self._world.append(Batch(hook.run_id, (body,), UNREAD))
        if accepted.repeated:
            await self._before(hook, asked)
        return accepted.first_seq, accepted.repeated

    async def _before(self, hook: Hook, asked: Delivery) -> int | None:
        """Return where a delivery stands in the log already.

        Raises:
            InvalidInput: under its id stands another payload: its sender would think that it had arrived.
        """
        event = await self._world.received(hook.run_id, asked.token, asked.delivery)
        if event is None:
            return None
        assert isinstance(event.body, ev.HookReceived)
        if event.body.digest and event.body.digest != _digest(asked):
            raise InvalidInput(
                f"delivery {asked.delivery!r} of hook {asked.token[:80]!r} was another payload: use another id"
            )
        return event.seq

    async def _apart(self, hook: Hook, data: bytes) -> ev.Value:
        """Keep a large payload apart, unless it will be refused: nobody would ever take it away."""
        if hook.unread >= HOOK_UNREAD_MAX:
            raise HookFull(hook.token, HOOK_UNREAD_MAX)
        return ev.Value(ref=await self._world.put_value(hook.run_id, data), size_bytes=len(data))

    async def _data(self, hook: Hook, asked: Delivery) -> bytes:
        text = _text(hook.created, asked)
        return values.bounded(await self._checked(hook.created, text, hook.app), "the payload")

    async def _checked(self, created: ev.HookCreated, text: bytes, app: str) -> bytes:
        """Return a payload as the codec writes it, if it fits the hook's model as far as that is known here."""
        # Another app may have another class of the same name.
        known = app == self._app or created.model.startswith(BUILTIN)
        shape = models.shape_of(created.model) if known else None
        try:
            if shape is not None:
                return shape.accept(text)
            data = _anything.accept(text)
            if schema := bytes(created.schema):
                async with self._checking:
                    await asyncio.to_thread(_check, schema, data)
        except SerializationError as error:
            too_deep = isinstance(error.__cause__, RecursionError)
            said = f"the payload does not fit: {'it is nested too deep' if too_deep else error}"
            raise InvalidInput(said if len(said) <= SAID else said[: SAID - 1] + "…") from None
        return data


def _check(schema: bytes, data: bytes) -> None:
    from . import schemas  # noqa: PLC0415  (heavy, and seldom needed)

    schemas.check(schema, untyped.parse(data))


def _who(hook: Hook) -> tuple[str, str, bool]:
    return hook.run_id, hook.created.op, hook.is_open


def _text(created: ev.HookCreated, asked: Delivery) -> bytes:
    if asked.raw is not msgspec.UNSET:
        return payloads.text_of(asked.raw, asked.content_type, takes_bytes=created.model == BYTES)
    return b"null" if asked.payload is msgspec.UNSET else bytes(asked.payload)


def _digest(asked: Delivery) -> str:
    """Return what tells whether the same was sent: of the bytes as they came, or of JSON without its accidents."""
    if asked.raw is not msgspec.UNSET:
        return hashlib.sha256(asked.raw).hexdigest()
    text = b"null" if asked.payload is msgspec.UNSET else bytes(asked.payload)
    try:
        return codec.digest(text)
    except SerializationError:  # it will be refused, or has been
        return hashlib.sha256(text).hexdigest()


def _reply(reply: ev.HookReply | None) -> dict[str, Any] | str | None:
    if reply is None:
        return None
    if reply.manual:
        return "manual"
    body = reply.body if bytes(reply.body) else None
    return {"status": reply.status, "body": body, "headers": reply.headers}
