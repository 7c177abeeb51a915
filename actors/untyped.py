"""Values without type hints as JSON, and back: JSON in place, the common types under a tag.

A tagged value is an object whose first key is `$fp`, the tag, and whose second is `v`, the value as text or JSON:
`{"$fp": "datetime", "v": "2026-01-01T00:00:00+00:00"}`. An object of the user's that has the key `$fp` itself, or
a key that is no text, travels as `{"$fp": "dict", "v": [[key, value], …]}`. Sets are written in the order of their
items' JSON, so that equal sets give equal bytes whatever the hash seed.

Models and dataclasses become plain objects: without a hint nobody can say which class to build.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, TypeGuard
from uuid import UUID

from pydantic import BaseModel, RootModel

from .errors import SerializationError

TAG: Final = "$fp"
TAG_BYTES: Final = b'"$fp"'
DEPTH_MAX: Final = 100
"""Levels of nesting. Deep enough for data, and what every JSON reader on the way can take."""

Fallback = Callable[[Any], Any]


class NotData(SerializationError):
    """A value that is no data; the message starts with its place in the whole, so that callers can prefix it."""


def encode(value: Any, fallback: Fallback | None = None) -> bytes:
    """Write a value as JSON text. `fallback` may turn an object of an unknown type into a known one.

    Raises:
        NotData: the value is no data, refers to itself, or is nested too deep.
    """
    try:
        return _dump(_plain(value, "", DEPTH_MAX, fallback))
    except UnicodeEncodeError:
        raise NotData("it holds half of a surrogate pair, which is no text") from None
    except ValueError as exc:
        raise NotData(f"it cannot be written as JSON: {exc}") from None


def decode(data: bytes) -> Any:
    """Read what `encode` wrote, or any JSON without tags.

    Raises:
        SerializationError: it is no JSON, or a tag is malformed or unknown.
    """
    return revive(parse(data))


def parse(data: bytes) -> Any:
    """Read strict JSON (no NaN, UTF-8) without looking at tags.

    Raises:
        SerializationError: it is no JSON.
    """
    try:
        return json.loads(data.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise SerializationError("it is not JSON: not UTF-8") from None
    except RecursionError:
        raise SerializationError("it is not JSON anybody can read: nested too deep") from None
    except ValueError as exc:
        raise SerializationError(f"it is not JSON: {str(exc)[:120]}") from None


def revive(value: Any) -> Any:
    """Turn parsed JSON with tags into values."""
    if _is_dict(value):
        return _untag(value) if TAG in value else {key: revive(item) for key, item in value.items()}
    if _is_collection(value):
        return [revive(item) for item in value]
    return value


def holds_nonfinite(value: Any) -> bool:
    """Tell whether there is an inf or nan somewhere in dicts, lists, tuples and sets."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if _is_dict(value):
        return any(holds_nonfinite(item) for pair in value.items() for item in pair)
    return _is_collection(value) and any(holds_nonfinite(item) for item in value)


def _is_dict(value: Any) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


def _is_collection(value: Any) -> TypeGuard[Collection[Any]]:
    return isinstance(value, list | tuple | set | frozenset)


def _dump(plain: Any) -> bytes:
    return json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _tagged(tag: str, value: Any) -> dict[str, Any]:
    return {TAG: tag, "v": value}


# ---- writing


def _plain(value: object, where: str, depth: int, fallback: Fallback | None) -> Any:
    """Return the value as what `json` writes, with tags. `where` is its place, for messages."""
    if value is None or type(value) in _AS_IT_IS:
        return value
    if depth == 0:
        raise NotData(f"it refers to itself or is nested deeper than {DEPTH_MAX} levels")
    scalar = _SCALARS.get(type(value))
    if scalar is not None:
        return scalar(value)
    if _is_dict(value):
        return _plain_dict(value, where, depth, fallback)
    if _is_collection(value):
        return _plain_items(value, where, depth, fallback)
    return _plain(_reduced(value, where, fallback), where, depth - 1, fallback)


def _plain_dict(value: dict[Any, Any], where: str, depth: int, fallback: Fallback | None) -> Any:
    if TAG not in value and all(type(key) is str for key in value):
        return {k: _plain(v, f"{where}.{k}", depth - 1, fallback) for k, v in value.items()}
    pairs = [
        [_plain(k, where, depth - 1, fallback), _plain(v, f"{where}.{str(k)[:40]}", depth - 1, fallback)]
        for k, v in value.items()
    ]
    return _tagged("dict", pairs)


