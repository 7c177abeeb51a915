"""What a hook takes: its token, and its model as others can find it: by name, or as a JSON Schema.

A delivery is checked by whichever node the sender reaches. It finds the model among the modules it has loaded already
(never by importing: a name in a log is no reason to run code), or else goes by the schema that the log keeps.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import sys
from typing import Any, Final

import msgspec
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from fencepost.world import events as ev

from . import untyped
from .errors import SerializationError
from .shape import Shape, adapter_of

CHARACTERS_MAX: Final = 255
_DRAWN: Final = re.compile(r"hook_[0-9a-f]{32}")
NAME_CHARACTERS_MAX: Final = 512
SCHEMA_BYTES_MAX: Final = 16 * 1024
"""A schema is in every log of its hook: one that is larger is left out."""

_NOTHING: Final = ev.NO_JSON
"""The very object that is the default: any other empty text would be written, and is no JSON."""


def checked_token(token: object) -> str:
    """Return a text that can name a hook.

    Raises:
        ValueError: it cannot; one sentence says why.
    """
    return _checked(token, "the token of a hook")


def shown(token: str) -> str:
    """Return a token for people: of one that was drawn the beginning, since who knows it can send."""
    return f"{token[:13]}…" if _DRAWN.fullmatch(token) else token


def checked_delivery(delivery: object) -> str:
    """Return a text that can name a delivery.

    Raises:
        ValueError: it cannot; one sentence says why.
    """
    return _checked(delivery, "the id of a delivery")


def _checked(given: object, what: str) -> str:
    if not isinstance(given, str):
        raise ValueError(f"{what} is a text, not {type(given).__name__}")  # noqa: TRY004  (callers catch one type)
    if not given:
        raise ValueError(f"{what} is empty: give 1 to {CHARACTERS_MAX} characters")
    if len(given) > CHARACTERS_MAX:
        raise ValueError(f"{what} has {len(given):,} characters, more than {CHARACTERS_MAX}")
    if not given.isprintable():
        raise ValueError(f"{what} {ascii(given)[:80]} holds a character that cannot be shown: leave it out")
    if given != given.strip():
        raise ValueError(f"{what} {given[:80]!r} begins or ends with a space: leave it out")
    return given


def named(model: Any) -> str:
    """Return a class as `module:Qualified.name`, empty when it cannot be found again under it as the very same."""
    if not isinstance(model, type) or model in {Any, object}:
        return ""
    name = f"{model.__module__}:{model.__qualname__}"
    # pydantic keeps `Box[int]` in its module once it was made: another process may not have made it.
    findable = "[" not in name and len(name) <= NAME_CHARACTERS_MAX and resolved(name) is model
    return name if findable else ""


def resolved(name: str) -> type[Any] | None:
    """Return the class of a name among the modules that are loaded. Runs no code: no import, no `__getattr__`."""
    module, _, qualified = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualified.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found if isinstance(found, type) else None


def shape_of(name: str) -> Shape | None:
    """Return how payloads of a named model cross; None when no such class is loaded."""
    model = resolved(name)
    return None if model is None else shape_for(model)


def shape_for(model: Any) -> Shape:
    """Return how values of a model cross, made once."""
    try:
        return _shape_for(model)
    except TypeError:  # it cannot be hashed, as `Annotated[int, []]`
        return _shape_for.__wrapped__(model)


@functools.lru_cache(maxsize=256)
def _shape_for(model: Any) -> Shape:
    return Shape(model, "a payload")


def written(payload: Any) -> bytes:
    """Return a payload as JSON to send: a model, a dataclass and bytes by their own type, all else as plain data.

    Raises:
        SerializationError: it is no data.
    """
    if isinstance(payload, BaseModel | bytes) or (dataclasses.is_dataclass(payload) and not isinstance(payload, type)):
        return shape_for(type(payload)).encode(payload)
    try:
        plain = to_jsonable_python(payload)
        if untyped.holds_nonfinite(plain):
            raise ValueError("inf and nan are no JSON")  # noqa: TRY301  (told as the others)
        return to_json(plain)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise SerializationError(f"the payload cannot be written as JSON: {str(error)[:200]}") from error


class _Quiet(GenerateJsonSchema):
    """A default that is no JSON is left out of the schema; nobody needs to hear of that."""

    ignored_warning_kinds: set[Any] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  (pydantic's own)


def schema_of(model: Any) -> msgspec.Raw:
    """Return the JSON Schema of what a model takes, keys sorted; empty when it has none or that is too large."""
    try:
        return _schema_of(model)
    except TypeError:  # it cannot be hashed, as `Annotated[int, []]`
        return _schema_of.__wrapped__(model)


@functools.lru_cache(maxsize=256)
def _schema_of(model: Any) -> msgspec.Raw:
    if model is Any or model is object:
        return _NOTHING
    try:
        schema = adapter_of(model).json_schema(mode="validation", schema_generator=_Quiet)
        text = json.dumps(schema, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    except Exception:  # noqa: BLE001  (pydantic runs code of the user's to build a schema; `Shape` tells of it)
        return _NOTHING
    return msgspec.Raw(text) if schema and len(text) <= SCHEMA_BYTES_MAX else _NOTHING
