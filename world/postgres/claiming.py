"""Offers as `claim_v1` takes them, and its verdicts as what `World.claim` answers or raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ClaimLost
from ..events import StepStarted, encode_body
from ..records import Claimed
from .flushing import columns, flushed, landed, refusal_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .connecting import Connections
    from .statements import Statement

UNKNOWN = 1
"""The attempt and dispatch an offer will tell."""


@dataclass(frozen=True, slots=True)
class Take:
    """An offer to be taken."""

    run_id: str
    op: str
    token: str
    incarnation: str

    @property
    def columns(self) -> tuple[str, ...]:
        """What `claim_v1` wants of it."""
        return (self.run_id, self.op, self.token, self.incarnation, self._head())

    def _head(self) -> str:
        """Return the event's JSON up to what only the offer tells."""
        body = StepStarted(op=self.op, attempt=UNKNOWN, token=self.token, incarnation=self.incarnation)
        fields = encode_body(body).decode()
        return fields.replace(f'"attempt":{UNKNOWN},', "", 1).removesuffix("}")


class Takes:
    """The outlet of the journal of claims."""

    def __init__(self, connections: Connections, statements: Mapping[str, Statement]) -> None:
        self._connections = connections
        self._statements = statements

    async def flush(self, asks: Sequence[Take], *, patient: bool) -> Sequence[Claimed | Exception | None]:
        """See Outlet."""
        names = ("run_ids", "ops", "tokens", "incarnations", "heads")
        parameters = {"patient": patient, **columns(names, [ask.columns for ask in asks])}
        return await flushed(self._connections, self._statements["claim"], parameters, asks, _verdict_of)

    async def find(self, asks: Sequence[Take]) -> Sequence[Claimed | None]:
        """See Outlet. Not needed: who asks again with the token gets the answer again."""
        return [None for _ in asks]


def _verdict_of(ask: Take, row: Any) -> Claimed | Exception | None:
    match row["verdict"]:
        case "claimed":
            events = landed(ask.run_id, row["landed"])
            return Claimed(row["workflow"], row["app"], row["partition"], row["attempt"], row["dispatch"], events)
        case "claim_lost":
            return ClaimLost(ask.run_id, (ask.op,))
        case _:
            return refusal_of(row, ask.run_id)
