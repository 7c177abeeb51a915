"""A payload on its way to a hook: written here, asked again until it is there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fencepost.actors import durations, models

from .answers import Delivered, read
from .envelopes import new_id
from .errors import HookNotFound, InvalidInput

if TYPE_CHECKING:
    from datetime import timedelta

    from .asking import Asking

PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 1.0


class Sent(msgspec.Struct, frozen=True):
    """A delivery as it travels."""

    token: str
    payload: msgspec.Raw
    delivery: str


def payload_of(value: Any) -> msgspec.Raw:
    """Return a value as JSON to send.

    Raises:
        SerializationError: it is no data.
    """
    return msgspec.Raw(models.written(value))


async def deliver(
    asking: Asking,
    token: str,
    payload: msgspec.Raw,
    *,
    delivery: str | None = None,
    wait: float | str | timedelta = 0,
) -> Delivered:
    """Put a payload into a hook. See `Client.resume`."""
    try:
        named = new_id() if delivery is None else models.checked_delivery(delivery)
        sent = msgspec.json.encode(Sent(models.checked_token(token), payload, named))
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    loop = asyncio.get_running_loop()
    until_s, pause_s = loop.time() + durations.seconds(wait), PAUSE_S_MIN
    while True:
        try:
            return read(await asking.send("hook", sent, about=token), Delivered)
        except HookNotFound:
            left_s = until_s - loop.time()
            if left_s <= 0:
                raise
        await asyncio.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, PAUSE_S_MAX)
