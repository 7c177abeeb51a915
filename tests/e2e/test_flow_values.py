"""Values cross and come back as they were: through start, step, result, log and restart."""

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from fencepost.actors import step, workflow
from fencepost.errors import RunFailed, SerializationError, ValueTooLarge
from tests.e2e.world_and_bus import PATIENCE_S

KB = 1024


class Color(enum.Enum):
    RED = "red"


class Item(BaseModel):
    name: str
    price: Decimal
    tags: set[str] = set()


@dataclass
class Point:
    x: int
    y: float


class Row(TypedDict):
    id: int
    at: datetime


class Everything(BaseModel):
    items: list[Item]
    point: Point
    row: Row
    color: Color
    uid: UUID
    day: date
    span: timedelta
    raw: bytes
    pair: tuple[int, str]
    maybe: int | None


EVERYTHING = Everything(
    items=[Item(name="é\0☃", price=Decimal("0.10"), tags={"a", "b"})],
    point=Point(2**53 + 1, -0.0),
    row={"id": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)},
    color=Color.RED,
    uid=UUID(int=7),
    day=date(2030, 2, 28),
    span=timedelta(days=-1, microseconds=1),
    raw=bytes(range(256)),
    pair=(1, "x"),
    maybe=None,
)

ODD = [
    *("", "\0", "a\0b", "😀👩‍👩‍👧", "\u2028\ufeff", "é" * 1000),
    *(0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 2**64, -(2**64), 10**30, -(10**40)),
    *(0.1, 1e308, 5e-324, True, None, [], {}, [[]], {"": {"\0": [None]}}),
]


async def test_odd_values_without_hints_come_back_as_they_were(stack):
    @step
    async def same(value):
        return value

    @workflow
    async def through(value):
        return await same(value)

    found = [await stack.run(through, value) for value in ODD]

    assert found == ODD
    assert [type(value) for value in found] == [type(value) for value in ODD]


async def test_a_log_with_values_beyond_64_bits_can_still_be_shown(stack):
    @workflow
    async def huge() -> int:
        return 10**40

    run = await stack.start(huge)

    assert await run.result(PATIENCE_S) == 10**40
    assert (await stack.events(run))[-1].data["result"]["json"] == 10**40


async def test_models_dataclasses_and_their_fields_come_back_as_their_types(stack):
    @step
    async def same(value: Everything) -> Everything:
        assert type(value) is Everything
        return value

    @step
    def parts(point: Point, row: Row, *, color: Color, raw: bytes = b"?") -> list[str]:
        return [type(point).__name__, type(row["at"]).__name__, type(color).__name__, raw.hex()]

    @workflow
    async def through(value: Everything) -> tuple[Everything, list[str]]:
        there = await same(value)
        return there, await parts(there.point, there.row, color=there.color)

    found, kinds = await stack.run(through, EVERYTHING)

    assert found == EVERYTHING
    assert kinds == ["Point", "datetime", "Color", "3f"]


async def test_several_parameters_defaults_and_keywords_arrive(stack):
    @workflow
    async def several(a: int, b: Item, *, c: str = "c") -> list[Any]:
        return [a, b.name, c]

    item = Item(name="n", price=Decimal(1))

    assert await stack.run(several, 1, item) == [1, "n", "c"]
    assert await stack.run(several, 1, b=item, c="d") == [1, "n", "d"]


@pytest.mark.parametrize("size", [0, 128 * KB - 2, 128 * KB, 3000 * KB])
async def test_results_of_any_size_are_fetched_whole_also_after_a_restart(stack, gate, size):
    @step
    async def makes(size: int) -> str:
        return "é" * (size // 2) + "x" * (size % 2)

    @step
    async def held(text: str) -> int:
        await gate.pause()
        return len(text)

    @workflow
    async def through(size: int) -> tuple[int, str]:
        text = await makes(size)
        return await held(text), text

    run = await stack.start(through, size)
    await gate.arrival()
    await stack.restart()
    gate.open()

    length, text = await run.result(PATIENCE_S)
    assert len(text.encode()) == size
    assert length == len(text)


async def test_a_large_value_is_kept_apart_from_the_log(stack):
    @step
    async def makes() -> str:
        return "x" * 300_000

    @workflow
    async def returns_it() -> str:
        return await makes()

    run = await stack.start(returns_it)

    assert await run.result(PATIENCE_S) == "x" * 300_000
    for kind in ("step_completed", "run_completed"):
        (event,) = await stack.events(run, kind)
        assert event.data["result"]["size_bytes"] == 300_002
        assert len(event.data["result"]["ref"]) == 64


async def test_an_input_of_the_largest_size_the_server_takes_arrives(stack):
    @workflow
    async def measures(text: str) -> int:
        return len(text)

    assert await stack.run(measures, "x" * (1000 * KB)) == 1000 * KB


async def test_an_input_over_the_servers_limit_is_refused_at_the_client(stack):
    @workflow
    async def measures(text: str) -> int:
        return len(text)

    with pytest.raises(ValueTooLarge, match="limit"):
        await stack.start(measures, "x" * (1100 * KB))

    assert await stack.client.runs.list() == []


async def test_a_run_result_over_the_limit_fails_the_run_and_is_not_written(local):
    @workflow
    async def returns_too_much() -> str:
        return "x" * (17 * 1024 * KB)

    with pytest.raises(RunFailed, match=r"limit"):
        await local.run(returns_too_much)


async def test_step_arguments_over_the_limit_are_refused_at_the_call_and_can_be_caught(local):
    @step
    async def takes(text: str) -> int:
        return len(text)

    @workflow
    async def passes_too_much() -> str:
        try:
            await takes("x" * (17 * 1024 * KB))
        except Exception as error:  # noqa: BLE001  (which one is the question)
            return f"{type(error).__name__}: {error}"
        return "took it"

    assert "limit" in await local.run(passes_too_much)


async def test_an_argument_that_does_not_fit_is_refused_at_the_call_naming_argument_and_field(stack):
    @step
    async def takes(item: Item) -> None:
        pass

    @workflow
    async def misfits() -> str:
        try:
            await takes({"name": "n", "price": "not a number"})
        except SerializationError as error:
            return str(error)
        return "took it"

    said = await stack.run(misfits)

    assert "item" in said
    assert "price" in said


async def test_an_argument_that_is_no_data_is_refused_at_the_call(stack):
    @step
    async def takes(value) -> None:
        pass

    @workflow
    async def passes_a_function() -> str:
        try:
            await takes(lambda: None)
        except SerializationError as error:
            return str(error)
        return "took it"

    assert "value" in await stack.run(passes_a_function)
