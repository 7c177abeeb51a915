"""Hooks: made, put to, disposed; what is put twice is recorded once. Whose a token is: `test_world_hooks_taken`."""

import asyncio

import pytest

from fencepost.world import (
    ClaimLost,
    Hook,
    HookFull,
    HookNotFound,
    Read,
    RunEnded,
    RunNotFound,
    StaleLog,
    events,
    folding,
)
from tests.contract.logs import (
    BEGIN,
    Decider,
    a_member,
    a_run,
    completed,
    created,
    disposed,
    dues,
    hooked,
    outcome_of,
    outside,
    received,
    run_completed,
    started,
    terminate,
    types,
    value,
    wait,
    whole_log,
)

MAX = folding.HOOK_UNREAD_MAX
LATER = BEGIN.replace(year=2031)


@pytest.fixture
async def decider(world):
    """A run whose operation 0.0 has the token `tok`; its log ends at position 3."""
    decider = await Decider.of_new(world)
    await decider.begin(hooked())
    return decider


async def deliveries(world, run_id="run_1"):
    """Return what was put to a run, in order."""
    log = await whole_log(world, run_id)
    return [event.body.delivery for event in log if isinstance(event.body, events.HookReceived)]


def many(first, last):
    return [received(f"d{n}") for n in range(first, last + 1)]


# ---- whose a token is


async def test_a_hook_tells_its_run_and_how_it_was_made(world):
    made = hooked(
        "0.3.1",
        "order-7",
        model="shop.api:Payment",
        schema=events.as_json({"type": "object"}),
        reply=events.HookReply(status=201, body=events.as_json("ok"), headers={"x": "y"}),
    )
    decider = await Decider.of_new(world)
    await decider.begin(wait(), made)

    found = await world.hook("order-7")

    run = await world.find("run_1")
    assert found == Hook("order-7", "run_1", "shop", run.partition, made, is_open=True, unread=0)


async def test_a_token_nobody_made_is_not_found(world, decider):  # noqa: ARG001  (it made another)
    for token in ("tok2", "TOK", "to", "tok ", "t%", ""):
        with pytest.raises(HookNotFound) as refused:
            await world.hook(token)
        assert refused.value.token == token


async def test_a_disposed_hook_is_still_told_and_closed(world, decider):
    await outside(world, received())

    await decider.append(disposed())

    found = await world.hook("tok")
    assert (found.run_id, found.created, found.is_open) == ("run_1", hooked(), False)


@pytest.mark.parametrize("end", ["completed", "terminated"])
async def test_the_end_of_a_run_closes_all_its_hooks_and_no_other(world, decider, end):
    await decider.append(hooked("0.1", "tok2"))
    await (await Decider.of_new(world, "run_2")).begin(hooked("0.0", "other"))

    await (decider.append(run_completed()) if end == "completed" else outside(world, terminate()))

    assert [(await world.hook(token)).is_open for token in ("tok", "tok2", "other")] == [False, False, True]


async def test_a_hook_that_is_made_in_the_batch_that_ends_the_run_is_closed(world, decider):
    await decider.append(hooked("0.1", "tok2"), run_completed())

    found = await world.hook("tok2")
    assert (found.is_open, found.created.op) == (False, "0.1")


async def test_a_token_may_hold_any_character(world):
    tokens = [
        "🪝",
        "it's",
        'a "b"',
        "100%",
        "_",
        "a\tb",
        "a\\b",
        "{a,b}",
        "ü",
        "u\u0308",
        "A",
        "a",
        "'); --",
        "x" * 255,
    ]
    decider = await Decider.of_new(world)
    await decider.begin(*(hooked(f"0.{n}", token) for n, token in enumerate(tokens)))

    for n, token in enumerate(tokens):
        await outside(world, received(token, f"0.{n}", token))

    found = [await world.hook(token) for token in tokens]
    assert [(hook.token, hook.created.op, hook.unread) for hook in found] == [
        (token, f"0.{n}", 1) for n, token in enumerate(tokens)
    ]
    assert await deliveries(world) == tokens


