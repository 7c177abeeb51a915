"""Writes `orders.jsonl`: 300 lines as a shop meets them, most of them good. The same bytes every time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

LINES: Final = 300
SEED: Final = 20251103
QUIET_START: Final = 25
"""So many plain orders come first, so that a line that repeats an earlier one finds it."""

Record = dict[str, Any]
Edit = Callable[[Record], object]
Label = Literal["good", "invalid", "rejected", "declined", "repeat", "conflict", "garbage", "empty"]
T = TypeVar("T")

DECIMALS: Final = {"EUR": 2, "USD": 2, "GBP": 2, "CHF": 2, "SEK": 2, "JPY": 0, "KWD": 3}
NAMES: Final = (
    "Ana Pereira",
    "Bo Lindqvist",
    "Chidi Okafor",
    "Dörte Weiß",
    "Emre Y\u0131lmaz",
    "Fatima Zahra",
    "Giulia D'Amico",
    "Hannah O'Neill",
    "Ivan Petrov",
    "Jana Nováková",
    "Kenji Sato",
    "Lena Müller",
    "María José Núñez",
    "Nguyễn Văn An",
)
GOODS: Final = (
    "mug",
    "lamp",
    "chair",
    "desk",
    "kettle",
    "rug",
    "shelf",
    "clock",
    "vase",
    "stool",
    "blanket",
    "towel",
)
NOTES: Final = (
    "",
    "",
    "",
    "",
    "Please ring twice.",
    "Leave with the neighbour",
    "It's a gift: no invoice",
    "c/o Mrs. Ho",
)


@dataclass(frozen=True, slots=True)
class Sort:
    """One line to make: what it is, and what is odd about it."""

    label: Label = "good"
    edit: Edit | None = None
    raw: bytes | None = None
    ending: bytes = b"\n"


def put(**fields: Any) -> Edit:
    """Return an edit that overwrites fields."""
    return lambda record: record.update(fields)


def drop(field: str) -> Edit:
    """Return an edit that forgets a field."""
    return lambda record: record.pop(field)


def on_line(**fields: Any) -> Edit:
    """Return an edit that overwrites fields of the first order line."""
    return lambda record: record["lines"][0].update(fields)


def off_by(cents: str) -> Edit:
    """Return an edit after which the lines do not sum up to the total."""
    return lambda record: record.update(total=float(Decimal(str(record["total"])) + Decimal(cents)))


def numbers_as_text(record: Record) -> None:
    """Write every number as a string, as spreadsheets do."""
    record["total"] = str(record["total"])
    for line in record["lines"]:
        line.update(quantity=str(line["quantity"]), unit_price=str(line["unit_price"]))


def minus_one(record: Record) -> None:
    """Make a line negative, in a total that is right all the same."""
    line = record["lines"][0]
    price = Decimal(str(line["unit_price"]))
    record["total"] = float(Decimal(str(record["total"])) - (line["quantity"] + 1) * price)
    line["quantity"] = -1


def card(kind: str, record: Record) -> None:
    """Give the order a card of this kind: `provider.py` knows them by the middle of their token."""
    record["card"] = f"tok_{kind}_{record['card'].rsplit('_', 1)[1]}"


def huge(kilobytes: int) -> Edit:
    """Return an edit that adds a note of so many kilobytes."""
    text = "A very long story about the doorbell, the dog and the stairs. "
    return lambda record: record.update(note=(text * (kilobytes * 1024 // len(text) + 1))[: kilobytes * 1024])


GOOD_EDITS: Final[tuple[Edit, ...]] = (
    put(customer="🦊 Foxy 👩‍👩‍👧‍👦 Family 🏳️‍🌈"),
    put(customer="محمد عبد الله"),
    put(customer="\u202eadA\u202c ודיו"),
    put(customer="Zoe\u0301 A\u030angstro\u0308m"),
    put(customer="Zoë\u2028Line\u2029Separator\u0085Next"),
    put(customer="Z\u0337\u0322a\u0338l\u0335g\u0336o"),
    put(customer="张伟 𠮷野家"),
    put(customer="Ж" * 5_000),
    put(customer="\ufeffBom Bomson"),
    put(customer="Robert'); DROP TABLE orders;--"),
    put(customer="{{ 7 * 7 }} {id} %s $HOME"),
    put(customer=" "),
    put(note="before\u0000after"),
    put(note="\u0000"),
    put(note='tab\t, quote ", backslash \\, newline\n, \u001b[31mred'),
    put(id="заказ-17"),
    put(id="注文/18"),
    put(id="order 19 with spaces"),
    put(id="fp.default.>*"),
    put(id="🛒-20"),
    put(id="{id}"),
    put(placed_at="2024-02-29T23:59:59.999999Z"),
    put(placed_at="2025-10-26 02:30:00+02:00"),
    put(placed_at=1762161300),
    put(placed_at="2025-11-03T09:15:00"),
    put(placed_at="1999-12-31T23:59:59-11:00"),
    put(utm_source="newsletter", flags={"a": [1, 2, {"b": None}]}),
    put(loyalty=2**63),
    put(total_before_tax=-0.0),
    put(lines=[{"sku": "desk", "quantity": 4, "unit_price": 25}], currency="EUR", total="1e2"),
    put(lines=[{"sku": "pin", "quantity": 1_000_000, "unit_price": 0.1}], currency="USD", total=100_000),
    put(
        lines=[{"sku": f"part-{n}", "quantity": 1, "unit_price": 0.1} for n in range(300)],
        currency="CHF",
        total=30.0,
    ),
    *[numbers_as_text] * 5,
    *[huge(100)] * 3,
    huge(400),
    *[partial(card, "flaky")] * 8,
    *[partial(card, "slow")] * 5,
    *[partial(card, "busy")] * 6,
    *[partial(card, "cut")] * 7,
)
INVALID_EDITS: Final[tuple[Edit, ...]] = (
    *[drop(field) for field in ("id", "customer", "email", "card", "currency", "lines", "total", "placed_at")],
    put(id=4711),
    put(id=""),
    put(id=None),
    put(customer=None),
    put(customer="cut in half \ud83d"),
    put(lines={"sku": "mug"}),
    on_line(quantity="two"),
    on_line(quantity=1.5),
    on_line(unit_price="12,50"),
    *[put(currency=name) for name in ("EURO", "eur", "₿", "XAU")],
    put(placed_at="31/12/2025"),
    put(placed_at="2025-02-30T10:00:00Z"),
)
REJECTED_EDITS: Final[tuple[Edit, ...]] = (
    *map(off_by, ("1", "-1", "10", "1000", "0.01", "0.001")),
    put(total=0),
    put(total=-12.5),
    minus_one,
    minus_one,
    on_line(quantity=0),
    put(lines=[], total=0),
    put(lines=[]),
)
GARBAGE: Final = (
    b"",
    b"   ",
    b"Hello, is my order there yet?",
    b'{"id": "order-cut", "customer": "Ana Pe',
    b"id;customer;total",
    b"{'id': 'order-python', 'total': 3}",
    b'{"id": "order-latin", "customer": "Jos\xe9"}',
    b'{"id": "one"} {"id": "two"}',
    b"null",
    b"42",
    b'"order-0001"',
    b'["order-0001", "mug"]',
)


def sorts() -> list[Sort]:
    """Return the odd lines, each once."""
    crlf = [Sort(ending=b"\r\n") for _ in range(4)]
    good = [Sort(edit=edit) for edit in GOOD_EDITS]
    invalid = [Sort("invalid", edit) for edit in INVALID_EDITS]
    rejected = [Sort("rejected", edit) for edit in REJECTED_EDITS]
    declined = [Sort("declined", partial(card, "declined")) for _ in range(9)]
    again = [*[Sort("repeat")] * 6, *[Sort("conflict")] * 4]
    garbage = [Sort("garbage" if raw.strip() else "empty", raw=raw) for raw in GARBAGE]
    garbage += [Sort("garbage", put(total=float("nan")))]  # JSON to Python, and to nobody else
    return [*crlf, *good, *invalid, *rejected, *declined, *again, *garbage]


class Shop:
    """Invents orders. Uses `random()` alone, the one draw that Python promises never to change for a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  the point is that it is the same every time
        self._plain: list[tuple[Record, bytes]] = []

    def lines(self) -> list[tuple[Label, bytes]]:
        """Return every line with what it is."""
        odd = sorts()
        plain = [Sort()] * (LINES - len(odd) - QUIET_START)
        mixed = sorted([*plain, *odd], key=lambda _: self._random.random())
        return [
            (sort.label, self._line(sort, n) + sort.ending) for n, sort in enumerate([Sort()] * QUIET_START + mixed)
        ]

    def _line(self, sort: Sort, number: int) -> bytes:
        if sort.raw is not None:
            return sort.raw
        if sort.label in ("repeat", "conflict"):
            return self._again(sort.label)
        record = self._order(number)
        if sort.edit:
            sort.edit(record)
        line = written(record)
        if sort == Sort():
            self._plain.append((record, line))
        return line

    def _again(self, label: Label) -> bytes:
        record, line = self._plain.pop(self._below(len(self._plain)))
        return line if label == "repeat" else written({**record, "customer": "Somebody Else", "card": "tok_ok_1111"})

    def _order(self, number: int) -> Record:
        currency = self._pick(("EUR", "EUR", "EUR", "USD", "USD", *DECIMALS))
        lines = [self._order_line(DECIMALS[currency]) for _ in range(1 + self._below(4))]
        name = self._pick(NAMES)
        return {
            "id": f"order-{number + 1:04}",
            "customer": name,
            "email": f"{name.split()[0].lower()}{self._below(100)}@example.com",
            "card": f"tok_ok_{1000 + self._below(9000)}",
            "currency": currency,
            "lines": lines,
            "total": plain_number(sum(line["quantity"] * Decimal(str(line["unit_price"])) for line in lines)),
            "placed_at": self._instant(number).isoformat().replace("+00:00", "Z"),
            "note": self._pick(NOTES),
        }

    def _order_line(self, decimals: int) -> Record:
        price = Decimal(100 + self._below(20_000)).scaleb(-decimals)
        return {"sku": self._pick(GOODS), "quantity": 1 + self._below(5), "unit_price": plain_number(price)}

    def _instant(self, number: int) -> datetime:
        return datetime(2025, 11, 3, 8, tzinfo=UTC) + timedelta(seconds=97 * number + self._below(97))

    def _below(self, bound: int) -> int:
        return int(self._random.random() * bound)

    def _pick(self, choices: tuple[T, ...]) -> T:
        return choices[self._below(len(choices))]


def plain_number(value: Decimal | int) -> float | int:
    """Return the number as JSON writers of most languages would: whole, or the shortest float."""
    return int(value) if value == int(value) else float(value)


def written(record: Record) -> bytes:
    """Return the record as a line. Half an emoji has no UTF-8; what stands in its place is its JSON escape."""
    text = json.dumps(record, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace")


def main() -> None:
    """Write the file beside this program."""
    Path(__file__).with_name("orders.jsonl").write_bytes(b"".join(line for _, line in Shop(SEED).lines()))


if __name__ == "__main__":
    main()
