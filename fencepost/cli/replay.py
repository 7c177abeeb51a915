"""`fencepost replay`: stored histories through the code of now, in this process; no step runs, nothing is written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from structlog.testing import capture_logs

from .. import histories
from ..answers import RunPage, RunStatus
from ..errors import InvalidInput, LoadError, RequestRefused, RunNotFound
from ..fetching import fetched
from ..loader import load
from .connecting import asked
from .exits import CommandError, Exit
from .output import emit, plain, say, tell
from .progress import progress_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fencepost.actors import App

    from ..asking import Asking
    from ..histories import History
    from .connecting import Where
    from .progress import Progress

__all__ = ["Wanted", "replay"]

PAGE: Final = 200
HASH_SEED: Final = "PYTHONHASHSEED"
CHILD: Final = "from fencepost.cli import main; main()"
STATES: Final = {
    "same": "same",
    "diverged": "diverged",
    "stuck": "stuck",
    "unknown": "of an unknown workflow",
    "unreadable": "cannot be read",
    "passed over": "of other apps, passed over",
}
FINE: Final = frozenset({"same", "passed over"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """The command line."""

    target: str
    files: tuple[str, ...]
    ids: tuple[str, ...]
    newest: int
    workflow: str
    status: str
    hash_seed: int | None
    json: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one history. `source` is its file, or the run it was fetched from."""

    source: str
    state: str
    id: str = ""
    run_id: str = ""
    workflow: str = ""
    events: int = 0
    event: int = 0
    op: str = ""
    log: str = ""
    code: str = ""
    site: str = ""
    message: str = ""
    notes: tuple[str, ...] = ()


def replay(wanted: Wanted, where: Callable[[], Where]) -> int:
    """Replay what is wanted and say for each what became of it; 0 when all are the same.

    Raises:
        CommandError: nothing is wanted.
        LoadError: the target does not load.
    """
    if not (wanted.files or wanted.ids or wanted.newest):
        raise CommandError(
            "there is nothing to replay: give history files or folders, --run ID or --runs N", Exit.USAGE
        )
    if wanted.hash_seed is not None and os.environ.get(HASH_SEED) != str(wanted.hash_seed):
        return _in_a_child(wanted.hash_seed)
    app = load(wanted.target)
    with progress_for(json=wanted.json) as progress:
        report = _Report(wanted.json, progress)
        for path in _paths(wanted.files):
            report.take(_of_file(app, path))
        if wanted.ids or wanted.newest:
            asked(where(), lambda asking: _of_runs(app, asking, wanted, report))
    return report.end()


def _in_a_child(seed: int) -> int:
    """Do the same in a process whose sets and dicts of texts are ordered by another seed."""
    words = [sys.executable, "-P", "-c", CHILD, *sys.argv[1:]]
    return subprocess.run(words, env={**os.environ, HASH_SEED: str(seed)}, check=False).returncode  # noqa: S603  (our own command line)


class _Report:
    """Says what becomes of each, and counts."""

    def __init__(self, json: bool, progress: Progress) -> None:  # noqa: FBT001  (a private one)
        self._json, self._progress = json, progress
        self._counts = Counter[str]()

    def take(self, verdict: Verdict) -> None:
        self._counts[verdict.state] += 1
        if self._json:
            emit({name: value for name, value in msgspec.to_builtins(verdict).items() if value})
        else:
            for line in _lines(verdict):
                tell(plain(line))
        self.show(f"{self._counts.total()} replayed")

    def show(self, text: str, done: int = 0, total: int | None = None) -> None:
        self._progress.show(text, done, total)

    def end(self) -> int:
        """Say how many became what, and return the exit code."""
        told = [f"{self._counts[state]} {text}" for state, text in STATES.items() if self._counts[state]]
        count = self._counts.total()
        say(f"{count} {'history' if count == 1 else 'histories'}: {', '.join(told)}" if told else "no run that fits")
        bad = {state for state in self._counts if state not in FINE}
        if bad == {"unreadable"} or not told:  # a misspelt workflow must not pass for one that replays
            return Exit.USAGE
        return Exit.FAILED if bad else Exit.OK


