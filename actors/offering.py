"""What of a run is on offer, and whose bells have rung for it.

An offer is a row, written with the batch that decides it; its bell may be lost. Workers with room look for offers
themselves, so a bell is rung again only now and then, when the run is due for it (L12).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from fencepost.world import Offer

AGAIN: Final = timedelta(minutes=5)
AT_ONCE: Final = 256
"""How many bells a run may ring at a time: of a fan-out of thousands the rest waits until those are taken."""


class Offered:
    """See the module. `ring` offers a step to the nodes that serve its queue."""

    def __init__(self, ring: Callable[[Offer], None]) -> None:
        self._ring = ring
        self._written: frozenset[Offer] | None = None
        self._rung: dict[Offer, datetime] = {}
        self._ops: frozenset[str] = frozenset()

    def __contains__(self, op: str) -> bool:
        """Tell whether a step is on offer, as far as was decided."""
        return op in self._ops

    def differs(self, offers: Collection[Offer]) -> bool:
        """Tell whether the rows have to be written; after a load nobody knows what they are."""
        return frozenset(offers) != self._written if self._written is not None else bool(offers)

    def written(self, offers: Collection[Offer]) -> None:
        """Note what the rows are."""
        self._written = frozenset(offers)

    def ring(self, offers: Collection[Offer], now: datetime) -> None:
        """Ring for what has not been rung for, or not for long."""
        self._ops = frozenset(offer.op for offer in offers)
        self._rung = {offer: at for offer, at in self._rung.items() if offer in (self._written or ())}
        silent = (offer for offer in offers if offer not in self._rung or self._rung[offer] + AGAIN <= now)
        for offer in islice(silent, max(0, AT_ONCE - len(self._rung))):
            self._rung[offer] = now
            self._ring(offer)
