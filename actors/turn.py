"""The turn: a run's code, replayed. Pure: events go in, orders come out; no I/O, no clock, no task of the host.

Events are fed one at a time, in log order, and the run's own loop is run until it is quiet before the next one (L6),
so that a race is decided by positions alone: the same live, after a crash, and in a test. Nothing is fed that has no
position yet (L8), unless it goes into one batch with what it leads to (`feed_ahead`, L4). What is to be written is
*wanted minus logged*, computed when asked.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, assert_never, cast

import structlog

from fencepost.world import ValueTooLarge
from fencepost.world import events as ev

from . import codec, failures
from .ahead import Held
from .entropy import Entropy
from .errors import FencepostError, HookConflict, InvalidInput, NondeterminismError
from .loop import Evicted, NeverQuiet, WorkflowLoop, entered
from .operations import Diverged, Operation, Operations, awaiting_line, call_site
from .paths import owner_of
from .settling import Stuck, resolve
from .stand_ins import draw_owner, standing_in
from .values import bounded, inline
from .watch import TurnTooLong, in_turn

if TYPE_CHECKING:
    from .define import Step, Workflow
    from .paths import PathTask


log = structlog.get_logger(__name__)

THROWS_MAX = 10
"""How often code that catches everything is told to leave."""

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


class Turn:
    """One run's code and how far it was fed. After any exception out of `feed` it is of no use any more."""

    def __init__(
        self,
        workflow: Workflow[Any, Any],
        run_id: str,
        *,
        decided_seq: int = 0,
        said_seq: int | None = None,
        shadow: bool = False,
    ) -> None:
        self.workflow = workflow
        self.run_id = run_id
        self.seq = 0
        self.ops = Operations()
        self.loop = WorkflowLoop(self)  # type: ignore[abstract]  # what is missing is filled in below the class
        self.entropy = Entropy("")
        self.started = False
        self.cancel: ev.CancelRequested | None = None
        self.terminal: ev.RunCompleted | ev.RunFailed | ev.RunCancelled | None = None
        self.ended: ev.EventBody | None = None
        self.held = Held()
        self._decided_seq = decided_seq
        self._said_seq = decided_seq if said_seq is None else said_seq
        self._ahead: list[ev.Event] = []
        self._shadow = shadow
        self._root: PathTask | None = None
        self._offence: NondeterminismError | None = None
        self._site = ""
        self.evicting = False
        """Whether it is being put to sleep: what the code does now is not meant."""

    # ---- events in

    def feed(self, event: ev.Event) -> None:
        """Feed the next event and run the code until it is quiet.

        Raises:
            Diverged: the log and the code tell different stories.
            Stuck: the code did what a replay cannot repeat, waits for nothing, or never gets quiet.
        """
        assert not self._ahead, f"event {event.seq} fed after what is not durable yet"
        self._feed(event)

    def feed_ahead(self, event: ev.Event) -> None:
        """Feed a result as the batch that is being decided will hold it, before it is durable (L4, L8).

        What the code says is held back. Then comes `confirm`, or this turn is of no use any more. Raises as `feed`.
        """
        self._ahead.append(event)
        self._feed(event)

    def confirm(self, durable: list[ev.Event]) -> None:
        """Note that what was fed ahead is durable now: these events, moved on by quiet ones that landed before them."""
        fed, self._ahead = self._ahead, []
        assert [(e.tick, e.at) for e in fed] == [(e.tick, e.at) for e in durable], "fed ahead with another tick or time"
        assert all(mine.body is theirs.body for mine, theirs in zip(fed, durable, strict=True))
        moved = durable[0].seq - fed[0].seq
        for operation in self.ops.unlogged.values():
            if operation.issued_at >= fed[0].seq:
                operation.issued_at += moved
        self.seq += moved
        self.held.say()

    @property
    def durable_seq(self) -> int:
        """The last position fed that is durable."""
        return self.seq - len(self._ahead)

    @property
    def is_ahead(self) -> bool:
        """Whether the code has seen what is not durable yet."""
        return bool(self._ahead)

    def _feed(self, event: ev.Event) -> None:
        assert event.seq == self.seq + 1, f"event {event.seq} fed after {self.seq}"
        self.seq = event.seq
        if self.ended is not None:
            raise Diverged(f"the log goes on after its end, at {event.seq}")
        if ev.resumes_code(event.body):
            self.loop.now_s = event.at.timestamp()
        self._take(event)
        self._run()

    def _take(self, event: ev.Event) -> None:
        match event.body:
            case ev.RunCreated() as body:
                self._begin(body)
            case ev.RunStarted():
                self.started = True
            case ev.StepCreated() | ev.WaitCreated() | ev.HookCreated():
                self.ops.log(event)
            case ev.StepCancelled() | ev.HookDisposed() as body:
                self.ops.log_end(body)
            case ev.HookReceived() | ev.HookConflict() as body:
                self._take_of_hook(body)
            case ev.StepCompleted() | ev.StepFailed() | ev.WaitCompleted() as body:
                self._settle(body)
            case ev.StepStarted() | ev.StepRetrying():
                pass
            case ev.CancelRequested() as body:
                self._cancel(body)
            case ev.RunCompleted() | ev.RunFailed() | ev.RunCancelled() | ev.RunTerminated() as body:
                self.ended = body
            case _:
                assert_never(event.body)

    def _begin(self, body: ev.RunCreated) -> None:
        self.entropy = Entropy(body.seed)
        try:
            data = bytes(body.input.json)
            if not body.app:  # taken in by a node that did not know the workflow and could not check its input
                data = self.workflow.params.from_input(data)
            args, kwargs = self.workflow.params.decode(data)
        except FencepostError as error:
            if body.app:  # it fitted when it was taken in: the code has changed since, and may change back
                raise Stuck(f"the recorded input no longer fits {self.workflow.name!r}: {error}") from error
            self.terminal = ev.RunFailed(code="user_error", error=failures.describe(InvalidInput(str(error))))
            return
        with entered(self.loop), standing_in():
            self._root = self.loop.start_root(self._body(args, kwargs))

    async def _body(self, args: Any, kwargs: Any) -> Any:
        try:
            return await self.workflow.fn(*args, **kwargs)
        finally:
            await self.loop.shutdown_asyncgens()

    def _settle(self, body: ev.StepCompleted | ev.StepFailed | ev.WaitCompleted) -> None:
        operation = self.ops.settle(body.op, ev.kind_of(body))
        if operation is None:
            return
        if operation.handle is not None:
            self.loop.make_ready(operation.handle)
        elif operation.future is not None and not operation.future.done():
            with entered(self.loop):
                resolve(operation, body)
            operation.future = None  # who awaits it holds it; the tombstone needs no result

    def _take_of_hook(self, body: ev.HookReceived | ev.HookConflict) -> None:
        if isinstance(body, ev.HookReceived):
            self._receive(body)
        else:
            self._conflict(body)

    def _receive(self, body: ev.HookReceived) -> None:
        operation = self.ops.received(body.op)
        if operation is not None and operation.inbox is not None:  # else the code has disposed it
            with entered(self.loop):
                operation.inbox.put(body)

    def _conflict(self, body: ev.HookConflict) -> None:
        operation = self.ops.conflict(body)
        if operation is not None and operation.inbox is not None:
            with entered(self.loop):
                operation.inbox.close(owner=body.owner)
                self._retract(body)

    def _retract(self, body: ev.HookConflict) -> None:
        """Let the steps fail that may have assumed the hook: a mail with its token must not go out (decision 20)."""
        for step in self.ops.retract(body.op):
            if step.future is not None and not step.future.done():
                step.future.set_exception(HookConflict(body.token, body.owner))

    def _cancel(self, body: ev.CancelRequested) -> None:
        if self.cancel is not None:
            return  # later ones are inert: a second cancel would kill the cleanup
        self.cancel = body
        if self._root is not None and not self._root.done():
            with entered(self.loop):
                self._root.cancel(body.reason or None)

    # ---- running the code

    @property
    def muted(self) -> bool:
        """Whether what the code prints was printed before: it is replaying, or it is a shadow."""
        return self._shadow or self.evicting or self.seq <= self._said_seq

    def _run(self) -> None:
        if self._root is None or self.terminal is not None or self.loop.is_quiet:
            return
        watch = in_turn(self.run_id)
        try:
            with entered(self.loop), standing_in(), watch:
                self.loop.run_until_quiet()
        except TurnTooLong:
            pass
        except NeverQuiet:
            raise Stuck(
                f"the code never gets quiet: it loops without waiting for anything durable ({self.line()}); "
                "use sleep() with a duration in the loop"
            ) from None
        if self._root.done() and not self._root.cancelled():
            self._root.exception()  # looked at: asyncio is not to complain that nobody did
        if watch.too_long:
            raise Stuck(f"the code blocked its node for seconds ({watch.too_long}): put long work into a @step")
        if self._offence is not None:
            raise Stuck(f"{self._offence} ({self._site or self.line() or self.workflow.name})")
        if self._root.done():
            self.terminal = self._terminal(self._root)
        elif not self.ops.open:
            raise Stuck(f"the code waits for nothing: no step, timer or message can wake it ({self.line()})")

    def _terminal(self, root: PathTask) -> ev.RunCompleted | ev.RunFailed | ev.RunCancelled:
        if root.cancelled():
            reason = self.cancel.reason if self.cancel else "the code cancelled itself"
            return ev.RunCancelled(reason=reason)
        error = root.exception()
        error = None if error is None else failures.bearable(error)
        if error is None:
            try:
                data = self.workflow.returns.encode(root.result())
                return ev.RunCompleted(result=inline(bounded(data, f"the result of workflow {self.workflow.name!r}")))
            except (FencepostError, ValueTooLarge) as unfit:
                error = unfit
        if _is_nondeterminism(error):
            raise Stuck(f"{error} ({self.line() or self.workflow.name})")
        return ev.RunFailed(code="user_error", error=failures.describe(error))

    def line(self) -> str:
        """Return where the code stands: `file:line` of its deepest await."""
        tasks = self.loop.live_tasks()
        return awaiting_line(tasks[0].get_coro()) if tasks else ""  # type: ignore[arg-type]

    # ---- orders out

    def orders(self) -> list[ev.EventBody]:
        """Return what the code wants and the log does not have, in the order it was asked for.

        Raises:
            Diverged: something was asked for before the last decision and is not in the log.
        """
        self.ops.check_decided(self._decided_seq)
        wanted: list[ev.EventBody] = [] if self.started else [self._run_started()]
        ended = [o.ending for o in self.ops.to_end.values() if o.ending is not None]
        if self.terminal is not None:  # it closes all hooks
            return [*wanted, *(body for body in ended if isinstance(body, ev.StepCancelled)), self.terminal]
        wanted += ended
        return [*wanted, *(o.order for o in self.ops.unlogged.values())]

    def _run_started(self) -> ev.RunStarted:
        return ev.RunStarted(code=self.workflow.code, python=PYTHON)

    # ---- what the code may ask for (Scribe, and `author`)

    def draw(self) -> tuple[str, int]:
        """Name the next draw of randomness."""
        return draw_owner(self.loop)

    def now(self) -> datetime:
        """Return the `at` of the event being fed."""
        return datetime.fromtimestamp(self.loop.now_s, tz=UTC)

    def timer(self, handle: asyncio.TimerHandle, delay_s: float) -> None:
        """Record a timer of the code: see `loop.Scribe`."""
        path = self.next_path()
        self.issue(Operation(path, ev.WaitCreated(op=path, delay_s=delay_s), self.seq, call_site(), handle=handle))

    def timer_until(self, until: datetime) -> asyncio.Future[Any]:
        """Record a timer that ends at an instant, and return the future it resolves."""
        path, future = self.next_path(), self.loop.create_future()
        handle = asyncio.TimerHandle(until.timestamp(), _resolve_none, (future,), self.loop)
        order = ev.WaitCreated(op=path, until=until)
        self.issue(Operation(path, order, self.seq, call_site(), handle=handle))
        future.add_done_callback(lambda f: handle.cancel() if f.cancelled() else None)
        return future

    def timer_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Record that nobody listens to a timer any more."""
        operation = self.ops.by_timer(handle)
        if operation is not None and not self.evicting:
            self.ops.abandon(operation)

    def offence(self, error: NondeterminismError, site: str = "") -> NondeterminismError:
        """Remember the first thing the code did that a replay cannot repeat."""
        if self._offence is None:
            self._offence, self._site = error, site or call_site()
        return error

    async def call(self, step: Step[Any, Any], args: Any, kwargs: Any) -> Any:
        """Ask for a step and wait for its outcome."""
        path = self.next_path()
        data = bounded(step.params.encode(args, kwargs), f"the arguments of step {step.name!r}")
        order = ev.StepCreated(op=path, name=step.name, args=inline(data), queue=step.queue, digest=codec.digest(data))
        future = self.loop.create_future()
        operation = self.issue(Operation(path, order, self.seq, call_site(), step=step, future=future))
        try:
            return await future
        except asyncio.CancelledError:
            await self._give_up(operation)
            raise

    async def _give_up(self, operation: Operation) -> None:
        assert operation.step is not None
        if operation.step.on_cancel == "wait" and operation.listening:
            outcome = operation.future = self.loop.create_future()
            await asyncio.wait([outcome])
            if not outcome.cancelled():
                outcome.exception()  # looked at: nobody is to be told
            return
        self.ops.abandon(operation)

    def next_path(self) -> str:
        """Name the next operation of the running task."""
        return owner_of(self.loop).next_path()

    def issue(self, operation: Operation) -> Operation:
        """Take in what the code asks for.

        Code on its way out may still await: it is left waiting there, and gets `Evicted` once more.
        """
        return operation if self.evicting else self.ops.issue(operation)

    # ---- going to sleep

    def evict(self) -> None:
        """Throw `Evicted` into every task, on its own loop and context, muted, and forget them.

        Dropping the coroutines instead would run their `finally` blocks whenever the collector comes by, without
        a loop and in another context.
        """
        self.evicting = self.loop.evicting = True
        watch = in_turn(self.run_id)  # not inside: the first one starts the watchdog's thread
        with entered(self.loop), standing_in(), watch:
            for task in self.loop.live_tasks():
                task.forget()
                task.home.run(self._throw_out, task.get_coro())

    def _throw_out(self, coro: Any) -> None:
        for _ in range(THROWS_MAX):
            try:
                coro.throw(Evicted())
            except BaseException:  # noqa: BLE001  (whatever it says on its way out: the run is replayed elsewhere)
                return
        log.warning("workflow code catches BaseException around awaits and stays in memory", run=self.run_id)
        _unstoppable.append(coro)


_unstoppable: list[Any] = []
"""Coroutines that did not let `Evicted` pass. Collected, they would be closed, and would not let that pass either."""


def _resolve_none(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)


def _is_nondeterminism(error: BaseException) -> bool:
    """Tell whether an error, or one in a group, says that the code cannot be replayed."""
    if isinstance(error, BaseExceptionGroup):
        members = cast("tuple[BaseException, ...]", error.exceptions)
        return any(_is_nondeterminism(inner) for inner in members)
    return isinstance(error, NondeterminismError)
