"""The endpoint `hook`: puts a payload where a run waits for it, or will.

    {"token": "approve:42", "payload": {"ok": true}, "delivery": "mail-7"}

A body as it came over HTTP travels as `raw`, in base64, with its `content_type` and `headers`. `delivery` makes it
idempotent under the token. Unknown fields are refused: a misspelt `payloda` must not arrive as null.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fencepost.world import HOOK_UNREAD_MAX, UNREAD, Batch, HookFull, HookNotFound, RunEnded
from fencepost.world import events as ev

from . import models, payloads, untyped, values, views
from .errors import InvalidInput, SerializationError
from .shape import Shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from fencepost.bus import Bus, Request
    from fencepost.world import Accepted, Hook, World

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
        hook, accepted = await self._put(asked)
        if accepted.repeated:
            await self._compare(hook, asked, accepted.first_seq)
        self._ring(hook.run_id, hook.app)  # one sent again too: the first may never have rung
        await self._bus.announce(f"event.{hook.run_id}", views.news(accepted.first_seq, over=False))
        return {
            "run_id": hook.run_id,
            "id": f"{hook.run_id}:{accepted.first_seq}",
            "delivery": asked.delivery,
            "repeated": accepted.repeated,
            "reply": _reply(hook.created.reply),
        }

    async def _put(self, asked: Delivery) -> tuple[Hook, Accepted]:
        hook = await self._world.hook(asked.token)
        for _ in range(TRIES):
            try:
                return hook, await self._append(hook, asked)
            except (HookNotFound, RunEnded):
                before, hook = hook, await self._world.hook(asked.token)
                if _who(before) == _who(hook):
                    break
        raise HookNotFound(asked.token)

    async def _append(self, hook: Hook, asked: Delivery) -> Accepted:
        # A closed hook takes nothing, but knows what it has: who sends it again learns that it had arrived.
        payload = await self._payload(hook, asked) if hook.is_open else values.inline(b"null")
        headers = {} if hook.created.reply is None else payloads.kept(asked.headers)
        body = ev.HookReceived(
            op=hook.created.op, token=asked.token, delivery=asked.delivery, payload=payload, headers=headers
        )
        return await self._world.append(Batch(hook.run_id, (body,), UNREAD))

    async def _compare(self, hook: Hook, asked: Delivery, seq: int) -> None:
        """Refuse another payload under an id that was used: its sender would think that it had arrived.

        One for a hook that is closed by now cannot be checked by its model, so it cannot be compared either.
        """
        (event,) = await self._world.more(hook.run_id, seq - 1, 1)
        if not hook.is_open or not isinstance(event.body, ev.HookReceived):
            return
        mine, known = await self._payload(hook, asked), event.body.payload
        if (mine.ref, bytes(mine.json)) != (known.ref, bytes(known.json)):
            raise InvalidInput(
                f"delivery {asked.delivery!r} of hook {asked.token[:80]!r} was another payload: use another id"
            )

    async def _payload(self, hook: Hook, asked: Delivery) -> ev.Value:
        data = values.bounded(await self._checked(hook.created, _text(hook.created, asked), hook.app), "the payload")
        if len(data) <= values.INLINE_BYTES_MAX:
            return values.inline(data)
        if hook.unread >= HOOK_UNREAD_MAX:  # kept apart it would stay, refused or not
            raise HookFull(asked.token, HOOK_UNREAD_MAX)
        return ev.Value(ref=await self._world.put_value(hook.run_id, data), size_bytes=len(data))

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


def _reply(reply: ev.HookReply | None) -> dict[str, Any] | str | None:
    if reply is None:
        return None
    if reply.manual:
        return "manual"
    body = reply.body if bytes(reply.body) else None
    return {"status": reply.status, "body": body, "headers": reply.headers}
