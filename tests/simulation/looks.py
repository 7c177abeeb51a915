"""Laws that hold between any two transactions: whoever dies now, something wakes each live run (L12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.world import Batch
from fencepost.world import events as ev

if TYPE_CHECKING:
    from tests.simulation.world import SimWorld

REACHED = (
    ev.StepCompleted,
    ev.StepFailed,
    ev.WaitCompleted,
    ev.CancelRequested,
    ev.HookReceived,
    ev.HookConflict,
)
"""Events that code may be waiting for."""

ASLEEP = """
SELECT r.run_id
FROM runs r
LEFT JOIN due d ON d.kind = 'run' AND d.id = r.run_id
WHERE r.ended_at IS NULL AND r.stalled = '' AND d.at IS NULL
  AND NOT EXISTS (SELECT 1 FROM offers o WHERE o.run_id = r.run_id)
  AND NOT EXISTS (SELECT 1 FROM hooks h WHERE h.run_id = r.run_id AND h.is_open = 1)
  AND NOT EXISTS (
    SELECT 1
    FROM claims c
    JOIN members m ON m.incarnation = c.incarnation AND m.left_at IS NULL
    WHERE c.run_id = r.run_id)
"""

OVERREAD = "SELECT token, received, read FROM hooks WHERE run_id = ? AND read > received"

UNREAD = """
SELECT r.decided_seq, r.seq, d.at
FROM runs r
LEFT JOIN due d ON d.kind = 'run' AND d.id = r.run_id
WHERE r.run_id = ? AND r.ended_at IS NULL AND r.stalled = ''
"""


class Looks:
    """See the module. `broken` grows by a sentence for each time a law did not hold."""

    def __init__(self, world: SimWorld, skew_s: float) -> None:
        self.broken: list[str] = []
        self._world = world
        self._slack_us = int(skew_s * 1e6) + 2_000_000
        self._known: set[str] = set()

    def look(self) -> None:
        """Look at the world after a write."""
        self._every_run_can_be_woken()
        last = self._world.history.commits[-1].what
        if isinstance(last, Batch):
            self._what_is_unread_is_due(last.run_id)
            self._no_more_is_read_than_came(last)

    def _every_run_can_be_woken(self) -> None:
        rows = self._world.core.connection.execute(ASLEEP).fetchall()
        for (run_id,) in rows:
            self._found(run_id, "nothing would wake it: no due, no live claim, no offer")

    def _what_is_unread_is_due(self, run_id: str) -> None:
        row = self._world.core.connection.execute(UNREAD, (run_id,)).fetchone()
        if row is None or row["seq"] == row["decided_seq"]:
            return
        tail = self._world.core.more(run_id, row["decided_seq"], 500)
        unread = [event for event in tail if isinstance(event.body, REACHED)]
        now_us = int(self._world.core.clock().timestamp() * 1e6)
        if unread and (row["at"] is None or row["at"] > now_us + self._slack_us):
            when = "never" if row["at"] is None else f"in {(row['at'] - now_us) / 1e6:.1f} s"
            self._found(run_id, f"nobody has decided on event {unread[0].seq}, and it is due {when}")

    def _no_more_is_read_than_came(self, batch: Batch) -> None:
        if batch.reads:
            for token, received, read in self._world.core.connection.execute(OVERREAD, (batch.run_id,)).fetchall():
                self._found(batch.run_id, f"{read} payloads of {token} were read, and {received} have come")

    def _found(self, run_id: str, what: str) -> None:
        sentence = f"{run_id}: after commit {len(self._world.history.commits)}: {what}"
        if run_id not in self._known:  # one sentence a run: what follows is a consequence
            self._known.add(run_id)
            self.broken.append(sentence)
            self._world.history.note(self._world._loop.now_s, "", f"!!! {sentence}")
