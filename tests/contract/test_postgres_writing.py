"""Writing in Postgres: the same as in SQLite to the last row, whatever shares a statement with whatever."""

import asyncio
import random
from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest

from fencepost.world import Batch, Fence, Offer, Read, SQLiteWorld, errors, events, folding, queries
from fencepost.world.postgres import appending, creating
from fencepost.world.postgres.effects import effects_of
from tests.contract import postgres_stores
from tests.contract.logs import (
    Decider,
    a_member,
    a_run,
    cancel,
    completed,
    conflict,
    created,
    disposed,
    dues,
    failed,
    hooked,
    outcome_of,
    outside,
    received,
    retrying,
    run_completed,
    run_started,
    started,
    step_cancelled,
    terminate,
    wait,
    waited,
    whole_log,
)

MAX_VALUE_BYTES = 12 * 2**20
RUNS = ("run_1", "run_2", "run_3")
OPS = ("0.0", "0.1", "0.2")
TOKENS = ("t1", "t2", "t3", "t4")
HOOKS = ("tok_1", "tok_2", "tok_3")


@pytest.fixture
async def world(postgres_server, tmp_path, clock):
    opened = postgres_stores.postgres(postgres_server, tmp_path, clock, mode="direct", max_value_bytes=MAX_VALUE_BYTES)
    async with opened as found:
        yield found


@pytest.fixture
async def twin(clock):
    """The world that is asked the same."""
    opened = await SQLiteWorld.connect(":memory:", clock=clock, max_value_bytes=MAX_VALUE_BYTES)
    yield opened
    await opened.close()


def flush_of(world):
    """Return what writes asks in exactly one statement, past the journal."""
    outlet = world.world._writing._appends._outlet

    async def flush(*batches, patient=False):
        asks = [appending.prepare(batch, MAX_VALUE_BYTES) for batch in batches]
        await world.now()  # which tells it the time
        return await outlet.flush(asks, patient=patient)

    return flush


# ---- chance


class Chance:
    """Draws batches, more of them sensible than not."""

    def __init__(self, seed, nodes, clock):
        self.random = random.Random(seed)
        self.nodes = nodes
        self.clock = clock
        self.names = 0

    def draw(self, opened, ahead):
        """Return a batch for a run as it was opened, `ahead` in-band ones of the same flush before it."""
        in_band = self.random.random() < 0.6
        batch = self._in_band(opened, ahead) if in_band else self._outside(opened)
        try:
            appending.prepare(batch, MAX_VALUE_BYTES)
        except ValueError:
            return self.draw(opened, ahead)
        return batch

    def _in_band(self, opened, ahead):
        self.names += 1
        fence = ahead[-1] if ahead else opened.fence
        if self.random.random() < 0.08:
            fence = replace(fence, tick=fence.tick + self.random.choice([-1, 1]))
        known = opened.run.seq + self.random.choice([0, 0, 0, 0, -1, -3, 2 * len(ahead), 4])
        whole_log = self.random.random() < 0.4
        pick = self.random.choice
        bodies = tuple(self._ordered() for _ in range(pick([0, 1, 1, 2, 3, 5])))
        waited_ = {body.op for body in bodies if isinstance(body, events.WaitCompleted)}  # no decider offers these
        return Batch(
            opened.run.run_id,
            bodies,
            max(known, 0),
            fence,
            f"b{self.names}",
            whole_log=whole_log,
            at=self._instant(pick([-2, 0, 0, 1, 3])) if whole_log and pick([True, False]) else None,
            due=pick([None, self._instant(5), self._instant(30), self._instant(3600)]),
            offers=tuple(
                Offer(op, pick(["default", "gpu"]), pick([1, 1, 2]), pick([1, 1, 2]))
                for op in self._some()
                if op not in waited_
            ),
            reads=tuple(Read(op, pick([0, 1, 2, 5])) for op in self._some()),
        )

    def _outside(self, opened):
        pick = self.random.choice
        body = pick([self._start, self._outcome, self._outcome, self._said, self._put, self._put, self._put])()
        known = pick([-1, -1, opened.run.seq, max(opened.run.seq - 2, 0)])
        more = pick([(), (), (self._outcome(),), (self._put(),), (self._put(), self._said())])
        return Batch(opened.run.run_id, (body, *more), known)

    def _some(self):
        return self.random.sample(OPS, self.random.choice([0, 0, 0, 1, 2]))

    def _instant(self, seconds):
        return self.clock() + timedelta(seconds=seconds)

    def _ordered(self):
        pick = self.random.choice
        op = pick(OPS)
        simple = [run_started(), created(op), step_cancelled(op), wait(op), waited(op)]
        rare = [run_completed()] if self.random.random() < 0.1 else []
        steps = [self._start(), self._start(), self._outcome(), self._outcome(), self._verdict()]
        hooks = [self._hook() for _ in range(4)]
        return pick([*simple, *rare, *steps, *hooks])

    def _hook(self):
        pick = self.random.choice
        op, token = pick(OPS), pick(HOOKS)
        return pick([hooked(op, token), hooked(op, token), disposed(op, token), conflict(op, token)])

    def _put(self):
        pick = self.random.choice
        payload = pick([None, None, None, "x" * folding.HOOK_WEIGHT_BYTES])
        return received(pick(["d1", "d2", "d3", "d4", "d5"]), pick(OPS), pick(HOOKS), payload)

    def _start(self):
        pick = self.random.choice
        return started(pick(self.nodes), pick(OPS), pick(TOKENS), pick([1, 1, 2, 3]), pick([1, 1, 2]))

    def _outcome(self):
        pick = self.random.choice
        op, token, attempt, drains = pick(OPS), pick(TOKENS), pick([1, 1, 2]), pick([False, False, True])
        return pick(
            [
                completed(op, token, attempt),
                retrying(op, token, attempt, drains=drains),
                failed(op, token, attempt, drains=drains),
            ]
        )

    def _verdict(self):
        pick = self.random.choice
        return pick([failed(pick(OPS)), retrying(pick(OPS), "", pick([1, 2])), step_cancelled(pick(OPS))])

    def _said(self):
        pick = self.random.choice
        return pick([cancel(), cancel("k1"), cancel("k2"), terminate("k1") if pick([0] * 9 + [1]) else cancel("k3")])


