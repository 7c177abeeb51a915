from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import threading
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from fencepost.actors.errors import FatalError, RetryAfter, StepFailed, StepLost, StepTimeout
from fencepost.actors.failures import CHAIN_MAX, EXCEPTIONS_MAX, MESSAGE_BYTES_MAX, describe, rebuild
from fencepost.world import events


class Declined(Exception):
    def __init__(self, code: int, *, hint: str) -> None:
        super().__init__(f"declined with {code}")
        self.code = code
        self.hint = hint
        self.when = datetime(2026, 1, 1, tzinfo=UTC)
        self.lock = threading.Lock()


class OddNew(Exception):
    def __new__(cls, left, right):  # noqa: ARG004  (the signature is the point)
        return super().__new__(cls, left)

    def __init__(self, left, right) -> None:
        super().__init__()
        self.both = (left, right)


@dataclasses.dataclass(frozen=True)
class AsData(Exception):
    code: int
    text: str


class NotFound(FileNotFoundError):
    pass


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Outer:
    class InnerError(Exception):
        pass


class Many(ExceptionGroup):
    def derive(self, excs):
        return Many(self.message, excs)


class Liar(Exception):
    def __reduce__(self):
        raise RuntimeError("no")


class Model(BaseModel):
    n: int


def raised(exc):
    try:
        raise exc  # noqa: TRY301  (it needs a traceback)
    except BaseException as caught:  # noqa: BLE001  (KeyboardInterrupt is among them)
        return caught


def there_and_back(exc, **about):
    data = msgspec.json.decode(msgspec.json.encode(describe(raised(exc))), type=events.ErrorData)
    return rebuild(data, **about)


def test_an_error_comes_back_as_its_own_type_with_its_attributes():
    back = there_and_back(Declined(51, hint="try another card"), step="charge", attempts=3)

    assert type(back) is Declined
    assert (str(back), back.code, back.hint) == ("declined with 51", 51, "try another card")
    assert back.when == datetime(2026, 1, 1, tzinfo=UTC)
    assert not hasattr(back, "lock")


def test_the_cause_of_what_comes_back_is_the_failed_step():
    back = there_and_back(Declined(51, hint=""), step="charge", attempts=3)

    failed = back.__cause__
    assert type(failed) is StepFailed
    assert (failed.step, failed.attempts, failed.kind) == ("charge", 3, f"{__name__}:Declined")
    assert str(failed) == "Declined: declined with 51"
    assert "raise exc" in failed.__notes__[0]


