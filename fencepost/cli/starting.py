"""`fencepost start`: one run from a JSON value, or one per line of a file or of stdin."""

from __future__ import annotations

import asyncio
import difflib
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from fencepost.actors import durations

from .connecting import asked
from .endings import ended, shown
from .exits import CommandError, Exit
from .feeding import Fed, Feeder, Sender, kwargs_in
from .lines import IdTemplate, Line, lines_of, template_of
from .output import complain, emit, plain, say, tell
from .progress import progress_for
from .refusals import Refusals
from .waiting import Info

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..answers import Started
    from ..asking import Asking
    from .connecting import Where
    from .progress import Progress

__all__ = ["Wanted", "seconds_of", "start"]

LINES: Final = frozenset({".jsonl", ".ndjson"})
AT_ONCE: Final = 64
UNKNOWN_S: Final = 2.0
"""How long a run whose workflow the first node does not know is waited for: another node may know it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The command line."""

    workflow: str
    input: str | None
    id: str
    wait: bool
    attributes: tuple[str, ...]
    json: bool
    arguments: tuple[str, ...] = ()
    limit_s: float | None = None
    """How long to wait at most."""
    verbose: bool = False

    @property
    def file(self) -> Path | None:
        """The file named by `@…`."""
        return Path(self.input[1:]) if self.input and self.input.startswith("@") else None

    @property
    def has_lines(self) -> bool:
        """Whether each line is a run."""
        return self.input == "-" or (self.file is not None and self.file.suffix.lower() in LINES)


def seconds_of(text: str) -> float:
    """Return a duration of the command line.

    Raises:
        CommandError: it is none.
    """
    try:
        return durations.seconds(float(text) if text.replace(".", "", 1).isdecimal() else text)
    except (ValueError, TypeError) as error:
        raise CommandError(f"--timeout {text!r}: {error}", Exit.USAGE) from None


def start(wanted: Wanted, where: Callable[[], Where]) -> int:
    """Start what is wanted and return the exit code."""
    attributes, template = _attributes(wanted.attributes), template_of(wanted.id)
    if wanted.arguments and wanted.input is not None:
        raise CommandError("--arg and --input say the same: give one of them", Exit.USAGE)
    if wanted.has_lines:
        if template.is_fixed:
            raise CommandError("--id gives every line the same id: use a field, such as '{id}'", Exit.USAGE)
        with ExitStack() as stack:
            file = _opened(wanted, stack)
            return asked(where(), lambda asking: _many(asking, wanted, attributes, lines_of(file, template)))
    line = _single(wanted, _arguments(wanted) if wanted.arguments else _text(wanted), template)
    return asked(where(), lambda asking: _one(asking, wanted, attributes, line))


