"""Names of operations: the path of the task that issues them and a number within that task (L7).

`0` is the body's own task, `0.3` its fourth operation or task, `0.3.0` the first one inside that. A branch that does
one thing more renames nothing in another branch. Tasks hash by path, so that a set of tasks has the same order live,
after a crash and in another process. A callback is named by the task that registered it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Generator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_owner: contextvars.ContextVar[PathTask] = contextvars.ContextVar("fencepost_owner")


def stable_hash(name: str) -> int:
    """Return a hash that is the same in every process, whatever its hash seed."""
    return int.from_bytes(blake2b(name.encode(), digest_size=7).digest())


class PathFuture(asyncio.Future[Any]):
    """A future with a place in sets that a replay repeats."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop, number: int) -> None:
        self._hash = stable_hash(f"future {number}")
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._hash


class PathGathering(asyncio.tasks._GatheringFuture):  # type: ignore[name-defined,misc]
    """What `asyncio.gather` returns, with a place in sets that a replay repeats. Other threads may get one too."""

    def __init__(self, children: Any, *, loop: Any) -> None:
        number = getattr(loop, "next_number", None)
        self._hash = id(self) if number is None else stable_hash(f"gathering {number()}")
        super().__init__(children, loop=loop)  # pyright: ignore[reportUnknownMemberType]  # asyncio's own, untyped

    def __hash__(self) -> int:
        return self._hash


class PathTask(asyncio.Task[Any]):
    """A task with a path. `path` and the hash exist before the base class puts the task into a set of its own."""

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        loop: asyncio.AbstractEventLoop,
        path: str,
        context: contextvars.Context | None = None,
    ) -> None:
        self.path = path
        self.issued = 0
        self.draws = 0
        self.home = context if context is not None else contextvars.copy_context()
        self._hash = stable_hash(path)
        self.home.run(_owner.set, self)
        super().__init__(coro, loop=loop, name=path, context=self.home)

    def __hash__(self) -> int:
        return self._hash

    def next_path(self) -> str:
        """Name the next operation of this task."""
        self.issued += 1
        return f"{self.path}.{self.issued - 1}"

    def next_draw(self) -> int:
        """Number the next draw of randomness of this task."""
        self.draws += 1
        return self.draws - 1

    def forget(self) -> None:
        """Do not complain when the task is collected unfinished: its run was put to sleep."""
        self._log_destroy_pending = False


def owner_of(loop: asyncio.AbstractEventLoop) -> PathTask:
    """Return the task on whose account something happens: the current one, or the one that registered a callback."""
    task = asyncio.current_task(loop)
    return task if isinstance(task, PathTask) else _owner.get()


class Guarded(Coroutine[Any, Any, Any]):
    """A coroutine that tells when it awaits something foreign to its loop, which nobody would ever wake."""

    __slots__ = ("_foreign", "_inner", "_loop")

    def __init__(
        self,
        inner: Coroutine[Any, Any, Any],
        loop: asyncio.AbstractEventLoop,
        foreign: Callable[[Any], BaseException],
    ) -> None:
        self._inner, self._loop, self._foreign = inner, loop, foreign

    @property
    def cr_frame(self) -> Any:
        """Return the frame of the guarded coroutine (for stacks)."""
        return getattr(self._inner, "cr_frame", None)

    @property
    def cr_await(self) -> Any:
        """Return what the guarded coroutine awaits (for stacks)."""
        return getattr(self._inner, "cr_await", None)

    @property
    def inner(self) -> Coroutine[Any, Any, Any]:
        """Return the guarded coroutine."""
        return self._inner

    def send(self, value: Any, /) -> Any:
        """Run to the next await."""
        return self._checked(self._inner.send(value))

    def throw(self, *error: Any) -> Any:
        """Run to the next await, beginning with an error."""
        return self._checked(self._inner.throw(*error))

    def close(self) -> None:
        """Close the guarded coroutine."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()

    def _checked(self, awaited: Any) -> Any:
        while awaited is not None and getattr(awaited, "_loop", None) is not self._loop:
            if asyncio.isfuture(awaited):
                # asyncio marks a future as awaited with this flag; ours is never going to be resumed by it.
                awaited._asyncio_future_blocking = False
            awaited = self._inner.throw(self._foreign(awaited))
        return awaited


def comes_after(path: str, earlier: str) -> bool:
    """Tell whether an operation was asked for after another one, by the same task or by one that it began since."""
    task, _, number = earlier.rpartition(".")
    rest = path.removeprefix(f"{task}.")
    return rest != path and int(rest.partition(".")[0]) > int(number)
