"""How `dev` speaks: sentences for people, or JSON lines for machines."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .output import emit, say, tell
from .progress import progress_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .progress import Progress
    from .troubles import Troubles

__all__ = ["Talk"]


@dataclass(frozen=True, slots=True)
class Talk:
    """See the module."""

    json: bool = False
    troubles: Troubles | None = None

    def note(self, text: str) -> None:
        """Say what a person should know meanwhile."""
        if self.json:
            emit({"event": "note", "text": text})
        else:
            say(text)

    def event(self, kind: str, text: str, **details: Any) -> None:
        """Say what has come about: the text for people, the details for machines."""
        if self.json:
            emit({"event": kind, **details})
        elif text:
            tell(text)

    @contextlib.contextmanager
    def progress(self) -> Iterator[Progress]:
        """Show how far it is while the block runs; where that is a bar nothing else is said meanwhile."""
        bar = sys.stderr.isatty() and not self.json
        quiet = self.troubles.hushed() if self.troubles and bar else contextlib.nullcontext()
        with quiet, progress_for(json=self.json) as progress:
            yield progress
