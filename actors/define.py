"""What authors declare: `@step` and `@workflow`.

Both leave a typed callable behind, so that types go through to the caller. Called inside a workflow a step is an
operation of the run; called anywhere else it simply runs, so that unit tests need nothing.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar, cast, overload
from weakref import ReferenceType, ref

from . import lint, stand_ins
from .codec import Parameters, Returns
from .durations import seconds
from .errors import DefinitionError
from .retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

P = ParamSpec("P")
R = TypeVar("R")
Duration = float | str | timedelta
OnCancel = Literal["ask", "wait", "abandon"]
QUEUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


def where(fn: Callable[..., Any]) -> str:
    """Return `file:line` of a function."""
    code = inspect.unwrap(fn).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


class _Declared(Generic[P, R]):
    """What steps and workflows share: the function, its name, and how its values cross."""

    kind = "function"

    def __init__(self, fn: Callable[P, Any], name: str | None) -> None:
        self.fn = fn
        self.name = name or fn.__name__
        self.__wrapped__ = fn
        self.__name__, self.__qualname__, self.__doc__, self.__module__ = (
            fn.__name__,
            fn.__qualname__,
            fn.__doc__,
            fn.__module__,
        )
        if not self.name or any(c in self.name for c in " .*>\t\r\n\0") or not self.name.isprintable():
            raise DefinitionError(
                f"{self.kind} name {self.name!r} ({where(fn)}) cannot be part of a subject: "
                "use letters, digits, '-' and '_'"
            )

    @functools.cached_property
    def params(self) -> Parameters:
        """How its arguments cross. Built on first use: type hints may name what is defined later."""
        return Parameters.of(self.fn)

    @functools.cached_property
    def returns(self) -> Returns:
        """How its result crosses."""
        return Returns.of(self.fn)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name} {where(self.fn)}>"


class Step(_Declared[P, R]):
    """A unit of outside work. See `step` for what the settings mean."""

    kind = "step"

    def __init__(
        self,
        fn: Callable[P, Any],
        *,
        name: str | None = None,
        retry: Retry | int | None = None,
        timeout: Duration | None = None,
        total_timeout: Duration | None = None,
        queue: str = "default",
        isolate: bool = False,
        on_cancel: OnCancel = "ask",
    ) -> None:
        super().__init__(fn, name)
        self.retry = Retry.of(retry)
        self.timeout_s = _positive(timeout, f"timeout of step {self.name!r}")
        self.total_timeout_s = _positive(total_timeout, f"total_timeout of step {self.name!r}")
        self.queue = queue
        self.isolate = isolate
        self.on_cancel = on_cancel
        if on_cancel not in {"ask", "wait", "abandon"}:
            raise DefinitionError(f"on_cancel of step {self.name!r} is 'ask', 'wait' or 'abandon', not {on_cancel!r}")
        if not QUEUE.fullmatch(queue):
            raise DefinitionError(
                f"queue {queue!r} of step {self.name!r} must be 1 to 32 letters, digits, '_' or '-', beginning with a "
                "letter or digit: it is one token of a subject"
            )
        _remember(self)

    @property
    def is_async(self) -> bool:
        """Whether the body is an `async def` (else it runs in a thread)."""
        return inspect.iscoroutinefunction(self.fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Return the coroutine of one call."""
        turn = stand_ins.current_turn()
        if turn is not None:
            return cast("Coroutine[Any, Any, R]", turn.call(self, args, kwargs))
        return cast("Coroutine[Any, Any, R]", _plain(self.fn, args, kwargs))


