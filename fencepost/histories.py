"""A history: a run and its whole log as one JSON document, to be kept, looked at elsewhere and replayed.

It holds what the run's steps were given and returned, and the run's secret seed: keep it as you keep that data. Each
event has a line of its own, so that two can be compared by any tool.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import msgspec

from fencepost.actors import replaying
from fencepost.world import events as ev

from .answers import RunStatus
from .errors import LoadError

if TYPE_CHECKING:
    from pathlib import Path

    from fencepost.actors import Workflow

__all__ = ["FORMAT", "History", "Line", "RunOfHistory", "as_events", "dumped", "parsed", "read", "values_apart"]

FORMAT: Final = 1
MARK: Final = "fencepost_history"
STDIN: Final = "-"


class RunOfHistory(RunStatus, frozen=True, kw_only=True):
    """The run as it was when its log was read. `events` is how many there are."""

    decided_seq: int = 0
    """Up to where its code has asked for all that is to be in the log."""


class Line(msgspec.Struct, frozen=True):
    """An event as it is written down; its body may be one that only a newer version can read."""

    seq: int
    tick: int | None
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    body: msgspec.Raw


class _Document(msgspec.Struct, frozen=True):
    run: RunOfHistory
    events: list[Line]


class _Kind(msgspec.Struct, frozen=True):
    type: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """A run and its log, whole from the first event on."""

    run: RunOfHistory
    events: list[ev.Event]

    @property
    def created(self) -> ev.RunCreated:
        """The first event."""
        return cast("ev.RunCreated", self.events[0].body)

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return isinstance(self.events[-1].body, ev.TERMINAL)

    def replayed(self, workflow: Workflow[..., Any]) -> replaying.Replayed:
        """Return what the code of a workflow, as it is now, makes of it. No step runs, and nothing is written.

        Raises:
            LoadError: it has no seed, or no run can have written it.
        """
        if not self.created.seed:
            raise LoadError(f"the history of run {self.run.id} cannot be replayed: it has no seed", self.run.id)
        try:
            decided = None if self.is_over else self.run.decided_seq
            return replaying.replayed(workflow, self.run.run_id, self.events, decided=decided)
        except Exception as error:
            said = f"{type(error).__name__}: {error}".rstrip(": ")
            text = f"the history of run {self.run.id} cannot be replayed, no run wrote it like that ({said})"
            raise LoadError(text, self.run.id) from error


def dumped(history: History) -> bytes:
    """Return a history as its document, one event a line."""
    run = msgspec.json.encode(history.run)
    lines = b",\n".join(map(msgspec.json.encode, history.events))
    return b'{"%s": %d,\n"run": %s,\n"events": [\n%s\n]}\n' % (MARK.encode(), FORMAT, run, lines)


def read(path: Path) -> History:
    """Return the history in a file; `-` is the standard input.

    Raises:
        LoadError: it cannot be read, or is no history this version can read; one sentence says why.
    """
    name = str(path)
    try:
        data = sys.stdin.buffer.read() if name == STDIN else path.read_bytes()
    except OSError as error:
        raise LoadError(f"{name} cannot be read: {error.strerror or error}", name) from None
    return parsed(data, name)


def parsed(data: bytes, name: str) -> History:
    """Return the history in a document; `name` is what it is called when it is none.

    Raises:
        LoadError: see `read`.
    """
    try:
        found: object = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LoadError(f"{name} is no JSON, or was cut off: {error}", name) from None
    _check_format(found, name)
    try:
        document = msgspec.json.decode(data, type=_Document)
        history = History(document.run, as_events(document.events))
    except (msgspec.MsgspecError, UnknownType) as error:
        raise LoadError(f"{name} is no history this version can read: {error}", name) from None
    flaw = _flaw(history)
    if flaw:
        raise LoadError(f"{name} is no whole history: {flaw}", name)
    return history


def _check_format(found: object, name: str) -> None:
    written = cast("dict[str, Any]", found).get(MARK) if isinstance(found, dict) else None
    if not isinstance(written, int) or isinstance(written, bool) or written < 1:
        raise LoadError(f"{name} is no history: `fencepost runs export` writes one", name)
    if written > FORMAT:
        text = f"{name} is of a newer version (format {written}, this one reads {FORMAT}): upgrade Fencepost"
        raise LoadError(text, name)


class UnknownType(Exception):
    """An event is of a type that this version does not know."""


def as_events(lines: list[Line]) -> list[ev.Event]:
    """Return events from how they are written down.

    Raises:
        UnknownType: one is of a type that this version does not know.
        msgspec.MsgspecError: one does not have the fields of its type.
    """
    return [ev.Event(line.seq, line.tick, line.at, _body(line)) for line in lines]


def _body(line: Line) -> ev.EventBody:
    try:
        return ev.decode_body(bytes(line.body))
    except msgspec.ValidationError as error:
        kind = msgspec.json.decode(line.body, type=_Kind).type
        if kind and not ev.is_known(kind):
            raise UnknownType(f"its event {line.seq} is of the unknown type {kind!r}; upgrade Fencepost") from error
        raise UnknownType(f"its event {line.seq} does not fit its type {kind!r}: {error}") from error


def values_apart(body: ev.EventBody) -> dict[str, ev.Value]:
    """Return the values of a body that are kept apart, by the names of their fields."""
    fields = {name: getattr(body, name) for name in body.__struct_fields__}
    return {name: value for name, value in fields.items() if isinstance(value, ev.Value) and value.ref}


def _flaw(history: History) -> str:
    """Return what keeps a log from being one, or nothing."""
    events = history.events
    if not events or not isinstance(events[0].body, ev.RunCreated):
        return "it does not begin with run_created"
    found = (_misplaced(event, place, len(events)) for place, event in enumerate(events, 1))
    return next(filter(None, found), "") or _cut(len(events), history.run.events)


def _misplaced(event: ev.Event, place: int, of: int) -> str:
    if event.seq != place:
        return f"there is a gap, event {place} is missing" if event.seq > place else f"event {event.seq} comes twice"
    if isinstance(event.body, ev.RunCreated) and place > 1:
        return f"event {place} creates the run once more"
    if isinstance(event.body, ev.TERMINAL) and place < of:
        return f"it goes on after its end at {place}"
    return f"the large value of event {place} is not in it" if values_apart(event.body) else ""


def _cut(there: int, of: int) -> str:
    return "" if there == of else f"it was cut off: it has {there} of {of} events"
