"""Looks at a workflow's source when it is declared, and warns of what a replay cannot repeat, with the line.

Only calls whose target can be resolved through the function's globals are judged, so that a warning is never a guess.
What is reached through `time.`, `random.`, `uuid.` is repeatable inside a workflow and not warned about; names taken
out of those modules are not, and neither is `datetime.now()`, which is C and cannot be stood in for.
"""

from __future__ import annotations

import ast
import builtins
import datetime as dt
import inspect
import os
import random
import secrets
import socket
import subprocess
import textwrap
import time
import uuid
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class NondeterminismWarning(UserWarning):
    """Workflow code calls something a replay cannot repeat."""


_STEP = "put it into a @step"
_NOW = "use fencepost.now()"
_RANDOM = "use fencepost.random(), or reach it through its module"

_CLOCKS = (time.time, time.time_ns, time.monotonic, time.monotonic_ns, time.perf_counter)
_DRAWS = (random.random, random.randint, random.choice, random.shuffle, random.uniform, os.urandom)
_OUTSIDE: tuple[Any, ...] = (
    builtins.open,
    builtins.input,
    subprocess.run,
    subprocess.Popen,
    subprocess.check_output,
    socket.create_connection,
    os.system,
)
_IN_CLASS: dict[tuple[type, str], str] = {
    (dt.datetime, "now"): _NOW,
    (dt.datetime, "utcnow"): _NOW,
    (dt.datetime, "today"): _NOW,
    (dt.date, "today"): _NOW,
}
_BY_NAME: dict[Any, str] = {
    **dict.fromkeys(_CLOCKS, _NOW),
    **dict.fromkeys(_DRAWS, _RANDOM),
    **dict.fromkeys(_OUTSIDE, _STEP),
    time.sleep: "use `await sleep(…)`",
    uuid.uuid1: "use fencepost.uuid4()",
    uuid.uuid4: "use fencepost.uuid4()",
    secrets.token_hex: _STEP,
    secrets.token_bytes: _STEP,
    secrets.token_urlsafe: _STEP,
}
_REPEATABLE_THROUGH_MODULE = (time, random, uuid, os, secrets)


def warn_about(fn: Callable[..., Any], name: str) -> None:
    """Warn (`NondeterminismWarning`) about calls in the source of `fn` that a replay cannot repeat."""
    for line, call, remedy in find(fn):
        warnings.warn(
            f"workflow {name!r} calls {call} ({inspect.getsourcefile(fn)}:{line}), which a replay cannot repeat: "
            f"{remedy}",
            NondeterminismWarning,
            stacklevel=4,
        )


def find(fn: Callable[..., Any]) -> Iterator[tuple[int, str, str]]:
    """Yield line, call and remedy of each finding; nothing when there is no source."""
    try:
        lines, first = inspect.getsourcelines(fn)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (remedy := _judge(node.func, fn.__globals__)):
            yield first + node.lineno - 1, ast.unparse(node.func), remedy


def _judge(called: ast.expr, names: dict[str, Any]) -> str:
    if isinstance(called, ast.Attribute):
        owner = _resolve(called.value, names)
        if owner in _REPEATABLE_THROUGH_MODULE and called.attr not in {"sleep", "system", "uuid1"}:
            return ""
        if isinstance(owner, type) and (owner, called.attr) in _IN_CLASS:
            return _IN_CLASS[owner, called.attr]
    return _by_value(_resolve(called, names))


def _by_value(value: Any) -> str:
    try:
        return _BY_NAME.get(value, "")
    except TypeError:  # unhashable
        return ""


def _resolve(node: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return names.get(node.id, getattr(builtins, node.id, None))
    if isinstance(node, ast.Attribute):
        return getattr(_resolve(node.value, names), node.attr, None)
    return None
