"""Code of the user's inside a type (validators, serializers, comparisons): what it raises is one sentence of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, PlainSerializer, field_validator

from fencepost.actors.codec import Parameters, Returns
from fencepost.actors.errors import InvalidInput, SerializationError

RATES = {"EUR": 1}


class Price(BaseModel):
    currency: str

    @field_validator("currency")
    @classmethod
    def known(cls, value):
        RATES[value]
        return value


class Mute(Exception):
    def __str__(self):
        raise RuntimeError


def raiser(exc):
    def raises(_):
        raise exc

    return raises


def picky(exc):
    return Annotated[int, AfterValidator(raiser(exc))]


def returning(hint):
    def produce(): ...

    produce.__annotations__["return"] = hint
    return Returns.of(produce)


def taking(hint, default=None):
    def take(value=default): ...

    take.__annotations__["value"] = hint
    return Parameters.of(take)


def assert_one_sentence_about(exc, caught):
    text = str(caught.value)
    assert type(exc).__name__ in text
    assert "\n" not in text
    assert len(text) < 400


EVERY = [
    KeyError("USD"),
    TypeError("no"),
    AttributeError("no"),
    RecursionError("no"),
    OSError(5, "no"),
    StopIteration(),
    SystemExit(3),
    Mute(),
    RuntimeError("two\nlines\n" * 1000),
]
every = pytest.mark.parametrize("exc", EVERY, ids=lambda exc: type(exc).__name__)


@every
@pytest.mark.parametrize("text", [b"1", b'{"$fp":"float","v":"1"}'], ids=["typed", "tagged"])
def test_what_a_validator_raises_is_one_sentence_when_a_value_is_read(exc, text):
    with pytest.raises(SerializationError, match=r"^result of produce\(\) as recorded: ") as result:
        returning(picky(exc)).decode(text)
    with pytest.raises(SerializationError, match=r"^take\(\) argument 'value' as recorded: ") as argument:
        taking(picky(exc)).decode(b'{"value":' + text + b"}")
    with pytest.raises(InvalidInput, match=r"^parameter 'value' of take: ") as given:
        taking(picky(exc)).from_input(b'{"input":' + text + b"}")

    for caught in (result, argument, given):
        assert_one_sentence_about(exc, caught)


@every
def test_what_a_validator_raises_is_one_sentence_when_a_value_is_written(exc):
    with pytest.raises(SerializationError, match=r"^result of produce\(\): ") as result:
        returning(picky(exc)).encode(1)
    with pytest.raises(SerializationError, match=r"^take\(\) argument 'value': ") as argument:
        taking(picky(exc)).encode((1,), {})

    for caught in (result, argument):
        assert_one_sentence_about(exc, caught)


def test_what_a_value_without_a_hint_raises_is_one_sentence():
    class Torn(Mapping):
        def __iter__(self):
            return iter("a")

        def __len__(self):
            return 1

        def __getitem__(self, key):
            raise KeyError(key)

    with pytest.raises(SerializationError, match=r"raised KeyError: 'a'$"):
        returning(Any).encode(Torn())


@every
@pytest.mark.parametrize("way", ["typed", "union", "tagged"])
def test_what_a_serializer_raises_is_one_sentence(exc, way):
    one = Annotated[int, PlainSerializer(raiser(exc))]
    hint = {"typed": one, "union": one | bytes, "tagged": tuple[one, set[int]]}[way]

    with pytest.raises(SerializationError, match=r"^result of produce\(\): ") as caught:
        returning(hint).encode((1, {1}) if way == "tagged" else 1)

    assert "\n" not in str(caught.value)


def test_the_sentence_names_the_type_and_the_error_and_keeps_its_cause():
    with pytest.raises(SerializationError) as caught:
        returning(Price).decode(b'{"currency":"USD"}')

    assert (
        str(caught.value) == f"result of produce() as recorded: reading it as {__name__}.Price raised KeyError: 'USD'"
    )
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_default_whose_validator_raises_is_left_to_python():
    way = taking(picky(KeyError("no")), default=1)

    assert way.decode(way.encode((), {})) == ([], {})