def _lines(verdict: Verdict) -> Iterator[str]:
    about = f"{verdict.id} ({verdict.workflow}, {verdict.events} events)" if verdict.id else verdict.source
    at = f" at event {verdict.event}" if verdict.event else ""
    yield f"{verdict.state:<10} {about}{at}"
    if verdict.log or verdict.code:
        yield f"{'':<10}   the log has: {verdict.log}" + (f", at {verdict.op}" if verdict.op else "")
        yield f"{'':<10}   the code:    {verdict.code}" + (f", at {verdict.site}" if verdict.site else "")
    elif verdict.message:
        yield f"{'':<10}   {verdict.message}"
    for note in verdict.notes:
        yield f"{'':<10}   {note}"


# ---- what is replayed


def _paths(files: Sequence[str]) -> Iterator[Path]:
    """Yield files, and of a folder all its JSON files in order.

    Raises:
        CommandError: a folder has none.
    """
    for name in files:
        path = Path(name)
        if not path.is_dir():
            yield path
            continue
        inner = sorted(path.glob("*.json"))
        if not inner:
            raise CommandError(f"the folder {name} has no history: `fencepost runs export ID --out FILE`", Exit.USAGE)
        yield from inner


def _of_file(app: App, path: Path) -> Verdict:
    try:
        history = histories.read(path)
    except LoadError as error:
        return Verdict(str(path), "unreadable", message=str(error))
    return _judged(app, history, str(path))


async def _of_runs(app: App, asking: Asking, wanted: Wanted, report: _Report) -> None:
    for named in wanted.ids:
        report.take(await _of_run(app, asking, named, report))
    for listed in await _newest(asking, wanted) if wanted.newest else ():
        verdict = await _of_run(app, asking, listed.run_id, report)
        elsewhere = verdict.state == "unknown" and listed.app != app.name
        report.take(replace(verdict, state="passed over") if elsewhere else verdict)


async def _of_run(app: App, asking: Asking, id: str, report: _Report) -> Verdict:  # noqa: A002  (as it is called)
    try:
        history = await fetched(asking, id, progress=lambda done, of: report.show(f"fetching {plain(id)}", done, of))
    except (RequestRefused, RunNotFound) as error:
        return Verdict(id, "unreadable", message=str(error))
    return _judged(app, history, id)


async def _newest(asking: Asking, wanted: Wanted) -> list[RunStatus]:
    found, before = list[RunStatus](), ""
    while len(found) < wanted.newest:
        size = min(PAGE, wanted.newest - len(found))
        fields: dict[str, Any] = {"workflow": wanted.workflow, "status": wanted.status, "limit": size}
        try:
            page = await asking.ask("runs", RunPage, before=before, **fields)
        except InvalidInput as error:
            raise CommandError(str(error), Exit.USAGE) from None
        found += page.runs
        before = page.before
        if not before:
            break
    return found


# ---- the verdict


def _judged(app: App, history: History, source: str) -> Verdict:
    name = history.created.workflow
    about = Verdict(source, "same", history.run.id, history.run.run_id, name, len(history.events))
    workflow = app.workflows.get(name)
    if workflow is None:
        known = ", ".join(sorted(app.workflows))
        return replace(about, state="unknown", message=f"the target has no workflow {name!r}, it has {known}")
    try:
        with capture_logs() as told:
            found = history.replayed(workflow)
    except LoadError as error:
        return replace(about, state="unreadable", message=str(error))
    return replace(
        about,
        state=found.state,
        event=found.event,
        op=found.op,
        log=found.log,
        code=found.code,
        site=found.site,
        message=found.why,
        notes=tuple(dict.fromkeys(f"{one.get('event')}: {one.get('step', '')}".rstrip(": ") for one in told)),
    )
