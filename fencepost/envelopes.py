"""A start as it is sent: checked and written here, so that what does not fit never leaves the caller."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from pydantic_core import PydanticSerializationError, to_json
from ulid import ULID

from .errors import InvalidInput, SerializationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fencepost.actors import Workflow

OnDuplicate = Literal["attach", "raise"]


class Start(msgspec.Struct, frozen=True, omit_defaults=True):
    """The envelope of a start message."""

    id: str
    input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    kwargs: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    attributes: dict[str, str] = {}
    at: datetime | None = None
    on_duplicate: str = "attach"


def name_of(workflow: Workflow[..., Any] | str) -> str:
    """Return the name a start goes to."""
    return workflow if isinstance(workflow, str) else workflow.name


def sendable(name: str) -> str:
    """Return a workflow's name if a message can go there.

    Raises:
        InvalidInput: it can be no part of a subject.
    """
    if not all(name.split(".")) or any(c in name for c in " *>") or not name.isprintable():
        raise InvalidInput(f"{name!r} can be no workflow's name: no spaces, wildcards (* >) or empty parts")
    return name


def new_id() -> str:
    """Return an id for a start that was given none, so that it can be sent twice and happens once."""
    return str(ULID())


def envelope(
    workflow: Workflow[..., Any] | str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    id: str,  # noqa: A002  (its name in the envelope)
    on_duplicate: OnDuplicate = "attach",
    at: datetime | None = None,
    attributes: Mapping[str, str] | None = None,
) -> bytes:
    """Return the start message of a call.

    Raises:
        TypeError: the arguments do not match the workflow's parameters.
        SerializationError: a value does not fit its type, or is no data.
        ValueError: `on_duplicate` is neither "attach" nor "raise".
    """
    if on_duplicate not in {"attach", "raise"}:
        raise ValueError(f"on_duplicate is 'attach' or 'raise', not {on_duplicate!r}")
    when = at if at is None or at.tzinfo else at.replace(tzinfo=UTC)
    values = _plain(args, kwargs) if isinstance(workflow, str) else _typed(workflow, args, kwargs)
    start = Start(id=id, attributes=dict(attributes or {}), at=when, on_duplicate=on_duplicate, **values)
    return msgspec.json.encode(start)


def _typed(workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, msgspec.Raw]:
    """Write one parameter as `input`, as callers of other languages do: the same start by both is the same run."""
    data = workflow.params.encode(args, kwargs)
    if len(workflow.params.signature.parameters) != 1:
        return {"kwargs": msgspec.Raw(data)}
    values = list(msgspec.json.decode(data, type=dict[str, msgspec.Raw]).values())
    return {"input": values[0]} if values else {}


def _plain(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, msgspec.Raw]:
    """Write what is sent to a workflow known by name only: one value, or values by parameter name."""
    if len(args) > 1 or (args and kwargs):
        raise TypeError("a workflow started by name takes one value, or keyword arguments by parameter name")
    if args:
        return {"input": _json(args[0])}
    return {"kwargs": _json(dict(kwargs))} if kwargs else {}


def _json(value: Any) -> msgspec.Raw:
    try:
        return msgspec.Raw(to_json(value))
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise SerializationError(f"the input cannot be written as JSON: {error}") from error
