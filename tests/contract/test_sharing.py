"""The rule of fair shares alone: whoever comes and goes, everything has an owner and nothing moves for ever."""

from collections import Counter
from datetime import timedelta
from random import Random

import pytest

from fencepost.world.folding import OLDER_AFTER
from fencepost.world.sharing import Part, Taker, divide
from tests.contract.logs import BEGIN


def played(random, steps):
    """Let nodes of random code come, go and share; return the parts and the live nodes once nothing moves."""
    parts = {number: Part(number, "", 0, None) for number in range(32)}
    live = {"first": 1}

    def ask(name, now):
        taker, *others = (Taker(other, live[other]) for other in sorted(live, key=lambda other: other != name))
        division = divide(list(parts.values()), taker, others, now)
        for number in division.takes:
            parts[number] = Part(number, name, max(parts[number].newest, taker.ordinal), None)
        for number in division.surplus:
            parts[number] = Part(number, "", parts[number].newest, now)
        return division.takes or division.surplus

    for step in range(steps):
        now = BEGIN + step * timedelta(seconds=20)
        if random.random() < 0.3:
            live[f"n{step}"] = random.randint(1, 4)
        elif random.random() < 0.3 and len(live) > 1:
            gone = random.choice(sorted(live))
            del live[gone]
            for number, part in parts.items():
                if part.owner == gone:
                    parts[number] = Part(number, "", part.newest, now)
        ask(random.choice(sorted(live)), now)
    later = BEGIN + timedelta(days=1)
    for rounds in range(20):
        moved = [ask(name, later + rounds * OLDER_AFTER) for name in sorted(live)]
    assert not any(moved), "it never comes to rest"
    return parts, live


def test_who_does_not_hear_has_no_share_while_another_does():
    deaf, hearing = Taker("deaf", 1, hears=False), Taker("hearing", 1)
    parts = [Part(number, "deaf" if number < 8 else "", 1, BEGIN) for number in range(32)]

    alone, beside = divide(parts, deaf, [], BEGIN), divide(parts, deaf, [hearing], BEGIN)

    assert (len(alone.takes), alone.surplus) == (24, frozenset())
    assert (beside.takes, beside.surplus) == (frozenset(), frozenset(range(8)))


@pytest.mark.parametrize("seed", range(50))
def test_whoever_comes_and_goes_it_comes_to_rest_with_an_owner_for_every_partition(seed):
    parts, live = played(Random(seed), 60)

    owners = Counter(part.owner for part in parts.values())
    assert owners.keys() <= live.keys()
    assert sum(owners.values()) == 32
    for part in parts.values():
        able = [name for name, ordinal in live.items() if ordinal >= part.newest]
        assert part.owner in able or not able
        if able:
            assert owners[part.owner] <= -(-32 // len(able))
