"""Exceptions as data, and back. Never pickle, never an import because data says so.

`describe` is total: whatever the exception does in `__str__`, `__repr__` or `__reduce__`, data comes out, bounded
in every direction. `rebuild` is a function of the data and of the classes that are loaded, so what a workflow
catches live is what it catches after a replay.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from fencepost.world import events

from . import untyped
from .errors import SerializationError, StepFailed
from .tracebacks import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE_BYTES_MAX: Final = 16 * 1024
DATA_BYTES_MAX: Final = 16 * 1024
"""For the arguments, and again for the attributes, of one exception."""
CHAIN_MAX: Final = 8
"""Causes of causes that are kept."""
EXCEPTIONS_MAX: Final = 40
"""Exceptions in one description: causes and members of groups together."""

_E = TypeVar("_E", bound=BaseException)

_BLANK: Final = events.ErrorData(type="", message="")
"""Its empty `Raw` fields are the defaults themselves: only those are left out when written."""

_NESTED_MAX: Final = 4 * 1024
"""Bounds of message, arguments and attributes of causes and members."""


def describe(exc: BaseException) -> events.ErrorData:
    """Return an exception as data. Never raises, also not for one that does not let itself be looked at."""
    try:
        return _describe(exc, _Budget(), depth=0)
    except Exception:  # noqa: BLE001  (its own code raised)
        return _describe(indescribable(exc), _Budget(), depth=0)


def indescribable(exc: BaseException) -> RuntimeError:
    """Return what stands for an exception whose own code raises when it is looked at."""
    return RuntimeError(f"an exception of type {type(exc).__name__} that cannot be looked at: its own code raises")


def bearable(exc: BaseException) -> BaseException:
    """Return the exception, or what stands for it when looking at it raises."""
    try:
        isinstance(exc, Exception)
        _ = (str(exc.__cause__), exc.__traceback__)
    except Exception:  # noqa: BLE001  (its own code raised)
        return indescribable(exc)
    return exc


def rebuild(data: events.ErrorData, *, step: str = "", attempts: int = 0) -> Exception:
    """Return the exception to raise for a failed step.

    It is of the original type when that is an `Exception` whose module is loaded, with `StepFailed` as its cause;
    else it is a `StepFailed`. `KeyboardInterrupt` and the like never come back as themselves.
    """
    original = _original(data)
    if isinstance(original, StepFailed):
        original.step, original.attempts = original.step or step, original.attempts or attempts
        return original
    failed = StepFailed(_summary(data), step=step, attempts=attempts, kind=data.type)
    if data.traceback:
        failed.add_note(f"Where it was raised in the step:\n{data.traceback.rstrip()}")
    failed.__cause__ = _cause(data)
    if original is None:
        return failed
    _set_cause(original, failed)
    return original


def _set_cause(exc: Exception, cause: BaseException | None) -> None:
    object.__setattr__(exc, "__cause__", cause)  # a frozen dataclass refuses the plain way


# ---- to data


@dataclass(slots=True)
class _Budget:
    """What is left for one description, and what it holds already: causes can form a circle."""

    left: int = EXCEPTIONS_MAX
    seen: set[int] = field(default_factory=set[int])

    def take(self, exc: BaseException) -> bool:
        """Tell whether the exception still fits, and count it."""
        if self.left <= 0 or id(exc) in self.seen:
            return False
        self.left -= 1
        self.seen.add(id(exc))
        return True


def _describe(exc: BaseException, budget: _Budget, depth: int) -> events.ErrorData:
    budget.take(exc)
    bound = DATA_BYTES_MAX if depth == 0 else _NESTED_MAX
    args, attributes = _state(exc)
    return events.ErrorData(
        type=_type_name(type(exc)),
        message=_cut(_message(exc), bound),
        args=_args_as_data(exc, args, bound),
        attributes=_attributes_as_data(attributes, bound),
        traceback=text_of(exc),
        cause=_cause_as_data(exc, budget, depth),
        group=_group_as_data(exc, budget, depth),
    )


def _type_name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _message(exc: BaseException) -> str:
    try:
        return str(exc)
    except Exception as bad:  # noqa: BLE001  (a __str__ of the user's)
        return f"<{type(exc).__name__}, whose message cannot be shown: {type(bad).__name__}>"


def _cut(text: str, bound: int) -> str:
    """Bound a text and replace what is no text (halves of surrogate pairs)."""
    clean = text[: bound + 1].encode("utf-8", "backslashreplace")
    if len(text) <= bound and len(clean) <= bound:
        return clean.decode()
    return f"{clean[: bound - 40].decode('utf-8', 'ignore')}… ({len(text):,} characters)"


def _state(exc: BaseException) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Return arguments and attributes as Python's own base class has them (OSError adds its file name).

    A `__reduce__` of the user's gives what the constructor wants, which is never called.
    """
    _, args, *rest = cast("tuple[Any, ...]", _builtin_base(type(exc)).__reduce__(exc))
    return tuple(args), (rest[0] if rest else None) or {}


def _args_as_data(exc: BaseException, args: tuple[Any, ...], bound: int) -> msgspec.Raw:
    """Return the arguments as JSON, or nothing when one is no data. A group's members stand elsewhere."""
    if isinstance(exc, BaseExceptionGroup):
        args = (cast("BaseExceptionGroup[BaseException]", exc).message,)
    text = _encoded(list(args), bound)
    return msgspec.Raw(text) if text else _BLANK.args


