"""An order: check it, charge the card, ship, tell the customer. Any line may be the last before a crash."""

import json
import os
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import httpx
from pydantic import BaseModel, Field

from fencepost import App, FatalError, Retry, RetryAfter, sleep, step, step_info, workflow


class Line(BaseModel):
    """So many of one thing."""

    sku: str
    quantity: int
    unit_price: Decimal


class Order(BaseModel):
    """What the shop sends. Input that does not fit never becomes a run: it is kept as a dead letter."""

    id: str = Field(min_length=1)
    customer: str
    email: str
    card: str
    currency: Literal["EUR", "USD", "GBP", "CHF", "SEK", "JPY", "KWD"]
    lines: list[Line]
    total: Decimal
    placed_at: datetime
    note: str = ""


class Receipt(BaseModel):
    """What the customer gets."""

    order: str
    amount: Decimal
    currency: str
    charge: str
    parcel: str


class OrderRejected(FatalError):
    """The order fits its type and is wrong all the same."""


class CardDeclined(FatalError):
    """The provider will not take this card, however often we ask."""


@asynccontextmanager
async def http_client() -> AsyncIterator[httpx.AsyncClient]:
    """Give all steps of a node one HTTP client: it is their `step_info().app`."""
    async with httpx.AsyncClient(timeout=3) as client:
        yield client


app = App("orders", lifespan=http_client)
patient = Retry(times=10, first=0.2, factor=2, max=5)


@step
async def check(order: Order) -> None:
    """Refuse what the type cannot: a `FatalError` is never retried, the run fails with its reason."""
    if not order.lines:
        raise OrderRejected("the order has no lines")
    if any(line.quantity < 1 for line in order.lines):
        raise OrderRejected("a quantity is below one")
    computed = sum(line.quantity * line.unit_price for line in order.lines)
    if computed != order.total:
        raise OrderRejected(f"the lines sum up to {computed}, the total says {order.total}")


@step(retry=patient, timeout="10s")
async def charge(order: Order) -> str:
    """Take the money once: every attempt sends the same key, so the provider knows a repeated question."""
    body = {"order": order.id, "amount": str(order.total), "currency": order.currency, "card": order.card}
    return await ask("/charges", body)


@step(retry=patient, timeout="10s")
async def ship(order: Order) -> str:
    """Send the parcel."""
    return await ask("/shipments", {"order": order.id, "skus": [line.sku for line in order.lines]})


@step(retry=patient, timeout="10s")
def notify(order: Order, parcel: str) -> None:
    """Tell the customer. A plain function: it runs in a thread and may block."""
    body = json.dumps({"order": order.id, "to": order.email, "parcel": parcel}).encode()
    request = urllib.request.Request(f"{provider()}/notifications", body, key())  # noqa: S310  our own address
    urllib.request.urlopen(request, timeout=3).close()  # noqa: S310


@workflow
async def checkout(order: Order) -> Receipt:
    """Bring an order from the shop to the customer's door."""
    await check(order)
    charged = await charge(order)
    await sleep(1)  # durable: the machine may go and come back meanwhile, here or in a "3d"
    parcel = await ship(order)
    await notify(order, parcel)
    return Receipt(order=order.id, amount=order.total, currency=order.currency, charge=charged, parcel=parcel)


async def ask(path: str, body: dict[str, Any]) -> str:
    """Post to the provider and return the id it gave. What is raised here decides whether the step is retried."""
    client: httpx.AsyncClient = step_info().app
    answer = await client.post(provider() + path, json=body, headers=key())
    if answer.status_code == httpx.codes.PAYMENT_REQUIRED:
        raise CardDeclined(answer.json()["error"])
    if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
        raise RetryAfter(float(answer.headers["Retry-After"]))
    answer.raise_for_status()  # like a timeout or a cut connection: tried again
    return str(answer.json()["id"])


def key() -> dict[str, str]:
    """Return the header that names this step of this run, the same on every attempt and after every crash."""
    return {"Idempotency-Key": step_info().idempotency_key}


def provider() -> str:
    """Return the provider's address. Looked up each time: it may be back on another port."""
    port = Path(__file__).parent / ".fencepost" / "provider.port"
    found = port.read_text() if port.exists() else "8787"
    return os.environ.get("PROVIDER_URL", f"http://127.0.0.1:{found}")