def told(verdict):
    """Return a verdict as it can be compared."""
    if isinstance(verdict, errors.WorldError):
        return type(verdict), vars(verdict)
    return verdict


async def state(world):
    """Return everything that writing changes."""
    opened = [await world.open(run_id) for run_id in RUNS]
    offers = [await world.offers("shop", queue, 100) for queue in ("default", "gpu")]
    hooks = [told(await outcome_of(world.hook(token))) for token in HOOKS]
    return opened, sorted(map(sorted, offers)), await dues(world), hooks


async def joined(world):
    """Return two nodes that live and one that does not."""
    nodes = [await world.join(a_member(name)) for name in ("n1", "n2", "n3")]
    await world.leave(nodes[2])
    return nodes


@pytest.mark.parametrize("seed", range(20))
async def test_one_statement_for_many_batches_does_what_sqlite_does_with_each(world, twin, clock, seed):
    flush, nodes = flush_of(world), await joined(world)
    assert nodes == await joined(twin)
    chance = Chance(seed, nodes, clock)
    for run_id in RUNS:
        await world.create(a_run(run_id))
        await twin.create(a_run(run_id))

    for step in range(25):
        batches = await drawn(chance, twin)
        answers = await flush(*batches)
        expected = {n: await outcome_of(twin.append(batches[n])) for n in in_order_of_rounds(batches)}

        assert list(map(told, answers)) == [told(expected[n]) for n in range(len(batches))], (step, batches)
        assert await state(world) == await state(twin), (step, batches)
        clock.turn(seconds=chance.random.choice([0, 1, 20]))
        if step % 5 == 0:
            assert await stalled(world) == await stalled(twin)
        if step == 10:
            await world.leave(nodes[1])
            await twin.leave(nodes[1])


def in_order_of_rounds(batches):
    """Return the places of batches as a flush takes them: what one run does may free the token another one wants."""
    rounds = appending.in_rounds([appending.prepare(batch, MAX_VALUE_BYTES) for batch in batches])
    return [place for round_ in rounds for place in round_]


