"""Dead letters: what nobody could take, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .. import rows
from ..instants import to_us
from .store import Store, encode

if TYPE_CHECKING:
    from ..records import Letter, NewLetter

AFTER_ALL: Final = 2**62


class Letters(Store):
    """Dead letters."""

    def bury(self, letter: NewLetter) -> str:
        """See World."""
        row = self.one("letter_by_source", source=letter.source) if letter.source else None
        row = row or self.one(
            "insert_letter",
            at=to_us(self.clock()),
            kind=letter.kind,
            subject=letter.subject,
            code=letter.code,
            reason=letter.reason,
            body=letter.body,
            headers=encode(letter.headers),
            source=letter.source,
        )
        return rows.letter_id(row["number"] if row else 0)

    def letters(self, before: str, limit: int) -> tuple[Letter, ...]:
        """See World."""
        bound = rows.letter_number(before) if before else AFTER_ALL
        return tuple(map(rows.letter, self.all("list_letters", before=bound, limit=max(limit, 0))))

    def letter(self, letter_id: str) -> Letter | None:
        """See World."""
        row = self.one("read_letter", number=rows.letter_number(letter_id))
        return None if row is None else rows.letter(row)

    def mark_replayed(self, letter_id: str, replayed_as: str) -> bool:
        """See World."""
        return self.do("mark_replayed", number=rows.letter_number(letter_id), replayed_as=replayed_as) > 0