async def test_a_run_may_have_many_hooks(world, clock):  # noqa: ARG001  (it stands still)
    decider = await Decider.of_new(world)
    await decider.begin(*(hooked(f"0.{n}", f"tok{n}") for n in range(1000)))

    await asyncio.gather(*(outside(world, received("d", f"0.{n}", f"tok{n}")) for n in range(0, 1000, 100)))
    await outside(world, terminate())

    found = [await world.hook(f"tok{n}") for n in (0, 1, 900, 999)]
    assert [(hook.created.op, hook.is_open, hook.unread) for hook in found] == [
        ("0.0", False, 1),
        ("0.1", False, 0),
        ("0.900", False, 1),
        ("0.999", False, 0),
    ]


# ---- putting


async def test_what_is_put_stands_in_the_log_as_any_event_from_outside(world, clock, decider):
    at = clock.turn(seconds=5)
    body = received("d1", payload={"paid": True}, headers={"content-type": "application/json"})

    accepted = await outside(world, body)

    assert (accepted.first_seq, accepted.at, accepted.fence, accepted.repeated) == (4, at, decider.fence, False)
    event = (await whole_log(world))[-1]
    assert (event.seq, event.tick, event.at, event.body) == (4, None, at, body)
    assert (await world.hook("tok")).unread == 1
    run = await world.find("run_1")
    assert (run.seq, run.tick, run.in_band_count, run.last_at) == (4, 1, 2, at)
    assert await world.position_at("run_1", at) == 3


async def test_what_is_put_makes_the_run_due_and_a_writer_who_has_not_seen_it_keeps_it_so(world, clock, decider):
    await decider.append(due=LATER)
    at = clock.turn(seconds=5)

    await outside(world, received())

    assert await dues(world) == {"run_1": at}
    accepted = await decider.append(wait(), due=LATER)
    assert types(accepted.between) == ["hook_received"]
    assert await dues(world) == {"run_1": at}


async def test_what_is_put_refuses_a_batch_that_needs_the_whole_log(world, decider):
    await outside(world, received())

    with pytest.raises(StaleLog) as refused:
        await decider.append(wait(), whole_log=True)

    assert types(refused.value.between) == ["hook_received"]
    await decider.append(wait(), known=4, whole_log=True)


async def test_what_is_put_together_keeps_its_order(world, decider):  # noqa: ARG001  (it made the hook)
    await outside(world, received("b"), received("a"), received("c"))
    await asyncio.gather(*(outside(world, received(f"{n}")) for n in range(20)))

    found = await deliveries(world)
    assert found[:3] == ["b", "a", "c"]
    assert sorted(found[3:], key=int) == [str(n) for n in range(20)]
    assert (await world.hook("tok")).unread == 23


async def test_what_is_put_to_no_hook_is_refused_and_changes_nothing(world, decider):
    await decider.append(hooked("0.7", "other"))
    before = await world.open("run_1"), await world.hook("tok")

    for body in (received(token="tok2"), received(op="0.1"), received(op="0.0.0"), received(token="other")):
        with pytest.raises(HookNotFound) as refused:
            await outside(world, received("d2"), body)
        assert refused.value.token == body.token

    assert (await world.open("run_1"), await world.hook("tok")) == before


async def test_what_is_put_to_the_hook_of_another_run_is_refused(world, decider):  # noqa: ARG001  (its hook)
    await (await Decider.of_new(world, "run_2")).begin(hooked("0.0", "its own"))
    await world.create(a_run("run_3"))

    for run_id in ("run_2", "run_3"):
        with pytest.raises(HookNotFound):
            await outside(world, received(), run_id=run_id)
    with pytest.raises(RunNotFound):
        await outside(world, received(), run_id="run_9")

    assert [await deliveries(world, run_id) for run_id in ("run_1", "run_2", "run_3")] == [[], [], []]


async def test_a_disposed_hook_takes_nothing_any_more(world, decider):
    await decider.append(disposed())

    with pytest.raises(HookNotFound) as refused:
        await outside(world, received())

    assert refused.value.token == "tok"
    assert (await world.find("run_1")).seq == 4


