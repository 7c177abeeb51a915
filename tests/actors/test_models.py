"""Models of hooks: found again by name and never by importing, told to others as a JSON Schema."""

import re
import sys
import types
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import pytest
from pydantic import BaseModel, Field

from fencepost.actors.models import checked_delivery, checked_token, named, resolved, schema_of, shape_of, shown
from fencepost.world import events

T = TypeVar("T")


class Approval(BaseModel):
    ok: bool
    by: str = Field(default="", alias="approvedBy")

    class Note(BaseModel):
        text: str


class Box(BaseModel, Generic[T]):
    inside: T


@dataclass
class Paid:
    amount: int


WHOLE = Box[int]


class Shadowed(BaseModel):
    one: int


Hidden = Shadowed


class Shadowed(BaseModel):
    two: int


@pytest.mark.parametrize("model", [Approval, Approval.Note, Paid, Box, bytes, int])
def test_a_class_at_the_top_of_a_module_is_found_again_by_its_name(model):
    name = named(model)

    assert name == f"{model.__module__}:{model.__qualname__}"
    assert resolved(name) is model


def test_what_another_process_could_not_find_has_no_name():
    class Local(BaseModel):
        x: int

    nameless = [Any, object, None, Local, WHOLE, list[int], int | str, Annotated[int, 1], T, Hidden, "text"]

    assert [named(model) for model in nameless] == [""] * len(nameless)


def test_only_classes_of_loaded_modules_are_found_and_no_code_runs_for_it():
    lazy = types.ModuleType("lazily_made")
    lazy.__getattr__ = lambda _: pytest.fail("the module was asked to make it")
    sys.modules["lazily_made"] = lazy
    try:
        found = [
            resolved(name)
            for name in (
                "lazily_made:Model",
                "antigravity:Model",
                "os:system",
                "os:path.join",
                f"{__name__}:Approval.model_fields",
                "",
                ":",
                "os",
                ":Approval",
            )
        ]
    finally:
        del sys.modules["lazily_made"]

    assert found == [None] * 9
    assert "antigravity" not in sys.modules


def test_the_shape_of_a_model_is_made_once_and_anew_when_its_module_is_loaded_anew():
    name, first = named(Paid), shape_of(named(Paid))
    assert shape_of(name) is first
    module = sys.modules[__name__]
    original = Paid
    try:
        module.Paid = type("Paid", (), {"__annotations__": {}})

        assert shape_of(name) is not first
    finally:
        module.Paid = original

    assert shape_of("nowhere:Model") is None


def test_the_schema_of_a_model_names_fields_as_senders_may_and_sorts_its_keys():
    schema = schema_of(Approval)

    told = msgspec.json.decode(schema)
    assert set(told["properties"]) == {"ok", "approvedBy"}
    assert told["required"] == ["ok"]
    assert list(told) == sorted(told)
    assert schema_of(Approval) is schema


def test_what_is_no_class_has_a_schema_too():
    assert msgspec.json.decode(schema_of(list[int])) == {"items": {"type": "integer"}, "type": "array"}
    assert msgspec.json.decode(schema_of(Annotated[int, Field(ge=3), []])) == {"minimum": 3, "type": "integer"}


def test_anything_and_what_pydantic_does_not_know_and_what_is_too_large_have_none():
    class Odd:
        pass

    wide = type("Wide", (BaseModel,), {"__annotations__": {f"field_number_{n}": int for n in range(400)}})

    none = [schema_of(model) for model in (Any, object, Odd, 3, wide)]

    assert [bytes(schema) for schema in none] == [b""] * 5
    for schema in none:  # and can be written: an empty text is no JSON
        body = events.HookCreated(op="0", token="t", schema=schema)
        assert events.decode_body(events.encode_body(body)) == body


def test_a_default_that_is_no_json_is_left_out_without_a_warning():
    class Lax(BaseModel):
        x: Any = object()

    assert msgspec.json.decode(schema_of(Lax))["properties"] == {"x": {"title": "X"}}


@pytest.mark.parametrize("text", ["a", "approve:42", "a/b c", "ключ-💳", "x" * 255])
def test_a_printable_text_can_be_a_token_and_the_id_of_a_delivery(text):
    assert checked_token(text) == text
    assert checked_delivery(text) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the token of a hook is empty: give 1 to 255 characters"),
        ("x" * 256, "the token of a hook has 256 characters, more than 255"),
        (" a", "the token of a hook ' a' begins or ends with a space: leave it out"),
        ("a\n", r"the token of a hook 'a\n' holds a character that cannot be shown: leave it out"),
        ("a\x00", r"the token of a hook 'a\x00' holds a character that cannot be shown: leave it out"),
        ("\ud800", r"the token of a hook '\ud800' holds a character that cannot be shown: leave it out"),
        ("a\u202eb", r"the token of a hook 'a\u202eb' holds a character that cannot be shown: leave it out"),
        (42, "the token of a hook is a text, not int"),
    ],
)
def test_an_odd_token_is_refused_in_one_sentence(text, why):
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        checked_token(text)


def test_of_a_token_that_was_drawn_people_see_the_beginning():
    assert shown("hook_" + "a1" * 16) == "hook_a1a1a1a1…"
    assert shown("approve:42") == "approve:42"
