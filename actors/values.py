"""Large values: kept apart from the log, by reference. Written first, so that no event names what is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fencepost.world import ValueTooLarge
from fencepost.world import events as ev

if TYPE_CHECKING:
    from fencepost.world import World

INLINE_BYTES_MAX = 128 * 1024
VALUE_BYTES_MAX = 16 * 1024 * 1024

_FIELD: dict[type[ev.Body], str] = {ev.StepCreated: "args", ev.StepCompleted: "result", ev.RunCompleted: "result"}


def bounded(data: bytes, what: str) -> bytes:
    """Return a JSON text that is not over the bound.

    Raises:
        ValueTooLarge: it is; refused before anything is written.
    """
    if len(data) > VALUE_BYTES_MAX:
        raise ValueTooLarge(what, len(data), VALUE_BYTES_MAX)
    return data


def inline(data: bytes) -> ev.Value:
    """Return a JSON text as a value in place."""
    return ev.Value(json=msgspec.Raw(data))


async def put_apart(world: World, run_id: str, value: ev.Value) -> ev.Value:
    """Return the value as the log should hold it: large ones are stored and referred to."""
    size = len(memoryview(value.json))
    if size <= INLINE_BYTES_MAX:
        return value
    ref = await world.put_value(run_id, bytes(value.json))
    return ev.Value(ref=ref, size_bytes=size)


async def externalised(world: World, run_id: str, body: ev.EventBody) -> ev.EventBody:
    """Return a body with its large value put apart."""
    name = _FIELD.get(type(body))
    if name is None:
        return body
    value = await put_apart(world, run_id, getattr(body, name))
    return body if not value.ref else msgspec.structs.replace(body, **{name: value})


async def fetched(world: World, run_id: str, value: ev.Value) -> ev.Value:
    """Return a value in place, whatever way it is kept."""
    if not value.ref:
        return value
    return ev.Value(json=msgspec.Raw(await world.get_value(run_id, value.ref)))


async def hydrated(world: World, run_id: str, event: ev.Event) -> ev.Event:
    """Return an event with its large value back in place."""
    name = _FIELD.get(type(event.body))
    if name is None or not getattr(event.body, name).ref:
        return event
    value = await fetched(world, run_id, getattr(event.body, name))
    return msgspec.structs.replace(event, body=msgspec.structs.replace(event.body, **{name: value}))
