from __future__ import annotations

import dataclasses
import enum
import json
import threading
import types
import typing
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypedDict, TypeVar
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, SecretStr, computed_field

from fencepost.actors import untyped
from fencepost.actors.codec import Returns, digest
from fencepost.actors.errors import SerializationError

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = 2


class Item(BaseModel):
    sku: str
    price: Decimal


class Order(BaseModel):
    id: int
    account: str
    items: list[Item] = []
    at: datetime | None = None


class Sort(BaseModel):
    n: int
    text: str
    number: float
    blob: bytes
    at: datetime
    amount: Decimal


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")

    blob: bytes = b""
    weight: float | None = None
    anything: Any = None


class Aliased(BaseModel):
    model_config = ConfigDict(extra="forbid")

    account_id: int = Field(alias="accountId")
    other: int = Field(1, validation_alias="in", serialization_alias="out")

    @computed_field
    @property
    def double(self) -> int:
        return self.account_id * 2


class Blob(BaseModel):
    blob: bytes
    weight: float | None = None
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


class Box(BaseModel, Generic[T]):
    inside: T


class Tree(BaseModel):
    kids: list[Tree] = []


class Cat(BaseModel):
    name: str


class Dog(BaseModel):
    name: str


class Numbers(RootModel[list[int]]):
    pass


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)

    n: int


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0
    tags: set[str] = dataclasses.field(default_factory=set)


class Row(TypedDict):
    id: int
    at: typing.NotRequired[datetime]


class Pair(NamedTuple):
    left: int
    right: str


def returning(hint):
    def produce(): ...

    produce.__annotations__["return"] = hint
    return Returns.of(produce)


def there_and_back(hint, value):
    way = returning(hint)
    text = way.encode(value)
    json.loads(text)
    return way.decode(text)


ORDER = Order(id=1, account="acme", items=[Item(sku="a", price=Decimal("1.10"))], at=datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Order, ORDER),
        (Order | None, None),
        (Order | None, ORDER),
        (list[Order], [ORDER]),
        (dict[str, Order], {"a": ORDER}),
        (dict[int, str], {1: "a"}),
        (dict[tuple[int, int], str], {(1, 2): "a"}),
        (dict[Colour, int], {Colour.RED: 1, Colour.BLUE: 2}),
        (dict[date, int], {date(2026, 1, 1): 1}),
        (dict[str, Any], {"at": datetime(2026, 1, 1, tzinfo=UTC), "n": [1, (2, 3)]}),
        (dict, {"at": date(2026, 1, 1), 1: b"\xff"}),
        (list, [date(2026, 1, 1), {1, 2}]),
        (Point, Point(1, 2.5, {"a", "b"})),
        (Row, {"id": 1, "at": datetime(2026, 1, 1, tzinfo=UTC)}),
        (Pair, Pair(1, "a")),
        (Colour, Colour.BLUE),
        (Literal["a", 1], 1),
        (datetime, datetime(2026, 1, 1, 12, 30, 1, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))),
        (datetime, datetime(2026, 1, 1)),  # noqa: DTZ001  (a naive one stays naive)
        (time, time(12, 30, 1, 5)),
        (timedelta, timedelta(days=-3, microseconds=7)),
        (Decimal, Decimal("1E+50")),
        (UUID, UUID(int=7)),
        (bytes, b"\x00\xff\xfe"),
        (Blob, Blob(blob=b"\x00\xff\xfe")),
        (Blob, Blob(blob=b"plain", weight=float("inf"))),
        (list[Blob], [Blob(blob=b"\xff", weight=None)]),
        (Loose, Loose(blob=b"\xff", weight=1.5, anything={"at": date(2026, 1, 1)}, more=UUID(int=1))),
        (Aliased, Aliased(accountId=1, **{"in": 5})),
        (Box[Order], Box[Order](inside=ORDER)),
        (Box[int | str], Box[int | str](inside="5")),
        (Tree, Tree(kids=[Tree(), Tree(kids=[Tree()])])),
        (Numbers, Numbers([1, 2])),
        (set[int], {3, 1, 2}),
        (frozenset[str], frozenset({"a", "b"})),
        (set[Frozen], {Frozen(n=1), Frozen(n=2)}),
        (tuple[int, ...], (1, 2, 3)),
        (tuple[int, str], (1, "a")),
        (str | datetime, datetime(2026, 1, 1, tzinfo=UTC)),
        (str | datetime, "2026-01-01T00:00:00Z"),
        (str | bytes, b"abc"),
        (int | str | None, "7"),
        (list[int] | set[int], {1}),
        (str | UUID, UUID(int=1)),
        (float, float("inf")),
        (float | str, float("-inf")),
        (float | str, "Infinity"),
        (list[float | None], [None, float("inf")]),
        (int, 10**400),
        (int, -(2**63)),
        (bool, True),
        (complex, 1j),
        (str, "\x00 a \U0001f600 é 'quoted'"),
        (Annotated[int, Field(gt=0)], 5),
        (Optional[list[Optional[int]]], [1, None]),  # noqa: UP045  (the old way of writing it works too)
        (Sequence[int], [1, 2]),
        (Mapping[str, int], {"a": 1}),
        (None, None),
        (Any, {"$fp": "datetime", "v": "mine"}),
        (dict[str, str], {"$fp": "datetime", "v": "mine"}),
    ],
)
def test_a_value_that_fits_its_hint_comes_back_equal(hint, value):
    back = there_and_back(hint, value)

    assert back == value
    assert type(back) is type(value)


