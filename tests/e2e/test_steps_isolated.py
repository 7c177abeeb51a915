"""`isolate=True`: a process of its own, which may die without taking anybody with it."""

import os

import pytest

from fencepost.actors import StepLost, StepTimeout, retry, step, workflow
from fencepost.errors import RunFailed
from tests.e2e import elsewhere
from tests.e2e.world_and_bus import PATIENCE_S


@pytest.fixture
def diary(tmp_path):
    return str(tmp_path / "diary")


@pytest.fixture(autouse=True)
def _tests_can_be_imported(monkeypatch, pytestconfig):
    """The other process imports the step by its module's name."""
    monkeypatch.syspath_prepend(str(pytestconfig.rootpath))


async def test_an_isolated_step_runs_in_another_process(local, diary):
    @workflow
    async def isolated(diary: str) -> int:
        return await elsewhere.own_process(diary)

    assert await local.run(isolated, diary) != os.getpid()


async def test_an_isolated_step_that_never_returns_is_killed_and_its_slot_is_free(local, diary):
    @workflow
    async def isolated(diary: str) -> str:
        try:
            await elsewhere.never_returns(diary)
        except StepTimeout:
            return "timed out"
        return "came back"

    assert await local.run(isolated, diary) == "timed out"
    assert (await local.client.info())["steps_running"] == 0


@pytest.mark.parametrize("dies", [elsewhere.exits, elsewhere.segfaults], ids=["exits", "segfaults"])
async def test_a_step_whose_process_dies_is_lost_and_repeated_under_the_same_attempt(local, diary, dies):
    @workflow
    async def isolated(diary: str) -> int:
        return await dies(diary, 1)

    run = await local.start(isolated, diary)

    assert await run.result(PATIENCE_S) == 2
    lost = await local.events(run, "step_retrying")
    assert [event.data["lost"] for event in lost] == [1]
    assert {event.data["attempt"] for event in await local.events(run, "step_started")} == {1}


async def test_a_step_that_kills_every_process_is_given_up_as_lost(local, diary, monkeypatch):
    monkeypatch.setattr(retry, "MAX_LOST", 2)

    @workflow
    async def isolated(diary: str) -> int:
        return await elsewhere.exits(diary, 1000)

    run = await local.start(isolated, diary)
    failed = await local.ended(run)

    assert isinstance(failed.cause, StepLost)
    assert elsewhere.visits(diary) == 3
    assert (await local.events(run, "step_failed"))[0].data["code"] == "node_lost"


async def test_a_step_that_cannot_be_found_by_another_process_fails_at_once_and_says_so(local):
    @step(isolate=True)
    def local_function() -> None:
        pass

    @workflow
    async def isolated() -> None:
        await local_function()

    with pytest.raises(RunFailed, match="local_function"):
        await local.run(isolated)
