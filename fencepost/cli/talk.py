"""How `dev` speaks: sentences for people, or JSON lines for machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .output import complain, emit, tell

__all__ = ["Talk"]


@dataclass(frozen=True, slots=True)
class Talk:
    """See the module."""

    json: bool = False

    def note(self, text: str) -> None:
        """Say what a person should know meanwhile."""
        if self.json:
            emit({"event": "note", "text": text})
        else:
            complain(text)

    def event(self, kind: str, text: str, **details: Any) -> None:
        """Say what has come about: the text for people, the details for machines."""
        if self.json:
            emit({"event": kind, **details})
        elif text:
            tell(text)