async def stalled(world):
    """Stall all runs that live."""
    return [type(await outcome_of(world.stall(run_id, None, "why"))) for run_id in RUNS]


async def drawn(chance, twin):
    """Draw what shares a flush: up to three batches of each run, mixed."""
    opened = [await twin.open(run_id) for run_id in RUNS]
    ahead, batches = {run_id: [] for run_id in RUNS}, []
    for of in chance.random.choices(opened, k=chance.random.choice([1, 2, 3, 6])):
        batch = chance.draw(of, ahead[of.run.run_id])
        batches.append(batch)
        if batch.fence is not None:
            ahead[of.run.run_id].append(Fence(batch.fence.tick + 1, batch.batch_id))
    return batches


# ---- one statement


async def test_two_batches_of_one_run_in_one_statement_are_both_written(world):
    """In one UPDATE of both, one of them would be lost without a word."""
    decider = await Decider.of_new(world)
    await world.create(a_run("run_2"))
    first = decider.batch(wait("0.0"), name="b1")
    second = decider.batch(wait("0.1"), fence=Fence(1, "b1"), name="b2")
    others = [Batch("run_1", (cancel(key=f"k{n}"),), -1) for n in range(3)]

    answers = await flush_of(world)(first, others[0], Batch("run_2", (cancel(),), -1), others[1], second, others[2])

    assert [getattr(answer, "first_seq", None) for answer in answers] == [2, 3, 2, 4, None, 5]
    assert isinstance(answers[4], errors.StaleLog), "a cancel it has not seen came before it"
    assert [event.seq for event in await whole_log(world)] == [1, 2, 3, 4, 5]
    assert (await world.find("run_1")).seq == 5


async def test_one_key_that_is_there_makes_the_whole_batch_a_repetition(world):
    await world.create(a_run())
    await outside(world, cancel("k2"))

    answer = await outside(world, cancel("k1"), cancel("k2"), known=2)

    assert (answer.repeated, answer.first_seq, (await world.find("run_1")).seq) == (True, 2, 2)


async def test_from_outside_an_end_takes_the_offer_of_its_operation_and_a_retry_does_not(world):
    """Also where both share a statement."""
    node = await world.join(a_member())
    for run_id in ("run_1", "run_2"):
        decider = await Decider.of_new(world, run_id)
        await decider.begin(created(), started(node))
        await decider.append(offers=(Offer("0.0", "default", 2, 1), Offer("0.1", "default", 1, 1)))

    await flush_of(world)(Batch("run_1", (retrying(drains=True),), -1), Batch("run_2", (completed(),), -1))

    offers = await world.offers("shop", "default", 10)
    assert sorted(offers) == [("run_1", "0.0"), ("run_1", "0.1"), ("run_2", "0.1")]


@pytest.mark.parametrize(
    "poison", [cancel("\0"), cancel("\ud800"), completed(attempt=2**40)], ids=["NUL", "surrogate", "number"]
)
async def test_a_poisoned_batch_fails_alone(world, poison):
    run_ids = [f"run_{n}" for n in range(20)]
    for run_id in run_ids:
        await world.create(a_run(run_id))

    calls = [outside(world, poison if n == 7 else cancel("k"), run_id=run_id) for n, run_id in enumerate(run_ids)]
    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert isinstance(answers.pop(7), ValueError)
    assert [answer.first_seq for answer in answers] == [2] * 19
    assert [(await world.find(run_id)).seq for run_id in run_ids[6:9]] == [2, 1, 2]


