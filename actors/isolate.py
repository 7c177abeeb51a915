"""Steps in processes of their own, which can be killed: `isolate=True`, and steps that took their node with them.

One child makes one attempt at a time and is used again while it is healthy. Jobs and answers are JSON (`wire`);
nothing is pickled and nothing is inherited: a child finds the step by its module and name. When the node dies the
child sees the end of its pipe and ends too, in the middle of a body if need be.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING, Any, Final, cast

import msgspec

from . import wire
from .call import Call, Cancelled, Done, Failed, Lost, StepInfo, Succeeded, failed
from .errors import DefinitionError, FatalError, LifespanError
from .failures import rebuild
from .retry import is_hopeless
from .threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from fencepost.world import events

    from .call import Tell
    from .steploop import Lifespan

_START_MAX_S: Final = 60.0
"""How long a child may take until it serves: imports and the lifespan."""

_EXIT_MAX_S: Final = 3.0

_BOOT: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from fencepost.actors.isolated import main; main()"
)


def why_not(fn: Callable[..., Any]) -> str:
    """Return why another process cannot find a function, in one sentence; empty when it can."""
    module, qualname = getattr(fn, "__module__", ""), getattr(fn, "__qualname__", "")
    if module == "__main__":
        return f"{qualname} lives in the script that was started: move it into a module to isolate it"
    if "<" in qualname:
        return f"{qualname} is made inside a function: move it to the top of a module to isolate it"
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is not fn and getattr(found, "fn", None) is not fn:
        return f"{module}.{qualname} is another function by now: give it a name of its own to isolate it"
    return ""


class Isolated:
    """The children of a node. `begin`, `tell` and `kill` return at once."""

    def __init__(self, size: int, lifespan: Lifespan | None) -> None:
        self._lifespan = lifespan
        self._threads = Threads(size, "fencepost-isolated")
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._active: dict[str, Child] = {}

    def check(self, fn: Callable[..., Any]) -> None:
        """Refuse what a child could not find.

        Raises:
            DefinitionError: in one sentence, with the remedy.
        """
        reason = why_not(fn) or (why_not(self._lifespan) if self._lifespan else "")
        if reason:
            raise DefinitionError(f"isolate=True: {reason}")

    def begin(self, call: Call, info: StepInfo, began: Callable[[], None], ended: Callable[[Done], None]) -> None:
        """Make an attempt. `began` is called when the body is about to begin; both from another thread."""
        self._threads.submit(call.token, lambda: ended(self._conduct(call, info, began)))

    def withdraw(self, token: str) -> bool:
        """Take back an attempt that waits for a child."""
        return self._threads.withdraw(token)

    def tell(self, token: str) -> None:
        """Ask a body to stop."""
        if child := self._active.get(token):
            # In a thread: a child that does not read (a stopped one) would block the actors' loop, timers that
            # kill included. The thread ends with the child at the latest.
            threading.Thread(target=child.tell, args=(token,), name="fencepost-tell", daemon=True).start()

    def kill(self, token: str) -> None:
        """End a body, whatever it does."""
        if child := self._active.get(token):
            child.kill()

    def close(self) -> None:
        """End all children: idle ones leave their lifespan, others are killed. Blocks for a few seconds at most."""
        self._threads.close()
        with self._lock:
            idle, self._idle = self._idle, []
            active = list(self._active.values())
        for child in active:
            child.kill()
        for child in idle:
            child.close()

    # ---- in a thread of the pool

    def _conduct(self, call: Call, info: StepInfo, began: Callable[[], None]) -> Done:
        try:
            child = self._child(call.token)
        except OSError as exc:
            return Lost(f"no process could be started: {exc}")
        except Exception as exc:  # noqa: BLE001  (this thread must not die of it: the step would never end)
            return failed(_not_started(exc))
        try:
            done = self._converse(child, call, info, began)
        except Exception as exc:  # noqa: BLE001  (a frame that is none, an error that cannot be rebuilt)
            child.kill()
            done = Lost(f"the isolated process spoke nonsense: {type(exc).__name__}: {str(exc)[:200]}")
        with self._lock:
            del self._active[call.token]
            if child.healthy and not info.cancelled:
                self._idle.append(child)
                return done
        child.close()
        return done

    def _child(self, token: str) -> Child:
        """Take an idle child or start one, and make it known by the token, so that it can be told and killed."""
        with self._lock:
            child = self._idle.pop() if self._idle else None
        child = child or Child(_reference(self._lifespan) if self._lifespan else "")
        with self._lock:
            self._active[token] = child
        return child

    def _converse(self, child: Child, call: Call, info: StepInfo, began: Callable[[], None]) -> Done:
        try:
            child.ready()
            if info.cancelled:
                return Cancelled()
            began()
            return _done(child.ask(_job(call), info._tell_others))  # noqa: SLF001  (hidden from users only)
        except LifespanError as exc:
            return failed(exc)
        except (OSError, EOFError):
            reason = child.obituary()
            return Cancelled() if info.cancelled else Lost(reason)


class Child:
    """One isolated process. One thread talks to it; `tell` and `kill` come from others."""

    def __init__(self, lifespan: str) -> None:
        self._writing = threading.Lock()
        self._served = False
        self._killed = False
        self.healthy = True
        # A session of its own: Ctrl-C at the terminal is the node's business, and what the step has started can
        # be killed with it.
        self._process = subprocess.Popen(  # noqa: S603  (our own interpreter and a constant)
            [sys.executable, "-c", _BOOT, json.dumps(_module_path())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._stdin, self._stdout = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        self._lifespan = lifespan

    def ready(self) -> None:
        """Wait until it serves.

        Raises:
            LifespanError: its lifespan failed.
            EOFError, OSError: it died.
        """
        if self._served:
            return
        late = threading.Timer(_START_MAX_S, self.kill)
        late.daemon = True
        late.start()
        try:
            self._send(wire.Hello(self._lifespan))
            answer = self._hear()
        finally:
            late.cancel()
        if isinstance(answer, wire.Ready) and answer.error is not None:
            self.healthy = False
            raise LifespanError(f"in an isolated process: {answer.error.message}")
        self._served = True

    def ask(self, job: wire.Job, tell_others: Tell | None) -> wire.Answer:
        """Make an attempt and wait for its end; what it tells meanwhile is passed on.

        Raises:
            EOFError, OSError: it died.
        """
        self._send(job)
        while True:
            answer = self._hear()
            if isinstance(answer, wire.Answer) and answer.token == job.token:
                return answer
            if isinstance(answer, wire.Told) and tell_others is not None:
                tell_others(answer.topic, bytes(answer.body))

    def tell(self, token: str) -> None:
        """Ask the body to stop. A dead child hears nothing, which is as good."""
        with contextlib.suppress(OSError, ValueError):
            self._send(wire.Stop(token))

    def kill(self) -> None:
        """End the process and what it has started."""
        self.healthy, self._killed = False, True
        with contextlib.suppress(OSError):
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def obituary(self) -> str:
        """Say what it died of."""
        self.healthy = False
        self._wait()
        return _cause_of_death(self._process.returncode)

    def close(self) -> None:
        """Let it leave its lifespan, then make sure that it is gone."""
        with contextlib.suppress(OSError), self._writing:
            self._stdin.close()
        self._wait()
        self._stdout.close()

    def _wait(self) -> None:
        try:
            self._process.wait(_EXIT_MAX_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()

    def _send(self, message: wire.ToChild) -> None:
        with self._writing:
            wire.send(self._stdin, message)

    def _hear(self) -> wire.FromChild:
        answer = wire.from_child(self._stdout)
        if answer is None:
            raise EOFError
        return answer


def _module_path() -> list[str]:
    """Return where this process looks for modules. Imports pass over what is no text (a `Path`), and JSON cannot."""
    path: list[Any] = list(sys.path)
    return [entry for entry in path if isinstance(entry, str)]


def _not_started(exc: Exception) -> RuntimeError:
    error = RuntimeError(f"isolate=True: no process could be started: {type(exc).__name__}: {str(exc)[:200]}")
    error.__cause__ = exc
    return error


def _reference(fn: Callable[..., Any]) -> str:
    return f"{fn.__module__}:{fn.__qualname__}"


def _job(call: Call) -> wire.Job:
    return wire.Job(
        step=_reference(call.fn),
        run_id=call.run_id,
        op=call.op,
        step_name=call.step_name,
        args=msgspec.Raw(call.args),
        attempt=call.attempt,
        token=call.token,
        idempotency_key=call.idempotency_key,
        value_bytes_max=call.value_bytes_max,
    )


def _done(answer: wire.Answer) -> Done:
    if answer.result is not msgspec.UNSET:
        return Succeeded(bytes(answer.result))
    if answer.cancelled or answer.error is None:
        return Cancelled()
    return Failed(answer.error, _live(answer.error, hopeless=answer.hopeless))


def _live(error: events.ErrorData, *, hopeless: bool) -> BaseException:
    """Return an exception for the retry decision. A class that only the child has loaded must not change it."""
    exc = rebuild(error)
    return FatalError(error.message) if hopeless and not is_hopeless(exc) else exc


def _cause_of_death(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in {s.value for s in signal.Signals} else f"signal {-code}"
        return f"its isolated process was killed by {name}"
    return f"its isolated process ended with exit code {code}"