def test_not_a_number_comes_back_wherever_it_stands():
    assert there_and_back(float, float("nan")) != there_and_back(float, float("nan"))
    assert there_and_back(list[float | None], [float("nan")])[0] != 0
    blob = there_and_back(Blob, Blob(blob=b"a", weight=float("nan")))
    assert blob.weight is not None


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        10**400,
        1.5,
        float("inf"),
        "",
        "\x00\U0001f600",
        b"\xff\x00",
        datetime(2026, 1, 1, 1, 2, 3, 4, tzinfo=UTC),
        datetime(2026, 1, 1),  # noqa: DTZ001  (a naive one stays naive)
        date(2026, 1, 1),
        time(1, 2, 3),
        timedelta(days=-1, microseconds=1),
        Decimal("1.10"),
        Decimal("Infinity"),
        uuid4(),
        {1, "a", (1, 2)},
        frozenset({b"a"}),
        (1, (2, [3])),
        {"a": {"b": [1, {"c": (1,)}]}},
        {1: "a", None: "b", (1, 2): "c"},
        {"$fp": "x"},
        {"$fp": {"$fp": "set", "v": [1]}},
        2j,
    ],
)
def test_without_a_hint_the_common_types_come_back(value):
    back = untyped.decode(untyped.encode(value))

    assert back == value
    assert type(back) is type(value)


def test_without_a_hint_models_and_dataclasses_become_plain_objects():
    text = untyped.encode([ORDER, Point(1, 2.0, {"a"}), Colour.RED, Numbers([1]), Pair(1, "a")])

    order, point, colour, numbers, pair = untyped.decode(text)

    assert order == {"id": 1, "account": "acme", "items": [{"sku": "a", "price": Decimal("1.10")}], "at": ORDER.at}
    assert point == {"x": 1, "y": 2.0, "tags": {"a"}}
    assert (colour, numbers, pair) == ("red", [1], (1, "a"))


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=-7))])),
    st.dates(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
)
KEYS = st.one_of(st.text(), st.just("$fp"), st.integers(), st.dates())
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.sets(SCALARS, max_size=4),
        st.frozensets(SCALARS, max_size=4),
    ),
    max_leaves=12,
)


@given(ANYTHING)
def test_any_nest_of_common_types_comes_back_without_hints(value):
    text = untyped.encode(value)

    assert untyped.decode(text) == value
    assert untyped.encode(untyped.decode(text)) == text


