"""A log as people read it: one line an event, with who wrote it, when, and what it says. Payloads stay out."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fencepost.actors import models
from fencepost.world import events as ev

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Row", "rows", "span"]

PAYLOADS: Final = ("input", "args", "result", "payload", "headers", "error", "reply", "attributes")
MS: Final = 1_000


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event of a timeline. `after_s` counts from the run's first event, `took_s` from what this one ends."""

    seq: int
    at: datetime
    after_s: float
    writer: str
    type: str
    what: str
    tick: int | None = None
    op: str = ""
    name: str = ""
    took_s: float | None = None
    payload: dict[str, Any] | None = None


def rows(log: Iterable[ev.Event], *, payloads: bool = False) -> Iterator[Row]:
    """Yield the timeline of a log that begins with its first event; what users sent and got only with `payloads`."""
    fold = _Fold()
    for event in log:
        yield fold.row(event, payloads=payloads)


class _Fold:
    """What later events refer to: steps, timers and hooks by operation, attempts by their claims."""

    def __init__(self) -> None:
        self._first: datetime | None = None
        self._made: dict[str, tuple[str, datetime]] = {}
        self._workers: dict[str, str] = {}
        self._began: dict[str, datetime] = {}

    def row(self, event: ev.Event, *, payloads: bool) -> Row:
        self._first = self._first or event.at
        self._take(event)
        body = event.body
        took_s = self._took_s(event)
        return Row(
            seq=event.seq,
            at=event.at,
            after_s=(event.at - self._first).total_seconds(),
            writer=self._writer(event),
            type=ev.kind_of(body),
            what=self._what(event, took_s),
            tick=event.tick,
            op=body.op,
            name=self._name(body.op),
            took_s=took_s,
            payload=_payload(body) if payloads else None,
        )

    def _take(self, event: ev.Event) -> None:
        match event.body:
            case ev.StepCreated(op=op, name=name):
                self._made.setdefault(op, (name, event.at))
            case ev.WaitCreated(op=op):
                self._made.setdefault(op, ("", event.at))
            case ev.HookCreated(op=op, token=token):
                self._made.setdefault(op, (models.shown(token), event.at))
            case ev.StepStarted(op=op, token=token, incarnation=incarnation):
                self._workers[token], self._began[op] = incarnation, event.at
            case _:
                return

    def _name(self, op: str) -> str:
        return self._made[op][0] if op in self._made else ""

    def _writer(self, event: ev.Event) -> str:
        if event.tick is not None:
            return f"decider tick {event.tick}"
        worker = self._workers.get(getattr(event.body, "token", ""), "")
        return f"worker {worker}" if worker and isinstance(event.body, (ev.StepStarted, *ev.OUTCOMES)) else "outside"

    def _took_s(self, event: ev.Event) -> float | None:
        """Return how long it took: an attempt from its start, a timer and a hook from when it was made."""
        match event.body:
            case ev.StepCompleted(op=op) | ev.StepRetrying(op=op) | ev.StepFailed(op=op):
                since = self._began.get(op)
            case ev.StepCancelled(op=op) | ev.WaitCompleted(op=op) | ev.HookReceived(op=op) | ev.HookDisposed(op=op):
                since = self._made[op][1] if op in self._made else None
            case ev.RunCompleted() | ev.RunFailed() | ev.RunCancelled() | ev.RunTerminated():
                since = self._first
            case _:
                return None
        return None if since is None else (event.at - since).total_seconds()

    # ---- in words

    def _what(self, event: ev.Event, took_s: float | None) -> str:
        after = "" if took_s is None else f" after {span(took_s)}"
        match event.body:
            case ev.StepCreated() | ev.StepStarted() | ev.StepCancelled():
                return f"step {self._name(event.body.op)} {_of_step(event.body)}{after}"
            case ev.StepCompleted() | ev.StepRetrying() | ev.StepFailed():
                return f"step {self._name(event.body.op)} {_outcome(event.body, after)}"
            case ev.WaitCreated(until=until, delay_s=delay_s):
                return f"timer until {until.isoformat(sep=' ')}" if until else f"timer of {span(delay_s)}"
            case ev.WaitCompleted():
                return f"timer ran out{after}"
            case ev.HookCreated() | ev.HookDisposed() | ev.HookConflict() | ev.HookReceived():
                return _of_hook(event.body, after)
            case _:
                return _of_run(event.body, after)


