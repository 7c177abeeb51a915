"""Large values of a run, by their hash. They may be written before the run is: its input can be one."""

from __future__ import annotations

from hashlib import sha256

from ..errors import RunNotFound
from .store import Store

EVERYTHING = 2**31 - 1
"""More bytes than a value can have."""


class Values(Store):
    """Large values."""

    def put_value(self, run_id: str, body: bytes) -> str:
        """See World."""
        self.check_size("a value", len(body))
        ref = sha256(body).hexdigest()
        self.do("put_value", run_id=run_id, ref=ref, body=body)
        return ref

    def get_value(self, run_id: str, ref: str, offset: int, limit: int | None) -> bytes:
        """See World."""
        length = EVERYTHING if limit is None else max(limit, 0)
        row = self.one("get_value", run_id=run_id, ref=ref, offset=max(offset, 0), limit=length)
        if row is None:
            raise RunNotFound(run_id)
        return bytes(row[0])
