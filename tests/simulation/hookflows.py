"""Programs that wait for the outside, beside steps and timers. What each took is in its result, for the checkers.

Every payload is a word, and each program ends when it reads `STOP`, which the outside says once all is quiet.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

from fencepost.actors import Hook, HookConflict, hook, sleep, timeout, workflow
from tests.simulation.flows import kept, once, work

STOP = "stop"
TOOK: ContextVar[list[list[str]]] = ContextVar("took")


async def take(box: Hook[Any]) -> str:
    """Take the next payload, and note it."""
    payload = str(await box)
    TOOK.get().append([box._path, payload])
    return payload


def told(history: Any) -> dict[str, Any]:
    """Return a result: what was taken, and what came of it."""
    return {"took": TOOK.get(), "history": history}


@workflow
async def approval(token: str) -> Any:
    """One payload against a deadline, and another step for each way out."""
    TOOK.set([])
    history: list[Any] = []
    box = hook(token, model=str)
    try:
        async with timeout(1.0):
            history.append(await take(box))
        history.append(await kept(work("approved")))
    except TimeoutError:
        history += [await kept(once("late")), await kept(work("reminded"))]
    except HookConflict as conflict:
        history.append(conflict.token)
    return told(history)


@workflow
async def listener(token: str) -> Any:
    """All payloads that come, a step for each."""
    TOOK.set([])
    history: list[Any] = []
    try:
        async with hook(token, model=str) as box:
            async for payload in box:
                TOOK.get().append([box._path, payload])
                if payload.startswith(STOP) or len(history) == 6:
                    break
                history.append(await kept(work(f"of {payload}")))
    except HookConflict as conflict:
        history.append([conflict.token, await kept(once("taken"))])
    return told(history)


@workflow
async def anew(token: str) -> Any:
    """One token, made and disposed again and again, each time against a deadline."""
    TOOK.set([])
    history: list[Any] = []
    for turn in range(4):
        try:
            async with hook(token, model=str) as box, timeout(0.5):
                history.append(await take(box))
        except TimeoutError:
            history.append(await kept(work(f"nothing {turn}")))
        except HookConflict:
            await sleep(0.2)
            history.append("conflict")
    return told(history)


@workflow
async def branches(token: str) -> Any:
    """Staggered branches: launch, then a hook against a timer, then a finish that depends on who came first."""
    TOOK.set([])

    async def branch(number: int) -> Any:
        await kept(work(f"launch {number}"))
        got = asyncio.create_task(kept(take(hook(f"{token}.{number}", model=str))))
        timer = asyncio.create_task(sleep(0.4 + 0.1 * number))
        done, _ = await asyncio.wait({got, timer}, return_when=asyncio.FIRST_COMPLETED)
        if got in done:
            timer.cancel()
            return [got.result(), await kept(work(f"finish {number}"))]
        return ["late", await kept(once(f"late {number}")), await kept(work(f"finish {number}"))]

    return told(await asyncio.gather(*(branch(number) for number in range(3))))


@workflow
async def heartbeat(token: str) -> Any:
    """One hook for many payloads, raced with a timer each time; who lost is waited for again."""
    TOOK.set([])
    history: list[Any] = []
    box = hook(token, model=str)
    got = asyncio.create_task(kept(take(box)))
    for beat in range(6):
        timer = asyncio.create_task(sleep(0.3))
        done, _ = await asyncio.wait({got, timer}, return_when=asyncio.FIRST_COMPLETED)
        history.append(len(done))
        if got in done:
            timer.cancel()
            history.append(got.result())
            if got.result().startswith((STOP, "HookConflict")):
                break
            got = asyncio.create_task(kept(take(box)))
        elif beat % 2:
            history.append(await kept(work(f"beat {beat}")))
    return told(history)


@workflow
async def later(token: str) -> Any:
    """A hook nobody waits for yet: what came meanwhile is there, in order."""
    TOOK.set([])
    history: list[Any] = []
    box = hook(token, model=str)
    history.append(await kept(work("before")))
    await sleep(0.8)
    try:
        async with timeout(0.3):
            while len(history) < 6:
                history.append(await take(box))
    except TimeoutError:
        history.append("enough")
    except HookConflict:
        history.append("conflict")
    box.dispose()
    return told([*history, await kept(once("after"))])


@workflow
async def step_or_word(token: str) -> Any:
    """A payload against a step, several times, with other steps after each; the loser is dropped."""
    TOOK.set([])
    history: list[Any] = []
    async with hook(token, model=str) as box:
        for turn in range(3):
            word = asyncio.create_task(kept(take(box)))
            body = asyncio.create_task(kept(work(f"b{turn}")))
            done, pending = await asyncio.wait({word, body}, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            history.append(word.result() if word in done else await kept(once(f"no word {turn}")))
            if word not in done:
                history.append(await kept(work(f"more {turn}")))
    return told(history)


@workflow
async def rivals(token: str) -> Any:
    """Two hooks of one run with one token: the second never is, and nothing that may rely on it is begun."""
    TOOK.set([])
    first, second = hook(token, model=str), hook(token, model=str)
    mailed = asyncio.create_task(kept(once("mail the second's token")))
    history: list[Any] = [await kept(take(second)), await mailed]
    first.dispose()
    async with hook(token, model=str) as third:
        try:
            async with timeout(0.6):
                history.append(await kept(take(third)))
        except TimeoutError:
            history.append("late")
    return told(history)


@workflow
async def hopeful(token: str) -> Any:
    """Wants a token until it has it, with the same steps whether or not: two such take turns."""
    TOOK.set([])
    history: list[Any] = []
    for turn in range(4):
        box = hook(token, model=str)
        sent = asyncio.create_task(kept(once(f"send {turn}")))
        try:
            async with timeout(0.7):
                history.append(await take(box))
        except TimeoutError:
            history.append("late")
        except HookConflict:
            await sleep(0.4)
        history.append(await sent)
        box.dispose()
    return told(history)


FLOWS = (approval, listener, anew, branches, heartbeat, later, step_or_word, rivals, hopeful)
