from __future__ import annotations

import json
import threading
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from fencepost.actors.codec import Parameters, digest
from fencepost.actors.errors import InvalidInput, SerializationError


class Item(BaseModel):
    sku: str
    price: Decimal


class Order(BaseModel):
    id: int
    account: str
    items: list[Item] = []


class Aliased(BaseModel):
    model_config = ConfigDict(extra="forbid")

    account_id: int = Field(alias="accountId")


class Blob(BaseModel):
    blob: bytes


ORDER = Order(id=1, account="acme", items=[Item(sku="a", price=Decimal("1.10"))])


def call(fn, *args, **kwargs):
    way = Parameters.of(fn)
    return way.decode(way.encode(args, kwargs))


def everything(a: int, /, b: str, c: float = 0.5, *rest: int, d: date, e: bytes = b"\xff", **more: Decimal): ...


def test_arguments_of_every_kind_come_back():
    args, kwargs = call(everything, 1, "b", 2.0, 3, 4, d=date(2026, 1, 1), x=Decimal(7))

    assert args == [1, "b", 2.0, 3, 4]
    assert kwargs == {"d": date(2026, 1, 1), "e": b"\xff", "x": Decimal(7)}


def test_defaults_are_written_down_so_that_a_deploy_cannot_change_a_recorded_call():
    def fn(a: int, b: int = 5): ...

    assert Parameters.of(fn).encode((1,), {}) == b'{"a":1,"b":5}'
    assert digest(Parameters.of(fn).encode((1,), {})) == digest(Parameters.of(fn).encode((1, 5), {}))


def test_a_default_that_is_no_data_is_left_to_python():
    def fn(a: int = object(), b: int = None, *, c: int = 3): ...  # noqa: RUF013  (as people write it)

    assert call(fn) == ([], {"c": 3})
    assert call(fn, b=7) == ([], {"b": 7, "c": 3})


def test_a_call_that_does_not_match_is_a_type_error_that_names_the_function():
    def fn(a: int): ...

    with pytest.raises(TypeError, match=r"^fn\(\): missing"):
        Parameters.of(fn).encode((), {})


def test_a_wrong_argument_is_named_with_its_field():
    def charge(order: Order): ...

    with pytest.raises(SerializationError, match=r"^charge\(\) argument 'order': field 'items.0.price'"):
        Parameters.of(charge).encode(({"id": 1, "account": "a", "items": [{"sku": "a", "price": "x"}]},), {})


def test_recorded_arguments_that_do_not_fit_any_more_say_so():
    def fn(a: int): ...

    with pytest.raises(SerializationError, match="as recorded"):
        Parameters.of(fn).decode(b'{"a":"x"}')


def test_hints_that_cannot_be_resolved_fall_back_one_by_one():
    def fn(a: Missing, b: date, c: Order): ...  # noqa: F821  (the point of the test)

    args, _ = call(fn, date(2026, 1, 1), date(2026, 1, 2), ORDER)

    assert args == [date(2026, 1, 1), date(2026, 1, 2), ORDER]


def test_classes_of_the_calling_function_are_found_when_its_names_are_given():
    class Local(BaseModel):
        n: int

    def fn(a: Local): ...

    way = Parameters.of(fn, locals())

    assert way.decode(way.encode((Local(n=1),), {}))[0] == [Local(n=1)]


def test_a_hint_that_is_no_data_falls_back_to_untyped():
    def fn(a: threading.Event): ...

    assert call(fn, 1)[0] == [1]
    with pytest.raises(SerializationError, match="no data"):
        call(fn, threading.Event())


# ---- start messages


def one(order: Order): ...


def several(a: int, b: str = "b", *, c: bytes = b"c"): ...


def none(): ...


def plain(value): ...


def accepted(fn, message):
    way = Parameters.of(fn)
    return way.decode(way.from_input(json.dumps(message).encode()))