async def test_an_ended_run_says_so_before_its_hooks_do(world, decider):
    await decider.append(disposed())
    await decider.append(run_completed())

    for body in (received(), received(token="nobody")):
        with pytest.raises(RunEnded) as refused:
            await outside(world, body)
        assert refused.value.status == "completed"


async def test_an_outcome_without_its_claim_is_told_before_a_hook_that_is_not_there(world, decider):
    node = await world.join(a_member())
    await decider.append(created("0.1"), started(node, "0.1"))

    with pytest.raises(ClaimLost):
        await outside(world, received(token="nobody"), completed("0.1", "stolen"))
    with pytest.raises(HookNotFound):
        await outside(world, completed("0.1"), received(token="nobody"))

    assert [claim.token for claim in (await world.open("run_1")).claims] == ["t1"]


async def test_only_a_decider_makes_and_disposes_hooks(world, decider):  # noqa: ARG001  (it made one)
    for body in (hooked("0.1"), disposed()):
        with pytest.raises(ValueError, match="needs a fence"):
            await outside(world, body)


async def test_a_batch_about_hooks_that_nobody_may_send_is_a_bug(world, decider):
    before = await world.open("run_1")

    for call in (
        decider.append(received()),
        outside(world, received(op="")),
        outside(world, received(token="")),
        outside(world, received(delivery="")),
        outside(world, received(), reads=(Read("0.0", 1),)),
        decider.append(hooked("")),
        decider.append(hooked("0.1", "")),
    ):
        with pytest.raises(ValueError):  # noqa: PT011  (each says something else)
            await call

    assert await world.open("run_1") == before


# ---- once more


async def test_a_delivery_that_comes_again_is_recorded_once(world, clock, decider):
    first = await outside(world, received("d1", payload="first"))
    clock.turn(seconds=5)

    again = await outside(world, received("d1", payload="second"), known=decider.known)

    assert (first.repeated, again.repeated) == (False, True)
    assert (again.first_seq, again.at) == (first.first_seq, first.at)
    assert types(again.between) == ["hook_received"]
    assert (await whole_log(world))[-1].body.payload == value("first")
    assert (await world.hook("tok")).unread == 1


async def test_of_many_deliveries_with_one_id_at_once_one_is_recorded(world, decider):  # noqa: ARG001  (its hook)
    answers = await asyncio.gather(*(outside(world, received("d1")) for _ in range(8)))

    assert sorted(answer.repeated for answer in answers) == [False] + [True] * 7
    assert {answer.first_seq for answer in answers} == {4}
    assert await deliveries(world) == ["d1"]


async def test_a_delivery_that_comes_again_is_answered_also_by_a_closed_hook(world, decider):
    first = await outside(world, received("d1"))
    await decider.append(disposed())
    after_dispose = await outside(world, received("d1"))
    await decider.append(run_completed())

    after_end = await outside(world, received("d1"))

    assert [answer.repeated for answer in (after_dispose, after_end)] == [True, True]
    assert {answer.first_seq for answer in (first, after_dispose, after_end)} == {4}


async def test_a_delivery_that_comes_again_is_answered_also_when_the_hook_was_made_anew(world, decider):
    await outside(world, received("d1"))
    await decider.append(disposed(), hooked("0.1"))

    again = await outside(world, received("d1", "0.1"))

    assert (again.repeated, again.first_seq) == (True, 4)
    assert (await world.hook("tok")).unread == 0
    assert not (await outside(world, received("d2", "0.1"))).repeated


async def test_one_delivery_id_under_two_tokens_is_two_deliveries(world, decider):
    await decider.append(hooked("0.1", "tok2"))

    answers = [await outside(world, body) for body in (received("d1"), received("d1", "0.1", "tok2"))]

    assert [answer.repeated for answer in answers] == [False, False]
    assert await deliveries(world) == ["d1", "d1"]


async def test_a_delivery_id_is_used_anew_by_the_next_run_of_the_token(world, decider):
    await outside(world, received("d1"))
    await decider.append(run_completed())
    await (await Decider.of_new(world, "run_2")).begin(hooked())

    assert not (await outside(world, received("d1"), run_id="run_2")).repeated


# ---- how much