@given(ANYTHING)
def test_any_nest_of_common_types_comes_back_under_any_in_a_model(value):
    assert there_and_back(Loose, Loose(anything=value)).anything == value
    assert there_and_back(dict[str, Any], {"a": value}) == {"a": value}


@given(
    st.lists(st.one_of(st.text(), st.binary(), st.datetimes(), st.integers(), st.uuids(), st.floats(allow_nan=False)))
)
def test_members_of_a_union_keep_their_place(values):
    back = there_and_back(list[str | bytes | datetime | int | UUID | float], values)

    assert back == values
    assert [type(b) for b in back] == [type(v) for v in values]


SORTS = st.builds(
    Sort,
    n=st.integers(),
    text=st.text(),
    number=st.floats(allow_nan=False),
    blob=st.binary(),
    at=st.datetimes(timezones=st.just(UTC)),
    amount=st.decimals(allow_nan=False, allow_infinity=False),
)


@given(SORTS)
def test_a_model_of_all_sorts_comes_back(value):
    assert there_and_back(Sort, value) == value


def selfish():
    loop: list[Any] = []
    loop.append(loop)
    return loop


def deep(levels):
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "make",
    [
        threading.Lock,
        lambda: open(__file__),  # noqa: SIM115, PTH123  (closed by the fixture of the test)
        lambda: (n for n in ()),
        selfish,
        lambda: deep(5000),
        lambda: "\ud800",
        lambda: {"a": ["\udfff"]},
        lambda: 10**5000,
        lambda: object(),  # noqa: PLW0108  (a row among others)
        lambda: print,
        lambda: Order,
        lambda: types,
        lambda: {"a": {object(): 1}},
    ],
)
@pytest.mark.parametrize("hint", [Any, "missing", dict[str, Any], object])
def test_what_is_no_data_is_one_sentence(make, hint):
    def produce(): ...

    if hint != "missing":
        produce.__annotations__["return"] = hint
    value = make()

    with pytest.raises(SerializationError, match=r"^result of produce\(\): ") as caught:
        Returns.of(produce).encode({"key": value} if hint == dict[str, Any] else value)

    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    if hasattr(value, "close"):
        value.close()


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, "x"),
        (Order, {"id": 1}),
        (Order, Order.model_construct(id="not a number", account="a")),
        (str, "\ud800"),
        pytest.param(int, 10**5000, id="too many digits"),
        (Tree, None),
        (Cat | Dog, Dog(name="rex")),
        (SecretStr, SecretStr("hush")),
        (None, 1),
        (Annotated[int, Field(gt=0)], -1),
        (typing.Callable[[], None], print),
    ],
)
def test_a_value_that_would_not_come_back_is_refused_when_it_leaves(hint, value):
    with pytest.raises(SerializationError, match=r"^result of produce\(\): ") as caught:
        returning(hint).encode(value)

    assert "\n" not in str(caught.value)


def test_a_model_too_deep_to_be_read_is_refused_when_it_leaves():
    tree = Tree()
    for _ in range(150):
        tree = Tree(kids=[tree])

    with pytest.raises(SerializationError, match="deep"):
        returning(Tree).encode(tree)


# ---- digests


def test_a_digest_does_not_see_order_spaces_or_escapes():
    assert digest(b'{"a": 1, "b": "\\u00e9"}') == digest('{"b":"é","a":1}'.encode())
    assert digest(b'{"a":1}') != digest(b'{"a":2}')
    assert len(digest(b"null")) == 64


@given(st.sets(st.text()))
def test_equal_sets_give_equal_text(values):
    backwards: set[str] = set()
    for value in sorted(values, reverse=True):
        backwards.add(value)

    assert untyped.encode(values) == untyped.encode(backwards)


def test_a_digest_of_no_json_is_an_error_of_ours():
    with pytest.raises(SerializationError):
        digest(b"{")