def test_the_input_of_one_parameter_is_its_value():
    message = {"id": "order-1", "input": {"id": 1, "account": "acme"}}

    assert accepted(one, message) == ([Order(id=1, account="acme")], {})
    assert accepted(one, {"kwargs": {"order": message["input"]}}) == ([Order(id=1, account="acme")], {})


def test_several_parameters_come_by_name_with_defaults():
    assert accepted(several, {"kwargs": {"a": 1}}) == ([1, "b"], {"c": b"c"})
    assert accepted(several, {"kwargs": {"a": 1, "c": "/w=="}}) == ([1, "b"], {"c": b"\xff"})


def test_no_parameters_need_no_input():
    for message in ({}, {"input": None}, {"kwargs": {}}):
        assert accepted(none, message) == ([], {})


def test_a_field_may_come_by_its_alias_or_its_name():
    def fn(a: Aliased): ...

    assert accepted(fn, {"input": {"accountId": 1}}) == accepted(fn, {"input": {"account_id": 1}})


def test_what_a_call_writes_is_accepted_as_a_start():
    def fn(value: Any, blob: Blob): ...

    way = Parameters.of(fn)
    text = way.encode(({1, 2}, Blob(blob=b"\xff")), {})

    assert way.from_input(b'{"kwargs":' + text + b"}") == text


@pytest.mark.parametrize(
    ("fn", "body", "says"),
    [
        (one, b"", "not a JSON object"),
        (one, b"{", "not a JSON object"),
        (one, b"[]", "not a JSON object"),
        (one, b"\xff\xfe", "not a JSON object"),
        (one, b"{}", "needs the parameter 'order'"),
        (one, b'{"input": null}', "parameter 'order'"),
        (one, b'{"input": {"id": "x", "account": "a"}}', "field 'id' of parameter 'order' of one"),
        (one, b'{"input": {"id": 1}}', "field 'account' of parameter 'order' of one"),
        (one, b'{"input": 1, "kwargs": {}}', "both input and kwargs"),
        (one, b'{"kwargs": [1]}', "must be an object"),
        (one, b'{"kwargs": {"order": {}, "other": 1}}', "no parameter 'other'"),
        (several, b'{"input": 1}', "takes no single input"),
        (several, b'{"kwargs": {"b": "x"}}', "needs the parameter 'a'"),
        (several, b'{"kwargs": {"a": 1, "c": "no base64!"}}', "parameter 'c' of several"),
        (none, b'{"input": 1}', "no parameters"),
        (plain, b'{"input": "\\ud800"}', "not a JSON object"),
        (plain, b'{"input": NaN}', "JSON"),
        (plain, b'{"input": {"$fp": "rocket", "v": 1}}', "no known tag"),
        (plain, b'{"input": {"$fp": "datetime", "v": "soon"}}', "no datetime"),
        (plain, b'{"input": {"$fp": "set", "v": [[1]]}}', "no set"),
        (plain, b'{"input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "deep"),
        (plain, b'{"input": ' + b"9" * 5000 + b"}", "value"),
    ],
)
def test_a_start_that_does_not_fit_says_where_in_one_sentence(fn, body, says):
    with pytest.raises(InvalidInput, match=says) as caught:
        Parameters.of(fn).from_input(body)

    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_huge_or_secret_value_is_not_repeated_in_the_message():
    body = json.dumps({"input": {"id": "s3cret" * 1000, "account": "a"}}).encode()

    with pytest.raises(InvalidInput) as caught:
        Parameters.of(one).from_input(body)

    assert str(caught.value).count("s3cret") < 10
    assert len(str(caught.value)) < 300


@given(st.binary())
def test_any_bytes_are_accepted_or_refused_as_input(body):
    for fn in (one, several, none, plain):
        try:
            Parameters.of(fn).from_input(body)
        except InvalidInput:
            continue


@given(st.binary(max_size=40))
def test_any_bytes_inside_an_input_are_accepted_or_refused(body):
    for fn in (one, plain):
        try:
            Parameters.of(fn).from_input(b'{"input":' + body + b"}")
        except InvalidInput:
            continue
