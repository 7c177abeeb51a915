"""Errors as data: their types, causes and groups come back, in workflows and at the client."""

import pytest

from fencepost.actors import FatalError, Retry, StepFailed, step, workflow
from fencepost.errors import RunFailed
from tests.e2e.world_and_bus import PATIENCE_S


class CardDeclined(Exception):
    def __init__(self, card, *, limit):
        super().__init__(f"card {card} is over {limit}")
        self.card, self.limit = card, limit


class OddConstructor(Exception):
    def __init__(self, a, b, c):
        raise_in_str = f"{a}{b}{c}"
        super().__init__()
        self.parts = raise_in_str

    def __str__(self):
        return f"odd {self.parts}"


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text for you")


async def test_an_error_of_a_workflow_reaches_the_client_as_its_own_type(stack):
    @workflow
    async def fails() -> None:
        raise CardDeclined("4242", limit=5)

    with pytest.raises(RunFailed) as failed:
        await stack.run(fails)

    assert failed.value.code == "user_error"
    assert isinstance(failed.value.cause, CardDeclined)
    assert (failed.value.cause.card, failed.value.cause.limit) == ("4242", 5)
    assert "fails" in "".join(failed.value.__notes__)


async def test_a_caught_step_error_is_of_its_own_type_with_its_attributes(stack):
    @step(retry=0)
    async def charge() -> None:
        raise CardDeclined("4242", limit=5)

    @workflow
    async def catches() -> list[str]:
        try:
            await charge()
        except CardDeclined as error:
            return [error.card, str(error.limit), str(error), type(error.__cause__).__name__]
        return []

    assert await stack.run(catches) == ["4242", "5", "card 4242 is over 5", "StepFailed"]


async def test_nested_errors_keep_their_causes_and_tracebacks(stack):
    @step(retry=0)
    def nested() -> None:
        try:
            try:
                raise KeyError("innermost")  # noqa: TRY301  (its traceback is the point)
            except KeyError as inner:
                raise ValueError("middle") from inner
        except ValueError as middle:
            raise CardDeclined("1", limit=2) from middle

    @workflow
    async def lets_pass() -> None:
        await nested()

    with pytest.raises(RunFailed) as failed:
        await stack.run(lets_pass)

    chain, error = [], failed.value.cause
    while error is not None:
        chain.append(type(error))
        error = error.__cause__
    assert [kind for kind in chain if kind is not StepFailed] == [CardDeclined, ValueError, KeyError]


async def test_the_log_of_a_failed_step_shows_where_it_was_raised(stack):
    @step(retry=0)
    def with_a_place() -> None:
        raise ValueError("here")

    @workflow
    async def shows() -> None:
        await with_a_place()

    run = await stack.start(shows)
    await stack.ended(run)

    (failed,) = await stack.events(run, "step_failed")
    assert "with_a_place" in failed.data["error"]["traceback"]
    assert "test_flow_errors.py" in failed.data["error"]["traceback"]


async def test_exception_groups_come_back_as_groups(stack):
    @step(retry=0)
    async def grouped() -> None:
        raise ExceptionGroup("two", [ValueError("a"), ExceptionGroup("inner", [KeyError("b")])])

    @workflow
    async def splits() -> list[str]:
        found = []
        try:
            await grouped()
        except* ValueError as errors:
            found += [repr(error) for error in errors.exceptions]
        except* KeyError as errors:
            found += [repr(error.exceptions[0]) for error in errors.exceptions]
        return found

    assert await stack.run(splits) == ["ValueError('a')", "KeyError('b')"]


@pytest.mark.parametrize(
    ("odd", "kind"),
    [
        (OddConstructor(1, 2, 3), "OddConstructor"),
        (CardDeclined("7", limit=1), "CardDeclined"),
        (Unprintable("x"), "StepFailed"),  # nobody could read it: its name and place are kept
    ],
)
async def test_errors_with_odd_constructors_come_back_live_and_after_a_restart_alike(stack, gate, odd, kind):
    @step(retry=0)
    async def raises() -> None:
        raise odd

    @step
    async def waits() -> None:
        await gate.pause()

    @workflow
    async def describes() -> list[str]:
        try:
            await raises()
        except Exception as error:  # noqa: BLE001  (which one is the question)
            said = [type(error).__name__, str(sorted(vars(error)))]
        await waits()
        return said

    run = await stack.start(describes)
    await gate.arrival()
    await stack.restart()
    gate.open()

    assert (await run.result(PATIENCE_S))[0] == kind


async def test_a_very_long_message_is_cut_and_harms_nobody(stack):
    @step(retry=0)
    async def talkative() -> None:
        raise ValueError("x" * 5_000_000)

    @workflow
    async def listens() -> int:
        try:
            await talkative()
        except ValueError as error:
            return len(str(error))
        return -1

    assert 1000 < await stack.run(listens) < 100_000


async def test_an_error_whose_type_is_not_loaded_is_a_step_failed_that_names_it(stack):
    def raise_foreign():
        namespace = {"__name__": "gone_module"}
        exec("class Gone(Exception): pass", namespace)
        raise namespace["Gone"]("lost")

    @step(retry=0)
    async def foreign() -> None:
        raise_foreign()

    @workflow
    async def names() -> list[str]:
        try:
            await foreign()
        except StepFailed as error:
            return [error.kind, str(error), error.step, str(error.attempts)]
        return []

    kind, text, name, attempts = await stack.run(names)

    assert kind == "gone_module:Gone"
    assert "lost" in text
    assert (name, attempts) == ("foreign", "1")


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
async def test_what_would_end_a_process_fails_only_the_step_that_raises_it(stack, raised):
    @step(retry=0)
    async def quits_async() -> None:
        raise raised

    @step(retry=0)
    def quits_sync() -> None:
        raise raised

    @workflow
    async def goes_on() -> int:
        failed = 0
        for quits in (quits_async, quits_sync):
            try:
                await quits()
            except StepFailed:
                failed += 1
        return failed

    assert await stack.run(goes_on) == 2


async def test_a_fatal_error_inside_a_group_is_not_retried(stack):
    starts = []

    @step(retry=Retry(times=5, first=0.01))
    async def fatal_inside() -> None:
        starts.append(1)
        raise ExceptionGroup("both", [ValueError("a"), FatalError("b")])

    @workflow
    async def lets_pass() -> None:
        await fatal_inside()

    with pytest.raises(RunFailed):
        await stack.run(lets_pass)

    assert len(starts) == 1