async def test_a_hook_is_full_until_its_run_has_read(world, decider):
    await decider.append(hooked("0.1", "tok2"))
    await outside(world, *many(1, MAX), received("d1", "0.1", "tok2"))
    before = await world.open("run_1")

    with pytest.raises(HookFull) as refused:
        await outside(world, received("one more"))

    assert (refused.value.token, refused.value.limit) == ("tok", MAX)
    assert await world.open("run_1") == before
    assert (await outside(world, received("d1"))).repeated
    assert not (await outside(world, received("d2", "0.1", "tok2"))).repeated
    await decider.append(reads=(Read("0.0", 2),))
    assert (await world.hook("tok")).unread == MAX - 2
    await outside(world, *many(MAX + 1, MAX + 2))
    with pytest.raises(HookFull):
        await outside(world, received("one more"))


async def test_a_hook_counts_what_comes_with_it_and_before_it(world, decider):  # noqa: ARG001  (its hook)
    with pytest.raises(HookFull):
        await outside(world, *many(1, MAX + 1))
    assert (await world.hook("tok")).unread == 0
    part = MAX * 2 // 5

    answers = await asyncio.gather(
        *(outcome_of(outside(world, *many(n * part + 1, (n + 1) * part))) for n in range(3)),
        outcome_of(outside(world, *many(4 * part, 4 * part + MAX - 2 * part - 1))),
    )

    assert sum(isinstance(answer, HookFull) for answer in answers) == 1
    assert (await world.hook("tok")).unread == len(await deliveries(world)) == MAX


async def test_what_was_read_never_goes_back(world, decider):
    await decider.append(hooked("0.1", "tok2"))
    await outside(world, *many(1, 5), received("d1", "0.1", "tok2"))
    await (await Decider.of_new(world, "run_2")).begin(hooked("0.0", "other"))
    await outside(world, received(token="other"), run_id="run_2")

    for counts in ((Read("0.0", 3),), (Read("0.0", 2), Read("0.1", 1)), (), (Read("0.9", 7),)):
        await decider.append(reads=counts)

    assert [(await world.hook(token)).unread for token in ("tok", "tok2", "other")] == [2, 0, 1]
    assert types(await whole_log(world)).count("hook_received") == 6


async def test_a_refused_batch_reads_nothing(world, decider):
    await outside(world, *many(1, 5))

    with pytest.raises(StaleLog):
        await decider.append(wait(), whole_log=True, reads=(Read("0.0", 5),))

    assert (await world.hook("tok")).unread == 5


async def test_a_hook_that_is_made_anew_holds_nothing_unread(world, decider):
    await outside(world, *many(1, 5))
    await decider.append(reads=(Read("0.0", 2),))

    await decider.append(disposed(), hooked("0.1"), reads=(Read("0.0", 4),))

    assert (await world.hook("tok")).unread == 0
    await outside(world, *(received(f"new{n}", "0.1") for n in range(3)))
    assert (await world.hook("tok")).unread == 3


@pytest.mark.usefixtures("decider")
async def test_a_large_payload_takes_the_room_of_several(world):
    text = "x" * (3 * folding.HOOK_WEIGHT_BYTES)
    apart = events.Value(ref="0" * 64, size_bytes=5 * folding.HOOK_WEIGHT_BYTES)

    await outside(world, received("d1", payload=text))
    await outside(world, events.HookReceived(op="0.0", token="tok", delivery="d2", payload=apart))

    assert (await world.hook("tok")).unread == (1 + 3) + (1 + 5)


async def test_more_read_than_was_ever_received_is_nothing_unread(world, decider):
    await outside(world, received("d1"))

    await decider.append(reads=(Read("0.0", 7),))

    assert (await world.hook("tok")).unread == 0


@pytest.mark.usefixtures("decider")
async def test_what_was_received_is_found_by_token_and_delivery(world):
    await outside(world, received("d1", payload=1), received("d2", payload=2))

    found = await world.received("run_1", "tok", "d2")

    assert (found.seq, bytes(found.body.payload.json)) == (5, b"2")
    assert await world.received("run_1", "tok", "d3") is None
    assert await world.received("run_1", "other", "d2") is None
    assert await world.received("run_2", "tok", "d2") is None
