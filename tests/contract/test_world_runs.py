"""Runs created once, found, listed and counted."""

import asyncio

import pytest

from fencepost.world import RunExists, RunNotFound, RunQuery, partition_of
from tests.contract.logs import (
    BEGIN,
    Decider,
    a_member,
    a_run,
    cancel,
    dues,
    outcome_of,
    outside,
    run_completed,
    terminate,
    types,
    value,
    whole_log,
)


async def listed(world, **query):
    return [run.run_id for run in await world.runs(RunQuery(**query))]


async def test_facts_are_fixed_when_the_namespace_is_made(world, clock):
    facts = await world.facts()
    clock.turn(hours=1)

    assert (facts.namespace, facts.partitions, facts.created_at) == ("default", 32, BEGIN)
    assert 0 <= facts.hash_seed < 2**32
    assert await world.facts() == facts


async def test_the_same_id_with_the_same_input_attaches(world):
    first = await world.create(a_run("run_1", chain_id="order-7"))

    again = await world.create(a_run("run_2", chain_id="order-7", seed="another"))

    assert (first.run_id, first.existing) == ("run_1", False)
    assert (again.run_id, again.existing) == ("run_1", True)
    with pytest.raises(RunNotFound):
        await world.find("run_2")


async def test_an_id_attaches_also_after_the_end(world):
    await world.create(a_run("run_1", chain_id="order-7"))
    await outside(world, terminate())

    assert (await world.create(a_run("run_2", chain_id="order-7"))).existing


@pytest.mark.parametrize("change", [{"input_digest": "d2"}, {"workflow": "refund"}], ids=["input", "workflow"])
async def test_the_same_id_with_something_else_is_refused(world, change):
    await world.create(a_run("run_1", chain_id="order-7"))

    with pytest.raises(RunExists) as refused:
        await world.create(a_run("run_2", chain_id="order-7", **change))

    assert (refused.value.chain_id, refused.value.run_id) == ("order-7", "run_1")
    assert await listed(world) == ["run_1"]


async def test_a_run_id_creates_once_too(world):
    await world.create(a_run("run_1"))

    assert (await world.create(a_run("run_1"))).existing
    with pytest.raises(RunExists):
        await world.create(a_run("run_1", input_digest="d2"))
    with pytest.raises(RunExists):
        await world.create(a_run("run_1", chain_id="order-7"))
    assert types(await whole_log(world)) == ["run_created"]


async def test_of_many_starts_with_one_id_one_creates(world):
    answers = await asyncio.gather(*(world.create(a_run(f"run_{n}", chain_id="order-7")) for n in range(30)))

    assert sum(not answer.existing for answer in answers) == 1
    assert len({answer.run_id for answer in answers}) == 1
    assert len(await listed(world)) == 1


# ---- a workflow the starter does not know


async def test_a_run_tells_whose_it_is(world):
    created = await world.create(a_run("run_1", chain_id="order-7"))
    again = await world.create(a_run("run_2", chain_id="order-7", app="bank"))

    assert (created.app, again.app) == ("shop", "shop")


async def test_a_run_of_no_app_goes_to_the_newest_live_node_that_knows_its_workflow(world):
    for app, workflows in (("old", {"order"}), ("shop", {"order", "refund"}), ("bank", {"transfer"})):
        await world.join(a_member(app, app=app, workflows=frozenset(workflows)))
    gone = await world.join(a_member("gone", app="gone"))
    await world.leave(gone)

    created = await world.create(a_run("run_1", app=""))
    again = await world.create(a_run("run_1", app=""))

    assert (created.app, again.app) == ("shop", "shop")
    assert (await world.find("run_1")).app == "shop"
    assert (await whole_log(world))[0].body.app == ""
    assert list(await dues(world, app="shop")) == ["run_1"]


async def test_a_run_nobody_knows_keeps_no_app_until_somebody_joins_who_does(world):
    await world.join(a_member(workflows=frozenset({"refund"})))

    created = await world.create(a_run("run_1", app=""))

    assert (created.app, (await world.find("run_1")).app) == ("", "")
    assert list(await dues(world, app="")) == ["run_1"]
    await world.join(a_member("bank", app="bank"))
    assert (await world.find("run_1")).app == "bank"
    assert (list(await dues(world, app="")), list(await dues(world, app="bank"))) == ([], ["run_1"])


async def test_a_run_of_an_app_stays_with_it_whoever_knows_its_workflow(world):
    await world.join(a_member(app="bank"))

    assert (await world.create(a_run("run_1"))).app == "shop"


# ---- asking


async def test_a_run_is_found_by_its_id_and_by_the_id_of_its_chain(world):
    await world.create(a_run("run_1", chain_id="order-7", attributes={"customer": "ada", "kind": "gift"}))

    by_chain = await world.find("order-7")

    assert by_chain == await world.find("run_1") == (await world.open("run_1")).run
    assert by_chain.attributes == {"customer": "ada", "kind": "gift"}
    assert by_chain.partition == partition_of("run_1", 32)
    assert (by_chain.workflow, by_chain.app, by_chain.chain_id) == ("order", "shop", "order-7")


@pytest.fixture
async def many(world, clock):
    """Ten runs: 0-4 order, 5-9 refund; 0 completed, 1 terminated, 2 stalled, 3 and 4 running, the rest pending."""
    for n in range(10):
        workflow = "order" if n < 5 else "refund"
        await world.create(a_run(f"run_{n}", workflow=workflow, attributes={"parity": "odd" if n % 2 else "even"}))
        clock.turn(seconds=1)
    await (await Decider.of(world, "run_0")).append(run_completed())
    await outside(world, terminate(), run_id="run_1")
    for n in (2, 3, 4):
        await (await Decider.of(world, f"run_{n}")).begin()
    await world.stall("run_2", (await world.open("run_2")).fence, "why")


