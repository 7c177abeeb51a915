"""How often one may ask: a leaky bucket for each key, of which the longest unused are forgotten."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final, Self

from aiolimiter import AsyncLimiter

from fencepost.actors import durations

__all__ = ["Rate", "Rates", "network_of"]

KEYS_MAX: Final = 20_000
"""Keys are what strangers send. One that is forgotten has its whole burst again."""
UNITS: Final = {"second": "1s", "minute": "1m", "hour": "1h", "s": "1s", "m": "1m", "h": "1h"}
V6_PREFIX: Final = 64
"""Whoever has one address of version 6 has as many as these leave open."""


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `times` at once, and so many more in each `per_s` seconds."""

    times: int
    per_s: float

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Read `50/s`, `100/minute`, `5/10s`; `none` is no bound.

        Raises:
            ValueError: it is none of these.
        """
        if text.strip().lower() == "none":
            return None
        found = re.fullmatch(r"\s*([0-9]{1,9})\s*/\s*(\S.*?)\s*", text)
        try:
            times, per = (int(found[1]), found[2].lower()) if found else (0, "")
            rate = cls(times, durations.seconds(UNITS.get(per, per)))
        except ValueError:
            rate = cls(0, 0.0)
        if rate.times < 1 or rate.per_s <= 0:
            raise ValueError(f"rate {text[:40]!r} must be like 50/s, 100/minute or 5/10s, or none")
        return rate


class Rates:
    """See the module. Without a rate everything passes."""

    def __init__(self, rate: Rate | None) -> None:
        self._rate = rate
        self._buckets: dict[str, AsyncLimiter] = {}

    async def wait_s(self, key: str) -> float:
        """Count one more for a key and return 0; or count nothing and return in how many seconds there is room."""
        if self._rate is None:
            return 0.0
        bucket = self._buckets.pop(key, None) or AsyncLimiter(self._rate.times, self._rate.per_s)
        self._buckets[key] = bucket
        if len(self._buckets) > KEYS_MAX:
            del self._buckets[next(iter(self._buckets))]
        if not bucket.has_capacity():
            return self._rate.per_s / self._rate.times
        await bucket.acquire()  # there is room: it does not wait
        return 0.0


def network_of(address: str) -> str:
    """Return what one client can call from: its address, of version 6 its network."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # a socket of this machine has a name, or none
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found.packed, V6_PREFIX), strict=False))