def _attributes_as_data(attributes: Mapping[str, Any], bound: int) -> msgspec.Raw:
    """Return those attributes that are data, as long as they fit."""
    parts: list[bytes] = []
    left = bound
    for name, value in list(attributes.items()):
        text = _encoded(value, left) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]  (a user's __dict__)
        if text is None:
            continue
        part = untyped.encode(name.encode("utf-8", "replace").decode()) + b":" + text
        parts.append(part)
        left -= len(part)
    return msgspec.Raw(b"{" + b",".join(parts) + b"}") if parts else _BLANK.attributes


def _encoded(value: Any, bound: int) -> bytes | None:
    try:
        text = untyped.encode(value)
    except Exception:  # noqa: BLE001  (no data, or code of the user's inside it)
        return None
    return text if len(text) <= bound else None


def _cause_as_data(exc: BaseException, budget: _Budget, depth: int) -> events.ErrorData | None:
    cause = exc.__cause__ or (None if exc.__suppress_context__ else exc.__context__)
    if cause is None or depth >= CHAIN_MAX or id(cause) in budget.seen or budget.left <= 0:
        return None
    return _describe(cause, budget, depth + 1)


def _group_as_data(exc: BaseException, budget: _Budget, depth: int) -> tuple[events.ErrorData, ...]:
    if not isinstance(exc, BaseExceptionGroup) or depth >= CHAIN_MAX:
        return ()
    members: list[events.ErrorData] = []
    for member in cast("BaseExceptionGroup[BaseException]", exc).exceptions:
        if budget.left <= 0:
            break
        members.append(_describe(member, budget, depth + 1))
    return tuple(members)


# ---- from data


def _summary(data: events.ErrorData) -> str:
    name = data.type.rpartition(":")[2].rpartition(".")[2]
    return f"{name}: {data.message}" if data.message else name


def _cause(data: events.ErrorData) -> BaseException | None:
    """Return the cause of the original, down its whole chain."""
    return None if data.cause is None else _plain(data.cause)


def _plain(data: events.ErrorData) -> Exception:
    """Return a cause or a member of a group: its own type when possible, without a `StepFailed` behind it."""
    exc = _original(data) or StepFailed(_summary(data), kind=data.type)
    _set_cause(exc, _cause(data))
    return exc


def _original(data: events.ErrorData) -> Exception | None:
    """Return the exception as its own type, or None when that cannot be."""
    cls = _loaded_type(data.type)
    if cls is None:
        return None
    try:
        exc = (_group if issubclass(cls, BaseExceptionGroup) else _single)(cls, data)
        _set_attributes(exc, _decoded_attributes(data))
        str(exc)
    except Exception:  # noqa: BLE001  (a class of the user's that cannot be built this way)
        return None
    return exc if type(exc) is cls else None


def _loaded_type(name: str) -> type[Exception] | None:
    """Find the class among what is loaded, by plain look-ups: a module's `__getattr__` could import."""
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        names: dict[str, Any] = getattr(found, "__dict__", {})
        found = names.get(part)
    if not isinstance(found, type) or not issubclass(found, Exception) or issubclass(found, StopIteration):
        return None  # a future refuses to hold StopIteration
    return found if _type_name(found) == name else None


def _single(cls: type[Exception], data: events.ErrorData) -> Exception:
    """Build without calling the class's own `__init__`, whose signature is nobody's business.

    Builtin types keep state outside `__dict__` (OSError, UnicodeDecodeError): their own `__init__` is called.
    """
    args = _decoded_args(data)
    try:
        exc = cls.__new__(cls, *args)
    except TypeError:  # a __new__ with an odd signature
        exc = _builtin_base(cls).__new__(cls, *args)
    _builtin_base(cls).__init__(exc, *args)
    return exc


def _set_attributes(exc: Exception, attributes: Mapping[str, Any]) -> None:
    """Set what stood in `__dict__` there, past any `__setattr__` (frozen dataclasses have one)."""
    base = _builtin_base(type(exc))
    for name, value in attributes.items():
        if hasattr(base, name):  # ImportError keeps `name` outside of it
            object.__setattr__(exc, name, value)
        else:
            exc.__dict__[name] = value


def _group(cls: type[Exception], data: events.ErrorData) -> Exception:
    members = [_plain(member) for member in data.group]
    message = str(_decoded_args(data)[0])
    group = cast("Any", cls)
    exc = group.__new__(cls, message, members)
    return cast("Exception", exc)


def _builtin_base(cls: type[_E]) -> type[_E]:
    """Return the nearest class of Python's own that it inherits from."""
    mro = cast("tuple[type[_E], ...]", cls.__mro__)
    return next(c for c in mro if c.__module__ == "builtins")


def _decoded_args(data: events.ErrorData) -> tuple[Any, ...]:
    """Return the arguments; the message alone where they were no data."""
    text = bytes(data.args)
    if not text:
        return (data.message,)
    try:
        return tuple(untyped.decode(text))
    except SerializationError:
        return (data.message,)


def _decoded_attributes(data: events.ErrorData) -> dict[str, Any]:
    text = bytes(data.attributes)
    return {} if not text else {name: untyped.revive(value) for name, value in untyped.parse(text).items()}
