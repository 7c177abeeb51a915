"""Durable workflows for Python: an ordinary `async def` that finishes, whatever is killed on the way.

Names are loaded at their first use, so that the command answers `--help` at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fencepost.actors import (
        App,
        FatalError,
        FencepostError,
        Hook,
        HookConflict,
        NondeterminismWarning,
        Reply,
        Retry,
        RetryAfter,
        RunInfo,
        Step,
        StepFailed,
        StepInfo,
        StepTimeout,
        Webhook,
        Workflow,
        hook,
        now,
        random,
        reply,
        run_info,
        sleep,
        step,
        step_info,
        timeout,
        uuid4,
        webhook,
        workflow,
    )

    from .answers import DeadLetter, Delivered, RunEvent, RunStatus
    from .client import Client
    from .handle import RunHandle
    from .logs import configure_logging
    from .settings import Settings
    from .system import Node

__all__ = [
    "App",
    "Client",
    "DeadLetter",
    "Delivered",
    "FatalError",
    "FencepostError",
    "Hook",
    "HookConflict",
    "Node",
    "NondeterminismWarning",
    "Reply",
    "Retry",
    "RetryAfter",
    "RunEvent",
    "RunHandle",
    "RunInfo",
    "RunStatus",
    "Settings",
    "Step",
    "StepFailed",
    "StepInfo",
    "StepTimeout",
    "Webhook",
    "Workflow",
    "configure_logging",
    "hook",
    "now",
    "random",
    "reply",
    "run_info",
    "sleep",
    "step",
    "step_info",
    "timeout",
    "uuid4",
    "webhook",
    "workflow",
]

_OURS: Final = {
    "Client": "client",
    "DeadLetter": "answers",
    "Delivered": "answers",
    "Node": "system",
    "RunEvent": "answers",
    "RunHandle": "handle",
    "RunStatus": "answers",
    "Settings": "settings",
    "configure_logging": "logs",
}
_MODULES: Final = frozenset({"errors"})


def __getattr__(name: str) -> Any:
    """Load a public name, or a module such as `fencepost.errors`."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_OURS.get(name, 'actors')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
