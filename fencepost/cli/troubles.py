"""What `dev` shows of its node's log when nobody asked for more: warnings, and what goes wrong in runs, bounded.

A run that fails and a step that fails for the third time are a line each. A provider that is down fails hundreds in
a second: then a few lines stand for all, and a count. While a bar moves on the terminal there is the count only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SOURCE", "Troubles"]

SOURCE: Final = "fencepost.actors.trouble"
"""The logger that tells what went wrong in runs."""
BUS: Final = "fencepost.bus"
LOST: Final = "bus %s: %s"
"""What the bus says of a lost connection. `dev` keeps the server, and says itself when that had stopped."""
AT_ONCE: Final = 5
"""How many lines a window has."""
WINDOW_S: Final = 1.0
ATTEMPTS_MIN: Final = 3
"""Retries are what a step is for; from here on a person may want to know."""

log = structlog.get_logger(__name__)


class Troubles(logging.Filter):
    """See the module. Lets every record of another logger through."""

    def __init__(self) -> None:
        super().__init__()
        self._began_s = 0.0
        self._shown = self._more = 0
        self._hushed = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is shown."""
        if record.name != SOURCE:
            return not (record.name == BUS and record.msg == LOST)
        if not _matters(record.msg):
            return False
        self._begin_window()
        if self._hushed or self._shown >= AT_ONCE:
            self._more += 1
            return False
        self._shown += 1
        return True

    @contextlib.contextmanager
    def hushed(self) -> Iterator[None]:
        """Only count while the block runs."""
        self._hushed = True
        try:
            yield
        finally:
            self._hushed = False
            self._tell_more()

    def _begin_window(self) -> None:
        now_s = time.monotonic()
        if self._hushed or now_s - self._began_s < WINDOW_S:
            return
        self._began_s, self._shown = now_s, 0
        with contextlib.suppress(RuntimeError):  # outside a loop the next record tells it
            asyncio.get_running_loop().call_later(WINDOW_S, self._tell_more)

    def _tell_more(self) -> None:
        if self._more and not self._hushed:
            more, self._more = self._more, 0
            log.warning("more failed runs and repeated steps", count=more, see="fencepost runs ls -s failed")


def _matters(message: object) -> bool:
    if not isinstance(message, dict):
        return True
    told = cast("dict[str, Any]", message)
    match told.get("event"):
        case "step tried again":
            return int(told.get("attempt", 0)) >= ATTEMPTS_MIN
        case "step failed":
            return False  # its workflow may handle that; else the run fails, which is told
        case _:
            return True
