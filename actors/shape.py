"""One type hint, and how its values cross: by pydantic as JSON, or tagged where JSON would forget the type.

Plain pydantic JSON loses things in silence: inf inside a model becomes null, bytes must be UTF-8, what stands
under `Any` comes back as text, members of a union that look alike change places, a set has no order. So:

    typed path    `dump_json`, read by `validate_json`. Nearly every value.
    tagged path   `dump_python`, then `untyped`, read by `untyped` and `validate_python`. Where the typed path
                  forgets: known from the schema (Any, unions, sets, odd dict keys) or from the text (inf, $fp).

The two are told apart by the text itself: only the tagged path writes `"$fp"`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from inspect import formatannotation
from typing import Any, Final, cast

import structlog
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from . import untyped
from .errors import SerializationError

_CONFIG: Final = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
_PLAIN_KEYS: Final = frozenset({"str", "int", "bool", "date", "datetime", "uuid"})
_SAME_IN_JSON: Final = frozenset({"str", "int", "float", "bool", "none"})
_STARS: Final = b'"**********"'
"""What pydantic writes in place of a secret."""
_HUGE_NUMBER: Final = re.compile(rb"[0-9]{4300}")
"""Python refuses to read integers with more digits."""

_ANYTHING: Final = (Exception, SystemExit)
"""What code of the user's inside a type (a validator, a comparison) may raise. A `sys.exit` there must not end who
reads a message; what suspends a workflow must pass."""

_log = structlog.get_logger("fencepost.codec")


class Misfit(SerializationError):
    """A value does not fit its hint. `field` is the place in the value, empty for all of it."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"field {field!r}: {why}" if field else why)
        self.field = field
        self.why = why


class Shape:
    """The way of one hint. Its adapter is built at the first use: a class may be defined after the function."""

    def __init__(self, hint: Any, where: str) -> None:
        self._hint = hint
        self._where = where

    def encode(self, value: Any) -> bytes:
        """Validate a value and write it.

        Raises:
            SerializationError: it does not fit the hint, or is no data.
        """
        adapter = self._adapter
        try:
            if adapter is None:
                return untyped.encode(value)
            return self._written(adapter, adapter.validate_python(value, by_name=True))
        except SerializationError:
            raise
        except ValidationError as exc:
            raise _misfit(exc) from None
        except _ANYTHING as exc:
            raise SerializationError(f"writing it as {self._name} raised {_shown(exc)}") from exc

    def decode(self, data: bytes) -> Any:
        """Read what `encode` wrote.

        Raises:
            SerializationError: it does not fit the hint (any more).
        """
        return self._read(data, by_alias=False)

    def accept(self, data: bytes) -> bytes:
        """Return JSON from outside, where fields may go by their alias, as `encode` would have written it.

        Raises:
            SerializationError: it does not fit the hint.
        """
        return self.encode(self.receive(data))

    def receive(self, data: bytes) -> Any:
        """Read JSON from outside, where fields may go by their alias.

        Raises:
            SerializationError: it does not fit the hint.
        """
        return self._read(data, by_alias=True)

    def _read(self, data: bytes, *, by_alias: bool) -> Any:
        adapter = self._adapter
        try:
            if adapter is None:
                return untyped.decode(data)
            if untyped.TAG_BYTES in data:
                return adapter.validate_python(untyped.decode(data), by_name=True, by_alias=by_alias)
            return adapter.validate_json(data, by_name=True, by_alias=by_alias)
        except SerializationError:
            raise
        except ValidationError as exc:
            raise _misfit(exc) from None
        except _ANYTHING as exc:
            raise SerializationError(f"reading it as {self._name} raised {_shown(exc)}") from exc

    @property
    def is_usable(self) -> bool:
        """Whether values can be checked by the hint; `Any` takes all of them."""
        return self._adapter is not None or self._hint is Any or self._hint is object

    @property
    def _name(self) -> str:
        return formatannotation(self._hint)[:80]

    @cached_property
    def _adapter(self) -> TypeAdapter[Any] | None:
        if self._hint is Any or self._hint is object:
            return None
        try:
            return adapter_of(self._hint)
        except Exception as exc:  # noqa: BLE001  (pydantic runs code of the user's to build a schema)
            _log.warning("type_hint_not_usable", where=self._where, hint=str(self._hint)[:80], error=str(exc)[:200])
            return None

    @cached_property
    def _traits(self) -> _Traits:
        adapter = self._adapter
        return _Traits(adapter.core_schema if adapter else {})

    # ---- writing

    def _written(self, adapter: TypeAdapter[Any], value: Any) -> bytes:
        traits = self._traits
        data = None if traits.loose else _typed_or_none(adapter, value)
        if data is None or untyped.TAG_BYTES in data or (traits.floats and _lost_float(adapter, value, data)):
            data = self._tagged(adapter, value) or _typed(adapter, value)
        if traits.union:
            data = self._told_apart(adapter, value, data)
        if traits.recursive or _STARS in data or _HUGE_NUMBER.search(data):
            self._prove(value, data)
        return data

    def _told_apart(self, adapter: TypeAdapter[Any], value: Any, data: bytes) -> bytes:
        """Go tagged when the value would come back as another member of its union; refuse it if it still would.

        Models that look alike are told apart by a discriminator only.
        """
        if _same(self.decode(data), value) or untyped.holds_nonfinite(adapter.dump_python(value)):
            return data
        tagged = self._tagged(adapter, value)
        if tagged is None or not _same(self.decode(tagged), value):
            raise SerializationError(
                "it would come back as another member of its union: add a discriminator field to tell them apart"
            )
        return tagged

    def _tagged(self, adapter: TypeAdapter[Any], value: Any) -> bytes | None:
        """Return None where pydantic has no Python form of the value (a set of models is one)."""
        try:
            plain = adapter.dump_python(value, round_trip=True, by_alias=False, warnings="error")
            return untyped.encode(plain, _other)
        except (PydanticSerializationError, TypeError):
            return None

    def _prove(self, value: Any, data: bytes) -> None:
        """Refuse what is written but cannot be read back."""
        try:
            back = self.decode(data)
        except SerializationError as exc:
            raise SerializationError(f"it is nested too deep or too large to be read back: {exc}") from None
        if _STARS in data and back != value:
            raise SerializationError(
                "it holds a secret, which pydantic writes as stars: pass the name of the secret, "
                "or give the field a serializer"
            )


