"""Tells of refused lines in the order of the lines, though many are under way at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .output import complain, emit, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .lines import Line

__all__ = ["Refusals"]


@dataclass(slots=True)
class Refusals:
    """Holds a refusal back until every line before it is settled."""

    json: bool
    _under_way: set[int] = field(default_factory=set[int])
    _held: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])

    def noted(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Yield the lines, each under way from here on."""
        for line in lines:
            self._under_way.add(line.number)
            yield line

    def settle(self, number: int, code: str = "", reason: str = "") -> None:
        """Take note of what became of a line, and tell what can be told now."""
        self._under_way.discard(number)
        if code:
            self._held[number] = (code, reason)
        if not self._held:
            return
        first = min(self._under_way, default=None)
        for refused in sorted(self._held):
            if first is not None and refused > first:
                return
            self._tell(refused, *self._held.pop(refused))

    def _tell(self, number: int, code: str, reason: str) -> None:
        if self.json:
            emit({"line": number, "error": code, "message": reason})
        else:
            complain(f"line {number}: {plain(reason)}")
