"""`fencepost runs export`, and `runs show` of a file or as a timeline."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from fencepost.actors import activity
from fencepost.world import events as ev

from .. import histories, timelines
from ..answers import RunNow
from ..fetching import fetched
from .connecting import asked
from .endings import Ended
from .exits import CommandError, Exit
from .output import emit, is_terminal, plain, say, show_table, tell
from .progress import progress_for
from .raised import error_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..histories import History
    from ..timelines import Row
    from .connecting import Where

__all__ = ["end_of", "export", "history_of", "now_of", "show_timeline"]

DRAWN_MAX: Final = 2_000
"""Rows a table is drawn of: what is longer goes line by line, at once."""
DETAIL: Final = 100
WHOLE: Final = frozenset({"after", "writer"})


def export(id: str, out: Path | None, where: Callable[[], Where], *, json: bool) -> int:  # noqa: A002  (as users call it)
    """Write the history of a run to a file, which only its owner may read, or to stdout.

    Raises:
        CommandError: the file cannot be written.
    """
    history = history_of(id, where, seed=True, whole=True, json=json)
    data = histories.dumped(history)
    if out is None:
        tell(data.decode().removesuffix("\n"))
        return Exit.OK
    try:
        _write(out, data)
    except OSError as error:
        raise CommandError(f"{out} cannot be written: {error.strerror or error}", Exit.USAGE) from None
    events = len(history.events)
    if json:
        emit({"file": str(out), "run_id": history.run.run_id, "events": events, "bytes": len(data)})
    else:
        say(f"{out}: {events} events of {plain(id)}, with their payloads and the run's secret seed")
    return Exit.OK


def _write(out: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    if out.exists() and not out.is_file():
        raise IsADirectoryError(0, "it is no file")
    handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(out)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def history_of(
    id: str,  # noqa: A002  (as users call it)
    where: Callable[[], Where],
    *,
    seed: bool,
    whole: bool,
    json: bool,
) -> History:
    """Fetch the history of a run, and show how far that is."""
    with progress_for(json=json) as progress:
        return asked(
            where(),
            lambda asking: fetched(
                asking,
                id,
                seed=seed,
                whole=whole,
                progress=lambda done, of: progress.show(f"{done:,} of {of:,} events", done, of),
            ),
        )


# ---- what a file says of its run


def now_of(history: History) -> RunNow:
    """Return how far a run was when its history was written."""
    now = activity.Activity()
    for event in history.events:
        now.take(event)
    known = msgspec.structs.asdict(history.run)
    known.pop("decided_seq")
    steps = now.steps(lambda _queue: True)  # nobody asks a node
    return msgspec.convert({**known, "steps": steps, "timers": now.timers(), "hooks": now.hooks()}, RunNow)


def end_of(history: History, *, verbose: bool) -> Ended | None:
    """Return how a run ended, or None for one that had not."""
    match history.events[-1].body:
        case ev.RunCompleted(result=result):
            return Ended("completed", bytes(result.json))
        case ev.RunFailed(code=code, error=error):
            raised = error.traceback.rstrip() if verbose else ""
            return Ended("failed", error=error_text(error), code=code, traceback=raised)
        case ev.RunCancelled(reason=reason):
            return Ended("cancelled", error=reason)
        case ev.RunTerminated(reason=reason):
            return Ended("terminated", error=reason)
        case _:
            return None


# ---- the timeline


def show_timeline(history: History, *, payloads: bool, json: bool) -> int:
    """Print a history by who wrote what when."""
    rows = timelines.rows(history.events, payloads=payloads)
    if json:
        for row in rows:
            emit(row)
        return Exit.OK
    cells = [_cells(row, payloads=payloads) for row in rows]
    if is_terminal() and len(cells) > DRAWN_MAX:
        for line in cells:
            tell(plain("  ".join(line)))
        return Exit.OK
    titles = ("#", "after", "writer", "operation", "what", *(["payload"] if payloads else []))
    show_table(titles, cells, whole=WHOLE)
    return Exit.OK


def _cells(row: Row, *, payloads: bool) -> Sequence[str]:
    cells = (str(row.seq), f"+{row.after_s:.3f}s", row.writer, row.op, row.what)
    return (*cells, _short(row)) if payloads else cells


def _short(row: Row) -> str:
    text = msgspec.json.encode(row.payload).decode() if row.payload else ""
    return text if len(text) <= DETAIL else f"{text[: DETAIL - 1]}…"
