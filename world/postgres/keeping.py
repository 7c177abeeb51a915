"""What is kept beside the logs: large values by their hash, and dead letters."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

from .. import rows
from ..errors import RunNotFound
from .asking import Asking, can_be_kept

if TYPE_CHECKING:
    from ..records import Letter, NewLetter

EVERYTHING: Final = 2**31 - 1
"""More bytes than a value can have."""
BEHIND_ALL: Final = 2**30
"""A position behind every value, from where nothing overflows."""
AFTER_ALL: Final = 2**62


class Keeping(Asking):
    """Large values and dead letters."""

    async def put_value(self, run_id: str, body: bytes) -> str:
        """See World."""
        self._check_size("a value", len(body))
        ref = sha256(body).hexdigest()
        await self._one("put_value", run_id=run_id, ref=ref, value=body)
        return ref

    async def get_value(self, run_id: str, ref: str, offset: int = 0, limit: int | None = None) -> bytes:
        """See World."""
        length = EVERYTHING if limit is None else min(max(limit, 0), EVERYTHING)
        start = min(max(offset, 0), BEHIND_ALL)
        is_name = can_be_kept(run_id) and can_be_kept(ref)
        row = await self._one("get_value", run_id=run_id, ref=ref, offset=start, limit=length) if is_name else None
        if row is None:
            raise RunNotFound(run_id)
        return bytes(row["body"])

    # ---- dead letters

    async def bury(self, letter: NewLetter) -> str:
        """See World. What Postgres cannot keep of the words about it is left out; the body is kept as it came."""
        row = await self._one(
            "bury",
            kind=letter.kind,
            subject=_kept(letter.subject),
            code=letter.code,
            reason=_kept(letter.reason),
            letter=letter.body,
            headers=msgspec.json.encode(letter.headers).decode(),
            source=_kept(letter.source),
        )
        return rows.letter_id(row["number"])

    async def letters(self, before: str = "", limit: int = 50) -> tuple[Letter, ...]:
        """See World."""
        bound = rows.letter_number(before) if before else AFTER_ALL
        return tuple(map(rows.letter, await self._all("list_letters", before=bound, limit=max(limit, 0))))

    async def letter(self, letter_id: str) -> Letter | None:
        """See World."""
        row = await self._one("read_letter", number=rows.letter_number(letter_id))
        return None if row is None else rows.letter(row)

    async def mark_replayed(self, letter_id: str, replayed_as: str) -> bool:
        """See World."""
        row = await self._one("mark_replayed", number=rows.letter_number(letter_id), replayed_as=replayed_as)
        return bool(row["is_marked"])


def _kept(text: str) -> str:
    return text.replace("\0", "").encode(errors="replace").decode()