def _of_step(body: ev.StepCreated | ev.StepStarted | ev.StepCancelled) -> str:
    match body:
        case ev.StepCreated(queue=queue):
            return "asked for" + (f" in queue {queue}" if queue != "default" else "")
        case ev.StepStarted(attempt=attempt, dispatch=dispatch):
            lost = dispatch - attempt
            return f"attempt {attempt} begins" + (f", taken over {lost} times" if lost > 0 else "")
        case ev.StepCancelled():
            return "given up"


def _outcome(body: ev.StepCompleted | ev.StepRetrying | ev.StepFailed, after: str) -> str:
    match body:
        case ev.StepCompleted(attempt=attempt):
            return f"attempt {attempt} completed{after}"
        case ev.StepFailed(attempt=attempt, code=code, error=error):
            return f"attempt {attempt} failed{after}, the last ({code}: {_kind(error)})"
        case ev.StepRetrying(deferred=True, delay_s=delay_s):
            return f"waits for a lock, next in {span(delay_s)}"
        case ev.StepRetrying(attempt=attempt, delay_s=delay_s, error=error, lost=lost):
            what = "was lost" if lost and error is None else f"failed{after} ({_kind(error)})"
            return f"attempt {attempt} {what}, next in {span(delay_s)}"


def _of_hook(body: ev.HookCreated | ev.HookDisposed | ev.HookConflict | ev.HookReceived, after: str) -> str:
    match body:
        case ev.HookCreated(token=token, model=model, reply=reply):
            kind = "hook" if reply is None else "webhook"
            return f"{kind} {models.shown(token)} made" + (f" for {model.rpartition(':')[2]}" if model else "")
        case ev.HookDisposed(token=token):
            return f"hook {models.shown(token)} disposed{after}"
        case ev.HookConflict(token=token, owner=owner):
            return f"hook {token} not made: {owner} has it"
        case ev.HookReceived(token=token, delivery=delivery):
            return f"hook {token} got delivery {delivery}{after}"


def _of_run(body: ev.EventBody, after: str) -> str:
    match body:
        case ev.RunCreated(workflow=workflow, app=app):
            return f"run of {workflow} made" + (f" for app {app}" if app else "")
        case ev.RunStarted(code=code, python=python):
            return f"run begins on code {code}, Python {python}"
        case ev.CancelRequested(reason=reason):
            return "cancel asked for" + _because(reason)
        case ev.RunFailed(code=code, error=error):
            return f"run failed{after} ({code}: {_kind(error)})"
        case _:
            reason = str(getattr(body, "reason", ""))
            return f"run {ev.STATUS_AFTER.get(type(body), ev.kind_of(body))}{after}{_because(reason)}"


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _kind(error: ev.ErrorData | None) -> str:
    """Return an error's type; its text is a user's."""
    return "no error" if error is None else error.type.rpartition(":")[2]


def _payload(body: ev.EventBody) -> dict[str, Any] | None:
    fields = msgspec.json.decode(ev.encode_body(body), type=dict[str, msgspec.Raw])
    return {name: value for name, value in fields.items() if name in PAYLOADS} or None


def span(seconds: float) -> str:
    """Return a duration as people say it, exact to a hundredth of itself."""
    if seconds < 1:
        return f"{seconds * MS:.3g}ms"
    if seconds < 120:  # noqa: PLR2004  (two minutes)
        return f"{seconds:.3g}s"
    for size, unit, smaller, name in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= size:
            rest = int(seconds % size // smaller)
            return f"{int(seconds // size)}{unit}" + (f"{rest}{name}" if rest else "")
    raise AssertionError(seconds)