async def test_creations_share_a_statement_and_each_has_its_own_verdict(world):
    await world.create(a_run("run_0", chain_id="there"))
    wanted = [
        a_run("run_1", chain_id="c2", attributes={"n": "1"}),
        a_run("run_2", chain_id="c1"),
        a_run("run_3", chain_id="there"),
        a_run("run_4", chain_id="there", input_digest="another"),
        a_run("run_0", chain_id="c3"),
        a_run("run_5", attributes={"n": "5"}),
        a_run("run_6", chain_id="c1"),
    ]

    outlet = world.world._writing._creations._outlet
    answers = await outlet.flush([creating.prepare(new, MAX_VALUE_BYTES) for new in wanted], patient=False)

    created_, refused = answers[:3] + answers[5:], answers[3:5]
    assert [(answer.run_id, answer.existing) for answer in created_] == [
        ("run_1", False),
        ("run_2", False),
        ("run_0", True),
        ("run_5", False),
        ("run_2", True),
    ]
    assert [type(answer) for answer in refused] == [errors.RunExists, errors.RunExists]
    assert [(await world.find(name)).run_id for name in ("c2", "c1", "there", "run_5")] == [
        "run_1",
        "run_2",
        "run_0",
        "run_5",
    ]
    for name in ("c3", "run_3", "run_4", "run_6"):
        with pytest.raises(errors.RunNotFound):
            await world.find(name)
    assert set(await dues(world)) == {"run_0", "run_1", "run_2", "run_5"}


async def test_another_isolation_is_refused_since_there_a_look_after_the_lock_sees_what_was_before_it(world):
    await world.behind.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")

    with pytest.raises(asyncpg.SerializationError, match="needs read committed"):
        await world.behind.fetch(f"SELECT {postgres_stores.SCHEMA}.check_isolation_v1()")

    await world.behind.execute("ROLLBACK")


# ---- lost answers


@pytest.fixture
def find(world):
    """Ask what is in, as after a lost answer."""
    outlet = world.world._writing._appends._outlet

    async def ask(*batches):
        return await outlet.find([appending.prepare(batch, MAX_VALUE_BYTES) for batch in batches])

    return ask


async def test_what_is_in_is_found_with_all_that_its_answer_said(world, find):
    decider = await Decider.of_new(world)
    node = await world.join(a_member())
    await decider.begin(created(), started(node), created("0.1"), started(node, "0.1", "t2"))
    await outside(world, completed())
    batch = decider.batch(wait("0.2"), wait("0.3"))
    answer = await world.append(batch)
    await outside(world, completed("0.1", "t2"))

    assert await find(batch) == [answer]
    assert [event.seq for event in answer.between] == [7]


async def test_an_empty_batch_that_is_in_is_found_at_the_tail(world, find):
    decider = await Decider.of_new(world)
    batch = decider.batch(name="b1")
    await world.append(batch)
    await outside(world, cancel())

    (found,) = await find(batch)

    assert (found.first_seq, found.fence, [event.seq for event in found.between]) == (3, Fence(1, "b1"), [2])


async def test_what_never_came_or_was_followed_by_another_is_not_found(world, find):
    decider = await Decider.of_new(world)
    never, first = decider.batch(wait("0.0"), name="never"), decider.batch(wait("0.0"), name="first")
    await world.append(first)
    assert [answer is None for answer in await find(never, first)] == [True, False]

    await (await Decider.of(world)).append(wait("0.1"))

    assert await find(never, first, replace(never, run_id="run_9")) == [None, None, None]


# ---- what is told from the batch alone, and what is said twice


def test_the_functions_have_the_bounds_of_the_rules():
    folder = queries.FOLDER / "postgres"
    appending_, hooks = (queries.read(folder / name) for name in ("0006_hooks_appending.sql", "0006_hooks.sql"))

    for name, span in (("ahead_us", folding.AHEAD), ("slack_us", folding.DUE_SLACK)):
        assert f"{name}  constant bigint := {span // timedelta(microseconds=1)};" in appending_
    assert f"unread_max constant bigint := {folding.HOOK_UNREAD_MAX};" in hooks


def test_a_start_that_its_own_batch_gives_up_has_a_claim_that_drains():
    """Starts are written after all that drains, so what comes after them in the batch is told beforehand."""
    others = [failed(), terminate(), step_cancelled(), retrying(token="", attempt=1), step_cancelled("0.1")]

    drains = [effects_of([started("n1"), other])[0].drains for other in others]

    assert drains == [True, True, True, True, False]


def test_an_attempt_that_its_own_batch_used_up_is_not_free():
    others = [started("n1", token="t0"), failed(), step_cancelled(), started("n1", "0.1"), retrying(token="")]

    free = [effects_of([other, started("n1")])[1].is_free for other in others]

    assert free == [False, False, False, True, True]
