"""Randomness that a replay repeats: a function of (run seed, task path, number of the draw), nothing else (L7).

One more draw in a branch shifts no other branch, which a generator seeded once per run would.
"""

from __future__ import annotations

import hashlib
import random
import uuid


class Entropy:
    """Draws of one run. `seed` is the secret of its `run_created`."""

    __slots__ = ("_key",)

    def __init__(self, seed: str) -> None:
        self._key = hashlib.blake2b(seed.encode(), digest_size=32).digest()

    def block(self, path: str, n: int, size: int = 32) -> bytes:
        """Return `size` bytes for the n-th draw of a task (SHAKE-256 keyed by prefix)."""
        return hashlib.shake_256(self._key + f"{path}#{n}".encode()).digest(size)

    def uniform(self, path: str, n: int) -> float:
        """Return a float in [0, 1) with 53 random bits."""
        return (int.from_bytes(self.block(path, n, 7)) >> 3) * 2.0**-53

    def generator(self, path: str, n: int) -> random.Random:
        """Return a generator for one call of a `random.*` function."""
        return random.Random(self.block(path, n))  # noqa: S311  (repeatable on purpose)

    def uuid4(self, path: str, n: int) -> uuid.UUID:
        """Return a version 4 UUID."""
        return uuid.UUID(bytes=self.block(path, n, 16), version=4)
