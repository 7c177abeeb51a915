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
"""Batches that must be accepted in a row before a run that was refused runs ahead again."""


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

    @property
    def allowed(self) -> bool:
        """Whether the next batch may hold results and what they led to."""
        return self.wanted and self._calm >= CALM_BATCHES

    def accepted(self) -> None:
        """Count a batch that was taken."""
        self._calm += 1

    def refused(self) -> None:
        """Count a batch that is not in the log, or never came to be."""
        self._calm = 0

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
