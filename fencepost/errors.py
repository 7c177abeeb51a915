"""Every error a user can meet, in one tree. What it is about are attributes; nobody reads message texts.

FencepostError
├── at the client
│   ├── RunNotFound(run_id)                  no run and no chain has this id
│   ├── RunExists(id)                        the id belongs to a run that was started with other input
│   ├── RunFailed(run_id, code, cause)       code: user_error, max_events, timeout, node_lost, internal
│   ├── RunCancelled(run_id, reason)
│   ├── RunTerminated(run_id, reason)
│   ├── HookNotFound(token)                  no hook of this token is open: not yet, or not any more
│   ├── HookFull(token)                      its run has too many payloads it has not read; try again later
│   ├── InvalidInput                         what was sent does not fit; nothing was started
│   ├── ValueTooLarge(size_bytes, limit_bytes)
│   ├── WorkflowUnknown(workflow)
│   ├── Unavailable                          no NATS server, no node, or a store that cannot answer or be used
│   └── RequestRefused(code)                 the node refused or failed in a way that has no type of its own
├── before anything runs
│   ├── SettingsError(problems)              an unknown or wrong setting
│   ├── LoadError(target)                    the target holds nothing to run, or its code does not load
│   └── DefinitionError                      a decorator or App used in a way that cannot work
└── in workflows and steps
    ├── StepFailed(cause, attempts)          the base of what could not be rebuilt as its own type
    │   ├── StepTimeout
    │   └── StepLost
    ├── HookConflict(token, owner)           the token belongs to another open hook
    ├── HookDisposed(token)                  nothing can come to this hook any more
    ├── NondeterminismError, SerializationError, LifespanError
    └── FatalError, RetryAfter(delay)        raised *by* steps

WorldError                                   what the store itself says, to nodes and to tests of stores
├── Superseded, StaleLog(between), ClaimLost(ops), RunEnded(status), Taken(op)
└── UnknownEvent(kind)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.actors import (
    DefinitionError,
    FatalError,
    FencepostError,
    HookConflict,
    HookDisposed,
    InvalidInput,
    NondeterminismError,
    RetryAfter,
    SerializationError,
    StepFailed,
    StepLost,
    StepTimeout,
)
from fencepost.actors import errors as _authors
from fencepost.world import ClaimLost, RunEnded, StaleLog, Superseded, Taken, UnknownEvent, WorldError

if TYPE_CHECKING:
    from collections.abc import Sequence

LifespanError = _authors.LifespanError

__all__ = [
    "ClaimLost",
    "DefinitionError",
    "FatalError",
    "FencepostError",
    "HookConflict",
    "HookDisposed",
    "HookFull",
    "HookNotFound",
    "InvalidInput",
    "LifespanError",
    "LoadError",
    "NondeterminismError",
    "RequestRefused",
    "RetryAfter",
    "RunCancelled",
    "RunEnded",
    "RunExists",
    "RunFailed",
    "RunNotFound",
    "RunTerminated",
    "SerializationError",
    "SettingsError",
    "StaleLog",
    "StepFailed",
    "StepLost",
    "StepTimeout",
    "Superseded",
    "Taken",
    "Unavailable",
    "UnknownEvent",
    "ValueTooLarge",
    "WorkflowUnknown",
    "WorldError",
]


# ---- at the client


class RunNotFound(FencepostError):
    """No run and no chain has this id."""

    def __init__(self, message: str, run_id: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id


class RunExists(FencepostError):
    """The id belongs to a run that was started with another workflow or other input."""

    def __init__(self, message: str, id: str = "") -> None:  # noqa: A002  (the name callers gave it by)
        super().__init__(message)
        self.id = id


class RunFailed(FencepostError):
    """The run failed. `cause` is its original exception when that could be rebuilt, else None.

    `code` is one of user_error, max_events, timeout, node_lost, internal; `kind` names the original type as
    `module:Qualified.name`.
    """

    def __init__(
        self, message: str, *, run_id: str = "", code: str = "", kind: str = "", cause: Exception | None = None
    ) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.code = code
        self.kind = kind
        self.cause = cause


class RunCancelled(FencepostError):
    """The run ended because somebody cancelled it."""

    def __init__(self, run_id: str, reason: str = "") -> None:
        super().__init__(f"run {run_id} was cancelled" + (f": {reason}" if reason else ""))
        self.run_id = run_id
        self.reason = reason


class RunTerminated(FencepostError):
    """The run was ended from outside, without running its code again."""

    def __init__(self, run_id: str, reason: str = "") -> None:
        super().__init__(f"run {run_id} was terminated" + (f": {reason}" if reason else ""))
        self.run_id = run_id
        self.reason = reason


class HookNotFound(FencepostError):
    """No hook of this token is open: it was not made yet, was disposed, or its run has ended. Nothing was written."""

    def __init__(self, message: str, token: str = "") -> None:
        super().__init__(message)
        self.token = token


class HookFull(FencepostError):
    """The run has too many payloads of this hook that it has not read. Nothing was written; try again later."""

    def __init__(self, message: str, token: str = "") -> None:
        super().__init__(message)
        self.token = token


class ValueTooLarge(FencepostError):
    """A value is over a bound; nothing was sent or written. The sizes are 0 where only the message tells them."""

    def __init__(self, message: str, size_bytes: int = 0, limit_bytes: int = 0) -> None:
        super().__init__(message)
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class WorkflowUnknown(FencepostError):
    """No node knows a workflow of this name."""

    def __init__(self, message: str, workflow: str = "") -> None:
        super().__init__(message)
        self.workflow = workflow


class Unavailable(FencepostError):
    """Something cannot be reached or used now; the message says what, and what to do."""


class RequestRefused(FencepostError):
    """A node refused a request, or failed at it; `code` is what it said."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


# ---- before anything runs


class SettingsError(FencepostError):
    """Settings are wrong; `problems` has one sentence for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class LoadError(FencepostError):
    """There is nothing to run at a target, or its code does not load."""

    def __init__(self, message: str, target: str = "") -> None:
        super().__init__(message)
        self.target = target
