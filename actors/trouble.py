"""Says in the log what went wrong in a run: a retry, a loss, a failure, the end of the run by one.

Names, numbers and the error's own sentence, cut short; never an argument or a result.
"""

from __future__ import annotations

import structlog

from fencepost.world import events as ev

log = structlog.get_logger(__name__)
SENTENCE_MAX = 200
AWAY_EVERY_S = 5.0


def tell(run_id: str, body: ev.EventBody, step: str) -> None:
    """Log one event that is now durable, if it is trouble."""
    match body:
        case ev.StepRetrying(lost=lost, error=error, attempt=attempt, delay_s=delay_s) if lost:
            log.warning("step lost", run=run_id, step=step, attempt=attempt, lost=lost, why=_said(error), in_s=delay_s)
        case ev.StepRetrying(deferred=False, error=error, attempt=attempt, delay_s=delay_s):
            log.info(
                "step tried again", run=run_id, step=step, attempt=attempt, why=_said(error), in_s=round(delay_s, 2)
            )
        case ev.StepFailed(error=error, attempt=attempt, code=code):
            log.info("step failed", run=run_id, step=step, attempt=attempt, code=code, why=_said(error))
        case ev.RunFailed(error=error, code=code):
            log.warning("run failed", run=run_id, code=code, why=_said(error))
        case _:
            return


class WorldAway:
    """Says that the world does not answer, once for all runs of a node that meet it."""

    def __init__(self) -> None:
        self._said_at_s = -AWAY_EVERY_S
        self._met = 0

    def __call__(self, why: str, now_s: float) -> None:
        """Say it, if it was not said within `AWAY_EVERY_S`."""
        self._met += 1
        if now_s - self._said_at_s >= AWAY_EVERY_S:
            log.warning("the world does not answer; trying again", why=why, times=self._met)
            self._said_at_s, self._met = now_s, 0


def _said(error: ev.ErrorData | None) -> str:
    if error is None:
        return ""
    return f"{error.type.rpartition(':')[2]}: {error.message}"[:SENTENCE_MAX]
