"""`fencepost runs …`: look at runs and act on them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..answers import Changed, EventPage, OpenHook, OpenStep, RunEvent, RunNow, RunPage, RunStatus
from ..errors import FencepostError, InvalidInput, Unavailable
from ..histories import read
from .connecting import asked
from .endings import ended
from .exits import CommandError, Exit
from .output import ago, complain, emit, plain, plain_lines, show_table, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ..asking import Asking
    from .connecting import Where

__all__ = ["Query", "Wanted", "act", "events", "ls", "show", "show_history"]

PAGE: Final = 200
FOLLOW_S: Final = 20.0
DETAIL: Final = 100
WHOLE: Final = frozenset({"status", "events", "created"})
WAITS: Final = frozenset({"steps", "timers", "hooks"})
ENDED: Final = frozenset({"completed", "failed", "cancelled", "terminated"})


@dataclass(frozen=True, slots=True)
class Query:
    """Which runs to list."""

    workflow: str
    status: str
    attribute: str
    limit: int

    def fields(self) -> dict[str, Any]:
        """Return the question without its cursor.

        Raises:
            CommandError: the attribute is no key=value.
        """
        key, equals, value = self.attribute.partition("=")
        if self.attribute and not (key and equals):
            raise CommandError(f"--attribute {self.attribute!r} must be key=value", Exit.USAGE)
        return {"workflow": self.workflow, "status": self.status, **({"attribute": (key, value)} if key else {})}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whose history to show, and how."""

    id: str
    file: Path | None
    timeline: bool
    payloads: bool

    def check(self) -> None:
        """See to it that one history is meant.

        Raises:
            CommandError: it is not.
        """
        if bool(self.id) == (self.file is not None):
            raise CommandError("give either the ID of a run or --file HISTORY", Exit.USAGE)
        if self.payloads and not self.timeline:
            raise CommandError("--payloads goes with --timeline", Exit.USAGE)


# ---- looking


def ls(query: Query, where: Callable[[], Where], *, json: bool) -> int:
    """List runs."""
    fields = query.fields()
    try:
        found = asked(where(), lambda asking: _listed(asking, fields, query.limit))
    except InvalidInput as error:
        raise CommandError(str(error), Exit.USAGE) from None
    if json:
        for run in found:
            emit(run)
        return Exit.OK
    rows = [(run.id, run.workflow, run.status, run.events, ago(run.created_at), _next(run)) for run in found]
    if rows:
        show_table(("id", "workflow", "status", "events", "created", "next"), rows, whole=WHOLE)
    else:
        complain("no runs" + (" that fit" if any(fields.values()) else " yet"))
    return Exit.OK


async def _listed(asking: Asking, fields: dict[str, Any], limit: int) -> list[RunStatus]:
    found, before = list[RunStatus](), ""
    while len(found) < limit:
        size = min(PAGE, limit - len(found))
        page = await asking.ask("runs", RunPage, before=before, limit=size, **fields)
        found += page.runs
        before = page.before
        if not before:
            break
    return found


def _next(run: RunStatus) -> str:
    return run.stalled or (ago(run.due) if run.ended_at is None else "")


def show(id: str, where: Callable[[], Where], *, json: bool, verbose: bool = False) -> int:  # noqa: A002
    """Show a run, what it waits for, and how it ended; when `verbose` also where its error was raised."""

    async def look(asking: Asking) -> tuple[RunNow, dict[str, Any]]:
        run = await asking.ask("show", RunNow, id=id)
        over = run.status in ENDED
        return run, (await ended(asking, run.run_id, limit_s=0, verbose=verbose)).view() if over else {}

    run, end = asked(where(), look)
    return _print_run(run, end, json=json)


def show_history(wanted: Wanted, where: Callable[[], Where], *, json: bool, verbose: bool) -> int:
    """Show a run from the history in a file, or the timeline of either.

    Raises:
        CommandError: neither or both of an id and a file, or payloads without a timeline.
        LoadError: the file holds no history.
    """
    from . import histories as work  # noqa: PLC0415  (a run is mostly shown without)

    wanted.check()
    if wanted.file is None:
        history = work.history_of(wanted.id, where, seed=False, whole=wanted.payloads, json=json)
    else:
        history = read(wanted.file)
    if wanted.timeline:
        return work.show_timeline(history, payloads=wanted.payloads, json=json)
    end = work.end_of(history, verbose=verbose)
    return _print_run(work.now_of(history), {} if end is None else end.view(), json=json)