def _plain_items(value: Collection[Any], where: str, depth: int, fallback: Fallback | None) -> Any:
    items = [_plain(item, f"{where}.{i}", depth - 1, fallback) for i, item in enumerate(value)]
    if isinstance(value, list):
        return items
    if isinstance(value, tuple):
        return _tagged("tuple", items)
    name = "set" if isinstance(value, set) else "frozenset"
    return _tagged(name, sorted(items, key=lambda item: json.dumps(item, sort_keys=True)))


def _reduced(value: Any, where: str, fallback: Fallback | None) -> Any:
    """Return one of the known types in place of an instance of a subclass, a model, a dataclass or an enum."""
    for kind, reduce in _BASES:
        if isinstance(value, kind):
            return reduce(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if fallback is not None:
        return _fallen_back(value, where, fallback)
    raise _no_data(value, where)


def _fallen_back(value: Any, where: str, fallback: Fallback) -> Any:
    try:
        other = fallback(value)
    except Exception:  # noqa: BLE001  (whatever code of the user's does: it is no data)
        raise _no_data(value, where) from None
    if type(other) is type(value):
        raise _no_data(value, where)
    return other


def _no_data(value: Any, where: str) -> NotData:
    place = f"{where[1:]} " if where else "it "
    return NotData(
        f"{place}is a {type(value).__module__}.{type(value).__qualname__}, which is no data".replace("builtins.", "")
    )


def _plain_float(value: float) -> Any:
    return value if math.isfinite(value) else _tagged("float", repr(value))


_BASES: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (Enum, lambda v: v.value),
    (RootModel, lambda v: v.root),
    (BaseModel, lambda v: v.__dict__ | (v.__pydantic_extra__ or {})),
    (int, int),
    (float, float),
    (str, str.__str__),
    (bytes, bytes),
    (Decimal, Decimal),
    (UUID, lambda v: UUID(int=v.int)),
    (datetime, lambda v: datetime.fromisoformat(v.isoformat())),
    (date, lambda v: date.fromisoformat(v.isoformat())),
    (time, lambda v: time.fromisoformat(v.isoformat())),
    (timedelta, lambda v: timedelta(v.days, v.seconds, v.microseconds)),
    (Mapping, dict),
)
_AS_IT_IS: Final = frozenset({bool, int, str})
_SCALARS: Final[dict[type, Callable[[Any], Any]]] = {
    float: _plain_float,
    bytes: lambda v: _tagged("bytes", base64.b64encode(v).decode()),
    bytearray: lambda v: _tagged("bytes", base64.b64encode(v).decode()),
    datetime: lambda v: _tagged("datetime", v.isoformat()),
    date: lambda v: _tagged("date", v.isoformat()),
    time: lambda v: _tagged("time", v.isoformat()),
    timedelta: lambda v: _tagged("timedelta", [v.days, v.seconds, v.microseconds]),
    Decimal: lambda v: _tagged("decimal", str(v)),
    UUID: lambda v: _tagged("uuid", str(v)),
    complex: lambda v: _tagged("complex", repr(v)),
}


# ---- reading

_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "float": float,
    "bytes": lambda v: base64.b64decode(v, validate=True),
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda v: timedelta(*v),
    "decimal": Decimal,
    "uuid": UUID,
    "complex": complex,
    "tuple": lambda v: tuple(revive(item) for item in v),
    "set": lambda v: {revive(item) for item in v},
    "frozenset": lambda v: frozenset(revive(item) for item in v),
    "dict": lambda v: {revive(key): revive(item) for key, item in v},
}


def _untag(fields: dict[str, Any]) -> Any:
    tag, written = fields.get(TAG), fields.get("v")
    reader = _READERS.get(tag) if isinstance(tag, str) else None
    if reader is None or fields.keys() != {TAG, "v"}:
        raise SerializationError(f"it has an object with the key {TAG!r} that is no known tag: {str(tag)[:40]!r}")
    try:
        return reader(written)
    except SerializationError:
        raise
    except (ValueError, TypeError, ArithmeticError, AttributeError):
        raise SerializationError(f"the text tagged {tag!r} is no {tag}") from None
