"""The end of a feed: the facts about every line, and whoever judges them."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..answers import DeadLetter, DeadPage, Ending, RunStatus
from .output import plain
from .raised import error_text
from .waiting import listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ..asking import Asking
    from .feeding import Fed

__all__ = ["facts_of", "judge", "told"]

AT_ONCE: Final = 32
JUDGE_S_MAX: Final = 600.0
SHOWN: Final = 20


async def facts_of(asking: Asking, workflow: str, fed: Fed) -> dict[str, Any]:
    """Return what is known about the lines that were fed: the JSON a summary program reads.

    `runs` are those of the lines, `refused` the lines that started nothing, `dead` the dead letters with their
    original text; `fed` counts lines, `repeated` those whose run was there already.
    """
    runs = [run async for run in listed(asking, workflow=workflow) if run.run_id in fed.run_ids]
    places = asyncio.Semaphore(AT_ONCE)

    async def view(run: RunStatus) -> dict[str, Any]:
        async with places:
            return await _run(asking, run)

    async def letter(found: DeadLetter) -> dict[str, Any]:
        async with places:
            return _letter(await asking.ask("letter", DeadLetter, id=found.id))

    return {
        "workflow": workflow,
        "fed": fed.lines,
        "repeated": fed.repeated,
        "runs": await asyncio.gather(*map(view, runs)),
        "refused": [{"line": one.line, "code": one.code, "reason": one.reason} for one in fed.refused],
        "dead": await asyncio.gather(*map(letter, await _letters(asking))),
    }


async def _run(asking: Asking, run: RunStatus) -> dict[str, Any]:
    error = ""
    if run.status == "failed":
        ending = await asking.ask("result", Ending, id=run.run_id)
        error = error_text(ending.error) or ending.code
    return {
        "id": run.id,
        "run_id": run.run_id,
        "workflow": run.workflow,
        "status": run.status,
        "error": error or run.stalled or None,
    }


def _letter(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "kind": letter.kind,
        "code": letter.code,
        "reason": letter.reason,
        "body": letter.text,
        "replayed_as": letter.replayed_as,
    }


async def _letters(asking: Asking) -> list[DeadLetter]:
    found, before = list[DeadLetter](), ""
    while True:
        page = await asking.ask("dead", DeadPage, id=before, limit=500)
        found += page.dead
        before = page.before
        if not before:
            return found


async def judge(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], facts: object, *, captured: bool
) -> tuple[int, str]:
    """Run the summary program with the facts on its stdin; return its exit code, and its output when `captured`."""
    process = subprocess.Popen(  # noqa: S603, ASYNC220  (the user's own file says which; starting takes a millisecond)
        list(command),
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if captured else None,
    )
    try:
        asked = asyncio.to_thread(process.communicate, msgspec.json.encode(facts))
        output, _ = await asyncio.wait_for(asked, JUDGE_S_MAX)
    finally:
        if process.poll() is None:
            process.kill()
    return process.returncode, (output or b"").decode(errors="replace")


def told(facts: Mapping[str, Any]) -> tuple[str, bool]:
    """Return a summary for who has no program for it, and whether every line became a completed run."""
    runs, refused = facts["runs"], facts["refused"]
    counts = Counter(run["status"] for run in runs)
    lines = [f"{facts['fed']} lines fed, {facts['repeated']} of them known already, {len(refused)} refused"]
    lines += [f"  {status:<12}{count:>6}" for status, count in sorted(counts.items())]
    lines += _some([f"  line {one['line']}: {plain(one['reason'])}" for one in refused])
    lines += _some([f"  {plain(run['id'])}: {plain(run['error'])}" for run in runs if run["error"]])
    return "\n".join(lines), not refused and set(counts) <= {"completed"}


def _some(lines: list[str]) -> list[str]:
    more = len(lines) - SHOWN
    return lines if more <= 0 else [*lines[:SHOWN], f"  … and {more} more"]
