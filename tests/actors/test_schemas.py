"""Payloads against a JSON Schema: what fits the model fits, what does not is told by its field, and it has an end."""

import json
import urllib.request
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field
from structlog.testing import capture_logs

from fencepost.actors import schemas
from fencepost.actors.errors import SerializationError
from fencepost.actors.models import schema_of


class Line(BaseModel):
    sku: Annotated[str, Field(pattern="^[a-z]+[0-9]+$")]
    pieces: Annotated[int, Field(ge=1)] = 1


class Order(BaseModel):
    id: int
    lines: list[Line] = []
    how: Literal["card", "cash"] = "card"
    at: datetime | None = None
    key: UUID | None = None
    total: Decimal = Decimal(0)
    tags: set[str] = set()
    names: dict[Annotated[str, Field(pattern="^n")], int] = {}


class Strict(BaseModel, extra="forbid"):
    ok: bool


class Left(BaseModel):
    below: "Left | Right | None" = None


class Right(BaseModel):
    below: "Left | Right | None" = None


def checked(model, payload):
    schemas.check(bytes(schema_of(model)), payload)


@pytest.mark.parametrize(
    "payload",
    [
        {"id": 1},
        {"id": 1, "lines": [{"sku": "a1", "pieces": 2}], "how": "cash", "more": "is passed over"},
        {"id": 1, "at": "2027-01-01T00:00:00Z", "key": "12345678-1234-5678-1234-567812345678", "total": "1.50"},
        {"id": 1, "at": None, "total": 2, "tags": ["a", "a"], "names": {"n1": 3}},
    ],
)
def test_what_fits_the_model_fits_its_schema(payload):
    Order.model_validate_json(json.dumps(payload))

    checked(Order, payload)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ([], "it should be of type object, got a list"),
        ({}, "field 'id': it is missing"),
        ({"id": "four"}, "field 'id': it should be of type integer, got 'four'"),
        ({"id": 1, "lines": [{"sku": "a1"}, {}]}, "field 'lines.1.sku': it is missing"),
        ({"id": 1, "lines": [{"sku": "A"}]}, "'lines.0.sku': it should have pattern \"^[a-z]+[0-9]+$\", got 'A'"),
        ({"id": 1, "lines": [{"sku": "a1", "pieces": 0}]}, "'lines.0.pieces': it should have minimum 1, got 0"),
        ({"id": 1, "how": "cheque"}, "field 'how': it should have enum [\"card\",\"cash\"], got 'cheque'"),
        ({"id": 1, "at": "tomorrow"}, "field 'at': it should have format \"date-time\", got 'tomorrow'"),
        ({"id": 1, "key": "abc"}, "field 'key': it should have format \"uuid\", got 'abc'"),
        ({"id": 1, "names": {"n": "x"}}, "field 'names.n': it should be of type integer, got 'x'"),
    ],
)
def test_what_does_not_fit_is_told_by_its_field(payload, said):
    with pytest.raises(SerializationError) as refused:
        checked(Order, payload)

    assert str(refused.value).endswith(said)


def test_a_field_nobody_knows_and_a_value_without_any_of_its_forms_are_told():
    with pytest.raises(SerializationError, match="field 'approved': there is no such field"):
        checked(Strict, {"ok": True, "approved": 1})
    with pytest.raises(SerializationError, match=r"^it .*, got 'three'$"):
        checked(int | list[int], "three")


def test_a_whole_payload_is_never_told():
    with pytest.raises(SerializationError) as refused:
        checked(Order, {"id": ["secret" * 1000], "x" * 1000: 1})
    with pytest.raises(SerializationError) as long_name:
        checked(Strict, {"ok": True, "y" * 1000: 1})

    assert len(str(refused.value)) < 200
    assert len(str(long_name.value)) < 200


def test_a_union_that_holds_itself_has_an_end(monkeypatch):
    monkeypatch.setattr(schemas, "COST_S", 0.05)
    payload = {"below": 1}
    for _ in range(40):
        payload = {"below": payload}

    with pytest.raises(SerializationError, match="it takes too long to check"):
        checked(Left, payload)


def test_a_pattern_that_would_backtrack_does_not():
    schema = b'{"type": "string", "pattern": "^(a+)+$"}'

    with pytest.raises(SerializationError, match="pattern"):
        schemas.check(schema, "a" * 60 + "!")
    with pytest.raises(SerializationError, match="integer"):
        schemas.check(
            b'{"patternProperties": {"^(a+)+$": {"type": "integer"}}, "additionalProperties": false}',
            {"a" * 60 + "!": "x", "aa": "y"},
        )


@pytest.mark.parametrize(
    "schema",
    [
        b'{"$ref": "http://127.0.0.1:9/schema.json"}',
        b'{"$ref": "file:///etc/passwd"}',
        b'{"$ref": "#/$defs/Nowhere"}',
        b'{"type": "no type"}',
        b'{"properties": 3}',
    ],
)
def test_a_schema_that_cannot_be_used_is_passed_over_with_a_warning_and_nothing_is_fetched(schema, monkeypatch):
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: pytest.fail("it was fetched"))

    with capture_logs() as logs:
        schemas.check(schema, {"a": 1})

    assert [log["event"] for log in logs] == ["schema_not_usable"]
