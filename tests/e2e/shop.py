"""What the tests of the door run: a few workflows, each for one thing a client can meet."""

import asyncio

from pydantic import BaseModel

from fencepost import App, sleep, step, workflow
from tests.e2e.declined import Declined


class Order(BaseModel):
    id: int
    note: str = ""


@step
async def charge(order: Order) -> str:
    return f"receipt-{order.id}"


@workflow
async def checkout(order: Order) -> Order:
    return Order(id=order.id, note=await charge(order))


@workflow
async def add(first: int, second: int = 10, *, third: int = 100) -> int:
    return first + second + third


@workflow
async def fail(kind: str) -> None:
    if kind == "declined":
        raise Declined("card", 7)
    local = type("Local", (Exception,), {})
    raise local("nobody can rebuild this")


@workflow
async def echo(size: int) -> str:
    return "é" * size


@workflow
async def wait_long() -> str:
    try:
        await sleep("1d")
    except asyncio.CancelledError:
        await sleep(0)
        raise
    return "slept"


def shop() -> App:
    return App("shop", [checkout, add, fail, echo, wait_long])
