"""Type hints of a function, resolved one by one, so that one that cannot be resolved spoils no other."""

from __future__ import annotations

import inspect
import typing
from types import FunctionType, NoneType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_log = structlog.get_logger("fencepost.codec")


def hints_of(fn: Callable[..., Any], localns: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the hints by parameter name and `return`; what cannot be resolved is `Any`, with a warning."""
    names = {**_closure(fn), **(localns or {})}
    try:
        return _known(typing.get_type_hints(fn, localns=names, include_extras=True))
    except Exception:  # noqa: BLE001  (resolving runs expressions of the user's)
        return _known({name: _one(fn, name, hint, names) for name, hint in _written(fn).items()})


def _written(fn: Callable[..., Any]) -> dict[str, Any]:
    try:
        return inspect.get_annotations(fn)
    except Exception:  # noqa: BLE001  (Python 3.14 evaluates lazily and may raise here)
        return {}


def _one(fn: Callable[..., Any], name: str, hint: Any, names: dict[str, Any]) -> Any:
    space = getattr(inspect.unwrap(fn), "__globals__", {})
    try:
        alone = SimpleNamespace(__annotations__={name: hint})
        return typing.get_type_hints(alone, globalns=space, localns=names, include_extras=True)[name]
    except Exception as exc:  # noqa: BLE001  (as above)
        _log.warning(
            "type_hint_not_resolved",
            function=getattr(fn, "__qualname__", repr(fn)),
            name=name,
            hint=str(hint)[:80],
            error=str(exc)[:200],
            remedy="import the type at run time, or its values cross as plain JSON",
        )
        return Any


def _closure(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the local names a nested function can see: classes of a test function, for example."""
    if not isinstance(fn, FunctionType) or not fn.__closure__:
        return {}
    pairs = zip(fn.__code__.co_freevars, fn.__closure__, strict=True)
    return {name: cell.cell_contents for name, cell in pairs if _filled(cell)}


def _filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _known(hints: dict[str, Any]) -> dict[str, Any]:
    return {name: None if hint is NoneType else hint for name, hint in hints.items()}
