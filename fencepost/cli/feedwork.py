"""What `dev` does with `[dev.start]`: feed every line once, wait for its run, show the summary.

A line that no workflow takes becomes a dead letter, in the world this process holds: its place is named by file,
line and content, and the world keeps a letter of a place once. So feeding may be cut at any moment and begun again:
good lines are known by their id, bad ones by their place.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fencepost.world import NewLetter
from fencepost.world import Unavailable as WorldAway

from ..asking import Asking
from ..envelopes import Start
from ..errors import RunExists, Unavailable
from .exits import Exit
from .feeding import Fed, Feeder, Sender, kwargs_in
from .lines import lines_of
from .place import environment
from .summary import facts_of, judge, told
from .waiting import until_ended

if TYPE_CHECKING:
    from fencepost.bus import Bus
    from fencepost.world import World

    from ..answers import Started
    from .devrun import Plan
    from .lines import Line
    from .progress import Progress
    from .project import Feed
    from .talk import Talk

__all__ = ["FeedWork"]

AGAIN_S: Final = 1.0
BODY_BYTES_MAX: Final = 8 * 1024 * 1024
"""What a dead letter keeps of a line; the rest is in the file it came from."""


@dataclass(slots=True)
class FeedWork:
    """See the module."""

    plan: Plan
    talk: Talk
    world: World
    bus: Bus
    asking: Asking = field(init=False)

    def __post_init__(self) -> None:
        self.asking = Asking(self.bus)

    async def run(self) -> int:
        """Feed, wait, show; return the exit code that follows."""
        feed = self.plan.project.feed
        if feed is None:
            return await self._waited() if self.plan.once else Exit.OK
        with self.talk.progress() as progress:
            fed = await self._fed(feed, progress)
            self.talk.event("fed", "", lines=fed.lines, repeated=fed.repeated, refused=len(fed.refused))
            outcome = await until_ended(self.asking, fed.run_ids, progress)
        for run in outcome.stalled:
            self.talk.note(f"run {run.id} is stalled: {run.stalled}")
        code = await self._shown(await facts_of(self.asking, feed.workflow, fed))
        return Exit.FAILED if outcome.stalled else code

    async def _waited(self) -> int:
        """With nothing to feed, wait for what was started before."""
        with self.talk.progress() as progress:
            outcome = await until_ended(self.asking, None, progress)
        for run in outcome.stalled:
            self.talk.note(f"run {run.id} is stalled: {run.stalled}")
        return Exit.FAILED if outcome.stalled else Exit.OK

    # ---- feeding

    async def _fed(self, feed: Feed, progress: Progress) -> Fed:
        """Feed the file until it is through: while nobody answers, from the beginning again."""

        def on_started(line: Line, started: Started) -> None:  # noqa: ARG001  (see OnStarted)
            progress.show(f"line {line.number} fed", line.number, None)

        sender = Sender(self.asking, feed.workflow, by_name=self._by_name(feed))
        while True:
            feeder = Feeder(sender, on_started=on_started, on_refused=self._bury)
            try:
                with feed.input.open("rb") as file:
                    return await feeder.feed(lines_of(file, feed.id))
            except Unavailable as error:
                self.talk.note(f"feeding waits: {error}")
                await asyncio.sleep(AGAIN_S)

    def _by_name(self, feed: Feed) -> bool:
        return len(self.plan.app.workflows[feed.workflow].params.signature.parameters) > 1

    async def _bury(self, line: Line, code: str, reason: str) -> None:
        feed = self.plan.project.feed
        if feed is None or code == RunExists.__name__:  # that id has its run; the line is reported as refused
            return
        digest = hashlib.sha256(line.raw).hexdigest()[:16]
        body = _as_sent(line, by_name=self._by_name(feed))
        cut = f" (kept are {BODY_BYTES_MAX:,} of its {len(body):,} bytes)" if len(body) > BODY_BYTES_MAX else ""
        letter = NewLetter(
            kind="start",
            subject=f"fp.{self.plan.namespace}.start.{feed.workflow}",
            code=code,
            reason=f"{feed.input.name} line {line.number}: {reason}{cut}",
            body=body[:BODY_BYTES_MAX],
            source=f"{feed.input.name}:{line.number}:{digest}",
        )
        try:
            letter_id = await self.world.bury(letter)
        except WorldAway as error:
            raise Unavailable(str(error)) from error
        await self.bus.announce("dead.start", msgspec.json.encode({"id": letter_id, "reason": reason}))

    # ---- summary

    async def _shown(self, facts: dict[str, Any]) -> int:
        if not self.plan.summary:
            text, good = told(facts)
            self.talk.event("summary", text, facts=facts, exit_code=0 if good else 1)
            return Exit.OK if good else Exit.FAILED
        around = environment("", self.plan.namespace)
        code, output = await judge(self.plan.summary, self.plan.place.folder, around, facts, captured=self.talk.json)
        self.talk.event("summary", "", facts=facts, exit_code=code, output=output)
        return code


def _as_sent(line: Line, *, by_name: bool) -> bytes:
    """Return the start message of a line, so that a replay sends the same; of a line that is none, its bytes."""
    if not line.id:
        return line.raw
    if by_name:
        return msgspec.json.encode(Start(id=line.id, kwargs=msgspec.Raw(kwargs_in(line.raw) or line.raw)))
    return msgspec.json.encode(Start(id=line.id, input=msgspec.Raw(line.raw)))
