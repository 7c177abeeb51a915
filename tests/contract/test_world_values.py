"""Large values and dead letters."""

import asyncio
from hashlib import sha256

import pytest

from fencepost.world import NewLetter, RunNotFound
from tests.contract.logs import a_run


async def test_a_value_is_kept_by_its_hash_before_its_run_is(world):
    body = bytes(range(256)) * 1000

    ref = await world.put_value("run_1", body)

    assert ref == sha256(body).hexdigest()
    assert await world.put_value("run_1", body) == ref
    assert await world.get_value("run_1", ref) == body


async def test_a_value_comes_in_pieces(world):
    body = b"\x00" + b"0123456789" * 200_000
    ref = await world.put_value("run_1", body)

    pieces = [await world.get_value("run_1", ref, offset, 700_000) for offset in range(0, len(body), 700_000)]

    assert b"".join(pieces) == body
    assert await world.get_value("run_1", ref, 5, 3) == body[5:8]
    assert await world.get_value("run_1", ref, len(body) - 1) == body[-1:]
    assert await world.get_value("run_1", ref, len(body)) == b""
    assert await world.get_value("run_1", ref, 0, 0) == b""


async def test_values_belong_to_their_run(world):
    ref = await world.put_value("run_1", b"mine")

    with pytest.raises(RunNotFound):
        await world.get_value("run_2", ref)


async def test_an_empty_and_a_large_value_are_kept(world):
    large = bytes(10 * 2**20)

    empty_ref, large_ref = await world.put_value("run_1", b""), await world.put_value("run_1", large)

    assert await world.get_value("run_1", empty_ref) == b""
    assert await world.get_value("run_1", large_ref) == large


async def test_many_large_values_at_once(world):
    bodies = [bytes([n]) * 2**20 for n in range(12)]

    refs = await asyncio.gather(*(world.put_value("run_1", body) for body in bodies))

    assert [await world.get_value("run_1", ref, 0, 1) for ref in refs] == [body[:1] for body in bodies]


# ---- dead letters


def a_letter(n=0, **changes):
    usual = {"kind": "start", "subject": f"fp.default.start.{n}", "code": "InvalidInput", "reason": "no JSON"}
    return NewLetter(**(usual | {"body": b"\x00{" + bytes([n])} | changes))


async def test_a_dead_letter_is_kept_whole(world, clock):
    letter = a_letter(headers={"Nats-Msg-Id": "é\x00"}, source="START:7")

    letter_id = await world.bury(letter)

    kept = await world.letter(letter_id)
    assert (kept.id, kept.at, kept.letter, kept.replayed_as) == (letter_id, clock(), letter, "")
    assert (await world.count())["dead"] == 1


async def test_a_source_is_buried_once(world):
    first = await world.bury(a_letter(source="START:7"))

    again = await world.bury(a_letter(1, source="START:7"))
    others = [await world.bury(a_letter()) for _ in range(2)]

    assert again == first
    assert len({first, *others}) == 3
    assert (await world.letter(first)).letter.subject == "fp.default.start.0"


async def test_dead_letters_are_listed_newest_first_in_pages(world):
    ids = [await world.bury(a_letter(n)) for n in range(12)]

    pages = [await world.letters(limit=5)]
    while pages[-1]:
        await world.bury(a_letter(99))
        pages.append(await world.letters(before=pages[-1][-1].id, limit=5))

    assert [letter.id for page in pages for letter in page] == ids[::-1]


async def test_a_replay_is_noted(world):
    letter_id = await world.bury(a_letter())
    await world.create(a_run())

    assert await world.mark_replayed(letter_id, "run_1") is True

    assert (await world.letter(letter_id)).replayed_as == "run_1"


@pytest.mark.parametrize("letter_id", ["dead_99", "", "1", "dead_", "dead_x", "dead_-1", "dead_" + "9" * 40, "dead_²"])
async def test_an_unknown_letter_is_none(world, letter_id):
    await world.bury(a_letter())

    assert await world.letter(letter_id) is None
    assert await world.mark_replayed(letter_id, "run_1") is False
