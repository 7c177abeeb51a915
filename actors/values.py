"""Large values: kept apart from the log, by reference. Written first, so that no event names what is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fencepost.world import ValueTooLarge
from fencepost.world import events as ev

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fencepost.world import World

INLINE_BYTES_MAX = 128 * 1024
VALUE_BYTES_MAX = 16 * 1024 * 1024

_FIELD: dict[type[ev.Body], str] = {
    ev.StepCreated: "args",
    ev.StepCompleted: "result",
    ev.RunCompleted: "result",
    ev.HookReceived: "payload",
}


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


def value_of(body: ev.EventBody) -> ev.Value | None:
    """Return the value of a body that may be kept apart."""
    name = _FIELD.get(type(body))
    return None if name is None else getattr(body, name)


def is_large(body: ev.EventBody) -> bool:
    """Tell whether a body holds a value in place that should be kept apart."""
    value = value_of(body)
    return value is not None and len(memoryview(value.json)) > INLINE_BYTES_MAX


def is_apart(body: ev.EventBody) -> bool:
    """Tell whether a body's value is kept apart."""
    value = value_of(body)
    return value is not None and bool(value.ref)


def portions(events: Sequence[ev.Event]) -> Iterator[Sequence[ev.Event]]:
    """Cut events so that no two values kept apart are in memory before they are needed: a page could hold gigabytes."""
    first = 0
    for number, event in enumerate(events):
        if is_apart(event.body):
            yield events[first : number + 1]
            first = number + 1
    if first < len(events):
        yield events[first:]


async def externalised(world: World, run_id: str, body: ev.EventBody) -> ev.EventBody:
    """Return a body whose value is large with the value put apart."""
    name = _FIELD[type(body)]
    value: ev.Value = getattr(body, name)
    ref = await world.put_value(run_id, bytes(value.json))
    apart = ev.Value(ref=ref, size_bytes=len(memoryview(value.json)))
    return msgspec.structs.replace(body, **{name: apart})


async def fetched(world: World, run_id: str, value: ev.Value) -> ev.Value:
    """Return a value in place, whatever way it is kept."""
    if not value.ref:
        return value
    return ev.Value(json=msgspec.Raw(await world.get_value(run_id, value.ref)))


async def hydrated(world: World, run_id: str, event: ev.Event) -> ev.Event:
    """Return an event whose value is kept apart with the value back in place."""
    name = _FIELD[type(event.body)]
    value = await fetched(world, run_id, getattr(event.body, name))
    return msgspec.structs.replace(event, body=msgspec.structs.replace(event.body, **{name: value}))