@pytest.mark.parametrize(
    "exc",
    [
        ValueError("plain"),
        ValueError(),
        KeyError("k"),
        OddNew(1, 2),
        AsData(1, "a"),
        Outer.InnerError("nested"),
        OSError(2, "no such file", "x.txt"),
        NotFound(2, "no such file", "x.txt"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        ModuleNotFoundError("no module", name="nope", path="x"),
        StopAsyncIteration("v"),
        asyncio.QueueEmpty(),
        TimeoutError("late"),
        FatalError("stop"),
        json.JSONDecodeError("bad", "{", 1),
        Liar("a", 1),
        ValueError("a\x00b\U0001f600", 10**30, b"\xff", {1, 2}),
    ],
)
def test_errors_of_every_make_come_back(exc):
    back = there_and_back(exc)

    assert type(back) is type(exc)
    assert str(back) == str(exc)
    assert back.args == exc.args
    assert {k: v for k, v in vars(back).items() if k != "__notes__"} == vars(exc)


def test_the_state_that_python_keeps_outside_of_attributes_comes_back():
    error = there_and_back(NotFound(2, "no such file", "x.txt"))

    assert (error.errno, error.strerror, error.filename) == (2, "no such file", "x.txt")
    assert there_and_back(ModuleNotFoundError("m", name="nope")).name == "nope"
    assert there_and_back(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")).object == b"\xff"


def test_a_retry_after_keeps_its_delay():
    assert there_and_back(RetryAfter("1h")).delay == "1h"
    assert there_and_back(RetryAfter(datetime(2026, 1, 1, tzinfo=UTC))).delay == datetime(2026, 1, 1, tzinfo=UTC)


def test_arguments_that_are_no_data_leave_type_and_message():
    back = there_and_back(ValueError("text", threading.Lock()))

    assert type(back) is ValueError
    assert "text" in str(back)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_what_would_end_the_node_never_comes_back_as_itself(kind):
    back = there_and_back(kind("reason"), step="s", attempts=1)

    assert type(back) is StepFailed
    assert str(back) == f"{kind.__name__}: reason"
    assert back.kind.endswith(f":{kind.__name__}")


@pytest.mark.parametrize(
    "name",
    [
        "nowhere.loaded:Error",
        "os:system",
        "builtins:int",
        "builtins:BaseException",
        "sys:modules",
        "",
        ":",
        "json",
        f"{__name__}:Gone",
        f"{__name__}:threading.ThreadError",
        f"{__name__}:there_and_back.__globals__",
    ],
)
def test_a_type_that_is_not_a_loaded_exception_is_a_failed_step(name):
    back = rebuild(events.ErrorData(type=name, message="m"), step="s", attempts=2)

    assert type(back) is StepFailed
    assert (back.step, back.attempts, back.kind) == ("s", 2, name)


def test_data_never_imports_a_module():
    assert "this" not in sys.modules

    rebuild(events.ErrorData(type="this:Error", message=""))
    rebuild(events.ErrorData(type="concurrent.futures:ProcessPoolExecutor", message=""))

    assert "this" not in sys.modules


def test_a_local_class_comes_back_as_a_failed_step():
    class Local(Exception):
        pass

    assert type(there_and_back(Local("m"))) is StepFailed


def test_an_error_without_constructor_comes_back_as_a_failed_step():
    with pytest.raises(ValueError, match="n") as caught:
        Model(n="x")

    back = there_and_back(caught.value)

    assert type(back) is StepFailed
    assert "valid integer" in str(back)


def test_an_error_whose_text_raises_is_still_described():
    data = describe(raised(Silent("x")))

    assert "Silent" in data.message
    assert type(rebuild(data)) is StepFailed


def test_the_chain_of_causes_comes_back_below_the_failed_step():
    def fail():
        try:
            try:
                raise KeyError("root")  # noqa: TRY301  (a chain is made by catching)
            except KeyError as root:
                raise ValueError("middle") from root
        except ValueError:
            raise TypeError("top")  # noqa: B904  (the implicit context is the point)

    with pytest.raises(TypeError) as caught:
        fail()

    back = rebuild(describe(caught.value))

    failed = back.__cause__
    assert type(failed) is StepFailed
    middle = failed.cause
    assert (type(middle), str(middle)) == (ValueError, "middle")
    assert type(middle.__cause__) is KeyError


def test_a_suppressed_context_is_not_told():
    def fail():
        try:
            raise KeyError("hidden")  # noqa: TRY301  (a chain is made by catching)
        except KeyError:
            raise ValueError("shown") from None

    with pytest.raises(ValueError, match="shown") as caught:
        fail()

    assert describe(caught.value).cause is None


def test_a_group_comes_back_with_its_members():
    back = there_and_back(Many("several", [ValueError("a"), Many("inner", [Declined(1, hint="h")])]))

    assert type(back) is Many
    assert back.message == "several"
    assert [type(e) for e in back.exceptions] == [ValueError, Many]
    assert back.exceptions[1].exceptions[0].code == 1


def test_a_group_with_an_interrupt_is_a_failed_step():
    assert type(there_and_back(BaseExceptionGroup("g", [KeyboardInterrupt()]))) is StepFailed


def test_a_member_that_cannot_be_rebuilt_is_a_failed_step_inside_the_group():
    class Local(Exception):
        pass

    back = there_and_back(ExceptionGroup("g", [Local("x"), ValueError()]))

    assert [type(e) for e in back.exceptions] == [StepFailed, ValueError]


@pytest.mark.parametrize("exc", [StepTimeout("late", step="s", attempts=2), StepLost("lost", step="s")])
def test_verdicts_come_back_as_they_are(exc):
    back = there_and_back(exc, step="s", attempts=2)

    assert type(back) is type(exc)
    assert (back.step, back.attempts) == ("s", 2)
    assert back.__cause__ is None


def test_notes_come_back():
    exc = ValueError("x")
    exc.add_note("a note")

    assert there_and_back(exc).__notes__ == ["a note"]


def test_nothing_is_unbounded():
    exc = ValueError("x" * 10_000_000)
    exc.big = "y" * 10_000_000
    for n in range(100):
        outer = ValueError(f"{n}" * 100_000)
        outer.__cause__ = exc
        exc = outer
    wide = ExceptionGroup("wide", [ValueError("z" * 100_000) for _ in range(1000)])
    wide.__cause__ = exc

    data = describe(wide)

    assert len(msgspec.json.encode(data)) < 1024 * 1024
    assert len(describe(ValueError("x" * 10**7)).message) <= MESSAGE_BYTES_MAX
    assert len(data.group) <= EXCEPTIONS_MAX
    depth, cause = 0, describe(exc)
    while cause is not None:
        depth, cause = depth + 1, cause.cause
    assert depth <= CHAIN_MAX + 1


def test_a_circle_of_causes_ends():
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one

    assert describe(one).cause.cause is None


def test_halves_of_surrogate_pairs_do_not_break_the_log():
    data = describe(ValueError("a\ud800b"))

    assert msgspec.json.decode(msgspec.json.encode(data))["message"] == "a\\ud800b"


def test_a_deep_recursion_keeps_its_last_frames():
    def down():
        return down()

    with pytest.raises(RecursionError) as caught:
        down()

    data = describe(caught.value)

    assert 0 < len(data.traceback) <= 16 * 1024
    assert "return down()" in data.traceback


@given(st.lists(st.one_of(st.none(), st.integers(), st.text(), st.binary(), st.floats(allow_nan=False)), max_size=4))
def test_any_arguments_come_back_or_leave_the_message(args):
    back = there_and_back(ValueError(*args))

    assert type(back) is ValueError
    assert back.args == tuple(args)


def test_what_comes_back_is_the_same_each_time():
    data = describe(raised(Declined(51, hint="h")))

    one, two = rebuild(data, step="s", attempts=1), rebuild(data, step="s", attempts=1)

    assert vars(one) == vars(two)
    assert str(one.__cause__) == str(two.__cause__)
    assert one.__cause__.__notes__ == two.__cause__.__notes__
