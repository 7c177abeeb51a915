"""What each floor shows has a sentence that says what it guarantees."""

import importlib
import inspect
import types

import pytest

FACES = ("fencepost", "fencepost.world", "fencepost.bus", "fencepost.actors")


def shown(face: types.ModuleType):
    """Yield the classes and functions of a face by name."""
    for name in getattr(face, "__all__", ()):
        thing = getattr(face, name)
        if inspect.isclass(thing) or inspect.isroutine(thing):
            yield name, thing


def is_said(name: str, thing) -> bool:
    """Tell whether a docstring was written; a dataclass without one gets its signature."""
    doc = inspect.getdoc(thing) or ""
    return bool(doc) and not doc.startswith(f"{name}(")


@pytest.mark.parametrize("face", FACES)
def test_everything_a_face_shows_says_what_it_is(face):
    module = importlib.import_module(face)

    assert [name for name, thing in shown(module) if not is_said(name, thing)] == []


@pytest.mark.parametrize("face", FACES)
def test_everything_a_face_shows_has_methods_that_say_what_they_do(face):
    module = importlib.import_module(face)

    silent = [
        f"{name}.{method}"
        for name, thing in shown(module)
        if inspect.isclass(thing) and thing.__module__.startswith("fencepost")
        for method, body in vars(thing).items()
        if inspect.isfunction(body) and not method.startswith("_") and not inspect.getdoc(getattr(thing, method))
    ]
    assert silent == []


@pytest.mark.parametrize("face", FACES)
def test_a_face_has_a_sentence_of_its_own(face):
    module = importlib.import_module(face)

    assert module.__doc__