def _attributes(given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise CommandError(f"--attribute {text!r} must be key=value", Exit.USAGE)
        found[key] = value
    return found


def _opened(wanted: Wanted, stack: ExitStack) -> IO[bytes]:
    if wanted.file is None:
        return sys.stdin.buffer
    try:
        return stack.enter_context(wanted.file.open("rb"))
    except OSError as error:
        raise CommandError(f"--input {wanted.file}: {error.strerror}", Exit.USAGE) from None


def _single(wanted: Wanted, text: bytes, template: IdTemplate) -> Line:
    """Return the one value as a line of its own."""
    if not text:
        if not (template.is_fixed or not template.text):
            raise CommandError("--id takes a field from the input, and there is no --input", Exit.USAGE)
        return Line(0, b"", id=template.text)
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        several = "; for one run a line name the file .jsonl" if b"\n" in text.strip() else ""
        raise CommandError(f"--input is no JSON: {error}{several}", Exit.USAGE) from None
    try:
        return Line(0, text, id=template.id_of(value))
    except ValueError as error:
        raise CommandError(f"--id {wanted.id!r} does not fit the input: {error}", Exit.USAGE) from None


def _arguments(wanted: Wanted) -> bytes:
    """Return the arguments by name as one object: each is JSON, or else a text."""
    found: dict[str, msgspec.Raw] = {}
    for text in wanted.arguments:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise CommandError(f"--arg {text!r} must be name=value", Exit.USAGE)
        found[name] = _json_or_text(value)
    return msgspec.json.encode(found)


def _json_or_text(value: str) -> msgspec.Raw:
    raw = value.encode("utf-8", "surrogateescape")
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.Raw(msgspec.json.encode(raw.decode(errors="replace")))
    return msgspec.Raw(raw)


def _text(wanted: Wanted) -> bytes:
    if wanted.file is None:
        return (wanted.input or "").encode("utf-8", "surrogateescape")
    try:
        return wanted.file.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise CommandError(f"--input {wanted.file}: {error.strerror}", Exit.USAGE) from None


# ---- one


async def _one(asking: Asking, wanted: Wanted, attributes: dict[str, str], line: Line) -> int:
    known = await _is_known(asking, wanted.workflow)
    by_name = bool(wanted.arguments) or (not known and kwargs_in(line.raw) not in {None, line.raw})
    started = await Sender(asking, wanted.workflow, attributes, by_name=by_name).send(line.raw, id=line.id)
    if not wanted.wait:
        _tell_started(started, json=wanted.json)
        return Exit.OK
    if not wanted.json:
        say(_as_text(started))
    end = await ended(asking, started.run_id, limit_s=_limit_s(wanted, known=known), verbose=wanted.verbose)
    if wanted.json:
        emit({"run_id": started.run_id, "id": started.id, "existing": started.existing, **end.view()})
    elif end.status == "completed":
        tell(end.result_text())
    else:
        complain(shown(started.id, end))
    return Exit.OK if end.status == "completed" else Exit.FAILED


async def _is_known(asking: Asking, workflow: str) -> bool:
    """Say so when the node does not know the workflow: a misspelt name waits for ever, as a pending run."""
    info = await asking.ask("info", Info)
    if workflow in info.workflows:
        return True
    near = difflib.get_close_matches(workflow, info.workflows, 1)
    meant = f"did you mean {near[0]!r}?" if near else f"it knows {', '.join(info.workflows)}."
    complain(f"the node that answered knows no workflow {workflow!r}: {meant} Such runs wait for a node that does")
    return False


def _limit_s(wanted: Wanted, *, known: bool) -> float | None:
    """Return how long to wait. For what may be misspelt not for ever: only until another node would have begun it."""
    return UNKNOWN_S if wanted.limit_s is None and not known else wanted.limit_s


def _tell_started(started: Started, *, json: bool) -> None:
    if json:
        emit({"run_id": started.run_id, "id": started.id, "existing": started.existing})
    else:
        tell(_as_text(started))


def _as_text(started: Started) -> str:
    named = f"{plain(started.id)} ({started.run_id})" if started.id != started.run_id else started.run_id
    return f"{named} was there already" if started.existing else f"started {named}"


# ---- many


async def _many(asking: Asking, wanted: Wanted, attributes: dict[str, str], lines: Any) -> int:
    limit_s = _limit_s(wanted, known=await _is_known(asking, wanted.workflow))
    with progress_for(json=wanted.json) as progress:
        fed, starts = await _fed(asking, wanted, attributes, lines, progress)
        failed = await _waited(asking, wanted, starts, progress, limit_s) if wanted.wait else 0
    if fed.lines == 0 and wanted.file is None:
        raise CommandError("there was no line on stdin: --input - takes one JSON value a line", Exit.USAGE)
    _tell_count(fed, json=wanted.json)
    if fed.lines == 0:
        complain("there was no line in the input")
    return Exit.FAILED if fed.refused or failed else Exit.OK


async def _fed(
    asking: Asking, wanted: Wanted, attributes: dict[str, str], lines: Any, progress: Progress
) -> tuple[Fed, dict[str, str]]:
    starts: dict[str, str] = {}
    refusals = Refusals(wanted.json)

    def on_started(line: Line, started: Started) -> None:
        refusals.settle(line.number)
        if wanted.wait:
            starts[started.run_id] = started.id
        if wanted.json:
            emit({"line": line.number, "run_id": started.run_id, "id": started.id, "existing": started.existing})
        progress.show(f"{feeder.fed.started} started, {len(feeder.fed.refused)} refused", feeder.fed.lines, None)

    async def on_refused(line: Line, code: str, reason: str) -> None:
        refusals.settle(line.number, code, reason)

    sender = Sender(asking, wanted.workflow, attributes)
    feeder = Feeder(sender, on_started=on_started, on_refused=on_refused)
    try:
        return await feeder.feed(refusals.noted(lines)), starts
    except Exception:
        _tell_count(feeder.fed, json=wanted.json)
        raise


async def _waited(
    asking: Asking, wanted: Wanted, starts: dict[str, str], progress: Progress, limit_s: float | None
) -> int:
    """Wait for all of them, tell how each ended, and return how many did not complete."""
    counts: Counter[str] = Counter()
    places, now_s = asyncio.Semaphore(AT_ONCE), asyncio.get_running_loop().time
    until_s = None if limit_s is None else now_s() + limit_s

    async def one(run_id: str, id: str) -> None:  # noqa: A002
        async with places:
            left_s = None if until_s is None else max(0.0, until_s - now_s())
            end = await ended(asking, run_id, limit_s=left_s, verbose=wanted.verbose)
        counts[end.status] += 1
        if wanted.json:
            emit({"run_id": run_id, "id": id, **end.view()})
        elif end.status != "completed":
            complain(shown(id, end))
        told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        progress.show(told, counts.total(), len(starts))

    async with asyncio.TaskGroup() as group:
        for run_id, id in starts.items():  # noqa: A001
            group.create_task(one(run_id, id))
    if not wanted.json:
        tell(", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "nothing to wait for")
    return counts.total() - counts["completed"]


def _tell_count(fed: Fed, *, json: bool) -> None:
    counts = {"lines": fed.lines, "started": fed.started, "repeated": fed.repeated, "refused": len(fed.refused)}
    if json:
        emit(counts)
    else:
        tell(f"{fed.lines} lines: {fed.started} started, {fed.repeated} there already, {len(fed.refused)} refused")