@pytest.mark.usefixtures("many")
async def test_runs_are_listed_newest_first_and_narrowed(world):
    everything = [f"run_{n}" for n in range(9, -1, -1)]

    assert await listed(world) == everything
    assert await listed(world, limit=3) == everything[:3]
    assert await listed(world, limit=0) == []
    assert await listed(world, workflow="order") == everything[5:]
    assert await listed(world, status="completed") == ["run_0"]
    assert await listed(world, status="running") == ["run_4", "run_3"]
    assert await listed(world, status="stalled") == ["run_2"]
    assert await listed(world, status="live") == everything[:8]
    assert await listed(world, status="live", workflow="order") == ["run_4", "run_3", "run_2"]
    assert await listed(world, attribute=("parity", "odd")) == everything[::2]
    assert await listed(world, attribute=("parity", "odd"), status="pending") == ["run_9", "run_7", "run_5"]
    assert await listed(world, attribute=("parity", "odd"), status="live", workflow="order") == ["run_3"]
    assert await listed(world, attribute=("parity", "even"), status="stalled") == ["run_2"]
    assert await listed(world, attribute=("parity", "none")) == []
    assert await listed(world, status="exploded") == []
    assert (await world.runs(RunQuery(limit=1)))[0].attributes == {"parity": "odd"}


@pytest.mark.usefixtures("many")
async def test_lists_page_on_by_the_last_id_and_are_stable_while_runs_are_created(world):
    pages = [await listed(world, limit=4)]
    while pages[-1]:
        await world.create(a_run(f"run_new{len(pages)}"))
        pages.append(await listed(world, limit=4, before=pages[-1][-1]))

    assert [run_id for page in pages for run_id in page] == [f"run_{n}" for n in range(9, -1, -1)]
    assert await listed(world, before="run_99") == []


async def test_runs_of_one_instant_page_without_loss(world):
    for n in range(10):
        await world.create(a_run(f"run_{n}"))

    pages = [await listed(world, limit=3)]
    while pages[-1]:
        pages.append(await listed(world, limit=3, before=pages[-1][-1]))

    assert sorted(run_id for page in pages for run_id in page) == [f"run_{n}" for n in range(10)]


@pytest.mark.usefixtures("many")
async def test_counts_are_by_status_with_stalled_apart(world):
    assert await world.count() == {
        "pending": 5,
        "running": 2,
        "stalled": 1,
        "completed": 1,
        "failed": 0,
        "cancelled": 0,
        "terminated": 1,
        "continued": 0,
        "dead": 0,
    }


ODD = [
    "",
    "🧮👩‍🚀",
    "\u202eright to left",
    "'; DROP TABLE runs; --",
    ":run_id ?1 %s",
    "\r\n\t",
    "é" * 10_000,
    "\uffff\U0010ffff",
]


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
async def test_odd_text_comes_back_as_it_was(world, text):
    await world.create(
        a_run(chain_id=text, workflow=text, app=text, input=value({text: text}), attributes={text: text, "n": text})
    )
    await outside(world, cancel(key=text, reason=text))
    decider = await Decider.of(world)
    await decider.append(run_completed(text))

    log = await whole_log(world)
    run = await world.find(text or "run_1")
    assert bytes(log[0].body.input.json) == bytes(value({text: text}).json)
    assert (log[1].body.key, log[1].body.reason) == (text, text)
    assert bytes(log[2].body.result.json) == bytes(value(text).json)
    assert (run.chain_id, run.workflow, run.app, run.attributes) == (text, text, text, {text: text, "n": text})
    assert await listed(world, attribute=(text, text), workflow=text) == ["run_1"]


@pytest.mark.parametrize("text", ["\x00", "a\x00b"], ids=["nul", "nul-inside"])
async def test_nul_comes_back_as_it_was_in_values_and_elsewhere_or_is_refused_whole(world, text):
    """Postgres keeps no NUL in a text, and no id or key may hold one; what users compute with may."""
    decider = await Decider.of_new(world, input=value({text: text}))
    await outside(world, cancel(reason=text))
    decider.known += 1

    names = await outcome_of(world.create(a_run("run_2", chain_id=text, attributes={text: text})))
    key = await outcome_of(outside(world, cancel(key=text)))
    await decider.append(run_completed(text), known=2 if isinstance(key, ValueError) else 3)

    log = await whole_log(world)
    assert bytes(log[0].body.input.json) == bytes(value({text: text}).json)
    assert log[1].body.reason == text
    assert bytes(log[-1].body.result.json) == bytes(value(text).json)
    if isinstance(names, ValueError):
        assert await listed(world) == ["run_1"]
        assert [event.seq for event in log] == [1, 2, 3]
    else:
        assert (await world.find(text)).attributes == {text: text}
        assert log[2].body.key == text


async def test_text_that_is_none_is_refused_and_harms_nobody(world):
    await world.create(a_run("run_1"))

    with pytest.raises(ValueError):  # noqa: PT011  (the encoder's words)
        await world.create(a_run("run_2", chain_id="\ud800"))
    with pytest.raises(ValueError):  # noqa: PT011
        await outside(world, cancel(reason="\ud800"))

    assert await listed(world) == ["run_1"]
    assert types(await whole_log(world)) == ["run_created"]


async def test_ten_megabytes_stand_in_a_log(world):
    decider = await Decider.of_new(world)
    large = "x" * (10 * 2**20)

    await decider.append(run_completed(large))

    assert bytes((await whole_log(world))[-1].body.result.json) == bytes(value(large).json)
