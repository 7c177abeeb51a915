"""What authors and callers meet. Re-exported, with the client's errors, by `fencepost.errors`.

FencepostError
├── StepFailed             a step's last attempt failed and its error could not be rebuilt as its own type
│   ├── StepTimeout        the attempt or the whole step took longer than it may
│   └── StepLost           its nodes died `max_lost` times
├── HookConflict           the token of a hook belongs to another open hook
├── HookDisposed           nothing can come to this hook any more
├── NondeterminismError    workflow code touched the outside, or asked for what a replay cannot repeat
├── SerializationError     a value does not fit its type, or cannot be written as data; names argument and field
├── InvalidInput           what was sent does not fit: an input its workflow, a payload its hook
├── DefinitionError        a decorator or App was used in a way that cannot work; raised at import
├── LifespanError          an app's lifespan failed on entering; its cause is the original error
├── FatalError             raised *by* a step: do not retry
└── RetryAfter             raised *by* a step: retry, not before a given delay
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime, timedelta


class FencepostError(Exception):
    """Root of every error of ours that a user can meet."""


class StepFailed(FencepostError):
    """A step failed for good. `cause` is the original exception when it could be rebuilt, else None."""

    def __init__(self, message: str, *, step: str = "", attempts: int = 0, kind: str = "") -> None:
        super().__init__(message)
        self.step = step
        self.attempts = attempts
        self.kind = kind
        """The original type as `module:Qualified.name`."""

    @property
    def cause(self) -> BaseException | None:
        """The original exception, when there is one."""
        return self.__cause__


class StepTimeout(StepFailed, TimeoutError):
    """A step took longer than its timeout."""


class StepLost(StepFailed):
    """The nodes that ran a step died too often."""


class HookConflict(FencepostError):
    """The token of a hook belongs to an open hook of another run, or to another hook of this one."""

    def __init__(self, token: str, owner: str = "") -> None:
        super().__init__(
            f"hook token {token!r} belongs to an open hook of run {owner}: use another one, or dispose that hook first"
        )
        self.token = token
        self.owner = owner


class HookDisposed(FencepostError):
    """The hook was disposed: nothing can come any more."""

    def __init__(self, token: str) -> None:
        super().__init__(f"hook {token!r} was disposed: nothing can come any more")
        self.token = token


class NondeterminismError(FencepostError):
    """Workflow code did what a replay cannot repeat. The message names the remedy."""


class SerializationError(FencepostError):
    """A value cannot cross: it does not fit its type, or is no data."""


class InvalidInput(FencepostError):
    """What was sent does not fit: the input of a start its workflow, a payload its hook."""


class DefinitionError(FencepostError):
    """A workflow, step or app is declared in a way that cannot work."""


class LifespanError(FencepostError):
    """The lifespan of an app failed before its steps could be served. `__cause__` is what it raised."""


class FatalError(FencepostError):
    """Raise it (or a subclass) in a step to say: no retry will help."""


class RetryAfter(FencepostError):
    """Raise it in a step to say: try again, but not before `delay` (seconds, timedelta, text or an instant)."""

    def __init__(self, delay: float | str | timedelta | datetime, message: str = "") -> None:
        super().__init__(message or f"retry after {delay}")
        self.delay = delay
