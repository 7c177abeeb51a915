"""Payloads against a JSON Schema, for a node that has not the model's code.

The schema is an author's, the payload anybody's, so checking has a bound. What pydantic takes in a bounded way goes by
pydantic here too: patterns by its engine (which never backtracks), formats by its types. Items of a set may be there
twice, as for pydantic. Nothing is ever fetched.
"""

from __future__ import annotations

import functools
import time
from contextvars import ContextVar
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from typing import TYPE_CHECKING, Annotated, Any, Final, cast
from uuid import UUID

import msgspec
import structlog
from jsonschema import Draft202012Validator, FormatChecker, exceptions, validators
from pydantic import Field, TypeAdapter
from referencing import Registry

from .errors import SerializationError
from .shape import Misfit, Shape, glimpse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Keyword = Callable[[Any, Any, Any, Any], "Iterable[Any] | None"]

COST_S: Final = 1.0
"""Of this thread's processor. A union that holds itself doubles the work with every level of the payload."""
SHOWN: Final = 60

# The stubs of these leave much unknown.
_create: Final = cast("Any", validators).create
_best_match: Final = cast("Any", exceptions).best_match
_Registry: Final[Any] = Registry

_log = structlog.get_logger(__name__)
_end: ContextVar[float] = ContextVar("_end")


def check(schema: bytes, payload: Any) -> None:
    """Check parsed JSON against a schema; one that cannot be used is passed over with a warning. Any thread will do.

    Raises:
        Misfit: it does not fit; says where.
        SerializationError: it cannot be checked within the bounds.
    """
    _end.set(time.thread_time() + COST_S)
    try:
        error = next(iter(_validator(schema).iter_errors(payload)), None)
    except (_TooCostlyError, RecursionError):
        raise SerializationError("it takes too long to check or is nested too deep: send less at once") from None
    except Exception as exc:  # noqa: BLE001  (a schema may hold anything an author wrote into it)
        _log.warning("schema_not_usable", schema=schema[:SHOWN].decode(errors="replace"), error=str(exc)[:200])
        return
    if error is not None:
        raise _misfit(_best_match(iter([error])) or error)


class _TooCostlyError(Exception):
    """The bound is passed."""


@functools.lru_cache(maxsize=256)
def _validator(schema: bytes) -> Any:
    # A registry of our own: the library's default one would ask the network for a `$ref` it does not hold.
    return _Bounded(msgspec.json.decode(schema), registry=_Registry(), format_checker=_formats)


# ---- keywords


def _counted(keyword: Keyword) -> Keyword:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterable[Any] | None:
        if time.thread_time() > _end.get():
            raise _TooCostlyError
        return keyword(validator, value, instance, schema)

    return counted


@functools.lru_cache(maxsize=1024)
def _matcher(pattern: str) -> TypeAdapter[str] | None:
    try:
        return TypeAdapter(Annotated[str, Field(pattern=pattern)])
    except Exception:  # noqa: BLE001  (no pattern of that engine: then the model would not go by it either)
        return None


def _matches(pattern: str, text: str) -> bool:
    matcher = _matcher(pattern)
    if matcher is None:
        return True
    try:
        matcher.validate_python(text)
    except ValueError:
        return False
    return True


def _pattern(_: Any, pattern: Any, instance: Any, __: Any) -> Iterable[Any]:
    if isinstance(instance, str) and not _matches(pattern, instance):
        yield exceptions.ValidationError("no match")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _: Any) -> Iterable[Any]:
    if not isinstance(instance, dict):
        return
    for name, value in cast("dict[str, Any]", instance).items():
        for pattern, schema in patterns.items():
            if _matches(pattern, name):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Iterable[Any] | None:
    if "patternProperties" in schema:  # the library would match them by an engine that backtracks
        return None
    return _own["additionalProperties"](validator, value, instance, schema)


_own: Final = cast("dict[str, Keyword]", Draft202012Validator.VALIDATORS)
_LEFT_OUT: Final = frozenset({"uniqueItems", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef"})
_keywords: Final[dict[str, Keyword]] = {
    **{name: keyword for name, keyword in _own.items() if name not in _LEFT_OUT},
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
}
_Bounded: Final[Any] = _create(
    meta_schema=Draft202012Validator.META_SCHEMA,
    validators={name: _counted(keyword) for name, keyword in _keywords.items()},
    type_checker=Draft202012Validator.TYPE_CHECKER,
)


# ---- formats

_TYPES: Final[dict[str, Any]] = {
    "date": date,
    "date-time": datetime,
    "time": time_of_day,
    "duration": timedelta,
    "uuid": UUID,
    "base64url": bytes,
}
_formats: Final = FormatChecker(formats=())


def _add_format(name: str, kind: Any) -> None:
    shape = Shape(kind, f"format {name}")

    @_formats.checks(name, raises=SerializationError)
    def fits(instance: object) -> bool:
        if isinstance(instance, str):
            shape.receive(msgspec.json.encode(instance))
        return True


for _name, _kind in _TYPES.items():
    _add_format(_name, _kind)


# ---- what is said


def _misfit(error: Any) -> Misfit:
    """Say where and why. The library's own text holds the value, which may be the whole payload."""
    wanted, instance = error.validator_value, error.instance
    place = [str(part)[:SHOWN] for part in error.absolute_path]
    match error.validator:
        case "required":
            missing = next(name for name in wanted if name not in instance)
            return Misfit(".".join([*place, missing[:SHOWN]]), "it is missing")
        case "additionalProperties":
            unknown = next(name for name in instance if name not in error.schema.get("properties", ()))
            return Misfit(".".join([*place, unknown[:SHOWN]]), "there is no such field")
        case "type":
            kinds = wanted if isinstance(wanted, str) else " or ".join(wanted)
            why = f"it should be of type {kinds}"
        case "anyOf" | "oneOf":
            why = "it has none of the forms it may have"
        case keyword:
            why = f"it should have {keyword} {msgspec.json.encode(wanted).decode()[:SHOWN]}"
    return Misfit(".".join(place), f"{why}, got {glimpse(instance)}")
