"""The journal: many callers, few statements, each caller its own verdict. No database here: an outlet in memory."""

import asyncio

import pytest

from fencepost.world import Unavailable
from fencepost.world.postgres.journal import Bounds, Journal, Lost
from tests.contract.logs import outcome_of

AT_ONCE = (0.0, 0.0, 0.0)


class Outlet:
    """Keeps what is flushed. A test may hold its flushes, or say what happens to some asks."""

    def __init__(self):
        self.flushes = []
        self.written = []
        self.open = asyncio.Event()
        self.open.set()
        self.held = {}
        """What flushes wait for that hold a certain ask."""
        self.poisoned = set()
        self.refused = {}
        self.busy = {}
        """How many times a run is found busy."""
        self.failing = []
        """What the next flushes raise."""
        self.found = {}
        self.asked = []
        self.questions_that_fail = 0

    async def flush(self, asks, *, patient):
        self.flushes.append((list(asks), patient))
        await self.open.wait()
        for ask in set(asks) & self.held.keys():
            if patient or "large" in ask:
                await self.held[ask].wait()
        if self.failing:
            raise self.failing.pop(0)
        if self.poisoned & set(asks):
            raise ValueError("one of them cannot be")
        return [self._verdict(ask) for ask in asks]

    def hold(self, ask):
        self.held[ask] = asyncio.Event()
        return self.held[ask]

    def let_go(self):
        for gate in (self.open, *self.held.values()):
            gate.set()

    def _verdict(self, ask):
        run_id = ask.split(":")[0]
        if self.busy.get(run_id, 0) > 0:
            self.busy[run_id] -= 1
            return None
        if ask in self.refused:
            return self.refused[ask]
        self.written.append(ask)
        return f"done {ask}"

    async def find(self, asks):
        self.asked.append(list(asks))
        if self.questions_that_fail:
            self.questions_that_fail -= 1
            raise Unavailable("away")
        return [self.found.get(ask) for ask in asks]

    @property
    def groups(self):
        return [asks for asks, _patient in self.flushes]


@pytest.fixture
async def outlet():
    return Outlet()


@pytest.fixture
async def journal_of(outlet):
    """Make a journal with some bounds of its own; flushes one at a time unless the test says otherwise."""
    made = []

    def make(**bounds):
        made.append(Journal(outlet, "the test", Bounds(**({"flushes": 1, "pauses_s": AT_ONCE} | bounds))))
        return made[-1]

    yield make
    outlet.let_go()
    for journal in made:
        await journal.close()


