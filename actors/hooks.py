"""Hooks, as workflow code sees them: a durable place where the outside can put payloads for a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

from fencepost.world import events as ev

from . import stand_ins
from .errors import DefinitionError, FatalError, FencepostError, HookConflict, HookDisposed
from .inbox import Inbox
from .models import checked_token, named, schema_of, shape_for
from .operations import Operation, call_site
from .webhooks import Reply, Webhook, recorded

if TYPE_CHECKING:
    from collections.abc import Generator

    from .turn import Turn

T = TypeVar("T")


class Hook(Generic[T]):
    """A place for payloads of type `T`: await it for the next one, iterate over it for all, `async with` to dispose.

    Whoever knows `token` can put a payload (`Client.resume`, `fencepost resume`, `POST /hooks/<token>`), from the
    moment the hook is durable until it is disposed or the run ends.
    """

    def __init__(self, turn: Turn, path: str, inbox: Inbox) -> None:
        self._turn, self._path, self._inbox = turn, path, inbox

    @property
    def token(self) -> str:
        """What names this hook to the outside. One that was not given cannot be guessed."""
        return self._inbox.token

    def __await__(self) -> Generator[Any, Any, T]:
        """Wait for the next payload and take it.

        Raises:
            HookConflict: the token belongs to another open hook.
            InvalidInput: this payload does not fit the model; the next one may.
            HookDisposed: nothing can come any more.
        """
        return self._next().__await__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Wait for the next payload; the iteration ends when the hook is disposed.

        Raises:
            HookConflict, InvalidInput: as for `await`.
        """
        self._check_place()
        if self._inbox.disposed and not self._inbox.owner:
            raise StopAsyncIteration
        try:
            return await self._next()
        except HookDisposed:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        self._check_place()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.dispose()

    def dispose(self) -> None:
        """Take no payloads any more and free the token, with the run's next commit. What was not taken is dropped."""
        if not self._inbox.disposed and not self._turn.evicting:
            self._turn.ops.abandon(self._turn.ops.by_path[self._path])
            self._inbox.close()

    async def _next(self) -> T:
        self._check_place()
        inbox = self._inbox
        while True:
            if inbox.owner:
                raise HookConflict(inbox.token, inbox.owner)
            if inbox.disposed:
                raise HookDisposed(inbox.token)
            if inbox.arrived:
                return inbox.take()  # type: ignore[no-any-return]
            await self._arrival()

    async def _arrival(self) -> None:
        """Wait until something comes, or nothing will any more."""
        waiter = self._turn.loop.create_future()
        self._inbox.waiters.append(waiter)
        self._turn.ops.listen(self._path, waits=True)
        try:
            await waiter
        except BaseException:
            self._inbox.gave_up(waiter)
            raise
        finally:
            self._turn.ops.listen(self._path, waits=bool(self._inbox.waiters))

    def _check_place(self) -> None:
        if stand_ins.current_turn() is not self._turn:
            raise FencepostError(
                f"hook {self.token!r} was used outside the workflow that made it: use Client.resume() to send to it"
            )


def hook(token: str | None = None, model: type[T] = Any) -> Hook[T]:  # type: ignore[assignment]
    """Open a hook: a durable place where the outside can put payloads of a type for this run.

    When the token belongs to another open hook, whoever awaits this one gets `HookConflict`, and so do the steps that
    the same task called after it in the same breath: none is begun that assumed the hook was there.

    Args:
        token: what names it to the outside, 1 to 255 printable characters; None draws one that cannot be guessed.
            One token belongs to one open hook of the namespace.
        model: the type of a payload. What does not fit is refused to the sender.

    Raises:
        FatalError: called outside workflow code.
        DefinitionError: the model is no type that pydantic knows.
        ValueError: the token cannot be one.
    """
    return _opened("hook", token, model, None)


def webhook(
    token: str | None = None,
    model: type[T] = Any,  # type: ignore[assignment]
    reply: Reply | Literal["manual"] | None = None,
) -> Hook[Webhook[T]]:
    """Open a hook for callers over HTTP: payloads come with their headers, and the caller gets an answer of yours.

    Args:
        token: as for `hook`; it is the last part of the address, `POST /hooks/<token>`.
        model: the type of a payload.
        reply: what each caller is answered at once (202 by default), or `"manual"`: a step answers with `reply()`.

    Raises:
        FatalError: called outside workflow code.
        DefinitionError: the model is no type that pydantic knows.
        ValueError: the token cannot be one.
    """
    return _opened("webhook", token, model, recorded(reply))


def _opened(what: str, token: str | None, model: Any, reply: ev.HookReply | None) -> Hook[Any]:
    turn = stand_ins.current_turn()
    if turn is None:
        raise FatalError(f"{what}() was called outside a workflow: only a run can wait for payloads")
    given = None if token is None else checked_token(token)
    shape = shape_for(model)
    if not shape.is_usable:
        raise DefinitionError(f"{what}() cannot check payloads by {model!r}: give it a type that pydantic knows")
    path = turn.next_path()
    name = given or f"hook_{turn.entropy.block(*turn.draw(), 16).hex()}"
    order = ev.HookCreated(op=path, token=name, model=named(model), schema=schema_of(model), reply=reply)
    inbox = Inbox(name, shape, web=reply is not None)
    turn.issue(Operation(path, order, turn.seq, call_site(), inbox=inbox))
    return Hook(turn, path, inbox)