async def _plain(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    outcome = fn(*args, **kwargs)
    return await outcome if inspect.isawaitable(outcome) else outcome


_steps: dict[str, list[ReferenceType[Step[Any, Any]]]] = {}


def _remember(step: Step[Any, Any]) -> None:
    known = [other for other in _steps.get(step.name, ()) if other() is not None]
    _steps[step.name] = [*known, ref(step)]


def find_step(name: str) -> Step[Any, Any] | None:
    """Return the step of this process that was declared last under a name: it may be in a module no App was told of.

    One that was declared inside a function and is gone hides none that is still there.
    """
    return next((step for known in reversed(_steps.get(name, ())) if (step := known()) is not None), None)


class Workflow(_Declared[P, R]):
    """A durable function. See `workflow` for what the settings mean."""

    kind = "workflow"

    def __init__(
        self,
        fn: Callable[P, Any],
        *,
        name: str | None = None,
        timeout: Duration | None = None,
        cancel_grace: Duration = "1m",
        max_events: int = 50_000,
    ) -> None:
        super().__init__(fn, name)
        if not inspect.iscoroutinefunction(fn):
            raise DefinitionError(f"workflow {self.name!r} ({where(fn)}) must be an `async def`")
        self.timeout_s = _positive(timeout, f"timeout of workflow {self.name!r}")
        self.cancel_grace_s = seconds(cancel_grace)
        self.max_events = max_events
        stand_ins.rebind(fn.__globals__)
        lint.warn_about(fn, self.name)

    @functools.cached_property
    def code(self) -> str:
        """A digest of the source, to tell one deployed version from another."""
        try:
            source = inspect.getsource(self.fn)
        except (OSError, TypeError):
            source = repr(self.fn.__code__.co_code)
        return hashlib.sha256(source.encode()).hexdigest()[:16]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Run the plain function. Inside another workflow that is refused: its steps would take foreign names.

        Raises:
            DefinitionError: called inside a workflow.
        """
        if stand_ins.current_turn() is not None:
            raise DefinitionError(
                f"workflow {self.name!r} was called inside a workflow: {self.name}.fn(…) runs its code as part of "
                "this one; child(), for a run of its own, is not there yet"
            )
        return cast("Coroutine[Any, Any, R]", self.fn(*args, **kwargs))


def _positive(value: Duration | None, what: str) -> float | None:
    if value is None:
        return None
    try:
        found = seconds(value)
    except ValueError as error:
        raise DefinitionError(f"{what}: {error}") from None
    if found <= 0:
        raise DefinitionError(f"{what} must be longer than zero, not {value!r}")
    return found


def _make_step(settings: dict[str, Any], fn: Callable[..., Any]) -> Step[..., Any]:
    return Step(fn, **settings)


def _make_workflow(settings: dict[str, Any], fn: Callable[..., Any]) -> Workflow[..., Any]:
    return Workflow(fn, **settings)


class _StepMaker(Protocol):
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Step[P, R]: ...


class _WorkflowMaker(Protocol):
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...


@overload
def step(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
@overload
def step(fn: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Retry | int | None = None,
    timeout: Duration | None = None,
    total_timeout: Duration | None = None,
    queue: str = "default",
    isolate: bool = False,
    on_cancel: OnCancel = "ask",
) -> _StepMaker: ...
def step(fn: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Declare a step: outside work that is retried, timed out and recorded once it succeeded.

    Args:
        fn: an `async def`, or a `def`, which runs in a thread.
        settings: `name` (default: the function's), `retry` (a `Retry` or a number of retries; default 3, from 1 s up
            to 1 min), `timeout` per attempt and `total_timeout` over all attempts (seconds, "30s", timedelta),
            `queue`, `isolate` (a process of its own, which can be killed), `on_cancel` ("ask": the body is told and
            the await raises at once; "wait": the await raises when the body has ended; "abandon": it is not told).

    Raises:
        DefinitionError: a setting makes no sense.
    """
    if fn is not None:
        return _make_step({}, fn)
    return partial(_make_step, settings)


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    timeout: Duration | None = None,
    cancel_grace: Duration = "1m",
    max_events: int = 50_000,
) -> _WorkflowMaker: ...
def workflow(fn: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Declare a workflow: an `async def` whose progress survives the process.

    Args:
        fn: the body.
        settings: `name` (default: the function's), `timeout` of a whole run, `cancel_grace` (how long cleanup may
            take after a cancel before the run is terminated; default 1 min), `max_events` (default 50,000).

    Raises:
        DefinitionError: not an `async def`, or a setting makes no sense.
    """
    if fn is not None:
        return _make_workflow({}, fn)
    return partial(_make_workflow, settings)
