"""How far long work is: one moving line on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Final, Protocol, Self

from .output import emit, say

__all__ = ["Progress", "progress_for"]

EVERY_S: Final = 3.0


class Progress(Protocol):
    """Shows how far it is while its block runs."""

    def show(self, text: str, done: int, total: int | None) -> None:
        """Tell how far it is now; may be called as often as one likes."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Lines:
    """A line every few seconds, when there is something new: a sentence, or JSON for machines."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._next_s = time.monotonic() + EVERY_S
        self._last: str = ""

    def show(self, text: str, done: int, total: int | None) -> None:
        """See Progress."""
        if time.monotonic() < self._next_s or text == self._last:
            return
        self._next_s, self._last = time.monotonic() + EVERY_S, text
        if self._json:
            emit({"event": "progress", "text": text, "done": done, "total": total})
        else:
            say(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


class Bar:
    """A bar on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415  (a tenth of a second that pipes need not wait)
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
        from rich.progress import Progress as RichProgress  # noqa: PLC0415

        columns = (BarColumn(bar_width=16), TimeElapsedColumn(), TextColumn("{task.description}"))
        self._bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=None)

    def show(self, text: str, done: int, total: int | None) -> None:
        """See Progress."""
        self._bar.update(self._task, description=text, completed=done, total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def progress_for(*, json: bool) -> Progress:
    """Return the one that suits whoever reads."""
    return Bar() if sys.stderr.isatty() and not json else Lines(json=json)
