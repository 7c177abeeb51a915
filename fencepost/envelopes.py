"""A start as it is sent: checked and written here, so that what does not fit never leaves the caller."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec
from pydantic_core import PydanticSerializationError, to_json
from ulid import ULID

from fencepost.actors import Step, Workflow

from .errors import InvalidInput, SerializationError

if TYPE_CHECKING:
    from collections.abc import Mapping

OnDuplicate = Literal["attach", "raise"]

_TAKES_NO_SINGLE: Final = "takes no single input"
"""What a node's refusal says when a workflow has not exactly one parameter: it has no type of its own."""


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


def takes_no_single(refusal: InvalidInput) -> bool:
    """Tell whether a node refused an `input` because the workflow takes values by parameter name."""
    return _TAKES_NO_SINGLE in str(refusal)


def checked_id(id: str) -> str:  # noqa: A002  (its name in the envelope)
    """Return an id that can be shown.

    Raises:
        InvalidInput: it holds a control character.
    """
    if any(unicodedata.category(character) == "Cc" for character in id):
        raise InvalidInput(f"the id {id!r} holds a control character: leave it out")
    return id


def checked_workflow(given: object) -> Workflow[..., Any] | str:
    """Return what can be started.

    Raises:
        TypeError: it is a step, or a function that is no workflow.
    """
    if isinstance(given, str | Workflow):
        return cast("Workflow[..., Any] | str", given)
    if isinstance(given, Step):
        step = cast("Step[..., Any]", given)
        raise TypeError(f"{step.name!r} is a step: start a workflow that calls it")
    named = repr(getattr(given, "__name__", "")) if callable(given) else f"an object of type {type(given).__name__}"
    raise TypeError(f"{named} is no workflow: give an `async def` with @workflow, or a workflow's name")


def _instant(at: object) -> datetime | None:
    if at is None or isinstance(at, datetime):
        return at if at is None or at.tzinfo else at.replace(tzinfo=UTC)
    raise TypeError(f"at is a datetime, not {at!r}")


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
        TypeError: it is no workflow, or the arguments do not match its parameters.
        SerializationError: a value does not fit its type, or is no data.
        InvalidInput: the id cannot be shown.
        ValueError: `on_duplicate` is neither "attach" nor "raise".
    """
    if on_duplicate not in {"attach", "raise"}:
        raise ValueError(f"on_duplicate is 'attach' or 'raise', not {on_duplicate!r}")
    known, when = checked_workflow(workflow), _instant(at)
    values = _plain(args, kwargs) if isinstance(known, str) else _typed(known, args, kwargs)
    start = Start(id=checked_id(id), attributes=dict(attributes or {}), at=when, on_duplicate=on_duplicate, **values)
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
        raise TypeError("a workflow started by name takes one value, or keyword arguments: one for each parameter")
    if args:
        return {"input": _json(args[0])}
    return {"kwargs": _json(dict(kwargs))} if kwargs else {}


def _json(value: Any) -> msgspec.Raw:
    try:
        return msgspec.Raw(to_json(value))
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise SerializationError(f"the input cannot be written as JSON: {error}") from error
