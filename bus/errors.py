"""What the bus raises.

BusError
├── Unreachable         no server, no answer in time, or the connection is closed
├── NoResponder         nobody serves the endpoint: is a node running?
├── PayloadTooLarge     over the server's `max_payload`; nothing was sent
└── BusUnusable         the server will not do: JetStream is off, too old, permission missing, foreign stream
                        settings, wrong URL; the message says what to do
"""

from __future__ import annotations


class BusError(Exception):
    """Root of everything this floor raises."""


class Unreachable(BusError):
    """No server or no answer in time. What was asked may or may not have happened."""


class NoResponder(BusError):
    """The server is there, but nobody serves what was asked."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(f"nobody answers {endpoint}: start a node of this namespace")
        self.endpoint = endpoint


class PayloadTooLarge(BusError):
    """The message is over the server's limit and was not sent."""

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{what} has {size_bytes:,} bytes, over the bus limit of {limit_bytes:,}: "
            "store it elsewhere and pass a reference, or raise max_payload on the server"
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class BusUnusable(BusError):
    """The server cannot be used as it is; the message says what to do."""
