"""What an event of the log gives to the code that waits for it: results and errors, read by their type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fencepost.world import events as ev

from . import failures

if TYPE_CHECKING:
    from .define import Step
    from .operations import Operation


class Stuck(Exception):
    """The run cannot go on until a person acts; the message says why, in one sentence with the line."""


def resolve(operation: Operation, body: ev.EventBody) -> None:
    """Give an operation's future its result or its error.

    Raises:
        Stuck: the recorded result does not fit its type any more.
    """
    assert operation.future is not None
    match body:
        case ev.StepCompleted(result=result):
            assert operation.step is not None
            operation.future.set_result(_decoded(operation.step, result))
        case ev.StepFailed(error=error, attempt=attempt):
            name = operation.step.name if operation.step else ""
            operation.future.set_exception(failures.rebuild(error, step=name, attempts=attempt))
        case _:
            operation.future.set_result(None)


def _decoded(step: Step[Any, Any], result: ev.Value) -> Any:
    try:
        return step.returns.decode(bytes(result.json))
    except Exception as error:
        raise Stuck(f"the recorded result of step {step.name!r} no longer fits its type: {error}") from error
