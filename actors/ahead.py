"""Running ahead: when a run's code may be shown results before they are durable (L4), and what it prints meanwhile.

A batch that holds results *and* what they led to saves a commit for each step of a chain. The price is paid when an
outside event lands first: the code has seen what the log denies, and is rebuilt. A run this happens to is left alone
for a while: where much comes from outside, strict batches are cheaper than rebuilding again and again.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from logging import Logger, LogRecord

Saying = Callable[[], object]

CALM_BATCHES: Final = 16
"""Batches in a row that nothing landed before, until a run that was refused runs ahead again."""

CALM_BATCHES_MAX: Final = 4096
"""Each refusal asks for twice as many: what is rebuilt again and again would cost the square of the log."""


@dataclass(slots=True)
class Ahead:
    """What a run's actor remembers about running ahead, whatever is reloaded meanwhile."""

    wanted: bool
    """The node's setting."""
    said_seq: int = 0
    """Up to where what the code said was heard on this node."""
    unsure: bool = False
    """Whether a batch that ran ahead may be in the log, although what its code said was never heard."""
    _calm: int = CALM_BATCHES
    _needed: int = CALM_BATCHES // 2

    @property
    def allowed(self) -> bool:
        """Whether the next batch may hold results and what they led to."""
        return self.wanted and self._calm >= self._needed

    def accepted(self, *, calm: bool = True) -> None:
        """Count a batch that was taken; not `calm`: ahead it would have been refused."""
        self._calm = self._calm + 1 if calm else 0

    def refused(self, *, ahead: bool = False) -> None:
        """Count a batch that is not in the log, or never came to be; `ahead`: because something landed before it."""
        self._calm = 0
        if ahead:
            self._needed = min(2 * self._needed, CALM_BATCHES_MAX)

    def unheard(self) -> None:
        """Count a batch of which nobody knows whether it is in the log."""
        self._calm, self.unsure = 0, True

    def said(self, decided_seq: int) -> int:
        """Return up to where a rebuilt coroutine has to be silent, given how far the run is decided."""
        return self.said_seq if self.unsure else max(self.said_seq, decided_seq)


class Held:
    """What code says while it runs ahead: said once its batch is durable, forgotten if it never is."""

    def __init__(self) -> None:
        self._sayings: list[Saying] = []

    def take(self, saying: Saying) -> None:
        """Keep a saying, with the context variables of who says it."""
        self._sayings.append(partial(copy_context().run, saying))

    def say(self) -> None:
        """Say it, in order. A stream that takes nothing is nobody's fault here, and the batch is in."""
        sayings, self._sayings = self._sayings, []
        for saying in sayings:
            with contextlib.suppress(Exception):
                saying()


def printing(original: Callable[..., None], *args: Any, file: Any = None, flush: bool = False, **more: Any) -> Saying:
    """Return a call of `print` that shows its arguments as they are now: the code goes on and changes them."""
    text = io.StringIO()
    original(*args, file=text, **more)
    return partial(original, text.getvalue(), end="", file=file or sys.stdout, flush=flush)


def logging(original: Callable[[Logger, LogRecord], None], logger: Logger, record: LogRecord) -> Saying:
    """Return a call of `Logger.handle` that says its arguments as they are now."""
    if record.args:
        with contextlib.suppress(Exception):  # logging itself reports what does not fit, when it handles the record
            record.msg, record.args = record.getMessage(), None
    return partial(original, logger, record)
