"""How far long work is: one moving line on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from .output import emit, say

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["JsonLines", "Progress", "progress_for"]

EVERY_S: Final = 3.0


class Progress(Protocol):
    """Shows how far it is while its block runs."""

    def show(self, text: str, done: int, total: int | None) -> None:
        """Tell how far it is now; may be called as often as one likes."""
        ...

    def __enter__(self) -> Progress: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class _Quiet:
    """What all have in common: nothing to begin and nothing to end."""

    def __enter__(self) -> Progress:
        return self  # type: ignore[return-value]

    def __exit__(self, *_: object) -> None:
        return


class Lines(_Quiet):
    """A line every few seconds, when there is something new."""

    def __init__(self) -> None:
        self._next_s = time.monotonic() + EVERY_S
        self._last = ""

    def show(self, text: str, done: int, total: int | None) -> None:  # noqa: ARG002  (see Progress)
        """See Progress."""
        if time.monotonic() >= self._next_s and text != self._last:
            self._next_s, self._last = time.monotonic() + EVERY_S, text
            say(text)


class JsonLines(_Quiet):
    """The same for machines."""

    def __init__(self) -> None:
        self._next_s = time.monotonic() + EVERY_S

    def show(self, text: str, done: int, total: int | None) -> None:
        """See Progress."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + EVERY_S
            emit({"event": "progress", "text": text, "done": done, "total": total})


class Bar:
    """A bar on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415  (a tenth of a second that pipes need not wait)
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
        from rich.progress import Progress as RichProgress  # noqa: PLC0415

        columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        self._bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=None)

    def show(self, text: str, done: int, total: int | None) -> None:
        """See Progress."""
        self._bar.update(self._task, description=text, completed=done, total=total)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def progress_for(*, json: bool) -> Any:
    """Return the one that suits whoever reads."""
    if json:
        return JsonLines()
    return Bar() if sys.stderr.isatty() else Lines()