async def turns(count=20):
    """Let all that is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)


def asking(journal, *asks, size_bytes=10):
    """Write asks, each in a task: `run:what`, in-band when `what` begins with a `!`."""
    return [asyncio.create_task(journal.write(ask.split(":")[0], ask, size_bytes, first=":!" in ask)) for ask in asks]


async def test_who_asks_while_nothing_is_under_way_is_flushed_at_once(journal_of, outlet):
    assert await journal_of().write("a", "a:1") == "done a:1"

    assert outlet.groups == [["a:1"]]


async def test_tasks_that_are_ready_together_share_a_flush(journal_of, outlet):
    answers = await asyncio.gather(*asking(journal_of(), "a:1", "b:1", "c:1"))

    assert answers == ["done a:1", "done b:1", "done c:1"]
    assert outlet.groups == [["a:1", "b:1", "c:1"]]


async def test_what_comes_in_while_a_flush_is_under_way_goes_with_the_next(journal_of, outlet):
    journal = journal_of()
    outlet.open.clear()
    tasks = asking(journal, "a:1")
    await turns()
    for run in "bcd":
        tasks += asking(journal, f"{run}:1")
        await turns()

    assert outlet.groups == [["a:1"]]
    outlet.open.set()

    await asyncio.gather(*tasks)
    assert outlet.groups == [["a:1"], ["b:1", "c:1", "d:1"]]


async def test_a_run_has_one_in_band_ask_in_a_flush_and_it_goes_first(journal_of, outlet):
    await asyncio.gather(*asking(journal_of(), "a:1", "a:!2", "a:!3", "a:4", "b:!1"))

    assert outlet.groups == [["a:!2", "a:1", "a:4", "b:!1"], ["a:!3"]]


async def test_of_a_run_64_others_go_at_once_and_then_it_is_the_turn_of_other_runs(journal_of, outlet):
    hot = [f"a:{n}" for n in range(200)]

    await asyncio.gather(*asking(journal_of(asks=65), "a:!0", *hot, "b:1", "c:1"))

    assert outlet.groups[0] == ["a:!0", *hot[:64]]
    assert outlet.groups[1] == ["b:1", "c:1", *hot[64:127]]
    assert [ask for group in outlet.groups for ask in group if ask in hot] == hot


async def test_a_run_is_in_one_flush_at_a_time(journal_of, outlet):
    """Else the second flush would find the row locked by the first, and call it busy."""
    journal = journal_of(flushes=2)
    outlet.open.clear()
    tasks = asking(journal, "a:1")
    await turns()
    tasks += asking(journal, "a:2", "b:1")
    await turns()

    assert outlet.groups == [["a:1"], ["b:1"]]
    outlet.open.set()

    await asyncio.gather(*tasks)
    assert outlet.groups == [["a:1"], ["b:1"], ["a:2"]]


async def test_a_flush_is_bounded_in_count(journal_of, outlet):
    await asyncio.gather(*asking(journal_of(), *(f"run {n}:1" for n in range(600))))

    assert [len(group) for group in outlet.groups] == [256, 256, 88]


async def test_two_runs_with_many_asks_share_what_a_flush_holds(journal_of, outlet):
    await asyncio.gather(*asking(journal_of(asks=100), *(f"{run}:{n}" for run in "ab" for n in range(64))))

    assert [len(group) for group in outlet.groups] == [100, 28]


async def test_a_flush_is_bounded_in_bytes(journal_of, outlet):
    journal = journal_of(size_bytes=100, large_bytes=1000)

    await asyncio.gather(*asking(journal, *(f"run {n}:1" for n in range(5)), size_bytes=40))
    await asyncio.gather(*asking(journal, "huge:1", "huge:2", size_bytes=900))

    assert [len(group) for group in outlet.groups] == [2, 2, 1, 1, 1]


async def test_a_small_ask_does_not_wait_until_a_large_one_is_over_the_wire(journal_of, outlet):
    journal = journal_of()
    gate = outlet.hold("a:large")
    (large,) = asking(journal, "a:large", size_bytes=200_000)
    await turns()

    assert await asyncio.wait_for(journal.write("b", "b:1"), 5) == "done b:1"

    assert not large.done()
    gate.set()
    assert await large == "done a:large"


async def test_a_refusal_is_its_callers_own(journal_of, outlet):
    outlet.refused["b:1"] = KeyError("b")

    answers = await asyncio.gather(*asking(journal_of(), "a:1", "b:1", "c:1"), return_exceptions=True)

    assert answers == ["done a:1", outlet.refused["b:1"], "done c:1"]
    assert len(outlet.flushes) == 1


@pytest.mark.parametrize("culprit", [0, 37, 99])
async def test_a_poisoned_ask_fails_alone_and_everything_else_is_written_once(journal_of, outlet, culprit):
    asks = [f"run {n}:1" for n in range(100)]
    outlet.poisoned = {asks[culprit]}

    answers = await asyncio.gather(*asking(journal_of(), *asks), return_exceptions=True)

    assert isinstance(answers[culprit], ValueError)
    assert sorted(outlet.written) == sorted(set(asks) - outlet.poisoned)
    assert len(outlet.flushes) <= 2 * 7 + 1


async def test_a_busy_run_goes_again_alone_and_patiently_and_delays_nobody(journal_of, outlet):
    journal = journal_of()
    outlet.busy["b"] = 2

    tasks = asking(journal, "a:1", "b:!1", "b:2", "c:1")
    answers = await asyncio.gather(*tasks)

    assert answers == ["done a:1", "done b:!1", "done b:2", "done c:1"]
    assert outlet.flushes == [(["a:1", "b:!1", "b:2", "c:1"], False), (["b:!1", "b:2"], True)]
    assert outlet.written == ["a:1", "c:1", "b:!1", "b:2"]


async def test_while_a_run_is_busy_the_others_go_on(journal_of, outlet):
    journal = journal_of()
    outlet.busy["b"] = 1
    gate = outlet.hold("b:1")
    (busy,) = asking(journal, "b:1")
    await turns()
    assert outlet.flushes == [(["b:1"], False), (["b:1"], True)]

    late, *others = asking(journal, "b:2", "a:1", "c:1")

    assert await asyncio.wait_for(asyncio.gather(*others), 5) == ["done a:1", "done c:1"]
    assert (busy.done(), outlet.groups[2:]) == (False, [["a:1", "c:1"]])
    gate.set()
    assert await asyncio.gather(busy, late) == ["done b:1", "done b:2"]


async def test_a_run_that_stays_busy_is_given_up_in_the_end(journal_of, outlet):
    journal = journal_of()
    outlet.busy["b"] = 1 + len(AT_ONCE)

    with pytest.raises(Unavailable, match="run b is locked"):
        await journal.write("b", "b:1")

    assert await journal.write("b", "b:2") == "done b:2"
    assert outlet.written == ["b:2"]


async def test_a_caller_that_is_cancelled_changes_nothing_for_the_others(journal_of, outlet):
    journal = journal_of()
    outlet.open.clear()
    flying = asking(journal, "a:1", "b:1", "c:1")
    await turns()
    waiting = asking(journal, "d:1", "e:1")
    await turns()

    for task in (flying[1], waiting[0]):
        task.cancel()
    await turns()
    outlet.open.set()
    answers = await asyncio.gather(*flying, *waiting, return_exceptions=True)

    assert [answer for answer in answers if isinstance(answer, str)] == ["done a:1", "done c:1", "done e:1"]
    assert outlet.written == ["a:1", "b:1", "c:1", "d:1", "e:1"]
    assert len(outlet.flushes) == 2


async def test_after_a_lost_answer_what_is_in_is_answered_and_of_the_rest_nobody_knows(journal_of, outlet):
    outlet.failing = [Lost("gone")]
    outlet.found = {"a:!1": "found a:!1"}
    outlet.questions_that_fail = 1

    answers = await asyncio.gather(*asking(journal_of(), "a:!1", "b:!1", "c:1"), return_exceptions=True)

    assert answers[0] == "found a:!1"
    assert [type(answer) for answer in answers[1:]] == [Unavailable, Unavailable]
    assert "may be done or not" in str(answers[1])
    assert outlet.asked == [["a:!1", "b:!1"]] * 2
    assert outlet.groups == [["a:!1", "b:!1", "c:1"]], "what may be in is not written again"


async def test_an_answer_that_stays_lost_is_unknown_in_the_end(journal_of, outlet):
    outlet.failing = [Lost("gone")]
    outlet.questions_that_fail = 100

    answer = await outcome_of(journal_of().write("a", "a:!1", first=True))

    assert isinstance(answer, Unavailable)
    assert len(outlet.asked) == len(AT_ONCE)


async def test_looking_for_lost_answers_holds_up_nobody(journal_of, outlet):
    journal = journal_of(pauses_s=(3600.0,))
    outlet.failing = [Lost("gone")]
    (lost,) = asking(journal, "a:!1")
    await turns()

    assert await journal.write("b", "b:1") == "done b:1"
    assert not lost.done()

    for task in journal._tasks:
        task.cancel()
    assert isinstance(await outcome_of(lost), Unavailable)


async def test_a_store_that_is_away_is_nobodys_fault_and_asked_once(journal_of, outlet):
    outlet.failing = [Unavailable("disk full")]

    answers = await asyncio.gather(*asking(journal_of(), "a:1", "b:1"), return_exceptions=True)

    assert [str(answer) for answer in answers] == ["disk full", "disk full"]
    assert len(outlet.flushes) == 1


async def test_when_its_task_dies_nobody_waits_for_ever(journal_of, outlet):
    journal = journal_of()
    outlet.open.clear()
    tasks = asking(journal, "a:1", "b:1")
    await turns()

    for task in journal._tasks:
        task.cancel()

    for answer in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(answer, Unavailable)
    outlet.open.set()
    assert await journal.write("a", "a:2") == "done a:2"


async def test_closing_finishes_what_was_asked_and_takes_nothing_more(journal_of, outlet):
    journal = journal_of()
    tasks = asking(journal, "a:!1", "a:!2", "b:1")
    await asyncio.sleep(0)

    await journal.close()

    assert outlet.written == ["a:!1", "b:1", "a:!2"]
    assert await asyncio.gather(*tasks) == ["done a:!1", "done a:!2", "done b:1"]
    with pytest.raises(Unavailable, match="was closed"):
        await journal.write("a", "a:3")
    await journal.close()
    assert outlet.groups == [["a:!1", "b:1"], ["a:!2"]]