def adapter_of(hint: Any) -> TypeAdapter[Any]:
    """Return pydantic's adapter of a hint, with bytes as base64.

    Raises:
        Exception: it can be none; of any type, since pydantic runs code of the user's to build it.
    """
    try:
        return TypeAdapter(hint, config=_CONFIG)
    except PydanticUserError as exc:
        if exc.code != "type-adapter-config-unused":
            raise
        return TypeAdapter(hint)  # models, dataclasses and TypedDicts bring their own configuration


def _typed(adapter: TypeAdapter[Any], value: Any) -> bytes:
    try:
        return adapter.dump_json(value, round_trip=True, by_alias=False, warnings="error")
    except PydanticSerializationError as exc:
        raise SerializationError(_one_line(exc)) from None
    except (ValueError, TypeError, RecursionError, AttributeError) as exc:
        raise SerializationError(f"it cannot be written as JSON: {_one_line(exc)}") from None


def _typed_or_none(adapter: TypeAdapter[Any], value: Any) -> bytes | None:
    """Return None when it must go tagged: bytes that are no UTF-8, for example."""
    try:
        return _typed(adapter, value)
    except SerializationError:
        return None


def _other(value: Any) -> Any:
    """Return what pydantic writes for its other types (paths, URLs, deques). Never read a file or a generator."""
    if isinstance(value, Iterator):
        raise TypeError("an iterator is no data")
    return to_jsonable_python(value)


def _lost_float(adapter: TypeAdapter[Any], value: Any, data: bytes) -> bool:
    """Tell whether a null in the text may have been an inf or nan (or a text "NaN" one)."""
    if b"null" not in data and b"NaN" not in data and b"Infinity" not in data:
        return False
    return untyped.holds_nonfinite(adapter.dump_python(value, warnings=False))


def _same(one: Any, other: Any) -> bool:
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # noqa: BLE001  (a comparison of the user's)
        return False


def _misfit(exc: ValidationError) -> Misfit:
    """Say what is wrong with the first error: where, why, and a short look at the value."""
    errors = exc.errors(include_url=False, include_context=False)
    first = errors[0]
    place = ".".join(str(part)[:60] for part in first["loc"])
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    got = "" if first["type"] in {"missing", "json_invalid"} else f", got {glimpse(first['input'])}"
    why = first["msg"] if len(first["msg"]) <= 160 else first["msg"][:157] + "…"  # noqa: PLR2004  (one line)
    return Misfit(place[:200], f"{why}{got}{more}")


def glimpse(value: Any) -> str:
    """Show scalars in short, of everything else only the type: a message is no place for a whole value."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, str):
        return repr(value) if len(value) <= 40 else f"{value[:37]!r}…"  # noqa: PLR2004  (half a line)
    if isinstance(value, int) and abs(value) < 10**20:
        return repr(value)
    return f"a {type(value).__name__}"


def _shown(exc: BaseException) -> str:
    try:
        said = _one_line(exc)
    except Exception:  # noqa: BLE001  (a __str__ of the user's)
        said = ""
    return f"{type(exc).__name__}: {said}" if said else type(exc).__name__


def _one_line(exc: BaseException) -> str:
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return " ".join(lines[1:] if len(lines) > 1 and lines[0].startswith("Pydantic") else lines)[:200]


class _Traits:
    """What a schema says about its values' JSON.

    loose      JSON alone forgets types: go tagged
    union      types side by side: check that the right one comes back
    floats     there may be an inf or nan
    recursive  values may be nested deeper than a reader takes
    """

    def __init__(self, schema: Any) -> None:
        self.loose = self.union = self.floats = self.recursive = False
        self._walk(schema)

    def _walk(self, root: Any) -> None:
        waiting: list[Any] = [root]
        while waiting:
            node = waiting.pop()
            if isinstance(node, dict):
                schema = cast("dict[str, Any]", node)
                self._look(schema)
                waiting.extend(v for k, v in schema.items() if k not in {"metadata", "serialization", "default"})
            elif isinstance(node, list | tuple):
                waiting.extend(cast("list[Any]", node))

    def _look(self, schema: dict[str, Any]) -> None:
        match schema.get("type"):
            case "any" | "set" | "frozenset":
                self.loose = True
            case "dict" if _kind(schema.get("keys_schema")) not in _PLAIN_KEYS:
                self.loose = True
            case "float":
                self.floats = True
            case "union":
                self.union |= not {_kind(choice) for choice in schema["choices"]} <= _SAME_IN_JSON
            case "definition-ref":
                self.recursive = True
            case "model" if schema.get("config", {}).get("extra_fields_behavior") == "allow":
                self.loose = True
            case _:
                pass


def _kind(schema: Any) -> str:
    """Return the type of a schema without what is wrapped around it."""
    while isinstance(schema, dict):
        inner = cast("dict[str, Any]", schema)
        kind = str(inner.get("type"))
        if not (kind.startswith("function-") or kind == "default") or "schema" not in inner:
            return kind
        schema = inner["schema"]
    if isinstance(schema, tuple | list):  # a choice with its label
        return _kind(cast("list[Any]", schema)[0])
    return "any"
