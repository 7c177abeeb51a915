"""Random programs as data: trees of steps and sleeps under sequence, gather, race, timeout, try and choice."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

NAMES = ("work", "work", "work", "once", "hurried", "bounded", "awaited", "careless", "remote")


def random_tree(random: Random) -> str:
    """Return a program for `flows.tree`."""
    return json.dumps(["sequence", _tree(random, 3, count()), _tree(random, 2, count(100))])


def _tree(random: Random, depth: int, labels: Iterator[int]) -> list[Any]:
    kind = random.choice(_INNER if depth and random.random() < 0.75 else _LEAVES)
    return [kind, *_MAKE[kind](random, depth - 1, labels)]


def _call(random: Random, _depth: int, labels: Iterator[int]) -> list[Any]:
    return [random.choice(NAMES), f"w{next(labels)}"]


def _sleep(random: Random, _depth: int, _labels: Iterator[int]) -> list[Any]:
    return [round(random.choice((0.1, 0.3, 1.0, 4.0)) * (0.5 + random.random()), 3)]


def _several(random: Random, depth: int, labels: Iterator[int]) -> list[Any]:
    return [_tree(random, depth, labels) for _ in range(random.randint(1, 3))]


def _race(random: Random, depth: int, labels: Iterator[int]) -> list[Any]:
    parts = [_tree(random, depth, labels) for _ in range(random.randint(2, 3))]
    return [parts, [_tree(random, depth, labels) for _ in parts], random.random() < 0.3]


def _timeout(random: Random, depth: int, labels: Iterator[int]) -> list[Any]:
    return [_sleep(random, 0, labels)[0], _tree(random, depth, labels), _tree(random, depth, labels)]


def _try(random: Random, depth: int, labels: Iterator[int]) -> list[Any]:
    return [_tree(random, depth, labels), _tree(random, depth, labels), _tree(random, 0, labels)]


def _choose(random: Random, depth: int, labels: Iterator[int]) -> list[Any]:
    return [*_call(random, 0, labels), _tree(random, depth, labels), _tree(random, depth, labels)]


def _spawn(random: Random, depth: int, labels: Iterator[int]) -> list[Any]:
    return [_tree(random, depth, labels)]


_LEAVES = ("call", "call", "sleep")
_INNER = ("sequence", "gather", "group", "race", "race", "timeout", "try", "choose", "choose", "spawn")
_MAKE = {
    "call": _call,
    "sleep": _sleep,
    "sequence": _several,
    "gather": _several,
    "group": _several,
    "race": _race,
    "timeout": _timeout,
    "try": _try,
    "choose": _choose,
    "spawn": _spawn,
}