def _print_run(run: RunNow, end: dict[str, Any], *, json: bool) -> int:
    if json:
        emit({**msgspec.structs.asdict(run), **end})
        return Exit.OK
    known = {name: value for name, value in msgspec.structs.asdict(run).items() if name not in WAITS}
    for name, value in {**known, **end}.items():
        if value not in (None, "", {}):
            tell(f"{name + ':':<12} {_value(value)}")
    for waits in _waits(run):
        tell(f"{'waits for:':<12} {plain(waits)}")
    return Exit.OK


def _value(value: Any) -> str:
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode(errors="replace")
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    return plain_lines(str(value)).replace("\n", f"\n{'':<13}")


def _waits(run: RunNow) -> list[str]:
    steps = [f"step {step.name} ({step.op}): {_doing(step)}" for step in run.steps]
    timers = [f"a timer ({timer.op}), due {ago(timer.due)}" for timer in run.timers]
    return [*steps, *timers, *(f"hook {hook.token} ({hook.op}): {_came(hook)}" for hook in run.hooks)]


def _came(hook: OpenHook) -> str:
    unread = "" if hook.unread is None else f", {hook.unread} not read yet"
    return f"open since {ago(hook.since)}, {hook.received} came{unread}"


def _doing(step: OpenStep) -> str:
    again = f" {ago(step.retry_at)}" if step.retry_at else ""
    tries = f", attempt {step.attempt}" if step.attempt > 1 else ""
    lost = f", lost {step.lost} times" if step.lost else ""
    return f"{step.state}{again}{tries}{lost}"


def events(id: str, where: Callable[[], Where], *, follow: bool, after: int, json: bool) -> int:  # noqa: A002
    """Print the log of a run."""
    asked(where(), lambda asking: _print_events(asking, id, after, follow=follow, json=json))
    return Exit.OK


async def _print_events(asking: Asking, id: str, after: int, *, follow: bool, json: bool) -> None:  # noqa: A002
    while True:
        wait_s = FOLLOW_S if follow else 0.0
        try:
            page = await asking.ask("events", EventPage, id=id, after=after, limit=PAGE, wait_s=wait_s)
        except Unavailable:
            if not (follow and asking.answered):
                raise
            continue
        for event in page.events:
            after = event.seq
            emit(event) if json else tell(_event_line(event))
        if page.over or not (page.events or follow):
            return


def _event_line(event: RunEvent) -> str:
    detail = msgspec.json.encode(event.data).decode() if event.data else ""
    short = detail if len(detail) <= DETAIL else f"{detail[: DETAIL - 1]}…"
    tick = "outside" if event.tick is None else f"tick {event.tick}"
    at = event.at.isoformat(sep=" ", timespec="milliseconds").partition("+")[0]
    return f"{event.seq:>4}  {at}  {tick:<9} {event.type:<18} {plain(event.op):<10} {plain(short)}".rstrip()


# ---- acting


def act(verb: str, ids: Sequence[str], reason: str, where: Callable[[], Where], *, json: bool) -> int:
    """Cancel, terminate or resume runs; one that cannot be does not keep the others."""
    return asked(where(), lambda asking: _act_on_all(asking, verb, ids, reason, json=json))


async def _act_on_all(asking: Asking, verb: str, ids: Sequence[str], reason: str, *, json: bool) -> int:
    code = Exit.OK
    fields: dict[str, Any] = {"reason": reason, "key": uuid.uuid4().hex} if verb != "resume" else {}
    for id in ids:  # noqa: A001
        try:
            done = await asking.ask(verb, Changed, id=id, **fields)
        except Unavailable:
            raise
        except FencepostError as error:
            code = Exit.FAILED
            emit({"id": id, "error": type(error).__name__, "message": str(error)}) if json else complain(str(error))
            continue
        emit({"id": id, **msgspec.structs.asdict(done)}) if json else tell(f"{plain(id)}: {_done(verb, done)}")
    return code


def _done(verb: str, done: Changed) -> str:
    if done.changed:
        return {"cancel": "asked to stop", "terminate": "terminated", "resume": "goes on"}[verb]
    if done.status:
        return f"nothing to do, it is {done.status}"
    return {"resume": "nothing to do, it is not stalled"}.get(verb, "nothing to do, it was asked before")
