"""Arguments and results as JSON, by the function's type hints. `Parameters` and `Returns` are all others use.

What a call's arguments look like: one JSON object by parameter name, `*args` as a list, `**kwargs` as an object,
defaults filled in (a default that a deploy changes must not change a call that is recorded).
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter
from typing import Any, Final

import msgspec

from . import untyped
from .errors import InvalidInput, SerializationError
from .hints import hints_of
from .shape import Misfit, Shape

Function = Callable[..., Any]

_EMPTY: Final = Parameter.empty
_MANY: Final = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_raw_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_list: Final = msgspec.json.Decoder(list[msgspec.Raw])


class _Envelope(msgspec.Struct):
    """The part of a start message that is input. `UNSET` is not given, which null is not."""

    input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    kwargs: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_envelope: Final = msgspec.json.Decoder(_Envelope)


@dataclass(frozen=True, slots=True)
class _Slot:
    """One parameter: how its value crosses, its key as JSON text, its default as JSON text when it has one."""

    name: str
    kind: Any
    shape: Shape
    key: bytes
    required: bool
    default: bytes | None


class Parameters:
    """The way of a function's arguments. Cheap to make; schemas are built at the first use."""

    def __init__(self, fn: Function, localns: Mapping[str, Any] | None = None) -> None:
        self._fn = fn
        self._localns = localns
        self.name = getattr(fn, "__name__", repr(fn))
        self.signature = inspect.signature(fn)

    @classmethod
    def of(cls, fn: Function, localns: Mapping[str, Any] | None = None) -> Parameters:
        """Return the way of a function's arguments; `localns` helps to resolve hints that name local classes."""
        return cls(fn, localns)

    def encode(self, args: tuple[Any, ...] | list[Any], kwargs: Mapping[str, Any]) -> bytes:
        """Write the arguments of a call.

        Raises:
            TypeError: the call does not match the signature, as Python says it.
            SerializationError: a value does not fit or is no data; names function, argument and field.
        """
        try:
            given = self.signature.bind(*args, **kwargs).arguments
        except TypeError as exc:
            raise TypeError(f"{self.name}(): {exc}") from None
        parts: list[bytes] = []
        for slot in self._slots:
            text = self._encoded(slot, given[slot.name]) if slot.name in given else slot.default
            if text is not None:
                parts.append(slot.key + text)
        return b"{" + b",".join(parts) + b"}"

    def decode(self, data: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Read the arguments that `encode` or `from_input` wrote.

        Raises:
            SerializationError: a recorded value does not fit the function as it is now.
        """
        given = self._object(data)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        gap = False
        for slot in self._slots:
            if slot.name not in given:
                gap |= slot.kind is not Parameter.VAR_POSITIONAL
                continue
            self._put(slot, self._decoded(slot, given[slot.name]), args, kwargs, gap=gap)
        return args, kwargs

    def from_input(self, data: bytes) -> bytes:
        """Turn the `input` or `kwargs` of a start message (a JSON object, the rest is ignored) into arguments.

        Raises:
            InvalidInput: in one sentence that names parameter and field.
        """
        try:
            given = self._given(data)
            unknown = sorted(given.keys() - {slot.name for slot in self._slots})
            if unknown:
                raise InvalidInput(f"{self.name} has no parameter {unknown[0][:80]!r}; {self._expects()}")
            parts = [part for slot in self._slots if (part := self._accepted(slot, given)) is not None]
        except RecursionError:
            raise InvalidInput(f"the input of {self.name} is nested too deep") from None
        return b"{" + b",".join(parts) + b"}"

    # ---- one parameter

    @cached_property
    def _slots(self) -> tuple[_Slot, ...]:
        hints = hints_of(self._fn, self._localns)
        return tuple(self._slot(p, hints.get(p.name, Any)) for p in self.signature.parameters.values())

    def _slot(self, parameter: Parameter, hint: Any) -> _Slot:
        shape = Shape(_whole(parameter.kind, hint), f"{self.name}({parameter.name})")
        return _Slot(
            parameter.name,
            parameter.kind,
            shape,
            json.dumps(parameter.name, ensure_ascii=False).encode() + b":",
            required=parameter.default is _EMPTY and parameter.kind not in _MANY,
            default=_default(shape, parameter.default),
        )

    def _encoded(self, slot: _Slot, value: Any) -> bytes:
        try:
            return slot.shape.encode(value)
        except SerializationError as exc:
            raise SerializationError(f"{self.name}() argument {slot.name!r}: {exc}") from exc.__cause__

    def _decoded(self, slot: _Slot, data: bytes) -> Any:
        try:
            return slot.shape.decode(data)
        except SerializationError as exc:
            raise SerializationError(f"{self.name}() argument {slot.name!r} as recorded: {exc}") from exc.__cause__

    def _accepted(self, slot: _Slot, given: Mapping[str, bytes]) -> bytes | None:
        text = given.get(slot.name)
        if text is None:
            if slot.required:
                raise InvalidInput(f"{self.name} needs the parameter {slot.name!r}; {self._expects()}")
            return None if slot.default is None else slot.key + slot.default
        try:
            return slot.key + slot.shape.accept(text)
        except Misfit as exc:
            place = f"field {exc.field!r} of parameter" if exc.field else "parameter"
            raise InvalidInput(f"{place} {slot.name!r} of {self.name}: {exc.why}") from None
        except SerializationError as exc:
            raise InvalidInput(f"parameter {slot.name!r} of {self.name}: {exc}") from exc.__cause__

    @staticmethod
    def _put(slot: _Slot, value: Any, args: list[Any], kwargs: dict[str, Any], *, gap: bool) -> None:
        match slot.kind:
            case Parameter.VAR_POSITIONAL:
                args.extend(value)
            case Parameter.VAR_KEYWORD:
                kwargs.update(value)
            case Parameter.KEYWORD_ONLY:
                kwargs[slot.name] = value
            case _ if gap:  # an earlier one has a default that could not be written: Python fills it in
                kwargs[slot.name] = value
            case _:
                args.append(value)

    # ---- a start message

    def _given(self, data: bytes) -> Mapping[str, bytes]:
        """Return the JSON text of each parameter that the message gives."""
        try:
            envelope = _envelope.decode(data)
        except msgspec.MsgspecError as exc:
            raise InvalidInput(f"the start of {self.name} is not a JSON object: {str(exc)[:120]}") from None
        if envelope.kwargs is not msgspec.UNSET:
            return self._given_by_name(envelope.kwargs, alone=envelope.input is msgspec.UNSET)
        if envelope.input is msgspec.UNSET:
            return {}
        return self._given_alone(bytes(envelope.input))

    def _given_by_name(self, kwargs: msgspec.Raw, *, alone: bool) -> Mapping[str, bytes]:
        if not alone:
            raise InvalidInput(f"the start of {self.name} has both input and kwargs; {self._expects()}")
        try:
            return {name: bytes(raw) for name, raw in _raw_object.decode(kwargs).items()}
        except msgspec.MsgspecError:
            raise InvalidInput(f"kwargs of {self.name} must be an object by parameter name") from None

    def _given_alone(self, text: bytes) -> Mapping[str, bytes]:
        if len(self._slots) == 1:
            return {self._slots[0].name: text}
        if not self._slots and text.strip() == b"null":
            return {}
        raise InvalidInput(f"{self.name} takes no single input; {self._expects()}")

    def _expects(self) -> str:
        names = [slot.name for slot in self._slots]
        match len(names):
            case 0:
                return "it has no parameters: leave input out"
            case 1:
                return f"input is the value of {names[0]!r}"
            case _:
                listed = ", ".join(names)
                return f'send {{"kwargs": {{…}}}} with {listed if len(listed) <= 200 else listed[:200] + "…"}'  # noqa: PLR2004

    def _object(self, data: bytes) -> dict[str, bytes]:
        try:
            return {name: bytes(raw) for name, raw in _raw_object.decode(data).items()}
        except msgspec.MsgspecError as exc:
            raise SerializationError(f"{self.name}(): the recorded arguments are no JSON object: {exc}") from None


class Returns:
    """The way of a function's result."""

    def __init__(self, fn: Function, localns: Mapping[str, Any] | None = None) -> None:
        self._fn = fn
        self._localns = localns
        self.name = getattr(fn, "__name__", repr(fn))

    @classmethod
    def of(cls, fn: Function, localns: Mapping[str, Any] | None = None) -> Returns:
        """Return the way of a function's result; `localns` as for `Parameters.of`."""
        return cls(fn, localns)

    def encode(self, value: Any) -> bytes:
        """Write a result.

        Raises:
            SerializationError: it does not fit the hint or is no data; names the function and the field.
        """
        try:
            return self._shape.encode(value)
        except SerializationError as exc:
            raise SerializationError(f"result of {self.name}(): {exc}") from exc.__cause__

    def decode(self, data: bytes) -> Any:
        """Read a result.

        Raises:
            SerializationError: the recorded result does not fit the hint as it is now.
        """
        try:
            return self._shape.decode(data)
        except SerializationError as exc:
            raise SerializationError(f"result of {self.name}() as recorded: {exc}") from exc.__cause__

    @cached_property
    def _shape(self) -> Shape:
        return Shape(hints_of(self._fn, self._localns).get("return", Any), f"{self.name}() result")


def digest(data: bytes) -> str:
    """Return the SHA-256, in hex, of JSON text without its accidents (order of keys, spaces, escapes).

    Raises:
        SerializationError: it is no JSON.
    """
    canonical = json.dumps(untyped.parse(data), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _whole(kind: Any, hint: Any) -> Any:
    """Return the type of all a parameter takes: `*args: int` takes a list of them."""
    match kind:
        case Parameter.VAR_POSITIONAL:
            return list[hint]
        case Parameter.VAR_KEYWORD:
            return dict[str, hint]
        case _:
            return hint


def _default(shape: Shape, default: Any) -> bytes | None:
    """Return the default as text, or None when there is none or it does not fit (`x: int = None`)."""
    if default is _EMPTY:
        return None
    try:
        return shape.encode(default)
    except SerializationError:
        return None
