"""Takes start messages in: the world first, then the answer, then the acknowledgement.

What cannot be taken in becomes a dead letter with its reason and its original bytes, in the world, before it is
acknowledged. Nothing is dropped, and nothing is delivered for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import structlog

from fencepost.bus import Again, Bus, Reply, StartMessage
from fencepost.world import NewLetter, RunExists, Unavailable, ValueTooLarge, World

from . import bugs
from .errors import InvalidInput
from .starting import Starter, read_envelope

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

log = structlog.get_logger(__name__)
REPLY_TO = "Fp-Reply-To"
WORLD_AWAY_S = 1.0


@dataclass(slots=True)
class Ingress:
    """See the module. `wake` wakes a run of an app, now or at an instant."""

    world: World
    bus: Bus
    starter: Starter
    wake: Callable[[str, str, datetime | None], None]

    async def take(self, message: StartMessage) -> None:
        """Settle one start message: a run, or a dead letter.

        Raises:
            Again: the world does not answer; the message comes once more.
        """
        try:
            reply = await self._start(message)
        except (InvalidInput, RunExists, ValueTooLarge) as refusal:
            reply = await self._bury(message, refusal)
        except Unavailable as error:
            log.warning("a start message waits for the world", why=str(error))
            raise Again(WORLD_AWAY_S) from error
        except Exception as bug:  # noqa: BLE001  (reported, and buried)
            # Delivered again it would fail again, for ever: kept with its reason it can be replayed after the fix.
            bugs.report("a start message could not be taken in", workflow=message.workflow)
            reply = await self._bury(message, bug)
        await self._answer(message, reply)

    async def _start(self, message: StartMessage) -> Reply:
        envelope = read_envelope(message.body, message.headers)
        created = await self.starter.start(message.workflow, envelope, source=message.source)
        # An existing one too: the first delivery may have died before it could.
        self.wake(created.run_id, created.app, None if created.existing else envelope.at)
        return Reply(msgspec.json.encode({"run_id": created.run_id, "existing": created.existing}))

    async def _bury(self, message: StartMessage, refusal: Exception) -> Reply:
        code, reason = type(refusal).__name__, str(refusal)
        letter = NewLetter(
            kind="start",
            subject=message.subject,
            code=code,
            reason=reason,
            body=message.body,
            headers=dict(message.headers),
            source=message.source,
        )
        letter_id = await self._kept(letter)
        log.warning("a start message became a dead letter", letter=letter_id, workflow=message.workflow, why=reason)
        await self.bus.announce("dead.start", msgspec.json.encode({"id": letter_id, "reason": reason}))
        return Reply(msgspec.json.encode({"error": code, "message": reason}), error=code, description=reason)

    async def _kept(self, letter: NewLetter) -> str:
        try:
            return await self.world.bury(letter)
        except Unavailable as error:
            raise Again(WORLD_AWAY_S) from error

    async def _answer(self, message: StartMessage, reply: Reply) -> None:
        address = message.headers.get(REPLY_TO, "")
        if address and not await self.bus.answer(address, reply):
            log.warning("a start message named a reply address that is not served", address=address[:200])
